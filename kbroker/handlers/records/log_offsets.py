"""What offsets a log has: ListOffsets (API 2) and OffsetForLeaderEpoch (API 23).

A search by time that has to decompress a long batch is done by a thread; the connection waits, others do not.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from kbroker.errors import (
    CorruptMessageError,
    ErrorCode,
    KafkaError,
    UnsupportedVersionError,
)
from kbroker.gate.access import may_cluster, may_topic, require_topic
from kbroker.handlers.table import Handler
from kbroker.protocol.api import ApiKey
from kbroker.schemas import schema, wire
from kbroker.security.authorizer import Operation
from kbroker.storage.log.log_lookup import DeferredSearch, find_by_timestamp, offsets_before
from kbroker.storage.log.log_values import EARLIEST_LOCAL_TIMESTAMP, LATEST_TIERED_TIMESTAMP
from kbroker.types import EARLIEST, LATEST, MAX_TIMESTAMP, READ_COMMITTED, READ_UNCOMMITTED, LeaderEpoch

if TYPE_CHECKING:
    from kbroker._fast.base.slices import Pace
    from kbroker._fast.wire.codec import Struct
    from kbroker.handlers.services import RequestContext
    from kbroker.replication.partition import Partition
    from kbroker.storage.log.log_values import TimestampOffset
    from kbroker.storage.log.unified_log import UnifiedLog


CONSUMER_REPLICA_ID = -1
DEBUGGING_REPLICA_ID = -2
EARLIEST_PENDING_UPLOAD_TIMESTAMP = -6
FIRST_VERSION_WITH_LEADER_EPOCH = schema("ListOffsetsResponse").first_version("topics.partitions.leader_epoch")
FIRST_VERSION_WITH_OFFSET_NOT_AVAILABLE = 5
# The first version of ListOffsets that may ask for each special timestamp.
FIRST_VERSION_OF_TIMESTAMP = {
    EARLIEST: 0,
    LATEST: 0,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL_TIMESTAMP: 8,
    LATEST_TIERED_TIMESTAMP: 9,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP: 11,
}

logger = logging.getLogger("kbroker.storage")


class Asked(NamedTuple):
    """What a request asks of a partition.

    Answers lie below the offset `bound`.  `refusal` is the error in place of an answer at the bound, while the high
    watermark of this leader may be behind that of the leader before.
    """

    timestamp: int
    bound: int
    refusal: ErrorCode
    with_epoch: bool


class Waiting(NamedTuple):
    """A partition's answer that a thread has to find."""

    log: UnifiedLog
    search: DeferredSearch
    answer: wire.ListOffsetsResponse.ListOffsetsPartitionResponse
    asked: Asked


async def handle_list_offsets(ctx: RequestContext, request: wire.ListOffsetsRequest) -> Struct:
    """Versions 0 to 11: the offset for a timestamp, or for earliest, latest, max timestamp (v7), earliest local (v8),
    latest tiered (v9) and earliest pending upload (v11; none, as nothing is tiered).

    No answer goes beyond the high watermark (READ_COMMITTED: the last stable offset): max timestamp answers -1 while
    its record lies there.  A new leader whose high watermark may still be behind its predecessor's answers an error for
    offsets at that bound (KIP-207: OFFSET_NOT_AVAILABLE, before v5 LEADER_NOT_AVAILABLE).  A tool that names itself
    replica -2 is answered by followers, too, and up to the log's end.  A partition named twice is refused with
    INVALID_REQUEST, once.  v0 answers a list of offsets where segments begin (`offsets_before`), and a partition named
    twice twice.
    """
    if ctx.api_version == 0:
        return await _list_segment_offsets(ctx, request)
    pace = ctx.services.slices.pace()
    seen: set[tuple[str, int]] = set()
    repeated: set[tuple[str, int]] = set()
    for topic in request.topics:
        await pace
        for partition in topic.partitions:
            await pace
            key = (topic.name, partition.partition_index)
            (repeated if key in seen else seen).add(key)
    if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED) and await _describes_any(ctx, request, pace):
        return await _refuse_all(request, pace)
    topics = []
    waiting: list[Waiting] = []
    for topic in request.topics:
        await pace
        answers = []
        for asked in topic.partitions:
            await pace
            key = (topic.name, asked.partition_index)
            if key not in seen:
                continue
            try:
                if key in repeated:
                    seen.discard(key)
                    raise KafkaError.of(ErrorCode.INVALID_REQUEST)
                require_topic(ctx, Operation.DESCRIBE, topic.name)
                answers.append(_find_offset(ctx, request, topic.name, asked, waiting))
            except KafkaError as error:
                answers.append(
                    wire.ListOffsetsResponse.ListOffsetsPartitionResponse(
                        partition_index=asked.partition_index, error_code=error.code
                    )
                )
        topics.append(wire.ListOffsetsResponse.ListOffsetsTopicResponse(name=topic.name, partitions=answers))
    if waiting:
        await _search_all(waiting)
    return wire.ListOffsetsResponse(topics=topics)


