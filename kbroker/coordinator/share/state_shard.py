"""The state of share-partitions on one partition of `__share_group_state`, and what requests make of it.

Operations are pure: they look at the state and give the records to write, or raise.  Every change is an update until
`snapshot.update.records.per.snapshot` of them have gathered, then a snapshot, from which a load begins.  A request with
an older leader epoch than the known one comes from a leader that has been replaced; one with an older state epoch is
from before the group, or its offsets, were made anew.  Both are fenced.

Pruning: each state has a newest snapshot; records before the oldest of these are not needed (`needed_from`).  The
offset of a loaded state's snapshot is not known.  `cold` gives these states, and those without a new snapshot for long.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace

from kbroker.coordinator.runtime.plan import KeyValue, Plan
from kbroker.coordinator.share.state_records import (
    NO_EPOCH,
    ShareState,
    UnreadableRecordError,
    Update,
    deletion_record,
    parse_record,
    snapshot_record,
    update_record,
)
from kbroker.errors import FencedLeaderEpochError, FencedStateEpochError, InvalidRequestError
from kbroker.replication.share.persister import UNKNOWN_COUNT, SharePartitionKey, StateUpdate, StoredState
from kbroker.replication.share.state_batches import combine

logger = logging.getLogger("kbroker.share")

NOT_INITIALIZED = "operation on uninitialized share partition not allowed."
UNKNOWN_OFFSET = -1


class ShareStateShard:
    """A `CoordinatorState`.  `snapshot_offsets` says where the newest snapshot of a state is."""

    def __init__(self, index: int, updates_per_snapshot: int) -> None:
        self.index = index
        self.states: dict[SharePartitionKey, ShareState] = {}
        self.snapshot_offsets: dict[SharePartitionKey, int] = {}
        self._updates_per_snapshot = updates_per_snapshot

    # What the runtime asks

    def replay(self, key: bytes | None, value: bytes | None, producer_id: int) -> None:
        """Apply a record."""
        try:
            record = parse_record(key, value)
        except UnreadableRecordError as error:
            logger.warning("partition %d of the share state: record skipped: %s", self.index, error)
            return
        if record.value is None:
            self.states.pop(record.key, None)
            self.snapshot_offsets.pop(record.key, None)
        elif isinstance(record.value, ShareState):
            self.states[record.key] = record.value
            self.snapshot_offsets[record.key] = UNKNOWN_OFFSET
        else:
            known = self.states.get(record.key)
            if known is None:
                logger.warning("partition %d of the share state: an update without a snapshot", self.index)
            else:
                self.states[record.key] = known.updated(record.value)

    def replay_end_transaction(self, producer_id: int, committed: bool) -> None:
        """No transaction writes here."""

    def loaded(self, record_count: int, seconds: float) -> None:
        """All records were replayed."""
        if record_count:
            logger.info(
                "partition %d of the share state: %d share-partitions from %d records in %.0f ms",
                self.index,
                len(self.states),
                record_count,
                seconds * 1000,
            )

    def unloaded(self) -> None:
        """Another broker serves the partition."""
        self.states.clear()
        self.snapshot_offsets.clear()

    # Operations

    def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int, now_ms: int) -> Plan[None]:
        """Begin a state, or begin it anew (Kafka's initializeState).  Raises FencedStateEpochError."""
        _check_partition(key)
        known = self.states.get(key)
        if known is not None and state_epoch != NO_EPOCH and known.state_epoch > state_epoch:
            raise FencedStateEpochError()
        state = ShareState(
            state_epoch=state_epoch,
            leader_epoch=0 if known is None else known.leader_epoch,
            start_offset=start_offset,
            # From a given start offset no delivery is complete yet; from one that the leader is to pick, the count is
            # not known.
            delivery_complete_count=UNKNOWN_COUNT if start_offset < 0 else 0,
            batches=(),
            snapshot_epoch=0 if known is None else known.snapshot_epoch + 1,
            create_timestamp=now_ms,
            write_timestamp=now_ms,
        )
        return Plan(None, [snapshot_record(key, state)])

    def read(self, key: SharePartitionKey, leader_epoch: int, now_ms: int) -> Plan[StoredState]:
        """The state for a leader, whose epoch is noted where it is new.

        Raises FencedLeaderEpochError, InvalidRequestError."""
        _check_partition(key)
        known = self.states.get(key)
        if known is None:
            raise InvalidRequestError(f"Read {NOT_INITIALIZED}")
        if leader_epoch != NO_EPOCH and known.leader_epoch > leader_epoch:
            raise FencedLeaderEpochError()
        answer = StoredState(known.state_epoch, known.start_offset, known.batches)
        if leader_epoch in (NO_EPOCH, known.leader_epoch):
            return Plan(answer)
        noted = StateUpdate(known.state_epoch, leader_epoch, known.start_offset, known.delivery_complete_count, ())
        return Plan(answer, [self._record(key, known, noted, now_ms)])

    def write(self, key: SharePartitionKey, update: StateUpdate, now_ms: int) -> Plan[None]:
        """Note what a leader says.  Raises FencedLeaderEpochError, FencedStateEpochError, InvalidRequestError."""
        _check_partition(key)
        known = self.states.get(key)
        if known is None:
            raise InvalidRequestError(f"Write {NOT_INITIALIZED}")
        if update.leader_epoch != NO_EPOCH and known.leader_epoch > update.leader_epoch:
            raise FencedLeaderEpochError()
        if update.state_epoch != NO_EPOCH and known.state_epoch > update.state_epoch:
            raise FencedStateEpochError()
        return Plan(None, [self._record(key, known, update, now_ms)])

    def delete(self, key: SharePartitionKey) -> Plan[None]:
        """Forget a state; nothing where there is none."""
        _check_partition(key)
        return Plan(None, [deletion_record(key)] if key in self.states else ())

    def summary(self, key: SharePartitionKey) -> ShareState | None:
        """The state as it is; None where there is none."""
        _check_partition(key)
        return self.states.get(key)

    def _record(self, key: SharePartitionKey, known: ShareState, update: StateUpdate, now_ms: int) -> KeyValue:
        assert update.leader_epoch == NO_EPOCH or update.leader_epoch >= known.leader_epoch, (key, known, update)
        assert update.state_epoch == NO_EPOCH or update.state_epoch >= known.state_epoch, (key, known, update)
        if known.update_count < self._updates_per_snapshot and update.state_epoch in (NO_EPOCH, known.state_epoch):
            batches = combine(update.batches, update.start_offset)
            values = Update(
                known.snapshot_epoch,
                update.leader_epoch,
                update.start_offset,
                update.delivery_complete_count,
                batches,
            )
            return update_record(key, values)
        changed = known.updated(
            Update(0, update.leader_epoch, update.start_offset, update.delivery_complete_count, update.batches)
        )
        epoch = known.state_epoch if update.state_epoch == NO_EPOCH else update.state_epoch
        return snapshot_record(key, _renewed(replace(changed, state_epoch=epoch), now_ms))

    # Pruning

    def note_snapshot(self, key: SharePartitionKey, offset: int) -> None:
        """The newest record of `key`, just written at `offset`, is a snapshot if nothing has been added to it."""
        state = self.states.get(key)
        if state is not None and state.update_count == 0:
            assert offset > self.snapshot_offsets[key], (key, offset, self.snapshot_offsets[key])
            self.snapshot_offsets[key] = offset

    def needed_from(self, end_offset: int) -> int | None:
        """Records before this offset are not needed; None while that is not known."""
        assert self.snapshot_offsets.keys() == self.states.keys(), f"{self.index}: states whose snapshot is not known"
        least = min(self.snapshot_offsets.values(), default=end_offset)
        assert least <= end_offset, (self.index, least, end_offset)
        return None if least == UNKNOWN_OFFSET else least

    def cold(self, before_ms: int) -> Iterator[SharePartitionKey]:
        """States without a snapshot since `before_ms`, or whose snapshot was loaded."""
        for key, state in list(self.states.items()):
            if state.write_timestamp < before_ms or self.snapshot_offsets[key] == UNKNOWN_OFFSET:
                yield key

    def snapshot(self, key: SharePartitionKey, now_ms: int) -> Plan[None]:
        """Write a state as it is."""
        known = self.states.get(key)
        return Plan(None, () if known is None else [snapshot_record(key, _renewed(known, now_ms))])


def _renewed(state: ShareState, now_ms: int) -> ShareState:
    return replace(state, snapshot_epoch=state.snapshot_epoch + 1, write_timestamp=now_ms, update_count=0)


def _check_partition(key: SharePartitionKey) -> None:
    if key.partition < 0:
        raise InvalidRequestError("The partition id cannot be a negative number.")
