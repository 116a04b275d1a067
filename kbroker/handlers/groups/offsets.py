"""Committed offsets: OffsetCommit, OffsetFetch, OffsetDelete.

OffsetCommit v0-v10: v0 knows no members, and commits to ZooKeeper where there is one (`zookeeper_offsets`); v1 may
    bring the time of the commit, v2-v4 a retention time; v10 names topics by id.  Topics and partitions that do not
    exist are refused one by one (UNKNOWN_TOPIC_OR_PARTITION, v10 UNKNOWN_TOPIC_ID), the others go on.
OffsetFetch v0-v10: null topics (v2+) mean all; v7 may ask for stable offsets only; v8 asks for several groups; v9
    says which member of a consumer group asks, in which epoch; v10
    names topics by id.  What was never committed is offset -1 without an error; v0, which reads ZooKeeper where
    there is one, has UNKNOWN_TOPIC_OR_PARTITION there.
OffsetDelete v0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

from kbroker.coordinator.classic.messages import PartitionCommit, new_tuple
from kbroker.coordinator.classic.offset_commits import Committer
from kbroker.errors import ErrorCode, InvalidGroupIdError, KafkaError
from kbroker.gate.access import may_group, may_topic, require_group
from kbroker.handlers.groups.committed_state import ensure_group_topic, when_committed
from kbroker.handlers.groups.zookeeper_offsets import commit_to_zookeeper, read_from_zookeeper
from kbroker.handlers.table import Handler
from kbroker.metadata.topic_names import GROUP_METADATA_TOPIC
from kbroker.protocol.api import ApiKey
from kbroker.protocol.schema import INT64_MAX
from kbroker.schemas import schema, wire
from kbroker.security.authorizer import Operation
from kbroker.types import NO_LEADER_EPOCH, ZERO_UUID

if TYPE_CHECKING:
    Slot = wire.OffsetCommitResponse.OffsetCommitResponsePartition
    AskedTopic = wire.OffsetFetchRequest.OffsetFetchRequestTopic | wire.OffsetFetchRequest.OffsetFetchRequestTopics
    from kbroker._fast.base.slices import Pace
    from kbroker._fast.wire.codec import Struct
    from kbroker.cluster.member import ZooKeeperOffsets
    from kbroker.coordinator.classic.offsets import OffsetTable
    from kbroker.handlers.services import RequestContext
    from kbroker.metadata.cache import MetadataCache
    from kbroker.metadata.image import TopicImage

TopicT = TypeVar("TopicT")
PartitionT = TypeVar("PartitionT")
# What the coordinator is given at a time, some 2 ms of its work.
PORTION = 250
_NO_OFFSET = -1
_TOPIC_IDS_SINCE = schema("OffsetFetchRequest").first_version("groups.topics.topic_id")
_GROUPS_SINCE = schema("OffsetFetchRequest").first_version("groups")
_CODE_OF_ALL_SINCE = schema("OffsetFetchResponse").first_version("error_code")
_COMMIT_TIME_IN = schema("OffsetCommitRequest").first_version("topics.partitions.commit_timestamp")
# To look a member of an enumeration up takes longer than a commit has.
_READ = Operation.READ
_UNKNOWN, _REFUSED = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.GROUP_AUTHORIZATION_FAILED
_RETENTION_SINCE = schema("OffsetCommitRequest").first_version("retention_time_ms")
_RETENTION_UNTIL = schema("OffsetCommitRequest").last_version("retention_time_ms")


# OffsetCommit


async def handle_offset_commit(ctx: RequestContext, request: wire.OffsetCommitRequest) -> wire.OffsetCommitResponse:
    """OffsetCommit v0-v10."""
    version = ctx.api_version
    is_refused = not may_group(ctx, _READ, request.group_id)
    pace = ctx.services.slices.pace()
    response = wire.OffsetCommitResponse
    outcome = response.OffsetCommitResponsePartition
    cache = ctx.services.metadata_cache
    expire_timestamp = -1
    if _RETENTION_SINCE <= version <= _RETENTION_UNTIL and request.retention_time_ms >= 0:
        expire_timestamp = min(ctx.services.clock.now_ms() + request.retention_time_ms, INT64_MAX)
    has_time = version == _COMMIT_TIME_IN
    commits: list[PartitionCommit] = []
    slots: list[Slot] = []
    topics = []
    for asked in request.topics:
        await pace
        topic, missing = (None, _REFUSED) if is_refused else _find_topic(ctx, cache, asked)
        name, topic_id, count = ("", b"", 0) if topic is None else (topic.name, topic.topic_id, len(topic.partitions))
        partitions = []
        for each in asked.partitions:
            await pace
            index = each.partition_index
            slot = outcome(partition_index=index)
            partitions.append(slot)
            if topic is None:
                slot.error_code = missing
            elif not 0 <= index < count:
                slot.error_code = _UNKNOWN
            else:
                slots.append(slot)
                time_ms = each.commit_timestamp if has_time else -1
                metadata, epoch = each.committed_metadata or "", each.committed_leader_epoch
                values = name, index, each.committed_offset, epoch, metadata, time_ms, expire_timestamp, topic_id
                commits.append(new_tuple(PartitionCommit, values))
        topics.append(
            response.OffsetCommitResponseTopic(name=asked.name, topic_id=asked.topic_id, partitions=partitions)
        )
    if commits:
        committer = Committer(
            request.group_id, request.generation_id_or_member_epoch, request.member_id, request.group_instance_id
        )
        kept = _in_zookeeper(ctx)
        if kept is None and cache.topic(GROUP_METADATA_TOPIC) is None:
            await ensure_group_topic(ctx)
        # Portion by portion: each is admitted by itself, as the group may have begun a new generation meanwhile.
        for start in range(0, len(commits), PORTION):
            await pace
            portion = commits[start : start + PORTION]
            codes = _commit(ctx, committer, portion) if kept is None else await _keep(ctx, kept, committer, portion)
            for at, code in enumerate(codes, start):
                if code:
                    slots[at].error_code = code
    return response(topics=topics)


def _commit(ctx: RequestContext, committer: Committer, commits: list[PartitionCommit]) -> list[ErrorCode]:
    """One code for each commit, by the group's coordinator."""
    try:
        return ctx.services.group_coordinator.commit_offsets(committer, commits, ctx.api_version)
    except KafkaError as error:
        return [error.code] * len(commits)


