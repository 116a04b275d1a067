"""Settings of topics, of brokers, and of groups: set and taken away at run time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.administration.configs import ALL_BROKERS, Kind, Source, alter_configs, describe_configs
from kbroker.config.judgement import find_row
from kbroker.console.manage.context import listed
from kbroker.console.manage.plan import Action, Done, Plan, Table
from kbroker.console.manage.retention_losses import warnings_of
from kbroker.console.manage.setting_words import in_words
from kbroker.console.parameters import BadParameterError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kbroker.console.manage.context import Context
    from kbroker.console.manage.fields import Fields

_HIDDEN = "(hidden)"
BY_DEFAULT = "the default"
_OWN_SOURCES = {Kind.TOPIC: Source.TOPIC, Kind.BROKER: Source.BROKER, Kind.GROUP: Source.GROUP}
"""Where a setting comes from that was set on the resource itself."""


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
    given, unset = fields.settings("set"), fields.texts("unset")
    if not given and not unset:
        raise BadParameterError("no setting is named")
    await alter_configs(context.client, kind, name, given, unset, node_id=node_id, validate_only=validate_only)


async def _values(context: Context, kind: Kind, fields: Fields) -> dict[str, tuple[str | None, bool]]:
    """What is set on the resource itself, and what holds otherwise: values, and whether they are its own."""
    name, node_id = _resource(kind, fields, context)
    found = await describe_configs(context.client, kind, [name], node_id=node_id)
    own = Source.ALL_BROKERS if kind is Kind.BROKER and name == ALL_BROKERS else _OWN_SOURCES[kind]
    return {row.name: (_HIDDEN if row.is_sensitive else row.value, row.config_source == own) for row in found[name]}


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
        changes = [(key, value) for key, value in fields.settings("set").items()]
        rows = [_row(key, value, before) for key, value in (*changes, *((key, None) for key in fields.texts("unset")))]
        whom = {
            Kind.TOPIC: f"the topic {name}",
            Kind.GROUP: f"the group {name}",
            Kind.BROKER: f"broker {name}" if name else "all brokers",
        }[kind]
        return Plan(
            f"Change settings of {whom}",
            [_sentence(row, before) for row in rows] + ["It holds at once."],
            {"name": name, "set": fields.settings("set"), "unset": fields.texts("unset")},
            [list(row[:2]) for row in rows],
            await warnings_of(context, fields) if kind is Kind.TOPIC else (),
            Table(("Setting", "Now", "Then"), rows),
            button="Change them",
        )

    return plan


def _row(key: str, value: str | None, before: dict[str, tuple[str | None, bool]]) -> tuple[str, str, str]:
    return key, _told(*before.get(key, (None, False))), BY_DEFAULT if value is None else value


def _sentence(row: tuple[str, str, str], before: dict[str, tuple[str | None, bool]]) -> str:
    """`retention.ms: 1 h → 2 h.`"""
    key, _, then = row
    now, _ = before.get(key, (None, False))
    return f"{key}: {in_words(key, now)} → {then if then == BY_DEFAULT else in_words(key, then)}."


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
