"""IncrementalAlterConfigs (API 44): v0-v1.  AlterConfigs (API 33): v0-v2.

Change settings of topics, brokers, groups and client metrics.  One result per resource; each resource changes whole or
not at all, and the others go on.  With `validate_only` nothing changes.

- Incremental: SET, DELETE (back to the default), and for lists of topics and brokers APPEND and SUBTRACT.
- AlterConfigs replaces all settings of the resource: those not named go back to their defaults.
- The controller checks and stores settings; a topic's take effect in its logs before the answer.
- Brokers: the empty name stands for all of them.  `kbroker.metadata.broker_settings` says what can be changed while
  kbroker runs.
- Loggers: only by the incremental API, with SET and DELETE; `kbroker.handlers.topics.loggers`.

v1 of the one and v2 of the other are flexible versions without new fields.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Sequence
from typing import TYPE_CHECKING, TypeVar

from kbroker._fast.wire.disposal import Disposal
from kbroker.cluster.config_changes import ConfigResourceType
from kbroker.cluster.requests import ConfigAlteration, ConfigEdit, EditOperation
from kbroker.config import broker_config_rows, client_metrics_rows, group_config_rows, topic_config_rows
from kbroker.errors import ErrorCode, InvalidRequestError, KafkaError, bare
from kbroker.gate.access import may_cluster, require_cluster, require_group, require_topic
from kbroker.handlers.table import Handler
from kbroker.handlers.topics import loggers
from kbroker.metadata.image import ConfigResource
from kbroker.network.pieces import in_pieces
from kbroker.protocol.api import ApiKey
from kbroker.schemas import wire
from kbroker.security.authorizer import Operation

if TYPE_CHECKING:
    from kbroker._fast.base.slices import Pace
    from kbroker._fast.wire.codec import Struct
    from kbroker.handlers.cluster.forwarded_errors import ConfigResource as Resource
    from kbroker.handlers.cluster.forwarded_errors import ConfigRow as Row
    from kbroker.handlers.services import RequestContext, Services

    Answer = TypeVar("Answer", wire.AlterConfigsResponse, wire.IncrementalAlterConfigsResponse)
    ResourceT = TypeVar("ResourceT", bound=Resource)
    SettingT = TypeVar(
        "SettingT", wire.AlterConfigsRequest.AlterableConfig, wire.IncrementalAlterConfigsRequest.AlterableConfig
    )

# More settings, or loggers, than there are.
MANY_SETTINGS = 1_000
_OF_BROKERS = (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER)
_NAMES = frozenset(
    row.name
    for rows in (topic_config_rows(), broker_config_rows(), group_config_rows(), client_metrics_rows())
    for row in rows
)


async def handle_incremental_alter_configs(ctx: RequestContext, request: wire.IncrementalAlterConfigsRequest) -> Struct:
    """IncrementalAlterConfigs v0-v1; see the module's docstring."""

    async def plan(
        resource: wire.IncrementalAlterConfigsRequest.AlterConfigsResource, pace: Pace
    ) -> ConfigAlteration | None:
        configs = await telling(resource.resource_type, resource.configs, pace)
        check_values(configs, [config for config in configs if config.config_operation != EditOperation.DELETE])
        # Kafka's controllers look at rights first, its brokers at the operations.
        target = None if resource.resource_type in _OF_BROKERS else _resource(ctx, resource)
        edits = []
        for config in configs:
            await pace
            operation = operation_of(resource.resource_type, config.config_operation)
            edits.append(ConfigEdit(config.name, operation, config.value or ""))
        if resource.resource_type == ConfigResourceType.BROKER_LOGGER:
            alter_loggers(ctx, resource.resource_name, edits, request.validate_only)
            return None
        return ConfigAlteration(target or _resource(ctx, resource), edits)

    return await _answer(
        ctx.services, wire.IncrementalAlterConfigsResponse, request.resources, request.validate_only, plan
    )


async def handle_alter_configs(ctx: RequestContext, request: wire.AlterConfigsRequest) -> Struct:
    """AlterConfigs v0-v2; see the module's docstring."""

    async def plan(resource: wire.AlterConfigsRequest.AlterConfigsResource, pace: Pace) -> ConfigAlteration | None:
        if resource.resource_type == ConfigResourceType.BROKER_LOGGER:
            raise InvalidRequestError(f"Unknown resource type {resource.resource_type}")
        configs = await telling(resource.resource_type, resource.configs, pace)
        check_values(configs, configs)
        edits = [ConfigEdit(config.name, EditOperation.SET, config.value or "") for config in configs]
        return ConfigAlteration(_resource(ctx, resource), edits, replace=True)

    return await _answer(ctx.services, wire.AlterConfigsResponse, request.resources, request.validate_only, plan)


async def _answer(
    services: Services,
    response: type[Answer],
    resources: Sequence[ResourceT],
    validate_only: bool,
    plan: Callable[[ResourceT, Pace], Awaitable[ConfigAlteration | None]],
) -> Answer:
    pace = services.slices.pace()
    repeated = await repeated_resources(resources, pace)
    rows = []
    asked: list[Row] = []
    alterations: list[ConfigAlteration] = []
    for resource in resources:
        await pace
        row = response.AlterConfigsResourceResponse(
            resource_type=resource.resource_type, resource_name=resource.resource_name, error_message=None
        )
        rows.append(row)
        try:
            check_once(resource, repeated)
            alteration = await plan(resource, pace)
        except KafkaError as error:
            _refuse(row, error)
            continue
        if alteration is not None:
            asked.append(row)
            alterations.append(alteration)
    if alterations:
        errors: Sequence[KafkaError | None]
        try:
            errors = await services.administration.alter_configs(alterations, validate_only)
        except KafkaError as error:
            errors = [bare(error)] * len(alterations)
        for each, found in zip(asked, errors, strict=True):
            await pace
            if found is not None:
                _refuse(each, found)
        for done in (errors, alterations, asked):
            await in_pieces(Disposal(done), pace)
    return response(responses=rows)


