"""DescribeClientQuotas (API 48): v0-v1.  AlterClientQuotas (API 49): v0-v1.

v1 of both is the flexible version.  Rules and texts are Kafka's: `kbroker.quotas.alteration`, `kbroker.quotas.filters`.
An entity in an answer has its types in alphabetical order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.errors import ErrorCode, KafkaError
from kbroker.gate.access import may_cluster, require_cluster
from kbroker.gate.authorizer import Operation
from kbroker.handlers.table import Handler
from kbroker.protocol.api import ApiKey
from kbroker.quotas.alteration import EntityAlteration, QuotaEdit
from kbroker.quotas.filters import Component, describe
from kbroker.schemas import wire

if TYPE_CHECKING:
    from kbroker.handlers.services import RequestContext
    from kbroker.metadata.image import QuotaEntity


async def handle_describe_client_quotas(
    ctx: RequestContext, request: wire.DescribeClientQuotasRequest
) -> wire.DescribeClientQuotasResponse:
    """DescribeClientQuotas v0-v1."""
    response = wire.DescribeClientQuotasResponse
    pace = ctx.services.slices.pace()
    components = [Component(each.entity_type, each.match_type, each.match) for each in request.components]
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
                values=[response.ValueData(key=key, value=value) for key, value in values.items()],
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
        # Of a type that is named twice, the last name counts, as in Kafka.
        entity: QuotaEntity = tuple(sorted({each.entity_type: each.entity_name for each in entry.entity}.items()))
        edits = [QuotaEdit(op.key, None if op.remove else op.value) for op in entry.ops]
        alterations.append(EntityAlteration(entity, edits))
    try:
        require_cluster(ctx, Operation.ALTER_CONFIGS)
        results = await ctx.services.controller.alter_client_quotas(alterations, request.validate_only)
    except KafkaError as error:
        results = {alteration.entity: error for alteration in alterations}
    return response(
        entries=[
            response.EntryData(
                error_code=0 if error is None else error.code,
                error_message=None if error is None else error.message,
                entity=[response.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
            )
            for entity, error in results.items()
        ]
    )


HANDLERS: tuple[Handler, ...] = (
    Handler(ApiKey.DESCRIBE_CLIENT_QUOTAS, 0, 1, handle_describe_client_quotas),
    Handler(ApiKey.ALTER_CLIENT_QUOTAS, 0, 1, handle_alter_client_quotas),
)
