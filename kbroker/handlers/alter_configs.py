"""IncrementalAlterConfigs (API 44): v0-v1.  AlterConfigs (API 33): v0-v2.

Change settings of topics and of brokers.  One result per resource; each resource changes whole or not at all, and the
others go on.  With `validate_only` nothing changes.

- Incremental: SET, DELETE (back to the default), and for lists APPEND and SUBTRACT, which start from the topic's own
  value or, where it has none, from its default.  Deleting what is not set, or not known, succeeds, as in Kafka.
- AlterConfigs replaces all settings of the resource: those not named go back to their defaults.
- Topics: the result is validated as at creation, stored, and rules the topic's logs before the answer leaves.
- Brokers: the empty name stands for all of them.  `kbroker.metadata.broker_settings` says what can be changed while
  kbroker runs.
- Loggers: only by the incremental API, with SET and DELETE; `kbroker.handlers.loggers`.
- Client metrics and groups have no settings here: INVALID_REQUEST.

v1 of the one and v2 of the other are flexible versions without new fields.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from kbroker._fast.wire.disposal import Disposal
from kbroker.config import (
    ConfigRow,
    ConfigType,
    broker_config_rows,
    render_value,
    topic_config_rows,
    topic_value_from_broker,
)
from kbroker.errors import InvalidConfigError, InvalidRequestError, KafkaError
from kbroker.handlers import loggers
from kbroker.handlers.configs import ResourceType
from kbroker.handlers.table import Handler
from kbroker.metadata.topic_names import validate
from kbroker.network.pieces import in_pieces
from kbroker.protocol.api import ApiKey
from kbroker.schemas import wire

if TYPE_CHECKING:
    from kbroker._fast.base.slices import Pace
    from kbroker._fast.wire.codec import Struct
    from kbroker.handlers.services import RequestContext, Services

    Answer = TypeVar("Answer", wire.AlterConfigsResponse, wire.IncrementalAlterConfigsResponse)

MAX_VALUE_BYTES = 32_767
# More settings, or loggers, than there are.
MANY_SETTINGS = 1_000

Settings = dict[str, str]
Change = Callable[[Mapping[str, str]], Settings]
"""What a request makes of a resource's own settings."""


class Operation(IntEnum):
    """What to do with one setting, as Kafka numbers it."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


_TOPIC_ROWS: Mapping[str, ConfigRow] = {row.name: row for row in topic_config_rows()}
_BROKER_NAMES = frozenset(row.name for row in broker_config_rows())


class Edit(NamedTuple):
    """One operation of a request."""

    name: str
    operation: Operation
    value: str


async def handle_incremental_alter_configs(ctx: RequestContext, request: wire.IncrementalAlterConfigsRequest) -> Struct:
    """IncrementalAlterConfigs v0-v1; see the module's docstring."""

    async def plan(resource: Any, pace: Pace) -> Change | None:
        configs = await _telling(resource, pace)
        _check_values(configs, [config for config in configs if config.config_operation != Operation.DELETE])
        edits = [Edit(config.name, _operation(config), config.value or "") for config in configs]
        if resource.resource_type == ResourceType.BROKER_LOGGER:
            _alter_loggers(ctx.services, resource.resource_name, edits, request.validate_only)
            return None
        for_topic = resource.resource_type == ResourceType.TOPIC
        return _topic_edits(ctx.services, edits) if for_topic else _broker_edits(ctx.services, edits)

    return await _answer(ctx.services, wire.IncrementalAlterConfigsResponse, request, plan)


async def handle_alter_configs(ctx: RequestContext, request: wire.AlterConfigsRequest) -> Struct:
    """AlterConfigs v0-v2; see the module's docstring."""

    async def plan(resource: Any, pace: Pace) -> Change | None:
        if resource.resource_type == ResourceType.BROKER_LOGGER:
            raise InvalidRequestError(f"Unknown resource type {resource.resource_type}")
        configs = await _telling(resource, pace)
        _check_values(configs, configs)
        return lambda _: {config.name: config.value for config in configs}

    return await _answer(ctx.services, wire.AlterConfigsResponse, request, plan)


