"""The share coordinator on the wire, for the leaders and group coordinators of other brokers (KIP-932): APIs 83 to 87.

Each request names partitions of several topics of one group; each partition has an answer of its own, given when all
are committed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

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
from kbroker.schemas import wire
from kbroker.security.authorizer import Operation

if TYPE_CHECKING:
    from kbroker._fast.wire.codec import Struct
    from kbroker.handlers.services import RequestContext


class _Asked(Protocol):
    @property
    def partition(self) -> int: ...


class _Answer(Protocol):
    error_code: int
    error_message: str | None


Asked = TypeVar("Asked", bound=_Asked)
AskedOf = TypeVar("AskedOf", bound=_Asked, covariant=True)
Answer = TypeVar("Answer", bound=_Answer)
Result = TypeVar("Result")


class _Topic(Protocol[AskedOf]):
    @property
    def topic_id(self) -> bytes: ...

    @property
    def partitions(self) -> Sequence[AskedOf]: ...


async def _each(
    ctx: RequestContext,
    group_id: str,
    topics: Sequence[_Topic[Asked]],
    make: Callable[..., Answer],
    make_topic: Callable[..., Result],
    operation: Callable[[SharePartitionKey, Asked, Answer], Awaitable[None]],
) -> list[Result]:
    """Do `operation(key, asked, answer)` for each partition; the answers of each topic."""
    pace = ctx.services.slices.pace()
    results = []
    # Kafka answers nothing where no group is named, of a client that may ask.
    for topic in topics if group_id or not may_cluster(ctx, Operation.CLUSTER_ACTION) else ():
        await pace
        partitions = []
        for asked in topic.partitions:
            await pace
            answer = make(partition=asked.partition)
            key = SharePartitionKey(group_id, bytes(topic.topic_id), asked.partition)
            try:
                require_cluster(ctx, Operation.CLUSTER_ACTION)
                await operation(key, asked, answer)
            except KafkaError as error:
                answer.error_code, answer.error_message = error.code, error.message
            partitions.append(answer)
        results.append(make_topic(topic_id=topic.topic_id, partitions=partitions))
    return results


async def handle_initialize(ctx: RequestContext, request: wire.InitializeShareGroupStateRequest) -> Struct:
    """InitializeShareGroupState v0."""
    response = wire.InitializeShareGroupStateResponse
    coordinator = ctx.services.share_coordinator

    async def operation(
        key: SharePartitionKey,
        asked: wire.InitializeShareGroupStateRequest.PartitionData,
        _answer: wire.InitializeShareGroupStateResponse.PartitionResult,
    ) -> None:
        await ctx.services.controller.ensure_internal_topic(SHARE_GROUP_STATE_TOPIC)
        await ctx.services.share_coordinator.committed(
            coordinator.initialize(key, asked.state_epoch, asked.start_offset)
        )

    return response(
        results=await _each(
            ctx, request.group_id, request.topics, response.PartitionResult, response.InitializeStateResult, operation
        )
    )


async def handle_read(ctx: RequestContext, request: wire.ReadShareGroupStateRequest) -> Struct:
    """ReadShareGroupState v0: the state, and the asking leader's epoch is noted."""
    response = wire.ReadShareGroupStateResponse

    async def operation(
        key: SharePartitionKey,
        asked: wire.ReadShareGroupStateRequest.PartitionData,
        answer: wire.ReadShareGroupStateResponse.PartitionResult,
    ) -> None:
        state = await ctx.services.share_coordinator.committed(
            ctx.services.share_coordinator.read(key, asked.leader_epoch)
        )
        answer.state_epoch, answer.start_offset = state.state_epoch, state.start_offset
        answer.state_batches = [response.StateBatch(**batch._asdict()) for batch in state.batches]

    return response(
        results=await _each(
            ctx, request.group_id, request.topics, response.PartitionResult, response.ReadStateResult, operation
        )
    )


async def handle_write(ctx: RequestContext, request: wire.WriteShareGroupStateRequest) -> Struct:
    """WriteShareGroupState v0-v1; v1 says how many records have come to their end."""
    response = wire.WriteShareGroupStateResponse
    pace = ctx.services.slices.pace()

    async def operation(
        key: SharePartitionKey,
        asked: wire.WriteShareGroupStateRequest.PartitionData,
        _answer: wire.WriteShareGroupStateResponse.PartitionResult,
    ) -> None:
        batches = []
        for each in asked.state_batches:
            await pace
            batches.append(StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count))
        update = StateUpdate(
            asked.state_epoch, asked.leader_epoch, asked.start_offset, asked.delivery_complete_count, tuple(batches)
        )
        await ctx.services.share_coordinator.committed(ctx.services.share_coordinator.write(key, update))

    return response(
        results=await _each(
            ctx, request.group_id, request.topics, response.PartitionResult, response.WriteStateResult, operation
        )
    )


async def handle_delete(ctx: RequestContext, request: wire.DeleteShareGroupStateRequest) -> Struct:
    """DeleteShareGroupState v0."""
    response = wire.DeleteShareGroupStateResponse

    async def operation(
        key: SharePartitionKey,
        _asked: wire.DeleteShareGroupStateRequest.PartitionData,
        _answer: wire.DeleteShareGroupStateResponse.PartitionResult,
    ) -> None:
        ctx.services.share_coordinator.check_topic(key)
        await ctx.services.share_coordinator.committed(ctx.services.share_coordinator.delete(key))

    return response(
        results=await _each(
            ctx, request.group_id, request.topics, response.PartitionResult, response.DeleteStateResult, operation
        )
    )


async def handle_read_summary(ctx: RequestContext, request: wire.ReadShareGroupStateSummaryRequest) -> Struct:
    """ReadShareGroupStateSummary v0-v1: the state without its batches; start offset -1 where there is none."""
    response = wire.ReadShareGroupStateSummaryResponse

    async def operation(
        key: SharePartitionKey,
        _asked: wire.ReadShareGroupStateSummaryRequest.PartitionData,
        answer: wire.ReadShareGroupStateSummaryResponse.PartitionResult,
    ) -> None:
        ctx.services.share_coordinator.check_topic(key)
        state = await ctx.services.share_coordinator.committed(ctx.services.share_coordinator.summary(key))
        answer.start_offset, answer.delivery_complete_count = UNINITIALIZED_START_OFFSET, UNKNOWN_COUNT
        if state is not None:
            answer.state_epoch, answer.leader_epoch = state.state_epoch, state.leader_epoch
            answer.start_offset = state.start_offset
            answer.delivery_complete_count = state.delivery_complete_count

    return response(
        results=await _each(
            ctx, request.group_id, request.topics, response.PartitionResult, response.ReadStateSummaryResult, operation
        )
    )


HANDLERS: tuple[Handler, ...] = (
    Handler(ApiKey.INITIALIZE_SHARE_GROUP_STATE, 0, 0, handle_initialize),
    Handler(ApiKey.READ_SHARE_GROUP_STATE, 0, 0, handle_read),
    Handler(ApiKey.WRITE_SHARE_GROUP_STATE, 0, 1, handle_write),
    Handler(ApiKey.DELETE_SHARE_GROUP_STATE, 0, 0, handle_delete),
    Handler(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, 0, 1, handle_read_summary),
)