async def _describes_any(ctx: RequestContext, request: wire.ListOffsetsRequest, pace: Pace) -> bool:
    for topic in request.topics:
        await pace
        if may_topic(ctx, Operation.DESCRIBE, topic.name, quietly=True):
            return True
    return False


async def _refuse_all(request: wire.ListOffsetsRequest, pace: Pace) -> Struct:
    """The answer to an isolation level that is none, which counts, as in Kafka, where the client may see a topic."""
    topics = []
    for topic in request.topics:
        answers = []
        for asked in topic.partitions:
            await pace
            answers.append(
                wire.ListOffsetsResponse.ListOffsetsPartitionResponse(
                    partition_index=asked.partition_index, error_code=ErrorCode.UNKNOWN_SERVER_ERROR
                )
            )
        topics.append(wire.ListOffsetsResponse.ListOffsetsTopicResponse(name=topic.name, partitions=answers))
    return wire.ListOffsetsResponse(topics=topics)


async def _list_segment_offsets(ctx: RequestContext, request: wire.ListOffsetsRequest) -> Struct:
    """Version 0: offsets at which segments of a time begin, newest first, with the high watermark instead of those
    beyond it."""
    pace = ctx.services.slices.pace()
    topics = []
    for topic in request.topics:
        await pace
        answers = []
        for asked in topic.partitions:
            await pace
            answer = wire.ListOffsetsResponse.ListOffsetsPartitionResponse(partition_index=asked.partition_index)
            try:
                require_topic(ctx, Operation.DESCRIBE, topic.name)
                answer.old_style_offsets = _segment_offsets(ctx, request.replica_id, topic.name, asked)
            except KafkaError as error:
                answer.error_code = error.code
            answers.append(answer)
        topics.append(wire.ListOffsetsResponse.ListOffsetsTopicResponse(name=topic.name, partitions=answers))
    return wire.ListOffsetsResponse(topics=topics)


def _asked_partition(ctx: RequestContext, replica_id: int, topic: str, index: int) -> Partition:
    """The partition that is led here; for a tool that compares replicas also one that is followed."""
    manager = ctx.services.replica_manager
    partition: Partition = (manager.replica if replica_id == DEBUGGING_REPLICA_ID else manager.partition)(topic, index)
    return partition


def _segment_offsets(
    ctx: RequestContext, replica_id: int, topic: str, asked: wire.ListOffsetsRequest.ListOffsetsPartition
) -> list[int]:
    partition = _asked_partition(ctx, replica_id, topic, asked.partition_index)
    log = partition.log
    if asked.timestamp < 0 and FIRST_VERSION_OF_TIMESTAMP.get(asked.timestamp, 127):
        raise UnsupportedVersionError()
    if asked.max_num_offsets < 0:
        raise KafkaError.of(ErrorCode.UNKNOWN_SERVER_ERROR)
    try:
        offsets = offsets_before(log, asked.timestamp, asked.max_num_offsets, ctx.services.clock.now_ms())
    except OSError as error:
        raise log.storage_error("looking an offset up", error) from error
    bound = log.high_watermark
    if replica_id == CONSUMER_REPLICA_ID and offsets and offsets[0] > bound:
        return [bound, *(offset for offset in offsets if offset <= bound)]
    return offsets


async def _search_all(waiting: Sequence[Waiting]) -> None:
    """One after the other: a request about many partitions must not take all threads."""
    loop = asyncio.get_running_loop()
    for each in waiting:
        found: TimestampOffset | DeferredSearch | None = each.search
        try:
            while isinstance(found, DeferredSearch):
                search = found
                found = await loop.run_in_executor(None, search.search)
                if found is None:
                    found = search.go_on()
            _fill(each.answer, found, each.asked)
        except OSError as error:
            each.answer.error_code = each.log.storage_error("looking an offset up", error).code
        except ValueError as error:
            each.log.local.note_damage(error)
            logger.warning("%s: a batch cannot be read: %s", each.log.topic_partition, error)
            each.answer.error_code = ErrorCode.CORRUPT_MESSAGE