async def _keep(
    ctx: RequestContext, kept: ZooKeeperOffsets, committer: Committer, commits: list[PartitionCommit]
) -> list[ErrorCode]:
    """The same where clients of version 0 keep their offsets in ZooKeeper."""
    most = ctx.services.config.get("offset.metadata.max.bytes")
    try:
        return await commit_to_zookeeper(kept, committer.group_id, commits, most)
    except KafkaError as error:
        return [error.code] * len(commits)


def _in_zookeeper(ctx: RequestContext) -> ZooKeeperOffsets | None:
    """Where clients of version 0 keep their offsets; None: with all others."""
    return ctx.services.zookeeper_offsets if ctx.api_version == 0 else None


def _refused_commits(answer: wire.OffsetCommitResponse, code: ErrorCode) -> wire.OffsetCommitResponse:
    """Those that were stored, and are not committed."""
    for topic in answer.topics:
        for partition in topic.partitions:
            partition.error_code = partition.error_code or code
    return answer


def _find_topic(
    ctx: RequestContext, cache: MetadataCache, asked: wire.OffsetCommitRequest.OffsetCommitRequestTopic
) -> tuple[TopicImage | None, ErrorCode]:
    """The topic that a request names, and the error if there is none that the client may read.  An id that no topic
    has is unknown to every client."""
    has_ids = ctx.api_version >= _TOPIC_IDS_SINCE
    topic = cache.topic_by_id(asked.topic_id) if has_ids else cache.topic(asked.name)
    if topic is None and has_ids:
        return None, ErrorCode.UNKNOWN_TOPIC_ID
    if not may_topic(ctx, _READ, asked.name if topic is None else topic.name):
        return None, ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return topic, _UNKNOWN


# OffsetFetch


async def handle_offset_fetch(ctx: RequestContext, request: wire.OffsetFetchRequest) -> wire.OffsetFetchResponse:
    """OffsetFetch v0-v10."""
    response = wire.OffsetFetchResponse
    pace = ctx.services.slices.pace()
    if ctx.api_version >= _GROUPS_SINCE:
        groups = [await _fetch_group(ctx, group, request.require_stable, pace) for group in request.groups]
        return response(groups=groups)
    try:
        require_group(ctx, Operation.DESCRIBE, request.group_id)
        kept = _in_zookeeper(ctx)
        offsets: OffsetTable | None
        if kept is None:
            offsets = ctx.services.group_coordinator.offsets_of(request.group_id)
        else:
            asked = [(each.name, each.partition_indexes) for each in request.topics or ()]
            offsets = await read_from_zookeeper(kept, ctx.services.metadata_cache, request.group_id, asked, pace)
    except KafkaError as error:
        return await _fetch_failed(ctx, request, error.code, pace)
    fetch = _OffsetFetch(ctx, response.OffsetFetchResponseTopic, response.OffsetFetchResponsePartition, offsets, pace)
    return response(topics=await fetch.topics(request.topics, request.require_stable))


