"""All groups that this broker coordinates, by id, and the way to and from `__consumer_offsets`.

A group lives on the partition that its id hashes to.  While that partition loads, its groups are kept apart: whoever
asks for one is told to come back.  `groups` holds served groups only, so finding one there is all the check that a
request needs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial

from kbroker.clock import Clock
from kbroker.coordinator import state_records
from kbroker.coordinator.group import Group
from kbroker.coordinator.group_state import GroupState
from kbroker.coordinator.messages import JoinResult, SyncResult
from kbroker.coordinator.partitioner import partition_for
from kbroker.coordinator.shard import KeyValue, Shard, ShardState, StateLog
from kbroker.coordinator.state_records import OffsetRecord, UnknownRecordError
from kbroker.coordinator.timers import CallLater
from kbroker.errors import CoordinatorNotAvailableError, ErrorCode, KafkaError

logger = logging.getLogger("kbroker.groups")

# What members and committers are told when the state topic refuses a write: only errors that their protocol knows.
_NOT_AVAILABLE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
_NOT_COORDINATOR = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR})
_TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_FETCH_SIZE})


def write_error(error: KafkaError, too_large: ErrorCode) -> ErrorCode:
    """The answer to a request whose records could not be written because of `error`."""
    if error.code in _NOT_AVAILABLE:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if error.code in _NOT_COORDINATOR:
        return ErrorCode.NOT_COORDINATOR
    return too_large if error.code in _TOO_LARGE else error.code


# So many times smaller do compressed metadata get at most.
PACKED_AT_MOST = 8


class GroupRegistry:
    """`on_loaded(group)` is called for each group of a partition that has been loaded."""

    def __init__(
        self,
        state_log: StateLog,
        clock: Clock,
        call_later: CallLater,
        load_buffer_bytes: int,
        compression: int,
        on_loaded: Callable[[Group], None],
    ) -> None:
        self.groups: dict[str, Group] = {}
        self._state_log = state_log
        self._clock = clock
        self._call_later = call_later
        self._load_buffer_bytes = load_buffer_bytes
        self._compression = compression
        self._on_loaded = on_loaded
        self._shards: list[Shard] = []
        self._loading: dict[int, dict[str, Group]] = {}

    # Partitions

    def open(self, partition_count: int, offline: Collection[int] = ()) -> None:
        """Load the partitions of the state topic, those that are not open yet; not those that have no log."""
        for index in range(len(self._shards), partition_count):
            shard = Shard(
                index,
                self._state_log,
                self,
                self._clock,
                self._call_later,
                self._load_buffer_bytes,
                self._compression,
            )
            self._shards.append(shard)
            if index in offline:
                shard.close(ShardState.OFFLINE)
            else:
                shard.load()

    def resign(self, offline: Collection[int]) -> None:
        """Serve the groups of partitions that have lost their log no more; their members look elsewhere."""
        lost = [shard for shard in self._shards if shard.index in offline and shard.state is not ShardState.OFFLINE]
        for shard in lost:
            shard.close(ShardState.OFFLINE)
            self._loading.pop(shard.index, None)
            groups = [group for group in self.groups.values() if group.partition_index == shard.index]
            logger.error("partition %d of the group state is offline, with %d groups", shard.index, len(groups))
            for group in groups:
                group.stop_timers()
                del self.groups[group.group_id]
            if groups:
                self._call_later(0, partial(_send_away, groups))

    def is_offline(self, group_id: str) -> bool:
        """Whether the group's partition has no log because of a disk."""
        return bool(self._shards) and self._shard_of(group_id).state is ShardState.OFFLINE

    def close(self) -> None:
        """Serve nothing any more.  Members that wait are sent to look for another coordinator."""
        for shard in self._shards:
            shard.close()
        groups = list(self.groups.values())
        for group in groups:
            group.stop_timers()
        if groups:
            # Later, as an answer lets its connection go on with the next request at once.
            self._call_later(0, lambda: _send_away(groups))
        self._shards.clear()
        self._loading.clear()
        self.groups.clear()

    def check_complete(self) -> None:
        """Raise unless every group is known, but for those on disks that have failed."""
        for shard in self._shards:
            if shard.state is not ShardState.OFFLINE:
                shard.check_active()

    def _shard_of(self, group_id: str) -> Shard:
        if not self._shards:
            raise CoordinatorNotAvailableError()
        return self._shards[partition_for(group_id, len(self._shards))]

    # Groups

    def find(self, group_id: str) -> Group | None:
        """The group, or None when there is none.  Raises while nobody can tell."""
        group = self.groups.get(group_id)
        if group is None and self._shards:
            self._shard_of(group_id).check_active()
        return group

    def create(self, group_id: str) -> Group:
        """A new, empty group; stored with its first offset or generation."""
        shard = self._shard_of(group_id)
        shard.check_active()
        group = self.groups[group_id] = Group(group_id, shard.index, self._clock.now_ms())
        return group

    def discard(self, group: Group) -> None:
        """Drop a group of which nothing is stored or that was deleted."""
        group.stop_timers()
        group.transition_to(GroupState.DEAD, self._clock.now_ms())
        self.groups.pop(group.group_id, None)

    def discard_unused(self, group: Group) -> None:
        """Drop a group that a refused request has brought about, so that nobody can fill the memory with names."""
        unused = group.state is GroupState.EMPTY and group.generation_id == 0
        if unused and not group.offsets and not group.pending_joins:
            self.discard(group)

    # Writing

    def append(self, group: Group, records: Iterable[KeyValue]) -> None:
        """Make records of a group durable.  Raises KafkaError."""
        self._shards[group.partition_index].append(records)

    def append_to(self, partition_index: int, records: Iterable[KeyValue]) -> None:
        """Make records of several groups of one partition durable.  Raises KafkaError."""
        self._shards[partition_index].append(records)

    def can_store(self, sizes: Iterable[int]) -> bool:
        """Whether metadata or assignments of these sizes, in bytes, can ever be stored.

        A group's record holds all of them in one batch.  What is some times larger than that may be, even if it is
        compressed, is refused before anything is copied or kept: as in Kafka such a group would never be stable, but
        hold the memory.
        """
        return sum(sizes) <= PACKED_AT_MOST * self._state_log.max_batch_bytes()

    def store_group(self, group: Group, assignments: Mapping[str, bytes]) -> ErrorCode:
        """Write a group's metadata with the given assignments."""
        key = state_records.group_key(group.group_id)
        try:
            self.append(group, [(key, state_records.group_value(group, assignments))])
        except KafkaError as error:
            logger.warning("group %s: its metadata could not be written: %s", group, error)
            return write_error(error, ErrorCode.UNKNOWN_SERVER_ERROR)
        return ErrorCode.NONE

    @staticmethod
    def tombstones(group: Group) -> list[KeyValue]:
        """The records that delete a group with all its offsets; the group itself last."""
        records: list[KeyValue] = [
            (state_records.offset_key(group.group_id, topic, partition), None) for topic, partition, _ in group.offsets
        ]
        records.append((state_records.group_key(group.group_id), None))
        return records

    # Replaying

    def replay(self, shard: Shard, key: bytes | None, value: bytes | None, producer_id: int) -> None:
        """Apply a record of `__consumer_offsets`."""
        try:
            record = state_records.parse_record(key, value)
        except UnknownRecordError as error:
            logger.warning("partition %d: record skipped: %s", shard.index, error)
            return
        groups = self._loading.setdefault(shard.index, {})
        group = groups.get(record.group_id)
        if group is None:
            if isinstance(record, OffsetRecord) and record.committed is None:
                return
            group = groups[record.group_id] = Group(record.group_id, shard.index, None)
        if isinstance(record, OffsetRecord):
            if record.committed is None:
                group.offsets.remove(record.topic, record.partition)
            elif producer_id >= 0:
                group.offsets.put_pending(producer_id, record.topic, record.partition, record.committed)
            else:
                group.offsets.put(record.topic, record.partition, record.committed)
        elif record.value is not None:
            state_records.restore_group(group, record.value)
        elif group.offsets:
            group.forget_everyone()
        else:
            del groups[record.group_id]

    def replay_end(self, shard: Shard, producer_id: int, committed: bool) -> None:
        """A transaction that wrote offsets ended."""
        for group in self._loading.get(shard.index, {}).values():
            if group.offsets.pending:
                group.offsets.decide(producer_id, committed)

    def check_partition(self, index: int) -> None:
        """Raise what a client is told while the groups of a partition are not served."""
        if index < len(self._shards):
            self._shards[index].check_active()

    def end_transaction(self, index: int, producer_id: int, committed: bool) -> None:
        """A transaction that wrote offsets ended, in a partition whose groups are served."""
        for group in self.groups.values():
            if group.partition_index == index and group.offsets.pending:
                group.offsets.decide(producer_id, committed)

    def loaded(self, shard: Shard, record_count: int, seconds: float) -> None:
        """Serve the groups of a partition."""
        served = self._loading.pop(shard.index, {})
        self.groups.update(served)
        if record_count:
            logger.info(
                "partition %d of the group state: %d groups from %d records in %.0f ms",
                shard.index,
                len(served),
                record_count,
                seconds * 1000,
            )
        for group in served.values():
            self._on_loaded(group)


def _send_away(groups: Iterable[Group]) -> None:
    for group in groups:
        for member in list(group.members.values()):
            group.answer_join(member, JoinResult(ErrorCode.NOT_COORDINATOR, member.member_id))
            group.answer_sync(member, SyncResult(ErrorCode.NOT_COORDINATOR))
