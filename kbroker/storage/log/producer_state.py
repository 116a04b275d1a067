"""Idempotent producers and transactions of one partition.

For each producer id the last five batches are kept, so that a retry of any of them is answered with the first
append's offsets and a gap in the sequence is refused. Open transactions are kept by their first offset; the smallest
one that is open, or ended but not below the high watermark yet, is the first unstable offset, where a READ_COMMITTED
reader stops.

    append     validate(batch) -> duplicate or raise; write; update(batch) -> a transaction that it ended, or None
    restart    load(snapshot) of the largest offset at or below the end, then update(batch) for each batch after it

The first batch of a transaction needs a guard (KIP-890): `start_verification` gives one before the coordinator is asked
whether the partition belongs to the transaction, and the append has to bring it back.  A marker that ends the
transaction in between takes the guard away, so that a late batch cannot open a transaction that no coordinator will
end.

`map_end_offset` is the offset up to which the state is known; a snapshot is written when it is past the last one. A
producer that has no open transaction is forgotten after `producer.id.expiration.ms` without a batch, or earlier when
the broker remembers too many (`kbroker.max.producers`): its next batch is then taken whatever its sequence, and a retry
of one that was stored before is not recognised.
"""

from __future__ import annotations

import contextlib
import logging
from typing import NamedTuple

from kbroker._fast.base.build_facts import CHECKED
from kbroker._fast.log.log_fields import ProducerFields
from kbroker._fast.log.producer_entry import ProducerEntry
from kbroker._fast.log.producer_table import ProducerBudget, ProducerTable
from kbroker._fast.records.record_batch import BatchInfo
from kbroker.errors import ErrorCode, InvalidProducerEpochError, InvalidTxnStateError, KafkaError
from kbroker.errors import OutOfOrderSequenceNumberError as OutOfOrderError
from kbroker.storage.files.filesystem import FileSystem
from kbroker.storage.log.log_segment import base_offset_of
from kbroker.storage.log.log_values import AppendOrigin
from kbroker.storage.log.producer_snapshot import (
    EMPTY_SNAPSHOT_BYTES,
    SNAPSHOT_SUFFIX,
    CorruptSnapshotError,
    decode_snapshot,
    encode_snapshot,
)
from kbroker.storage.log.verification import NO_GUARD, VerificationGuard, VerificationState
from kbroker.types import FIRST_OFFSET, NO_TIMESTAMP, Offset, TopicPartition

logger = logging.getLogger("kbroker.storage")

NO_EPOCH = -1
EPOCH_PER_TRANSACTION = 2
DEFAULT_EXPIRATION_MS = 86_400_000


class Duplicate(NamedTuple):
    """A batch that was appended before, with the offsets and time it got then."""

    first_offset: Offset
    last_offset: Offset
    timestamp: int


class ControlMarker(NamedTuple):
    """The end of a transaction as a control batch states it."""

    is_abort: bool
    coordinator_epoch: int


class CompletedTransaction(NamedTuple):
    """A transaction that its marker has just ended."""

    producer_id: int
    first_offset: Offset
    last_offset: Offset
    is_aborted: bool


