"""Quotas of users, client ids and addresses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kbroker.errors import refuse
from kbroker.schemas import wire

if TYPE_CHECKING:
    from kbroker.administration.admin import Admin

Entity = Mapping[str, str | None]
"""Names by the types; None for the default of a type."""
TYPES = ("user", "client-id", "ip")
EXACT, DEFAULT = 0, 1


async def describe_quotas(
    admin: Admin, entity: Entity, *, strict: bool
) -> list[wire.DescribeClientQuotasResponse.EntryData]:
    """The quotas of the entities that match; `strict`: of those that have no other types."""
    request = wire.DescribeClientQuotasRequest
    components = [
        request.ComponentData(entity_type=kind, match_type=DEFAULT if name is None else EXACT, match=name)
        for kind, name in entity.items()
    ]
    answer = await admin.ask(wire.DescribeClientQuotasResponse, request(components=components, strict=strict))
    refuse(answer.error_code, answer.error_message)
    return answer.entries or []


async def alter_quotas(
    admin: Admin, entity: Entity, values: Mapping[str, float | None], *, validate_only: bool = False
) -> None:
    """Set quotas of an entity, and take away those whose value is None."""
    request = wire.AlterClientQuotasRequest
    entry = request.EntryData(
        entity=[request.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[request.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()],
    )
    answer = await admin.ask_controller(
        wire.AlterClientQuotasResponse, request(entries=[entry], validate_only=validate_only)
    )
    for row in answer.entries:
        refuse(row.error_code, row.error_message)