def _find_offset(
    ctx: RequestContext,
    request: wire.ListOffsetsRequest,
    topic: str,
    asked: wire.ListOffsetsRequest.ListOffsetsPartition,
    waiting: list[Waiting],
) -> wire.ListOffsetsResponse.ListOffsetsPartitionResponse:
    timestamp = asked.timestamp
    if timestamp < 0 and ctx.api_version < FIRST_VERSION_OF_TIMESTAMP.get(timestamp, 127):
        raise UnsupportedVersionError()
    partition = _asked_partition(ctx, request.replica_id, topic, asked.partition_index)
    partition.check_leader_epoch(LeaderEpoch(asked.current_leader_epoch))
    log = partition.log
    if request.replica_id != CONSUMER_REPLICA_ID:
        # A broker, or a tool that stands in for one, sees what is not committed yet.
        bound = log.log_end_offset
    else:
        bound = log.consumer_bound(request.isolation_level == READ_COMMITTED)
    with_epoch = ctx.api_version >= FIRST_VERSION_WITH_LEADER_EPOCH
    refusal = ErrorCode.NONE
    if request.replica_id == CONSUMER_REPLICA_ID and partition.high_watermark_lags:
        is_known = ctx.api_version >= FIRST_VERSION_WITH_OFFSET_NOT_AVAILABLE
        refusal = ErrorCode.OFFSET_NOT_AVAILABLE if is_known else ErrorCode.LEADER_NOT_AVAILABLE
    answer = wire.ListOffsetsResponse.ListOffsetsPartitionResponse(partition_index=asked.partition_index)
    if timestamp == LATEST:
        if refusal:
            raise KafkaError.of(refusal)
        answer.offset = bound
        if with_epoch:
            answer.leader_epoch = partition.leader_epoch
        return answer
    if timestamp == EARLIEST_PENDING_UPLOAD_TIMESTAMP:
        return answer
    try:
        found = find_by_timestamp(log, timestamp)
    except OSError as error:
        raise log.storage_error("looking an offset up", error) from error
    except ValueError as error:
        log.local.note_damage(error)
        raise CorruptMessageError(f"a batch of {log.topic_partition} cannot be read: {error}") from error
    what = Asked(timestamp, bound, refusal, with_epoch)
    if isinstance(found, DeferredSearch):
        waiting.append(Waiting(log, found, answer, what))
    else:
        _fill(answer, found, what)
    return answer


def _fill(
    answer: wire.ListOffsetsResponse.ListOffsetsPartitionResponse,
    found: TimestampOffset | None,
    asked: Asked,
) -> None:
    # As in Kafka: only the log start is not bounded; an offset that may not be fetched yet is answered as not found.
    needs_no_bound = asked.timestamp in (EARLIEST, EARLIEST_LOCAL_TIMESTAMP)
    if found is not None and (found.offset < asked.bound or needs_no_bound):
        answer.timestamp, answer.offset = found.timestamp, found.offset
        if asked.with_epoch:
            answer.leader_epoch = found.leader_epoch
    elif not needs_no_bound:
        answer.error_code = asked.refusal


async def handle_offset_for_leader_epoch(ctx: RequestContext, request: wire.OffsetForLeaderEpochRequest) -> Struct:
    """Versions 0 to 4: where a leader epoch ends, so that a client can tell whether its log was truncated (KIP-320).

    v1+ answers have the epoch that was found; v2+ requests may have the client's current leader epoch.  Brokers may ask
    about every topic.
    """
    pace = ctx.services.slices.pace()
    is_broker = may_cluster(ctx, Operation.CLUSTER_ACTION, quietly=True)
    topics = []
    for topic in request.topics:
        await pace
        answers = []
        for asked in topic.partitions:
            await pace
            answer = wire.OffsetForLeaderEpochResponse.EpochEndOffset(partition=asked.partition)
            try:
                if not is_broker:
                    require_topic(ctx, Operation.DESCRIBE, topic.topic)
                partition: Partition = ctx.services.replica_manager.partition(topic.topic, asked.partition)
                partition.check_leader_epoch(LeaderEpoch(asked.current_leader_epoch))
                answer.leader_epoch, answer.end_offset = partition.log.end_offset_for_epoch(
                    LeaderEpoch(asked.leader_epoch)
                )
            except KafkaError as error:
                answer.error_code = error.code
            answers.append(answer)
        topics.append(
            wire.OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(topic=topic.topic, partitions=answers)
        )
    return wire.OffsetForLeaderEpochResponse(topics=topics)


HANDLERS: tuple[Handler, ...] = (
    Handler(ApiKey.LIST_OFFSETS, 0, 11, handle_list_offsets),
    Handler(ApiKey.OFFSET_FOR_LEADER_EPOCH, 0, 4, handle_offset_for_leader_epoch),
)
