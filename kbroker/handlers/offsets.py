"""Committed offsets: OffsetCommit, OffsetFetch, OffsetDelete.

OffsetCommit v0-v10: v0 knows no members; v1 may bring the time of the commit, v2-v4 a retention time; v10 names topics
    by id.  Topics and partitions that do not exist are refused one by one (UNKNOWN_TOPIC_OR_PARTITION, v10
    UNKNOWN_TOPIC_ID), the others go on.
OffsetFetch v0-v10: null topics (v2+) mean all; v7 may ask for stable offsets only; v8 asks for several groups; v10
    names topics by id.  What was never committed is offset -1 without an error; v0, made when offsets lived in
    ZooKeeper, has UNKNOWN_TOPIC_OR_PARTITION there.
OffsetDelete v0.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kbroker.coordinator.messages import PartitionCommit
from kbroker.coordinator.offset_commits import Committer
from kbroker.errors import ErrorCode, InvalidGroupIdError, KafkaError
from kbroker.handlers.durable_state import durably
from kbroker.handlers.table import Handler
from kbroker.protocol.api import ApiKey
from kbroker.schemas import message
from kbroker.types import NO_LEADER_EPOCH

if TYPE_CHECKING:
    from kbroker._fast.codec import Struct
    from kbroker.coordinator.offsets import OffsetTable
    from kbroker.handlers.services import RequestContext
    from kbroker.metadata.cache import MetadataCache
    from kbroker.metadata.image import TopicImage

_NO_OFFSET = -1
_TOPIC_IDS_SINCE = 10


# OffsetCommit


def handle_offset_commit(ctx: RequestContext, request: Any) -> Struct:
    """OffsetCommit v0-v10."""
    version = ctx.api_version
    response = message("OffsetCommitResponse")
    outcome = response.OffsetCommitResponsePartition
    cache = ctx.services.metadata_cache
    expire_timestamp = -1
    if 2 <= version <= 4 and request.retention_time_ms >= 0:
        expire_timestamp = ctx.services.clock.now_ms() + request.retention_time_ms
    commits: list[PartitionCommit] = []
    slots: list[Any] = []
    topics = []
    for asked in request.topics:
        topic, missing = _find_topic(cache, version, asked)
        partitions = []
        for each in asked.partitions:
            index = each.partition_index
            slot = outcome(partition_index=index)
            partitions.append(slot)
            if topic is None:
                slot.error_code = missing
            elif not 0 <= index < len(topic.partitions):
                slot.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                slots.append(slot)
                commits.append(
                    PartitionCommit(
                        topic.name,
                        index,
                        each.committed_offset,
                        each.committed_leader_epoch,
                        each.committed_metadata or "",
                        each.commit_timestamp if version == 1 else -1,
                        expire_timestamp,
                        topic.topic_id,
                    )
                )
        topics.append(
            response.OffsetCommitResponseTopic(name=asked.name, topic_id=asked.topic_id, partitions=partitions)
        )
    if commits:
        _commit(ctx, request, commits, slots)
    answer: Struct = response(topics=topics)
    return answer


def _commit(ctx: RequestContext, request: Any, commits: list[PartitionCommit], slots: list[Any]) -> None:
    who = Committer(
        request.group_id, request.generation_id_or_member_epoch, request.member_id, request.group_instance_id
    )
    try:
        codes = ctx.services.group_coordinator.commit_offsets(who, commits, ctx.api_version)
    except KafkaError as error:
        for slot in slots:
            slot.error_code = error.code
        return
    for slot, code in zip(slots, codes, strict=True):
        slot.error_code = code


def _find_topic(cache: MetadataCache, version: int, asked: Any) -> tuple[TopicImage | None, ErrorCode]:
    """The topic that a request names, and the error if there is none."""
    if version >= _TOPIC_IDS_SINCE:
        return cache.topic_by_id(asked.topic_id), ErrorCode.UNKNOWN_TOPIC_ID
    return cache.topic(asked.name), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# OffsetFetch


def handle_offset_fetch(ctx: RequestContext, request: Any) -> Struct:
    """OffsetFetch v0-v10."""
    response = message("OffsetFetchResponse")
    answer: Struct
    if ctx.api_version >= 8:
        answer = response(groups=[_fetch_group(ctx, group, request.require_stable) for group in request.groups])
        return answer
    try:
        offsets: OffsetTable | None = ctx.services.group_coordinator.offsets_of(request.group_id)
    except KafkaError as error:
        answer = _fetch_failed(ctx, request, error.code)
        return answer
    fetch = _OffsetFetch(ctx, response.OffsetFetchResponseTopic, response.OffsetFetchResponsePartition, offsets)
    answer = response(topics=fetch.topics(request.topics, request.require_stable))
    return answer


def _fetch_failed(ctx: RequestContext, request: Any, code: ErrorCode) -> Struct:
    """An error of the whole group; v0 and v1 have room for it only in each partition."""
    response = message("OffsetFetchResponse")
    answer: Struct
    if ctx.api_version >= 2:
        answer = response(error_code=code)
        return answer
    answer = response(
        topics=[
            response.OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    response.OffsetFetchResponsePartition(
                        partition_index=index, committed_offset=_NO_OFFSET, metadata="", error_code=code
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )
    return answer


def _fetch_group(ctx: RequestContext, group: Any, require_stable: bool) -> Any:
    response = message("OffsetFetchResponse")
    try:
        offsets = ctx.services.group_coordinator.offsets_of(group.group_id)
    except KafkaError as error:
        return response.OffsetFetchResponseGroup(group_id=group.group_id, error_code=error.code)
    fetch = _OffsetFetch(ctx, response.OffsetFetchResponseTopics, response.OffsetFetchResponsePartitions, offsets)
    return response.OffsetFetchResponseGroup(group_id=group.group_id, topics=fetch.topics(group.topics, require_stable))


class _OffsetFetch:
    """Answers for one group; the structs differ between v0-v7 and v8+, their fields do not."""

    __slots__ = ("_by_id", "_cache", "_missing", "_offsets", "_partition_class", "_topic_class")

    def __init__(
        self, ctx: RequestContext, topic_class: Any, partition_class: Any, offsets: OffsetTable | None
    ) -> None:
        self._cache = ctx.services.metadata_cache
        self._by_id = ctx.api_version >= _TOPIC_IDS_SINCE
        self._topic_class = topic_class
        self._partition_class = partition_class
        self._offsets = offsets
        self._missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if ctx.api_version == 0 else ErrorCode.NONE

    def topics(self, asked: list[Any] | None, require_stable: bool) -> list[Any]:
        if asked is None:
            return self._all_topics(require_stable)
        return [self._asked_topic(topic, require_stable) for topic in asked]

    def _asked_topic(self, asked: Any, require_stable: bool) -> Any:
        name = asked.name
        if not self._by_id:
            return self._topic_class(
                name=name, partitions=self._partitions(name, asked.partition_indexes, require_stable)
            )
        topic = self._cache.topic_by_id(asked.topic_id)
        if topic is None:
            partitions = [self._partition(index, ErrorCode.UNKNOWN_TOPIC_ID) for index in asked.partition_indexes]
        else:
            partitions = self._partitions(topic.name, asked.partition_indexes, require_stable)
        return self._topic_class(topic_id=asked.topic_id, partitions=partitions)

    def _all_topics(self, require_stable: bool) -> list[Any]:
        if self._offsets is None:
            return []
        found = []
        for name, committed in self._offsets.topics.items():
            partitions = self._partitions(name, committed, require_stable)
            if not self._by_id:
                found.append(self._topic_class(name=name, partitions=partitions))
                continue
            topic = self._cache.topic(name)
            # Without a topic there is no id that could name it.
            if topic is not None:
                found.append(self._topic_class(topic_id=topic.topic_id, partitions=partitions))
        return found

    def _partitions(self, name: str, indexes: Iterable[int], require_stable: bool) -> list[Any]:
        offsets = self._offsets
        if offsets is None:
            return [self._partition(index, self._missing) for index in indexes]
        committed = offsets.topics.get(name, {})
        found = []
        for index in indexes:
            offset = committed.get(index)
            if require_stable and offsets.has_pending(name, index):
                found.append(self._partition(index, ErrorCode.UNSTABLE_OFFSET_COMMIT))
            elif offset is None:
                found.append(self._partition(index, self._missing))
            else:
                found.append(
                    self._partition_class(
                        partition_index=index,
                        committed_offset=offset.offset,
                        committed_leader_epoch=offset.leader_epoch,
                        metadata=offset.metadata,
                    )
                )
        return found

    def _partition(self, index: int, code: ErrorCode) -> Any:
        return self._partition_class(
            partition_index=index,
            committed_offset=_NO_OFFSET,
            committed_leader_epoch=NO_LEADER_EPOCH,
            metadata="",
            error_code=code,
        )


# OffsetDelete


def handle_offset_delete(ctx: RequestContext, request: Any) -> Struct:
    """OffsetDelete v0."""
    response = message("OffsetDeleteResponse")
    cache = ctx.services.metadata_cache
    known: list[tuple[str, int]] = []
    answer: Struct
    for asked in request.topics:
        topic = cache.topic(asked.name)
        if topic is not None:
            known += [
                (asked.name, each.partition_index)
                for each in asked.partitions
                if 0 <= each.partition_index < len(topic.partitions)
            ]
    try:
        if not request.group_id:
            raise InvalidGroupIdError()
        codes = ctx.services.group_coordinator.delete_offsets(request.group_id, known)
    except KafkaError as error:
        answer = response(error_code=error.code)
        return answer
    answer = response(
        topics=[
            response.OffsetDeleteResponseTopic(
                name=asked.name,
                partitions=[
                    response.OffsetDeleteResponsePartition(
                        partition_index=each.partition_index,
                        error_code=codes.get((asked.name, each.partition_index), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
                    )
                    for each in asked.partitions
                ],
            )
            for asked in request.topics
        ]
    )
    return answer


HANDLERS: tuple[Handler, ...] = (
    Handler(ApiKey.OFFSET_COMMIT, 0, 10, durably(handle_offset_commit)),
    Handler(ApiKey.OFFSET_FETCH, 0, 10, handle_offset_fetch),
    Handler(ApiKey.OFFSET_DELETE, 0, 0, durably(handle_offset_delete)),
)