async def _answer(
    services: Services,
    response: type[Answer],
    request: wire.AlterConfigsRequest | wire.IncrementalAlterConfigsRequest,
    plan: Callable[[Any, Pace], Awaitable[Change | None]],
) -> Answer:
    pace = services.slices.pace()
    counts: Counter[tuple[int, str]] = Counter()
    for resource in request.resources:
        await pace
        counts[resource.resource_type, resource.resource_name] += 1
    rows = []
    topics: list[tuple[Any, str, Change]] = []
    for resource in request.resources:
        await pace
        row = response.AlterConfigsResourceResponse(
            resource_type=resource.resource_type, resource_name=resource.resource_name, error_message=None
        )
        rows.append(row)
        try:
            if counts[resource.resource_type, resource.resource_name] > 1:
                raise InvalidRequestError("Each resource must appear at most once.")
            change = await plan(resource, pace)
            _check_kind(resource.resource_type)
            if change is None:
                continue
            if resource.resource_type == ResourceType.TOPIC:
                _check_topic(resource.resource_name)
                topics.append((row, resource.resource_name, change))
            else:
                await _alter_broker(services, resource.resource_name, change, request.validate_only)
        except KafkaError as error:
            _refuse(row, error)
    if topics:
        await _alter_topics(services, topics, pace, request.validate_only)
    return response(responses=rows)


def _refuse(row: Any, error: KafkaError) -> None:
    row.error_code, row.error_message = error.code, error.message


