"""Quotas of users, client ids and addresses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.console.manage.context import plural
from kbroker.console.manage.plan import Action, Done, Plan, Table
from kbroker.console.parameters import BadParameterError
from kbroker.errors import refuse
from kbroker.quotas.rules import CLIENT_KEYS, IP_KEYS
from kbroker.schemas import wire

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kbroker.console.manage.context import Context
    from kbroker.console.manage.fields import Fields
    from kbroker.metadata.image import QuotaEntity

TYPES = ("user", "client-id", "ip")
KEYS = (*sorted(CLIENT_KEYS), *sorted(IP_KEYS))


def named(entity: QuotaEntity) -> str:
    """An entity in words."""
    return ", ".join(f"{kind} {name}" if name is not None else f"each {kind} without its own" for kind, name in entity)


def _entity(fields: Fields) -> QuotaEntity:
    found: dict[str, str | None] = {}
    for each in fields.rows("entity"):
        kind = each.choice("type", TYPES)
        if kind in found:
            raise BadParameterError(f"{kind} is named twice")
        found[kind] = each.optional("name")
    if not found:
        raise BadParameterError("entity is missing: a user, a client id, both, or an address")
    return tuple(sorted(found.items()))


def _values(fields: Fields) -> dict[str, float | None]:
    """Quotas that are set, and, as None, those that are taken away."""
    found = {key: fields.real(key) for key in KEYS if key in fields.values}
    if not found:
        raise BadParameterError("no quota is named")
    return found


async def _alter(context: Context, fields: Fields, *, validate_only: bool) -> None:
    request = wire.AlterClientQuotasRequest
    entry = request.EntryData(
        entity=[request.EntityData(entity_type=kind, entity_name=name) for kind, name in _entity(fields)],
        ops=[
            request.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in _values(fields).items()
        ],
    )
    answer = await context.client.ask_controller(
        wire.AlterClientQuotasResponse, request(entries=[entry], validate_only=validate_only)
    )
    for row in answer.entries:
        refuse(row.error_code, row.error_message)


async def plan_change(context: Context, fields: Fields) -> Plan:
    """By the controller itself."""
    await _alter(context, fields, validate_only=True)
    entity, values = _entity(fields), _values(fields)
    known: Mapping[str, float] = context.parts.services.metadata_cache.image.quotas.get(entity, {})
    rows = [
        (key, "none" if key not in known else f"{known[key]:g}", "none" if value is None else f"{value:g}")
        for key, value in values.items()
    ]
    rows = [row for row in rows if row[1] != row[2]]
    if not rows:
        raise BadParameterError("nothing would change")
    return Plan(
        f"Change quotas of {named(entity)}",
        [f"{plural(len(rows), 'quota changes', 'quotas change')} for {named(entity)}, at once, on every broker."],
        {"entity": [{"type": kind, "name": name} for kind, name in entity], **{row[0]: values[row[0]] for row in rows}},
        [list(row[:2]) for row in rows],
        ["Clients above a quota are made to wait, and see higher latencies."] * any(row[2] != "none" for row in rows),
        Table(("Quota", "Now", "Then"), rows),
        button="Change them",
    )


async def change(context: Context, fields: Fields, plan: Plan) -> Done:
    """See `plan_change`."""
    await _alter(context, fields, validate_only=False)
    entity, values = _entity(fields), _values(fields)
    await context.settle(lambda image: all(image.quotas.get(entity, {}).get(key) == values[key] for key in values))
    return Done([f"The quotas of {named(_entity(fields))} are changed."])


ACTIONS = {"quota.change": Action(plan_change, change)}
