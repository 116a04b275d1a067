"""The share coordinator on the wire, for the leaders and group coordinators of other brokers (KIP-932): APIs 83 to 87.

Each request names partitions of several topics of one group; each partition has an answer of its own, given when all
are committed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from kbroker.errors import KafkaError
from kbroker.gate.access import may_cluster, require_cluster
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
from kbroker.schemas import response_message, wire
from kbroker.security.authorizer import Operation

if TYPE_CHECKING:
    from kbroker._fast.wire.codec import Struct
    from kbroker.handlers.services import RequestContext

    Request = (
        wire.InitializeShareGroupStateRequest
        | wire.ReadShareGroupStateRequest
        | wire.WriteShareGroupStateRequest
        | wire.DeleteShareGroupStateRequest
        | wire.ReadShareGroupStateSummaryRequest
    )


def _handler(api_key: ApiKey, max_version: int, result: str, operation: Callable[..., Awaitable[None]]) -> Handler:
    """A row whose handler does `operation(ctx, key, asked, answer)` for each partition that a request names, and makes
    a struct `result` of the answers of each topic."""

    async def handle(ctx: RequestContext, request: Request) -> Struct:
        response = response_message(api_key)
        pace = ctx.services.slices.pace()
        group_id = request.group_id
        results = []
        # Kafka answers nothing where no group is named, of a client that may ask.
        for topic in request.topics if group_id or not may_cluster(ctx, Operation.CLUSTER_ACTION) else ():
            await pace
            partitions = []
            for asked in topic.partitions:
                await pace
                answer = response.PartitionResult(partition=asked.partition)
                key = SharePartitionKey(group_id, bytes(topic.topic_id), asked.partition)
                try:
                    require_cluster(ctx, Operation.CLUSTER_ACTION)
                    await operation(ctx, key, asked, answer)
                except KafkaError as error:
                    answer.error_code, answer.error_message = error.code, error.message
                partitions.append(answer)
            results.append(response.structs[result](topic_id=topic.topic_id, partitions=partitions))
        answer_of_all: Struct = response(results=results)
        return answer_of_all

    return Handler(api_key, 0, max_version, handle)


async def _initialize(
    ctx: RequestContext,
    key: SharePartitionKey,
    asked: wire.InitializeShareGroupStateRequest.PartitionData,
    _answer: wire.InitializeShareGroupStateResponse.PartitionResult,
) -> None:
    coordinator = ctx.services.share_coordinator
    await ctx.services.controller.ensure_internal_topic(SHARE_GROUP_STATE_TOPIC)
    await coordinator.committed(coordinator.initialize(key, asked.state_epoch, asked.start_offset))


async def _read(
    ctx: RequestContext,
    key: SharePartitionKey,
    asked: wire.ReadShareGroupStateRequest.PartitionData,
    answer: wire.ReadShareGroupStateResponse.PartitionResult,
) -> None:
    """The state; the asking leader's epoch is noted."""
    coordinator = ctx.services.share_coordinator
    state = await coordinator.committed(coordinator.read(key, asked.leader_epoch))
    answer.state_epoch, answer.start_offset = state.state_epoch, state.start_offset
    batch_row = wire.ReadShareGroupStateResponse.StateBatch
    answer.state_batches = [batch_row(**batch._asdict()) for batch in state.batches]


async def _write(
    ctx: RequestContext,
    key: SharePartitionKey,
    asked: wire.WriteShareGroupStateRequest.PartitionData,
    _answer: wire.WriteShareGroupStateResponse.PartitionResult,
) -> None:
    """v1 says how many records have come to their end."""
    pace = ctx.services.slices.pace()
    batches = []
    for each in asked.state_batches:
        await pace
        batches.append(StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count))
    update = StateUpdate(
        asked.state_epoch, asked.leader_epoch, asked.start_offset, asked.delivery_complete_count, tuple(batches)
    )
    await ctx.services.share_coordinator.committed(ctx.services.share_coordinator.write(key, update))


async def _delete(
    ctx: RequestContext,
    key: SharePartitionKey,
    _asked: wire.DeleteShareGroupStateRequest.PartitionData,
    _answer: wire.DeleteShareGroupStateResponse.PartitionResult,
) -> None:
    ctx.services.share_coordinator.check_topic(key)
    await ctx.services.share_coordinator.committed(ctx.services.share_coordinator.delete(key))


async def _read_summary(
    ctx: RequestContext,
    key: SharePartitionKey,
    _asked: wire.ReadShareGroupStateSummaryRequest.PartitionData,
    answer: wire.ReadShareGroupStateSummaryResponse.PartitionResult,
) -> None:
    """The state without its batches; start offset -1 where there is none."""
    ctx.services.share_coordinator.check_topic(key)
    state = await ctx.services.share_coordinator.committed(ctx.services.share_coordinator.summary(key))
    answer.start_offset, answer.delivery_complete_count = UNINITIALIZED_START_OFFSET, UNKNOWN_COUNT
    if state is not None:
        answer.state_epoch, answer.leader_epoch = state.state_epoch, state.leader_epoch
        answer.start_offset = state.start_offset
        answer.delivery_complete_count = state.delivery_complete_count


HANDLERS: tuple[Handler, ...] = (
    _handler(ApiKey.INITIALIZE_SHARE_GROUP_STATE, 0, "InitializeStateResult", _initialize),
    _handler(ApiKey.READ_SHARE_GROUP_STATE, 0, "ReadStateResult", _read),
    _handler(ApiKey.WRITE_SHARE_GROUP_STATE, 1, "WriteStateResult", _write),
    _handler(ApiKey.DELETE_SHARE_GROUP_STATE, 0, "DeleteStateResult", _delete),
    _handler(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, 1, "ReadStateSummaryResult", _read_summary),
)