class ProducerState(ProducerFields):
    """The state of one partition, on the loop.  Its log alone changes it: appends, truncation, recovery."""

    __slots__ = (
        "_directory",
        "_files",
        "_ongoing",
        "_topic_partition",
        "expiration_ms",
        "last_snapshot_offset",
        "map_end_offset",
        "snapshots",
        "verifies",
    )

    producers: ProducerTable
    verifications: dict[int, VerificationState]

    def __init__(
        self,
        files: FileSystem,
        topic_partition: TopicPartition,
        directory: str,
        expiration_ms: int = DEFAULT_EXPIRATION_MS,
        budget: ProducerBudget | None = None,
        *,
        verifies: bool = False,
    ) -> None:
        self._files = files
        self._topic_partition = topic_partition
        self._directory = directory
        self.expiration_ms = expiration_ms
        self.verifies = verifies
        self.producers = ProducerTable(budget)
        self.verifications: dict[int, VerificationState] = {}
        self._ongoing: dict[Offset, int] = {}
        self.unreplicated: dict[Offset, Offset] = {}
        self.first_unstable_offset: Offset | None = None
        self.map_end_offset = FIRST_OFFSET
        self.last_snapshot_offset = 0
        self.snapshots: dict[Offset, int] = {}

    def beside(self) -> ProducerState:
        """An empty state of the same partition, which has the same snapshots and counts for no budget."""
        scratch = ProducerState(self._files, self._topic_partition, self._directory, self.expiration_ms)
        scratch.snapshots = self.snapshots
        return scratch

    # -- append -------------------------------------------------------------------------------------------------------

    def validate(
        self, info: BatchInfo, origin: AppendOrigin, offset: Offset, guard: VerificationGuard = NO_GUARD
    ) -> Duplicate | None:
        """Looks at a batch that has a producer id before it is written at `offset`.  Raises InvalidTxnStateError."""
        if origin is AppendOrigin.CLIENT and not self.verifications and self.producers.is_next(info):
            return None
        if origin is AppendOrigin.REPLICATION:
            return None
        entry = self.producers.get(info.producer_id)
        if origin is AppendOrigin.CLIENT and entry is not None:
            found = entry.find(info.producer_epoch, info.base_sequence, info.last_sequence)
            if found is not None:
                return Duplicate(*found)
        if info.is_transactional and not self.has_ongoing_transaction(info.producer_id, info.producer_epoch):
            self._validate_guard(info, entry, guard)
        if info.is_control:
            if entry is not None:
                self._validate_epoch(entry, info.producer_epoch, offset)
            return None
        if entry is not None:
            self._validate_epoch(entry, info.producer_epoch, offset)
        if origin is AppendOrigin.CLIENT:
            self._validate_sequence(info, entry, offset)
        if entry is not None and not info.is_transactional and entry.current_txn_first_offset >= 0:
            raise InvalidTxnStateError(
                f"Expected transactional write from producer {entry.producer_id} at offset {offset} in partition "
                f"{self._topic_partition}"
            )
        return None

    def _validate_sequence(self, info: BatchInfo, entry: ProducerEntry | None, offset: Offset) -> None:
        epoch, first = info.producer_epoch, info.base_sequence
        verification = self.verifications.get(info.producer_id)
        if verification is not None:
            where = f"for producer {info.producer_id} at offset {offset} in partition {self._topic_partition}"
            if verification.supports_epoch_bump and first != 0 and (entry is None or not entry.count):
                raise OutOfOrderError(
                    f"Invalid sequence number {where}: {first} (incoming seq. number). Expected sequence 0 for "
                    f"transactions v2 idempotent producer with no existing state."
                )
            if first > verification.lowest_sequence:
                raise OutOfOrderError(
                    f"Out of order sequence number {where}: {first} (incoming seq. number), "
                    f"{verification.lowest_sequence} (earliest seen sequence)"
                )
        if entry is None or entry.producer_epoch == NO_EPOCH:
            return
        if epoch != entry.producer_epoch:
            if first != 0:
                raise OutOfOrderError(
                    f"Invalid sequence number for new epoch of producer {entry.producer_id} at offset {offset} in "
                    f"partition {self._topic_partition}: {epoch} (request epoch), {first} (seq. number), "
                    f"{entry.producer_epoch} (current producer epoch)"
                )
        elif first != entry.next_sequence:
            raise self._out_of_order(entry, first, offset)

    def validate_marker(self, info: BatchInfo, marker: ControlMarker, offset: Offset) -> None:
        """Judges an end-of-transaction marker of a coordinator that may have been replaced.  Raises KafkaError."""
        entry = self.producers.get(info.producer_id)
        if entry is not None and entry.coordinator_epoch > marker.coordinator_epoch:
            raise KafkaError.of(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"Invalid coordinator epoch for producerId {info.producer_id} at offset {offset} in partition "
                f"{self._topic_partition}: {marker.coordinator_epoch} (zombie), {entry.coordinator_epoch} (current)",
            )

    def validate_final_epoch(self, producer_id: int, epoch: int, transaction_version: int, offset: Offset) -> None:
        """Judges the epoch of a marker of transaction version 2 or later (KIP-890): there each has one of its own.

        InvalidProducerEpochError for a late one; one that is sent again, after the transaction has ended, is not.
        """
        entry = self.producers.get(producer_id)
        if transaction_version < EPOCH_PER_TRANSACTION or entry is None or epoch > entry.producer_epoch:
            return
        if epoch != entry.producer_epoch or entry.current_txn_first_offset >= 0:
            raise InvalidProducerEpochError(
                f"Epoch of producer {producer_id} at offset {offset} in {self._topic_partition} is {epoch}, "
                f"which is smaller than or equal to the last seen epoch {entry.producer_epoch}"
            )

    def _validate_epoch(self, entry: ProducerEntry, epoch: int, offset: Offset) -> None:
        if epoch < entry.producer_epoch:
            raise InvalidProducerEpochError(
                f"Epoch of producer {entry.producer_id} at offset {offset} in {self._topic_partition} is {epoch}, "
                f"which is smaller than the last seen epoch {entry.producer_epoch}"
            )

    def _out_of_order(self, entry: ProducerEntry, sequence: int, offset: Offset) -> KafkaError:
        return OutOfOrderError(
            f"Out of order sequence number for producer {entry.producer_id} at offset {offset} in partition "
            f"{self._topic_partition}: {sequence} (incoming seq. number), {entry.last_sequence} "
            f"(current end sequence number)"
        )

    def update(
        self, info: BatchInfo, base_offset: Offset, last_offset: Offset, marker: ControlMarker | None = None
    ) -> CompletedTransaction | None:
        """Notes a batch that was written, or that a restart found."""
        completed = None
        if not info.is_control:
            if self.producers.note(info, base_offset, last_offset):
                self.begin_transaction(base_offset, info.producer_id)
        elif marker is not None:
            first = self.producers.end_transaction(info, marker.coordinator_epoch)
            if first >= 0:
                completed = CompletedTransaction(info.producer_id, first, last_offset, marker.is_abort)
        if self.verifications and info.is_transactional:
            self._settle_verification(info)
        return completed

    def begin_transaction(self, first_offset: Offset, producer_id: int) -> None:
        """A batch was written that is the first of a transaction."""
        self._ongoing[first_offset] = producer_id
        self._refresh_unstable()

    # -- verification -------------------------------------------------------------------------------------------------

    def start_verification(
        self, producer_id: int, sequence: int, epoch: int, supports_epoch_bump: bool, now_ms: int
    ) -> VerificationGuard:
        """The guard that an append of this producer has to bring, NO_GUARD when its transaction is open already.

        InvalidProducerEpochError for a producer that has been fenced.
        """
        entry = self.producers.get(producer_id)
        if entry is not None and epoch < entry.producer_epoch:
            raise self._fenced(entry, epoch)
        if self.has_ongoing_transaction(producer_id, epoch):
            return NO_GUARD
        state = self.verifications.get(producer_id)
        if state is None:
            state = self.verifications[producer_id] = VerificationState(now_ms, sequence, epoch, supports_epoch_bump)
        state.note(sequence, epoch)
        return state.guard

    def verification_guard(self, producer_id: int) -> VerificationGuard:
        """The guard that an append has to bring now; NO_GUARD when none was given out."""
        state = self.verifications.get(producer_id)
        return state.guard if state is not None else NO_GUARD

    def _validate_guard(self, info: BatchInfo, entry: ProducerEntry | None, guard: VerificationGuard) -> None:
        """A batch that begins a transaction must have been verified: Kafka's batchMissingRequiredVerification."""
        if entry is not None and info.producer_epoch < entry.producer_epoch:
            raise self._fenced(entry, info.producer_epoch)
        if not self.verifies or info.is_control:
            return
        if guard is NO_GUARD or guard is not self.verification_guard(info.producer_id):
            raise InvalidTxnStateError("Record was not part of an ongoing transaction")

    def _fenced(self, entry: ProducerEntry, epoch: int) -> KafkaError:
        return InvalidProducerEpochError(
            f"Epoch of producer {entry.producer_id} is {epoch}, which is smaller than the last seen epoch "
            f"{entry.producer_epoch}"
        )

    def _settle_verification(self, info: BatchInfo) -> None:
        """Takes the guard away after the batch that it was for, or after a marker.

        Where each transaction has an epoch of its own, a marker with the epoch being verified keeps the guard: it ends
        the previous transaction.
        """
        state = self.verifications.get(info.producer_id)
        if state is None or (state.supports_epoch_bump and info.is_control and info.producer_epoch == state.epoch):
            return
        del self.verifications[info.producer_id]

    def stable_offset_after(self, completed: CompletedTransaction) -> Offset:
        """The last stable offset once `completed` is done: what its aborted-transaction entry records."""
        others = (first for first, producer_id in self._ongoing.items() if producer_id != completed.producer_id)
        return min(others, default=completed.last_offset + 1)

    def complete(self, completed: CompletedTransaction) -> None:
        """Takes a transaction out of the open ones; it stays unstable until the high watermark passes its marker.

        Raises InvalidTxnStateError."""
        if self._ongoing.pop(completed.first_offset, None) is None:
            raise InvalidTxnStateError(f"{completed} is not an open transaction of {self._topic_partition}")
        self.unreplicated[completed.first_offset] = completed.last_offset
        self._refresh_unstable()

    def on_high_watermark(self, high_watermark: Offset) -> None:
        """Transactions whose marker lies below the high watermark are stable."""
        done = [first for first, last in self.unreplicated.items() if last < high_watermark]
        for first in done:
            del self.unreplicated[first]
        if done:
            self._refresh_unstable()

    def keep_unreplicated(self, ended: dict[Offset, Offset]) -> None:
        """Transactions, from first to last offset, that ended above the high watermark; `clear` has forgotten them."""
        if ended:
            both = self._ongoing.keys() & ended.keys()
            assert not both, f"{self._topic_partition}: transactions that are open and have ended: {both}"
            self.unreplicated.update(ended)
            self._refresh_unstable()

    def has_open(self, completed: CompletedTransaction) -> bool:
        """Whether the transaction is still counted as ongoing."""
        return completed.first_offset in self._ongoing

    def _refresh_unstable(self) -> None:
        candidates = [min(offsets) for offsets in (self._ongoing, self.unreplicated) if offsets]
        self.first_unstable_offset = min(candidates, default=None)
        if CHECKED:
            self.check_invariants()

    def check_invariants(self) -> None:
        """Raises AssertionError unless each transaction is open or ended, and an open one is its producer's."""
        both = self._ongoing.keys() & self.unreplicated.keys()
        assert not both, (self._topic_partition, both)
        for first, last in self.unreplicated.items():
            assert first <= last, (self._topic_partition, first, last)
        assert len(set(self._ongoing.values())) == len(self._ongoing), (self._topic_partition, self._ongoing)

    def oldest_open(self) -> tuple[int, int] | None:
        """The producer of the oldest open transaction, and the time of its last batch; None where none is open."""
        if not self._ongoing:
            return None
        producer_id = self._ongoing[min(self._ongoing)]
        entry = self.producers.get(producer_id)
        return producer_id, NO_TIMESTAMP if entry is None else entry.last_timestamp

    def has_ongoing_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether the producer has a transaction open in this epoch."""
        entry = self.producers.get(producer_id)
        return entry is not None and entry.current_txn_first_offset >= 0 and entry.producer_epoch == epoch

    def remove_expired(self, now_ms: int) -> int:
        """Forgets idle producers without an open transaction.  Returns how many."""
        limit = now_ms - self.expiration_ms
        for producer_id in [known for known, state in self.verifications.items() if state.timestamp <= limit]:
            del self.verifications[producer_id]
        return self.producers.remove_idle(limit)

    # -- snapshots ----------------------------------------------------------------------------------------------------

    def _snapshot_path(self, offset: Offset) -> str:
        return f"{self._directory}/{offset:020d}{SNAPSHOT_SUFFIX}"

    def moved_to(self, directory: str) -> None:
        """The snapshots lie in another directory now."""
        self._directory = directory

    def note_snapshot_file(self, name: str, size: int) -> None:
        """Registers a file that the directory's listing showed."""
        try:
            self.snapshots[base_offset_of(name)] = size
        except ValueError:
            logger.warning("Ignoring %s/%s: not a snapshot's name", self._directory, name)

    def take_snapshot(self) -> str | None:
        """Writes the state at `map_end_offset`, when that is past the last snapshot.

        Returns the path written, for the caller to make durable: a torn snapshot fails its checksum.
        """
        offset = self.map_end_offset
        if offset <= self.last_snapshot_offset:
            return None
        unstable = self.first_unstable_offset
        assert unstable is None or unstable < offset, (self._topic_partition, unstable, offset)
        data = encode_snapshot(self.producers.values())
        path = self._snapshot_path(offset)
        self._files.write_file(path, data, sync=False)
        self.snapshots[offset] = len(data)
        self.last_snapshot_offset = offset
        return path

    def load_latest(self, start_offset: Offset, end_offset: Offset, now_ms: int, *, keep_later: bool = False) -> Offset:
        """Replaces the state by the newest valid snapshot at or below `end_offset`.

        Returns the offset to replay from: `start_offset`, the first on this disk, without a snapshot.  Broken snapshots
        are removed, and those past the end unless the caller keeps them.
        """
        self.clear()
        for offset in sorted(self.snapshots, reverse=True):
            if offset > end_offset:
                if not keep_later:
                    self._remove_snapshot(offset)
                continue
            if self.snapshots[offset] == EMPTY_SNAPSHOT_BYTES or self._load(offset, now_ms):
                if all(first < offset for first in self._ongoing):
                    self.map_end_offset = self.last_snapshot_offset = offset
                    return offset
                logger.warning(
                    "Dropping a producer snapshot at %d: transactions begin later: %s", offset, self._ongoing
                )
                self._remove_snapshot(offset)
                self.clear()
        assert not self._ongoing and self.first_unstable_offset is None, (self._topic_partition, self._ongoing)
        self.map_end_offset = self.last_snapshot_offset = start_offset
        return start_offset

    def _load(self, offset: Offset, now_ms: int) -> bool:
        path = self._snapshot_path(offset)
        try:
            entries = decode_snapshot(self._files.read_file(path), path)
        except CorruptSnapshotError as error:
            logger.warning("Dropping a producer snapshot: %s", error)
            self._remove_snapshot(offset)
            return False
        limit = now_ms - self.expiration_ms
        for entry in entries:
            if entry.current_txn_first_offset < 0 and entry.last_timestamp <= limit:
                continue
            self.producers.put(entry)
            if entry.current_txn_first_offset >= 0:
                self._ongoing[entry.current_txn_first_offset] = entry.producer_id
        self._refresh_unstable()
        return True

    def take_over(self, other: ProducerState) -> None:
        """Replaces the state by one that was made beside it, and removes the snapshots past its end.  OSError."""
        assert other._topic_partition == self._topic_partition, (self._topic_partition, other._topic_partition)
        self.remove_snapshots_after(other.map_end_offset)
        self.clear()
        for entry in other.producers.values():
            self.producers.put(entry)
        self._ongoing = other._ongoing
        self._refresh_unstable()
        self.map_end_offset, self.last_snapshot_offset = other.map_end_offset, other.last_snapshot_offset
        assert self.last_snapshot_offset <= self.map_end_offset, (self._topic_partition, self.map_end_offset)
        assert all(known <= self.map_end_offset for known in self.snapshots), (self._topic_partition, self.snapshots)

    def clear(self) -> None:
        """Forget all producers and transactions."""
        self.producers.clear()
        self._ongoing.clear()
        self.unreplicated.clear()
        self.first_unstable_offset = None
        self.map_end_offset = FIRST_OFFSET
        self.last_snapshot_offset = 0

    def restart_at(self, offset: Offset) -> None:
        """Forgets everything, snapshots included: the log starts empty at `offset`."""
        for known in list(self.snapshots):
            self._remove_snapshot(known)
        assert not self.snapshots, (self._topic_partition, self.snapshots)
        self.clear()
        self.map_end_offset = self.last_snapshot_offset = offset

    def _remove_snapshot(self, offset: Offset) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._files.unlink(self._snapshot_path(offset))
        self.snapshots.pop(offset, None)

    def remove_snapshots_after(self, offset: Offset) -> None:
        """Remove the snapshots of later offsets.  OSError."""
        for known in [known for known in self.snapshots if known > offset]:
            self._remove_snapshot(known)

    def remove_snapshots_before(self, offset: Offset) -> None:
        """Keeps what a restart needs for a log that begins at `offset`: later snapshots and the newest before them."""
        for known in [known for known in self.snapshots if known < offset]:
            self._remove_snapshot(known)

    def remove_strays(self, segment_bases: frozenset[int]) -> None:
        """Removes snapshots of no segment, but for the newest, which a clean stop wrote at the log's end."""
        if not self.snapshots:
            return
        newest = max(self.snapshots)
        for known in [known for known in self.snapshots if known not in segment_bases and known != newest]:
            self._remove_snapshot(known)