def _check_kind(resource_type: int) -> None:
    if resource_type in (ResourceType.TOPIC, ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        return
    try:
        name = ResourceType(resource_type).name
    except ValueError:
        raise InvalidRequestError(f"Unknown resource type {resource_type}") from None
    raise InvalidRequestError(f"kbroker keeps no settings for resources of type {name}")


async def _telling(resource: Any, pace: Pace) -> Sequence[Any]:
    """The settings of a resource that the answer depends on: all, unless it names more than there are.

    Then those that are there, and the first of the others, which are refused.  To delete one that is not there is
    nothing to do, but for a logger.
    """
    configs: Sequence[Any] = resource.configs
    if len(configs) <= MANY_SETTINGS:
        return configs
    seen: set[str] = set()
    telling: list[Any] = []
    others = 0
    for config in configs:
        await pace
        if config.name in seen:
            return [config, config]
        seen.add(config.name)
        if config.name in _TOPIC_ROWS or config.name in _BROKER_NAMES:
            telling.append(config)
        elif others < MANY_SETTINGS and (
            resource.resource_type == ResourceType.BROKER_LOGGER
            or getattr(config, "config_operation", Operation.SET) != Operation.DELETE
        ):
            telling.append(config)
            others += 1
    return telling


def _check_values(configs: Sequence[Any], with_value: Sequence[Any]) -> None:
    if len({config.name for config in configs}) < len(configs):
        raise InvalidRequestError("Error due to duplicate config keys")
    missing = [config.name for config in with_value if config.value is None]
    if missing:
        raise InvalidRequestError(f"Null value not supported for : {', '.join(missing)}")


def _operation(config: Any) -> Operation:
    try:
        return Operation(config.config_operation)
    except ValueError:
        raise InvalidRequestError(f"Unknown operation type {config.config_operation}") from None


# Topics


def _topic_edits(services: Services, edits: Sequence[Edit]) -> Change:
    for edit in edits:
        row = _TOPIC_ROWS.get(edit.name)
        if edit.operation >= Operation.APPEND and (row is None or row.type is not ConfigType.LIST):
            raise InvalidConfigError(f"Can't {edit.operation.name} to key {edit.name} because its type is not LIST.")

    def default(name: str) -> str:
        return render_value(topic_value_from_broker(name, services.config)) or ""

    return lambda own: apply_edits(own, edits, default)


def _check_topic(name: str) -> None:
    if not name:
        raise InvalidRequestError("Default topic resources are not allowed.")
    validate(name)


async def _alter_topics(
    services: Services, topics: list[tuple[Any, str, Change]], pace: Pace, validate_only: bool
) -> None:
    """All topics of a request in one transaction."""
    changes = []
    for _, name, change in topics:
        await pace
        changes.append((name, change))
    try:
        outcomes = await services.topics.change_configs_of(changes, validate_only)
    except KafkaError as error:
        for row, _, _ in topics:
            _refuse(row, error)
        return
    for (row, _, _), outcome in zip(topics, outcomes, strict=True):
        await pace
        if outcome.error is not None:
            _refuse(row, outcome.error)
    for done in (outcomes, changes, topics):
        await in_pieces(Disposal(done), pace)


# Brokers


def _broker_edits(services: Services, edits: Sequence[Edit]) -> Change:
    settings = services.broker_settings

    def change(own: Mapping[str, str]) -> Settings:
        for edit in edits:
            if edit.operation >= Operation.APPEND and not settings.is_list(edit.name):
                raise InvalidConfigError(
                    f"Config value {edit.operation.name.lower()} is not allowed for config key: {edit.name}"
                )
        return apply_edits(own, edits, lambda name: render_value(services.config.get(name)) or "")

    return change


async def _alter_broker(services: Services, name: str, change: Change, validate_only: bool) -> None:
    settings = services.broker_settings
    if name:
        node_id = _node_id(name)
        if node_id != services.node_id:
            raise InvalidRequestError(f"Unexpected broker id, expected {services.node_id}, but received {node_id}")
        name = str(node_id)
    await settings.change(name, change, validate_only)


def _node_id(name: str) -> int:
    try:
        return int(name)
    except ValueError:
        raise InvalidRequestError(f"Node id must be an integer, but it is: {name}") from None


def _alter_loggers(services: Services, name: str, edits: Sequence[Edit], validate_only: bool) -> None:
    node_id = _node_id(name)
    if node_id != services.node_id:
        raise InvalidRequestError(f"Unexpected node id. Expected {services.node_id}, but received {node_id}")
    for edit in edits:
        if edit.operation >= Operation.APPEND:
            raise InvalidRequestError(f"{edit.operation.name} operation is not allowed for the BROKER_LOGGER resource")
    loggers.change(
        [(edit.name, edit.value if edit.operation is Operation.SET else None) for edit in edits], validate_only
    )


def apply_edits(own: Mapping[str, str], edits: Sequence[Edit], default: Callable[[str], str]) -> Settings:
    """The settings that `edits` make of `own`.  `default(name)`: the value of a list that is not in `own`."""
    settings = dict(own)
    for name, operation, value in edits:
        if operation is Operation.SET:
            settings[name] = value
        elif operation is Operation.DELETE:
            settings.pop(name, None)
        else:
            items = _items(settings[name] if name in settings else default(name))
            known, named = frozenset(items), dict.fromkeys(_items(value))
            if operation is Operation.APPEND:
                items += [item for item in named if item not in known]
            else:
                items = [item for item in items if item not in named]
            settings[name] = _fitting(",".join(items))
    return settings


def _fitting(value: str) -> str:
    """Longer than a string on the wire may be, the setting could not be described any more."""
    if len(value.encode()) > MAX_VALUE_BYTES:
        raise InvalidConfigError(
            f"The configuration value cannot be added because it exceeds the maximum value size of {MAX_VALUE_BYTES} "
            "bytes."
        )
    return value


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


HANDLERS: tuple[Handler, ...] = (
    Handler(ApiKey.ALTER_CONFIGS, 0, 2, handle_alter_configs),
    Handler(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1, handle_incremental_alter_configs),
)