async def _fetch_failed(
    ctx: RequestContext, request: wire.OffsetFetchRequest, code: ErrorCode, pace: Pace
) -> wire.OffsetFetchResponse:
    """An error of the whole group; v0 and v1 have error codes only per partition."""
    response = wire.OffsetFetchResponse
    if ctx.api_version >= _CODE_OF_ALL_SINCE:
        return response(error_code=code)
    topics = []
    for topic in request.topics or ():
        await pace
        partitions = []
        for index in topic.partition_indexes:
            await pace
            partitions.append(
                response.OffsetFetchResponsePartition(
                    partition_index=index, committed_offset=_NO_OFFSET, metadata="", error_code=code
                )
            )
        topics.append(response.OffsetFetchResponseTopic(name=topic.name, partitions=partitions))
    return response(topics=topics)


def _refused_fetch(answer: wire.OffsetFetchResponse, code: ErrorCode) -> wire.OffsetFetchResponse:
    """Refuses the fetch: an offset whose record is not committed may be lost, so a group must not continue from it.  v0
    and v1 have error codes only per partition."""
    answer.error_code = answer.error_code or code
    for topic in answer.topics:
        for partition in topic.partitions:
            partition.committed_offset = _NO_OFFSET
            partition.error_code = partition.error_code or code
    for group in answer.groups:
        if group.error_code == 0:
            group.error_code, group.topics = code, []
    return answer


async def _fetch_group(
    ctx: RequestContext, group: wire.OffsetFetchRequest.OffsetFetchRequestGroup, require_stable: bool, pace: Pace
) -> wire.OffsetFetchResponse.OffsetFetchResponseGroup:
    await pace
    response = wire.OffsetFetchResponse
    try:
        require_group(ctx, Operation.DESCRIBE, group.group_id)
        offsets = ctx.services.group_coordinator.offsets_of(group.group_id, group.member_id, group.member_epoch)
    except KafkaError as error:
        return response.OffsetFetchResponseGroup(group_id=group.group_id, error_code=error.code)
    fetch = _OffsetFetch(ctx, response.OffsetFetchResponseTopics, response.OffsetFetchResponsePartitions, offsets, pace)
    topics = await fetch.topics(group.topics, require_stable)
    return response.OffsetFetchResponseGroup(group_id=group.group_id, topics=topics)


