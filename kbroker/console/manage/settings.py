"""Settings of topics, of brokers, and of groups: set and taken away at run time."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from kbroker.config.judgement import find_row
from kbroker.console.manage.context import listed, plural
from kbroker.console.manage.plan import Action, Done, Plan, Table
from kbroker.console.parameters import BadParameterError
from kbroker.errors import refuse
from kbroker.schemas import wire

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kbroker.console.manage.context import Context
    from kbroker.console.manage.fields import Fields

ALL_BROKERS = ""
_HIDDEN = "(hidden)"


class Kind(IntEnum):
    """As Kafka numbers the resources of settings (`ConfigResource.Type`)."""

    TOPIC = 2
    BROKER = 4
    GROUP = 32


SET, DELETE = 0, 1
_DYNAMIC_SOURCES = {Kind.TOPIC: 1, Kind.BROKER: 2, Kind.GROUP: 8}
"""Where a setting comes from that was set on the resource itself (`ConfigSource`)."""
_DEFAULT_BROKER_SOURCE = 3


def _resource(kind: Kind, fields: Fields, context: Context) -> tuple[str, int | None]:
    """The resource's name, and the broker to ask: any one for what all share, a broker for its own."""
    if kind is not Kind.BROKER:
        return fields.text("name"), None
    name = fields.text("name", ALL_BROKERS)
    if name == ALL_BROKERS:
        return name, None
    node_id = fields.number("name", None, 0, (1 << 31) - 1)
    if node_id not in context.parts.services.metadata_cache.image.brokers:
        raise BadParameterError(f"there is no broker {node_id}")
    return str(node_id), node_id


async def _alter(context: Context, kind: Kind, fields: Fields, *, validate_only: bool) -> None:
    name, node_id = _resource(kind, fields, context)
    request = wire.IncrementalAlterConfigsRequest
    changes = [
        request.AlterableConfig(name=key, config_operation=SET, value=value)
        for key, value in fields.settings("set").items()
    ] + [request.AlterableConfig(name=key, config_operation=DELETE, value=None) for key in fields.texts("unset")]
    if not changes:
        raise BadParameterError("no setting is named")
    resource = request.AlterConfigsResource(resource_type=kind, resource_name=name, configs=changes)
    answer = await context.client.ask(
        wire.IncrementalAlterConfigsResponse, request(resources=[resource], validate_only=validate_only), node_id
    )
    for row in answer.responses:
        refuse(row.error_code, row.error_message)


async def _values(context: Context, kind: Kind, fields: Fields) -> dict[str, tuple[str | None, bool]]:
    """What is set on the resource itself, and what holds otherwise: values, and whether they are its own."""
    name, node_id = _resource(kind, fields, context)
    request = wire.DescribeConfigsRequest
    resource = request.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
    answer = await context.client.ask(wire.DescribeConfigsResponse, request(resources=[resource]), node_id)
    (result,) = answer.results
    refuse(result.error_code, result.error_message)
    own = _DEFAULT_BROKER_SOURCE if kind is Kind.BROKER and name == ALL_BROKERS else _DYNAMIC_SOURCES[kind]
    return {row.name: (_HIDDEN if row.is_sensitive else row.value, row.config_source == own) for row in result.configs}


def _planner(kind: Kind) -> Callable[[Context, Fields], Awaitable[Plan]]:
    async def plan(context: Context, fields: Fields) -> Plan:
        """By the broker itself, which checks names, values and rights."""
        for key in fields.settings("set") if kind is Kind.BROKER else ():
            row, _, _ = find_row(key)
            if row is not None and row.sensitive:
                raise BadParameterError(f"{key} is a secret, which is not set in a browser: use kafka-configs")
        await _alter(context, kind, fields, validate_only=True)
        before = await _values(context, kind, fields)
        name, _ = _resource(kind, fields, context)
        rows = []
        for key, value in fields.settings("set").items():
            old, is_own = before.get(key, (None, False))
            rows.append((key, _told(old, is_own), value))
        for key in fields.texts("unset"):
            old, is_own = before.get(key, (None, False))
            rows.append((key, _told(old, is_own), "the default"))
        whom = {
            Kind.TOPIC: f"the topic {name}",
            Kind.GROUP: f"the group {name}",
            Kind.BROKER: f"broker {name}" if name else "all brokers",
        }[kind]
        warnings = []
        if kind is Kind.TOPIC and any(row[0].startswith("retention.") or row[0] == "cleanup.policy" for row in rows):
            warnings.append("What is older or larger than the settings allow then is deleted within minutes.")
        return Plan(
            f"Change settings of {whom}",
            [f"{plural(len(rows), 'setting')} of {whom} {'changes' if len(rows) == 1 else 'change'}, at once."],
            {"name": name, "set": fields.settings("set"), "unset": fields.texts("unset")},
            [list(row[:2]) for row in rows],
            warnings,
            Table(("Setting", "Now", "Then"), rows),
            button="Change them",
        )

    return plan


def _told(value: str | None, is_own: bool) -> str:
    return "not set" if value is None else value if is_own else f"{value} (not set here)"


def _performer(kind: Kind) -> Callable[[Context, Fields, Plan], Awaitable[Done]]:
    async def perform(context: Context, fields: Fields, plan: Plan) -> Done:
        """What the plan says."""
        await _alter(context, kind, fields, validate_only=False)
        given, taken = fields.settings("set"), fields.texts("unset")
        said = [f"Set: {listed(dict.fromkeys(given, '…') if kind is Kind.BROKER else given)}."] if given else []
        return Done(said + ([f"Back to the default: {', '.join(taken)}."] if taken else []))

    return perform


ACTIONS = {
    "topic.configure": Action(_planner(Kind.TOPIC), _performer(Kind.TOPIC)),
    "broker.configure": Action(_planner(Kind.BROKER), _performer(Kind.BROKER)),
    "group.configure": Action(_planner(Kind.GROUP), _performer(Kind.GROUP)),
}
