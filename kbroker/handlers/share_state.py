"""The share coordinator on the wire, for the leaders and group coordinators of other brokers (KIP-932): APIs 83 to 87.

Each request names partitions of several topics of one group; each partition has an answer of its own, given when all
are committed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from kbroker.errors import KafkaError
from kbroker.gate.access import require_cluster
from kbroker.gate.authorizer import Operation
from kbroker.handlers.table import Handler
from kbroker.metadata.topic_names import SHARE_GROUP_STATE_TOPIC
from kbroker.protocol.api import ApiKey
from kbroker.replication.share.persister import (
    UNINITIALIZED_START_OFFSET,
    UNKNOWN_COUNT,
    SharePartitionKey,
    StateBatch,
    StateUpdate,
)
from kbroker.schemas import wire

if TYPE_CHECKING:
    from kbroker._fast.wire.codec import Struct
    from kbroker.handlers.services import RequestContext

Step = Callable[[SharePartitionKey, Any, Any], Awaitable[None]]


async def _each(ctx: RequestContext, request: Any, response: Any, result: str, operation: Step) -> Struct:
    """Do `operation(key, asked, answer)` for each partition."""
    pace = ctx.services.slices.pace()
    results = []
    for topic in request.topics:
        partitions = []
        for asked in topic.partitions:
            await pace
            answer = response.PartitionResult(partition=asked.partition)
            key = SharePartitionKey(request.group_id, bytes(topic.topic_id), asked.partition)
            try:
                require_cluster(ctx, Operation.CLUSTER_ACTION)
                await operation(key, asked, answer)
            except KafkaError as error:
                answer.error_code, answer.error_message = error.code, error.message
            partitions.append(answer)
        results.append(getattr(response, result)(topic_id=topic.topic_id, partitions=partitions))
    made: Struct = response(results=results)
    return made


async def handle_initialize(ctx: RequestContext, request: wire.InitializeShareGroupStateRequest) -> Struct:
    """InitializeShareGroupState v0."""
    coordinator = ctx.services.share_coordinator

    async def operation(key: SharePartitionKey, asked: Any, _answer: Any) -> None:
        await ctx.services.controller.ensure_internal_topic(SHARE_GROUP_STATE_TOPIC)
        await ctx.services.share_coordinator.committed(
            coordinator.initialize(key, asked.state_epoch, asked.start_offset)
        )

    response = wire.InitializeShareGroupStateResponse
    return await _each(ctx, request, response, "InitializeStateResult", operation)


async def handle_read(ctx: RequestContext, request: wire.ReadShareGroupStateRequest) -> Struct:
    """ReadShareGroupState v0: the state, and the asking leader's epoch is noted."""
    response = wire.ReadShareGroupStateResponse

    async def operation(key: SharePartitionKey, asked: Any, answer: Any) -> None:
        state = await ctx.services.share_coordinator.committed(
            ctx.services.share_coordinator.read(key, asked.leader_epoch)
        )
        answer.state_epoch, answer.start_offset = state.state_epoch, state.start_offset
        answer.state_batches = [response.StateBatch(**batch._asdict()) for batch in state.batches]

    return await _each(ctx, request, response, "ReadStateResult", operation)


async def handle_write(ctx: RequestContext, request: wire.WriteShareGroupStateRequest) -> Struct:
    """WriteShareGroupState v0-v1; v1 says how many records have come to their end."""

    async def operation(key: SharePartitionKey, asked: Any, _answer: Any) -> None:
        batches = tuple(
            StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
            for each in asked.state_batches
        )
        update = StateUpdate(
            asked.state_epoch, asked.leader_epoch, asked.start_offset, asked.delivery_complete_count, batches
        )
        await ctx.services.share_coordinator.committed(ctx.services.share_coordinator.write(key, update))

    return await _each(ctx, request, wire.WriteShareGroupStateResponse, "WriteStateResult", operation)


async def handle_delete(ctx: RequestContext, request: wire.DeleteShareGroupStateRequest) -> Struct:
    """DeleteShareGroupState v0."""

    async def operation(key: SharePartitionKey, _asked: Any, _answer: Any) -> None:
        await ctx.services.share_coordinator.committed(ctx.services.share_coordinator.delete(key))

    return await _each(ctx, request, wire.DeleteShareGroupStateResponse, "DeleteStateResult", operation)


async def handle_read_summary(ctx: RequestContext, request: wire.ReadShareGroupStateSummaryRequest) -> Struct:
    """ReadShareGroupStateSummary v0-v1: the state without its batches; start offset -1 where there is none."""

    async def operation(key: SharePartitionKey, _asked: Any, answer: Any) -> None:
        state = await ctx.services.share_coordinator.committed(ctx.services.share_coordinator.summary(key))
        answer.start_offset, answer.delivery_complete_count = UNINITIALIZED_START_OFFSET, UNKNOWN_COUNT
        if state is not None:
            answer.state_epoch, answer.leader_epoch = state.state_epoch, state.leader_epoch
            answer.start_offset = state.start_offset
            answer.delivery_complete_count = state.delivery_complete_count

    response = wire.ReadShareGroupStateSummaryResponse
    return await _each(ctx, request, response, "ReadStateSummaryResult", operation)


HANDLERS: tuple[Handler, ...] = (
    Handler(ApiKey.INITIALIZE_SHARE_GROUP_STATE, 0, 0, handle_initialize),
    Handler(ApiKey.READ_SHARE_GROUP_STATE, 0, 0, handle_read),
    Handler(ApiKey.WRITE_SHARE_GROUP_STATE, 0, 1, handle_write),
    Handler(ApiKey.DELETE_SHARE_GROUP_STATE, 0, 0, handle_delete),
    Handler(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, 0, 1, handle_read_summary),
)