class _OffsetFetch(Generic[TopicT, PartitionT]):
    """Answers for one group; the structs differ between v0-v7 and v8+, their fields do not."""

    __slots__ = ("_by_id", "_cache", "_ctx", "_missing", "_offsets", "_pace", "_partition_class", "_topic_class")

    def __init__(
        self,
        ctx: RequestContext,
        topic_class: Callable[..., TopicT],
        partition_class: Callable[..., PartitionT],
        offsets: OffsetTable | None,
        pace: Pace,
    ) -> None:
        self._ctx = ctx
        self._pace = pace
        self._cache = ctx.services.metadata_cache
        self._by_id = ctx.api_version >= _TOPIC_IDS_SINCE
        self._topic_class = topic_class
        self._partition_class = partition_class
        self._offsets = offsets
        self._missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if ctx.api_version == 0 else ErrorCode.NONE

    async def topics(self, asked: Sequence[AskedTopic] | None, require_stable: bool) -> list[TopicT]:
        if asked is None:
            return await self._all_topics(require_stable)
        return [await self._asked_topic(topic, require_stable) for topic in asked]

    async def _asked_topic(self, asked: AskedTopic, require_stable: bool) -> TopicT:
        await self._pace
        name = asked.name
        if not self._by_id or isinstance(asked, wire.OffsetFetchRequest.OffsetFetchRequestTopic):
            partitions = await self._allowed_partitions(name, asked.partition_indexes, require_stable)
            return self._topic_class(name=name, partitions=partitions)
        topic = self._cache.topic_by_id(asked.topic_id)
        if topic is None:
            partitions = await self._failed(asked.partition_indexes, ErrorCode.UNKNOWN_TOPIC_ID)
        else:
            indexes = asked.partition_indexes
            partitions = await self._allowed_partitions(topic.name, indexes, require_stable, topic.topic_id)
        return self._topic_class(topic_id=asked.topic_id, partitions=partitions)

    async def _allowed_partitions(
        self, name: str, indexes: Iterable[int], require_stable: bool, topic_id: bytes = ZERO_UUID
    ) -> list[PartitionT]:
        if not may_topic(self._ctx, Operation.DESCRIBE, name):
            return await self._failed(indexes, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return await self._partitions(name, indexes, require_stable, topic_id)

    async def _failed(self, indexes: Iterable[int], code: ErrorCode) -> list[PartitionT]:
        partitions = []
        for index in indexes:
            await self._pace
            partitions.append(self._partition(index, code))
        return partitions

    async def _all_topics(self, require_stable: bool) -> list[TopicT]:
        if self._offsets is None:
            return []
        found = []
        for name, committed in list(self._offsets.topics.items()):
            await self._pace
            if not may_topic(self._ctx, Operation.DESCRIBE, name):
                continue
            if not self._by_id:
                partitions = await self._partitions(name, list(committed), require_stable, ZERO_UUID)
                found.append(self._topic_class(name=name, partitions=partitions))
                continue
            topic = self._cache.topic(name)
            # Without a topic there is no id that could name it.
            if topic is not None:
                topic_id = topic.topic_id
                partitions = await self._partitions(name, list(committed), require_stable, topic_id)
                found.append(self._topic_class(topic_id=topic_id, partitions=partitions))
        return found

    async def _partitions(
        self, name: str, indexes: Iterable[int], require_stable: bool, topic_id: bytes
    ) -> list[PartitionT]:
        """A client that names a topic by its id gets nothing of an earlier one of that name."""
        offsets = self._offsets
        found = []
        for index in indexes:
            await self._pace
            offset = None if offsets is None else offsets.get(name, index)
            if require_stable and offsets is not None and offsets.has_pending(name, index):
                found.append(self._partition(index, ErrorCode.UNSTABLE_OFFSET_COMMIT))
            elif offset is None or _is_of_another(offset.topic_id, topic_id):
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

    def _partition(self, index: int, code: ErrorCode) -> PartitionT:
        return self._partition_class(
            partition_index=index,
            committed_offset=_NO_OFFSET,
            committed_leader_epoch=NO_LEADER_EPOCH,
            metadata="",
            error_code=code,
        )


def _is_of_another(stored_topic_id: bytes, topic_id: bytes) -> bool:
    return ZERO_UUID not in (stored_topic_id, topic_id) and stored_topic_id != topic_id


# OffsetDelete


async def handle_offset_delete(ctx: RequestContext, request: wire.OffsetDeleteRequest) -> Struct:
    """OffsetDelete v0."""
    response = wire.OffsetDeleteResponse
    pace = ctx.services.slices.pace()
    try:
        require_group(ctx, Operation.DELETE, request.group_id)
        codes = await _delete(ctx, request, pace)
    except KafkaError as error:
        return response(error_code=error.code)
    topics = []
    for asked in request.topics:
        await pace
        partitions = []
        is_readable = may_topic(ctx, Operation.READ, asked.name)
        missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_readable else ErrorCode.TOPIC_AUTHORIZATION_FAILED
        for each in asked.partitions:
            await pace
            index = each.partition_index
            code = codes.get((asked.name, index), missing)
            partitions.append(response.OffsetDeleteResponsePartition(partition_index=index, error_code=code))
        topics.append(response.OffsetDeleteResponseTopic(name=asked.name, partitions=partitions))
    return response(topics=topics)


async def _delete(
    ctx: RequestContext, request: wire.OffsetDeleteRequest, pace: Pace
) -> dict[tuple[str, int], ErrorCode]:
    """One code for each partition that exists and may be read.  Raises what concerns the whole group, as it is at each
    portion."""
    cache = ctx.services.metadata_cache
    known: list[tuple[str, int]] = []
    for asked in request.topics:
        await pace
        topic = cache.topic(asked.name)
        if topic is not None and may_topic(ctx, Operation.READ, asked.name):
            for each in asked.partitions:
                await pace
                if 0 <= each.partition_index < len(topic.partitions):
                    known.append((asked.name, each.partition_index))
    if not request.group_id:
        raise InvalidGroupIdError()
    codes: dict[tuple[str, int], ErrorCode] = {}
    for start in range(0, max(1, len(known)), PORTION):
        await pace
        portion = known[start : start + PORTION]
        codes |= ctx.services.group_coordinator.delete_offsets(request.group_id, portion)
    return codes


HANDLERS: tuple[Handler, ...] = (
    Handler(ApiKey.OFFSET_COMMIT, 0, 10, when_committed(handle_offset_commit, _refused_commits)),
    Handler(ApiKey.OFFSET_FETCH, 0, 10, when_committed(handle_offset_fetch, _refused_fetch)),
    Handler(ApiKey.OFFSET_DELETE, 0, 0, when_committed(handle_offset_delete)),
)
