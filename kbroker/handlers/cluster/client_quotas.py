"""DescribeClientQuotas (API 48): v0-v1.  AlterClientQuotas (API 49): v0-v1.

v1 of both is the flexible version.  Rules and texts are Kafka's: `kbroker.quotas.alteration`, `kbroker.quotas.filters`.
An entity in an answer has its types in alphabetical order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.errors import ErrorCode, KafkaError, bare
from kbroker.gate.access import may_cluster, require_cluster
from kbroker.handlers.table import Handler
from kbroker.protocol.api import ApiKey
from kbroker.quotas.alteration import EntityAlteration, QuotaEdit
from kbroker.quotas.filters import Component, describe, in_order
from kbroker.schemas import wire
from kbroker.security.authorizer import Operation

if TYPE_CHECKING:
    from kbroker.handlers.services import RequestContext


async def handle_describe_client_quotas(
    ctx: RequestContext, request: wire.DescribeClientQuotasRequest
) -> wire.DescribeClientQuotasResponse:
    """DescribeClientQuotas v0-v1."""
    response = wire.DescribeClientQuotasResponse
    pace = ctx.services.slices.pace()
    # Made lazily: `describe` stops at the first invalid one, and there are only three types.
    components = (Component(each.entity_type, each.match_type, each.match) for each in request.components)
    try:
        if not may_cluster(ctx, Operation.DESCRIBE_CONFIGS):
            # Without words, as Kafka's.
            raise KafkaError.of(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        found = describe(ctx.services.metadata_cache.image.quotas, components, request.strict)
    except KafkaError as error:
        return response(error_code=error.code, error_message=error.message, entries=None)
    entries = []
    for entity, values in found:
        await pace
        entries.append(
            response.EntryData(
                entity=[response.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                values=[response.ValueData(key=key, value=value) for key, value in in_order(values)],
            )
        )
    return response(entries=entries, error_message="")


async def handle_alter_client_quotas(
    ctx: RequestContext, request: wire.AlterClientQuotasRequest
) -> wire.AlterClientQuotasResponse:
    """AlterClientQuotas v0-v1: one result per entity."""
    response = wire.AlterClientQuotasResponse
    pace = ctx.services.slices.pace()
    alterations = []
    for entry in request.entries:
        await pace
        names: dict[str, str | None] = {}
        for each in entry.entity:
            await pace
            # Of a type that is named twice, the last name counts, as in Kafka.
            names[each.entity_type] = each.entity_name
        edits = []
        for op in entry.ops:
            await pace
            edits.append(QuotaEdit(op.key, None if op.remove else op.value))
        alterations.append(EntityAlteration(tuple(sorted(names.items())), edits))
    try:
        require_cluster(ctx, Operation.ALTER_CONFIGS)
        results = await ctx.services.administration.alter_client_quotas(alterations, request.validate_only)
    except KafkaError as error:
        results = dict.fromkeys((each.entity for each in alterations), bare(error))
    entries = []
    for entity, refusal in results.items():
        await pace
        answer = response.EntryData(
            error_code=0 if refusal is None else refusal.code,
            error_message=None if refusal is None else refusal.message,
        )
        entries.append(answer)
        for kind, name in entity:
            await pace
            answer.entity.append(response.EntityData(entity_type=kind, entity_name=name))
    return response(entries=entries)


HANDLERS: tuple[Handler, ...] = (
    Handler(ApiKey.DESCRIBE_CLIENT_QUOTAS, 0, 1, handle_describe_client_quotas),
    Handler(ApiKey.ALTER_CLIENT_QUOTAS, 0, 1, handle_alter_client_quotas),
)
