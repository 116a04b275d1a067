"""All groups that this broker coordinates, by id, and the way to and from `__consumer_offsets`.

A group lives on the partition that its id hashes to.  `GroupPartition` is the state of one partition in the runtime:
while it loads, it keeps its groups to itself.  So the registry's `groups` holds served groups only, and a request that
finds its group there needs no other check.

Every kind of group lives in this one namespace of ids.  A kind registers what its records mean in `record_kinds`, by
record type; committed offsets belong to a group of any kind.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from kbroker.clock import Clock
from kbroker.coordinator.classic import state_records
from kbroker.coordinator.classic.group import Group
from kbroker.coordinator.classic.group_state import GroupState
from kbroker.coordinator.classic.messages import JoinResult, SyncResult
from kbroker.coordinator.classic.refusals import Refusals
from kbroker.coordinator.classic.state_records import OffsetRecord
from kbroker.coordinator.modern.kind_records import UnknownRecordError
from kbroker.coordinator.runtime.coordinator_runtime import CoordinatorRuntime
from kbroker.coordinator.runtime.plan import KeyValue, write_error
from kbroker.coordinator.runtime.shard import Shard, ShardState, StateLog
from kbroker.errors import ErrorCode, KafkaError
from kbroker.metadata.topic_names import GROUP_METADATA_TOPIC
from kbroker.waiting import CallLater

if TYPE_CHECKING:
    from kbroker._fast.base.slices import Slices
    from kbroker.metadata.cache import MetadataCache

logger = logging.getLogger("kbroker.groups")

RECORD_TYPE = struct.Struct(">h")

# The largest ratio by which compression is assumed to shrink a group's metadata.
PACKED_AT_MOST = 8


class GroupPartition:
    """The groups of one partition of `__consumer_offsets`.  After loading, `groups` is the registry's table of the
    groups of all partitions.  `deleted_topics`: topics that were deleted while the partition was loading."""

    def __init__(self, registry: GroupRegistry, shard: Shard[GroupPartition]) -> None:
        self.index = shard.index
        self.timers = shard.timers
        self.groups: dict[str, Group] = {}
        self.deleted_topics: set[str] = set()
        self._registry = registry
        # By producer id: the groups in which its open transaction has pending offsets.
        self._transactions: dict[int, set[str]] = {}

    def replay(self, key: bytes | None, value: bytes | None, producer_id: int) -> None:
        """Apply a record of `__consumer_offsets`."""
        try:
            if key is not None and len(key) >= RECORD_TYPE.size:
                kind = self._registry.record_kinds.get(RECORD_TYPE.unpack_from(key)[0])
                if kind is not None:
                    kind(self, key, value)
                    return
            record = state_records.parse_record(key, value)
        except UnknownRecordError as error:
            logger.warning("partition %d: record skipped: %s", self.index, error)
            return
        groups = self.groups
        group = groups.get(record.group_id)
        if group is None:
            if isinstance(record, OffsetRecord) and record.committed is None:
                return
            group = self.group(record.group_id)
        if isinstance(record, OffsetRecord):
            if record.committed is None:
                group.offsets.remove(record.topic, record.partition)
            elif producer_id >= 0:
                self._transactions.setdefault(producer_id, set()).add(record.group_id)
                group.offsets.put_pending(producer_id, record.topic, record.partition, record.committed)
            else:
                group.offsets.put(record.topic, record.partition, record.committed)
        elif record.value is not None:
            if group.kind is not None:
                group.become(None)
            state_records.restore_group(group, record.value)
        elif group.kind is None:
            # Of a group that is served: none of its timers may go off any more.
            group.become(None)
            if not group.offsets:
                del groups[record.group_id]

    def group(self, group_id: str) -> Group:
        """The group with that id, made if there is none."""
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = Group(group_id, self.index, None)
        return group

    def end_kind(self, group_id: str) -> None:
        """The group of a newer kind is gone; what is left is its offsets, if there are any."""
        group = self.groups.get(group_id)
        if group is not None and group.kind is not None:
            group.become(None)
            if not group.offsets:
                del self.groups[group_id]

    def replay_end_transaction(self, producer_id: int, committed: bool) -> None:
        """A transaction that wrote offsets ended."""
        for group_id in self._transactions.pop(producer_id, ()):
            group = self.groups.get(group_id)
            if group is not None:
                # A group that is left without offsets stays until it expires, as it would after a load.
                group.offsets.decide(producer_id, committed)

    def loaded(self, record_count: int, seconds: float) -> None:
        """Serve the groups of this partition."""
        groups, self.groups = self.groups, self._registry.groups
        # A group may be of two partitions, where those of the topic have become more: the last that was loaded counts.
        assert groups is not self.groups, f"partition {self.index} is loaded"
        self.groups.update(groups)
        if record_count:
            logger.info(
                "partition %d of the group state: %d groups from %d records in %.0f ms",
                self.index,
                len(groups),
                record_count,
                seconds * 1000,
            )
        if self.deleted_topics:
            self._registry.forget_topics(frozenset(self.deleted_topics), list(groups.values()))
        for group in groups.values():
            self._registry.on_loaded(group)

    def unloaded(self) -> None:
        """Serve the groups of this partition no more; their members look elsewhere."""
        if self.groups is self._registry.groups:
            self._registry.forget_partition(self.index)
            assert all(each.partition_index != self.index for each in self.groups.values()), f"{self.index} is left"
        self.groups = {}


class GroupRegistry:
    """`on_loaded(group)` is called for each group of a partition that has been loaded; `forget_topics(names, groups)`
    removes the offsets of deleted topics."""

    def __init__(
        self,
        node_id: int,
        state_log: StateLog,
        clock: Clock,
        call_later: CallLater,
        slices: Slices,
        load_buffer_bytes: int,
        compression: int,
        on_loaded: Callable[[Group], None],
        refusals: Refusals,
    ) -> None:
        self.groups: dict[str, Group] = {}
        self.refusals = refusals
        self.record_kinds: dict[int, Callable[[GroupPartition, bytes, bytes | None], None]] = {}
        self.on_loaded = on_loaded
        self.forget_topics: Callable[[frozenset[str], Iterable[Group]], None] = lambda _topics, _groups: None
        self._state_log = state_log
        self._clock = clock
        self._call_later = call_later
        self.runtime: CoordinatorRuntime[GroupPartition] = CoordinatorRuntime(
            GROUP_METADATA_TOPIC,
            node_id,
            state_log,
            clock,
            call_later,
            slices,
            partial(GroupPartition, self),
            load_buffer_bytes,
            compression,
            max(state_records.OFFSET_TYPES),
        )

    # Partitions

    def open(self, metadata_cache: MetadataCache) -> None:
        """Load the partitions that this broker leads, now and whenever it becomes a leader."""
        self.runtime.start(metadata_cache)

    def close(self) -> None:
        """Serve nothing any more.  Members that wait are sent to look for another coordinator."""
        self.runtime.stop()

    def forget_partition(self, index: int) -> None:
        """Drop the groups of a partition that is no longer served."""
        groups = [group for group in self.groups.values() if group.partition_index == index]
        for group in groups:
            group.stop_timers()
            del self.groups[group.group_id]
        if groups:
            logger.info("partition %d of the group state is served no more, with %d groups", index, len(groups))
            # In a later turn of the loop, because an answer makes its connection handle the next request at once.
            self._call_later(0, partial(_send_away, groups))

    def is_offline(self, group_id: str) -> bool:
        """Whether the group's partition is not served by this broker: its log is elsewhere, or its disk has failed."""
        return self.runtime.is_elsewhere(group_id)

    def check_complete(self) -> None:
        """Raise unless every group that this broker coordinates is known."""
        self.runtime.check_complete()

    def topics_deleted(self, topics: frozenset[str]) -> None:
        """Topics were deleted: remove their offsets, in partitions that are loading once these are loaded."""
        for shard in self.runtime.shards:
            if shard.state is ShardState.LOADING and shard.coordinator is not None:
                shard.coordinator.deleted_topics |= topics
        self.forget_topics(topics, list(self.groups.values()))

    def _shard_of(self, group_id: str) -> Shard[GroupPartition]:
        return self.runtime.shard(self.runtime.partition_of(group_id))

    # Groups

    def find(self, group_id: str) -> Group | None:
        """The group, or None when there is none.  Raises while that is not known."""
        group = self.groups.get(group_id)
        if group is None:
            self.runtime.check_coordinates(group_id)
        return group

    def create(self, group_id: str) -> Group:
        """A new, empty group; stored with its first offset or generation."""
        shard = self._shard_of(group_id)
        shard.check_active()
        assert group_id not in self.groups, f"group {group_id} is there already"
        group = self.groups[group_id] = Group(group_id, shard.index, self._clock.now_ms())
        return group

    def discard(self, group: Group) -> None:
        """Drop a group of which nothing is stored or that was deleted."""
        group.stop_timers()
        assert self.groups.get(group.group_id) in (None, group), f"another group {group} is there by now"
        group.transition_to(GroupState.DEAD, self._clock.now_ms())
        self.groups.pop(group.group_id, None)

    def discard_unused(self, group: Group) -> None:
        """Drop a group that exists only because of a refused request: clients must not fill the memory with names."""
        unused = group.state is GroupState.EMPTY and group.generation_id == 0 and group.kind is None
        if unused and not group.offsets and not group.pending_joins:
            self.discard(group)

    # Writing

    def append(self, group: Group, records: Iterable[KeyValue]) -> None:
        """Make records of a group durable.  Raises KafkaError."""
        self.runtime.shard(group.partition_index).append_divided(records)

    def append_to(self, partition_index: int, records: Iterable[KeyValue]) -> None:
        """Make records of several groups of one partition durable; the caller changes the groups after that.  Raises
        KafkaError."""
        self.runtime.shard(partition_index).append_divided(records)

    def can_store(self, sizes: Iterable[int]) -> bool:
        """Whether metadata or assignments of these sizes, in bytes, can ever be stored.

        All of them go into one record, thus into one batch.  Sizes that exceed the largest batch even if compression
        shrinks them `PACKED_AT_MOST` times are refused before anything is copied or kept: as in Kafka, such a group
        would never become Stable, but its members would occupy memory.
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
            (state_records.offset_key(group.group_id, *place), None) for place in group.offsets.places()
        ]
        if group.kind is not None:
            return records + group.kind.tombstones()
        records.append((state_records.group_key(group.group_id), None))
        return records

    # Transactions

    def check_partition(self, index: int) -> None:
        """Raise a client's error while the groups of a partition are not served."""
        if index < len(self.runtime.shards):
            self.runtime.shard(index).check_active()

    def end_transaction(self, index: int, producer_id: int, committed: bool) -> None:
        """A transaction that wrote offsets ended, in a partition whose groups are served."""
        coordinator = self.runtime.shard(index).coordinator
        if coordinator is not None:
            coordinator.replay_end_transaction(producer_id, committed)


def _send_away(groups: Iterable[Group]) -> None:
    for group in groups:
        for member in list(group.members.values()):
            group.answer_join(member, JoinResult(ErrorCode.NOT_COORDINATOR, member.member_id))
            group.answer_sync(member, SyncResult(ErrorCode.NOT_COORDINATOR))
