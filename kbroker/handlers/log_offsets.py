"""What offsets a log has: ListOffsets (API 2) and OffsetForLeaderEpoch (API 23)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kbroker.errors import ErrorCode, KafkaError, NotLeaderOrFollowerError, UnsupportedVersionError
from kbroker.handlers.table import Handler
from kbroker.protocol.api import ApiKey
from kbroker.schemas import message
from kbroker.storage.log_values import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
)

if TYPE_CHECKING:
    from kbroker._fast.codec import Struct
    from kbroker.handlers.services import RequestContext
    from kbroker.replication.partition import Partition

ListOffsetsResponse: Any = message("ListOffsetsResponse")
OffsetForLeaderEpochResponse: Any = message("OffsetForLeaderEpochResponse")

READ_COMMITTED = 1
CONSUMER_REPLICA_ID = -1
DEBUG_REPLICA_ID = -2
EARLIEST_PENDING_UPLOAD_TIMESTAMP = -6
FIRST_VERSION_WITH_LEADER_EPOCH = 4
# The first version of ListOffsets that may ask for each special timestamp.
FIRST_VERSION_OF_TIMESTAMP = {
    EARLIEST_TIMESTAMP: 0,
    LATEST_TIMESTAMP: 0,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL_TIMESTAMP: 8,
    LATEST_TIERED_TIMESTAMP: 9,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP: 11,
}


def handle_list_offsets(ctx: RequestContext, request: Any) -> Struct:
    """Versions 1 to 11: the offset for a timestamp, or for earliest, latest, max timestamp (v7), earliest local (v8),
    latest tiered (v9) and earliest pending upload (v11; none, as nothing is tiered).

    A partition named twice is refused with INVALID_REQUEST, once.
    """
    seen: set[tuple[str, int]] = set()
    repeated: set[tuple[str, int]] = set()
    for topic in request.topics:
        for partition in topic.partitions:
            key = (topic.name, partition.partition_index)
            (repeated if key in seen else seen).add(key)
    topics = []
    for topic in request.topics:
        answers = []
        for asked in topic.partitions:
            key = (topic.name, asked.partition_index)
            if key not in seen:
                continue
            try:
                if key in repeated:
                    seen.discard(key)
                    raise KafkaError.of(ErrorCode.INVALID_REQUEST)
                answers.append(_find_offset(ctx, request, topic.name, asked))
            except KafkaError as error:
                answers.append(
                    ListOffsetsResponse.ListOffsetsPartitionResponse(
                        partition_index=asked.partition_index, error_code=error.code
                    )
                )
        topics.append(ListOffsetsResponse.ListOffsetsTopicResponse(name=topic.name, partitions=answers))
    response: Struct = ListOffsetsResponse(topics=topics)
    return response


def _find_offset(ctx: RequestContext, request: Any, topic: str, asked: Any) -> Any:
    timestamp = asked.timestamp
    if timestamp < 0 and ctx.api_version < FIRST_VERSION_OF_TIMESTAMP.get(timestamp, 127):
        raise UnsupportedVersionError()
    partition: Partition = ctx.services.replica_manager.partition(topic, asked.partition_index)
    if request.replica_id not in (CONSUMER_REPLICA_ID, DEBUG_REPLICA_ID):
        raise NotLeaderOrFollowerError()
    partition.check_leader_epoch(asked.current_leader_epoch)
    log = partition.log
    bound = log.last_stable_offset if request.isolation_level == READ_COMMITTED else log.high_watermark
    answer = ListOffsetsResponse.ListOffsetsPartitionResponse(partition_index=asked.partition_index)
    if timestamp == LATEST_TIMESTAMP:
        answer.offset = bound
        if ctx.api_version >= FIRST_VERSION_WITH_LEADER_EPOCH:
            answer.leader_epoch = partition.leader_epoch
        return answer
    if timestamp == EARLIEST_PENDING_UPLOAD_TIMESTAMP:
        return answer
    try:
        found = log.offset_for_timestamp(timestamp)
    except OSError as error:
        raise log.storage_error("looking an offset up", error) from error
    if found is not None and (found.offset < bound or timestamp < 0):
        answer.timestamp, answer.offset = found.timestamp, found.offset
        if ctx.api_version >= FIRST_VERSION_WITH_LEADER_EPOCH:
            answer.leader_epoch = found.leader_epoch
    return answer


def handle_offset_for_leader_epoch(ctx: RequestContext, request: Any) -> Struct:
    """Versions 2 to 4: where a leader epoch ends, so that a client can tell whether its log was truncated (KIP-320)."""
    topics = []
    for topic in request.topics:
        answers = []
        for asked in topic.partitions:
            answer = OffsetForLeaderEpochResponse.EpochEndOffset(partition=asked.partition)
            try:
                partition: Partition = ctx.services.replica_manager.partition(topic.topic, asked.partition)
                partition.check_leader_epoch(asked.current_leader_epoch)
                answer.leader_epoch, answer.end_offset = partition.log.end_offset_for_epoch(asked.leader_epoch)
            except KafkaError as error:
                answer.error_code = error.code
            answers.append(answer)
        topics.append(OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(topic=topic.topic, partitions=answers))
    response: Struct = OffsetForLeaderEpochResponse(topics=topics)
    return response


HANDLERS: tuple[Handler, ...] = (
    Handler(ApiKey.LIST_OFFSETS, 1, 11, handle_list_offsets),
    Handler(ApiKey.OFFSET_FOR_LEADER_EPOCH, 2, 4, handle_offset_for_leader_epoch),
)