def _refuse(row: Row, error: KafkaError) -> None:
    row.error_code, row.error_message = error.code, error.message


async def repeated_resources(resources: Sequence[Resource], pace: Pace) -> set[tuple[int, str]]:
    """Types and names of the resources that a request has more than once."""
    seen: set[tuple[int, str]] = set()
    repeated: set[tuple[int, str]] = set()
    for resource in resources:
        await pace
        key = resource.resource_type, resource.resource_name
        (repeated if key in seen else seen).add(key)
    return repeated


def check_once(resource: Resource, repeated: Container[tuple[int, str]]) -> None:
    """InvalidRequestError for one of the repeated resources."""
    if (resource.resource_type, resource.resource_name) in repeated:
        raise InvalidRequestError("Each resource must appear at most once.")


async def telling(resource_type: int, configs: Sequence[SettingT], pace: Pace) -> Sequence[SettingT]:
    """The settings of a request's resource that the answer depends on: all, unless it names more than exist.

    If it names more: the settings that exist, and the first unknown one, which is refused.  Deleting an unknown setting
    changes nothing, except for a logger.
    """
    if len(configs) <= MANY_SETTINGS:
        return configs
    seen: set[str] = set()
    telling: list[SettingT] = []
    others = 0
    for config in configs:
        await pace
        if config.name in seen:
            return [config, config]
        seen.add(config.name)
        if config.name in _NAMES:
            telling.append(config)
        elif others < MANY_SETTINGS and (
            resource_type == ConfigResourceType.BROKER_LOGGER
            or getattr(config, "config_operation", EditOperation.SET) != EditOperation.DELETE
        ):
            telling.append(config)
            others += 1
    return telling


def check_values(configs: Sequence[SettingT], with_value: Sequence[SettingT]) -> None:
    """InvalidRequestError for a setting that is named twice, or that has no value and needs one (`with_value`)."""
    if len({config.name for config in configs}) < len(configs):
        raise InvalidRequestError("Error due to duplicate config keys")
    missing = [config.name for config in with_value if config.value is None]
    if missing:
        raise InvalidRequestError(f"Null value not supported for : {', '.join(missing)}")


def operation_of(resource_type: int, number: int) -> EditOperation:
    """What a request does with a setting.  Where Kafka has no such operation, its error, for which it has words at
    brokers alone."""
    try:
        return EditOperation(number)
    except ValueError:
        if resource_type == ConfigResourceType.BROKER:
            raise InvalidRequestError(f"Unknown operations type {number}") from None
        raise KafkaError.of(ErrorCode.UNKNOWN_SERVER_ERROR) from None


def _resource(ctx: RequestContext, resource: Resource) -> ConfigResource:
    """What is to be changed.  InvalidRequestError for another broker than this one, KafkaError where the client may not
    change it."""
    services = ctx.services
    name = resource.resource_name
    if resource.resource_type == ConfigResourceType.BROKER and name:
        name = own_broker(services, name)
    if resource.resource_type == ConfigResourceType.TOPIC:
        require_topic(ctx, Operation.ALTER_CONFIGS, name)
    elif resource.resource_type == ConfigResourceType.GROUP:
        require_group(ctx, Operation.ALTER_CONFIGS, name)
    elif resource.resource_type in set(ConfigResourceType):
        require_cluster(ctx, Operation.ALTER_CONFIGS)
    return ConfigResource(resource.resource_type, name)


def own_broker(services: Services, name: str) -> str:
    """The resource of this broker.  InvalidRequestError where `name` is another one's, and this is no controller."""
    node_id = node_id_of(name)
    if node_id != services.node_id and not services.view.changes_every_broker:
        raise InvalidRequestError(f"Unexpected broker id, expected {services.node_id}, but received {node_id}")
    return str(node_id)


def node_id_of(name: str) -> int:
    """The number of a broker that a resource names.  InvalidRequestError where it is none."""
    try:
        return int(name)
    except ValueError:
        raise InvalidRequestError(f"Node id must be an integer, but it is: {name}") from None


def alter_loggers(ctx: RequestContext, name: str, edits: Sequence[ConfigEdit], validate_only: bool) -> None:
    """Set levels of this process's loggers.  KafkaError, and no change, where the client may not, one is refused or
    `name` is another node."""
    if not may_cluster(ctx, Operation.ALTER_CONFIGS):
        # Kafka has no words for this one.
        raise KafkaError.of(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    services, node_id = ctx.services, node_id_of(name)
    if node_id != services.node_id:
        raise InvalidRequestError(f"Unexpected node id. Expected {services.node_id}, but received {node_id}")
    for edit in edits:
        if edit.operation >= EditOperation.APPEND:
            raise InvalidRequestError(f"{edit.operation.name} operation is not allowed for the BROKER_LOGGER resource")
    loggers.change(
        [(edit.name, edit.value if edit.operation is EditOperation.SET else None) for edit in edits], validate_only
    )
    if services.authorizer is not None:
        # What it allows is noted, or no longer, from the next request on.
        services.authorizer.tell()


HANDLERS: tuple[Handler, ...] = (
    Handler(ApiKey.ALTER_CONFIGS, 0, 2, handle_alter_configs),
    Handler(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1, handle_incremental_alter_configs),
)
