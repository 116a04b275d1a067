"""Recovery after an unclean stop: reads what may not be durable, in one pass.

Everything below the recovery point is durable with its index entries.  The scan begins at the last index entry below
it, after checking that the entry is what it says; without one it begins at the segment's start.  Each batch is checked
(header, CRC, ascending offsets); indexes, leader epochs, transaction index and producer state are built again on the
way.  At the first bytes that are not a valid batch the segment ends: they are the torn tail of a write that was never
flushed.  Before the cut the segments behind it are dropped, the last one first, so that a second crash never leaves a
segment behind a gap.

Producer state starts from the newest snapshot at or below the scan's start and the batches in between; without one,
from the batch that contains the log start offset, which DeleteRecords may leave inside a batch.  A snapshot is taken at
each segment's end, as at a roll.  A recovery that is killed keeps these snapshots and the files of the segments that it
has finished (`recovery_saver`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from kbroker._fast.log.batch_rules import MAX_RELATIVE_OFFSET
from kbroker._fast.log.index import TAIL_ENTRIES
from kbroker._fast.log.segment_replay import account, last_of_each
from kbroker._fast.log.segment_scan import SegmentScan
from kbroker._fast.records.record_batch import BatchInfo
from kbroker.records.batch import empty_batch
from kbroker.records.layout import LEAST_STORED_BYTES
from kbroker.storage.files.log_dir_failure import suppressing_no_space
from kbroker.storage.log.leader_epoch_cache import LeaderEpochCache
from kbroker.storage.log.local_log import LogEnvironment
from kbroker.storage.log.log_segment import DurableJob, LogSegment, SyncJob
from kbroker.storage.log.producer_state import ProducerState
from kbroker.storage.log.segment_batches import BATCHES_AT_ONCE, iterate_headers
from kbroker.storage.log.segment_damage import (
    DamagedSegmentError,
    Stop,
    hole_at,
    readable_headers,
    readable_position,
)
from kbroker.storage.log.segment_search import is_thinned, missing_behind, rebuild_offset_index
from kbroker.storage.log.time_search import is_latest, rebuild_time_index
from kbroker.storage.log.txn_index import CorruptIndexError
from kbroker.storage.recovery.log_mending import mend_epochs, note_stored
from kbroker.storage.recovery.recovery_progress import LogProgress
from kbroker.storage.recovery.recovery_saver import Finished, RecoverySaver
from kbroker.types import FIRST_OFFSET, FIRST_POSITION, NO_LEADER_EPOCH, LeaderEpoch, Offset, Position, TopicPartition

logger = logging.getLogger("kbroker.storage")


OFFSET_BYTES = 8


class TooWideSegmentError(Exception):
    """A segment holds good batches whose offsets do not fit its indexes: it has to be split first."""

    def __init__(self, segment: LogSegment) -> None:
        super().__init__(repr(segment))
        self.segment = segment


def _directory_of(segment: LogSegment) -> str:
    return segment.path.rpartition("/")[0]


def _account(
    segment: LogSegment, scan: SegmentScan, at: int, next_offset: Offset, leader_epoch: LeaderEpoch
) -> tuple[int, Offset]:
    """Counts and indexes batches from `at` on, up to one that needs a look: (its number, next offset)."""
    tail = segment.prepare_append()
    indexes = segment.offset_index, segment.time_index
    offsets, times = indexes
    while True:
        # The last slot of a time index is kept for the final entry.
        room = min(offsets.max_entries - offsets.table.entries, times.max_entries - 1 - times.table.entries)
        room = min(room, TAIL_ENTRIES)
        done, next_offset = account(scan, at, tail, offsets.table, times.table, room, next_offset, leader_epoch)
        for index in indexes:
            if index.table.entries - index.table.stored >= TAIL_ENTRIES:
                index.settle(trim=False)
        if done == at or done == len(scan):
            return done, next_offset
        at = done


class LogRecovery:
    """One log's recovery.  In a compacted log gaps between offsets are nothing to warn of.

    Below `durable_offset`, the recovery point, there is no torn write: bytes there that are no batch are damage.  They
    are left in place as a hole, and the segments behind them are kept.
    """

    __slots__ = (
        "_durable_offset",
        "_environment",
        "_epochs",
        "_is_compacted",
        "_producers_from",
        "_progress",
        "_saver",
        "_state",
        "_topic_partition",
    )

    def __init__(
        self,
        environment: LogEnvironment,
        topic_partition: TopicPartition,
        epochs: LeaderEpochCache,
        state: ProducerState,
        progress: LogProgress,
        saver: RecoverySaver | None = None,
        *,
        is_compacted: bool = False,
        durable_offset: Offset = FIRST_OFFSET,
    ) -> None:
        self._durable_offset = durable_offset
        self._environment = environment
        self._topic_partition = topic_partition
        self._epochs = epochs
        self._state = state
        self._progress = progress
        self._saver = saver
        self._is_compacted = is_compacted
        self._producers_from = FIRST_OFFSET

    def run(
        self, segments: Sequence[LogSegment], from_offset: Offset, local_log_start_offset: Offset
    ) -> tuple[list[LogSegment], Offset]:
        """The segments of the valid prefix and the offset after its last record."""
        first = self._first_to_read(segments, from_offset)
        position, scan_offset, epoch = self._trusted_start(segments[first], from_offset)
        if epoch > self._epochs.latest_epoch:
            logger.warning("%s is older than its log: finding leader epochs again", self._epochs.path)
            mend_epochs(self._epochs, segments[: first + 1], self._environment.files, scan_offset)
        known = min(from_offset, segments[first + 1].base_offset) if first + 1 < len(segments) else from_offset
        self._load_producers(segments[: first + 1], local_log_start_offset, scan_offset, max(scan_offset, known))
        # What the file says from here on the batches say again; a pair that begins later would hide theirs.
        self._epochs.truncate_from_end(scan_offset)
        kept = list(segments[: first + 1])
        end = scan_offset
        for at in range(first, len(segments)):
            segment, later = segments[at], segments[at + 1 :]
            if at > first:
                if segment.base_offset < end:
                    self._drop(segments[at:], f"segment {segment.base_offset} begins before offset {end}")
                    break
                self._tell_gap(kept[-1], end, segment)
                kept.append(segment)
                position, end = FIRST_POSITION, segment.base_offset
            left = sum(each.size for each in later)
            self._progress.expect(1 + len(later), segment.size - position + left)
            end, reason = self._scan(segment, position, end, later)
            self._progress.expect(len(later), left)
            self._keep(segment, end, None if reason or not later else later[0])
            if reason:
                break
        if self._producers_from <= end:
            unstable = self._state.first_unstable_offset
            assert unstable is None or unstable < end, (self._topic_partition, unstable, end)
            self._state.map_end_offset = end
        # Else the cut has taken batches that the snapshot knows, and the producers are read again, of what is left.
        return kept, end

    def _tell_gap(self, segment: LogSegment, end: Offset, following: LogSegment) -> None:
        if following.base_offset <= end or segment.is_damaged:
            return
        environment = self._environment
        if not self._is_compacted and following.base_offset > self._durable_offset:
            # A failing machine may lose the end of one file and not the next: that is logged, and is no damage.
            if not is_thinned(segment, environment.files, FIRST_POSITION, segment.base_offset):
                reason = f"offsets {end} to {following.base_offset - 1} are missing behind {segment.path}"
                directory = _directory_of(segment)
                environment.damages.missing(self._topic_partition, directory, end, following.base_offset, reason)
            if end < following.base_offset <= end + MAX_RELATIVE_OFFSET:
                with suppressing_no_space():
                    segment.fill(empty_batch(end, following.base_offset - 1, self._epochs.latest_epoch))
        elif not self._is_compacted:
            hole = missing_behind(segment, environment.files, following)
            if hole is not None:
                error = DamagedSegmentError(segment.path, hole)
                environment.damages.damaged(self._topic_partition, error, following.base_offset)
                return
        level = logging.DEBUG if self._is_compacted else logging.WARNING
        logger.log(level, "%s: offsets %d to %d are missing", self._topic_partition, end, following.base_offset - 1)

    def _keep(self, segment: LogSegment, end: Offset, following: LogSegment | None) -> None:
        """Takes a snapshot where a segment follows, and has what was read saved when the recovery is a long one."""
        state, saver = self._state, self._saver
        saves = saver is not None and saver.is_due
        if following is None and not saves:
            return
        if following is not None and following.base_offset < end:
            # The following segment is about to be dropped; a later recovery that began at this snapshot would not see
            # the reason.
            return
        state.map_end_offset = end if following is None else following.base_offset
        with suppressing_no_space():  # All of it is in memory; a recovery that is killed begins further back.
            snapshot = state.take_snapshot()
            if saver is None:
                return
            jobs: list[DurableJob] = [segment.sync_job()]
            if snapshot is not None:
                jobs.append(SyncJob((snapshot,)))
            epochs = self._epochs.write()
            if epochs is not None:
                jobs.append(epochs)
            saver.add(Finished(self._topic_partition, _directory_of(segment), state.map_end_offset, jobs))

    def _first_to_read(self, segments: Sequence[LogSegment], from_offset: Offset) -> int:
        at = len(segments) - 1
        while at > 0 and segments[at].base_offset > from_offset:
            at -= 1
        return at

    def _drop(self, segments: Sequence[LogSegment], why: str) -> None:
        for segment in reversed(segments):
            logger.warning("%s: dropping segment %d: %s", self._topic_partition, segment.base_offset, why)
            segment.delete_files()

    def _trusted_start(self, segment: LogSegment, from_offset: Offset) -> tuple[Position, Offset, LeaderEpoch]:
        """(position, offset, epoch) of a batch below the recovery point that an index entry leads to, or the start."""
        start = FIRST_POSITION, segment.base_offset, NO_LEADER_EPOCH
        index = segment.offset_index
        index.keep(index.sane_entries(segment.size - LEAST_STORED_BYTES))
        times = segment.time_index
        times.keep(times.sane_entries(segment.base_offset + 0x7FFFFFFF))
        place = index.entry_before(from_offset)
        if place is None:
            return start
        offset, position = place
        files = self._environment.files
        for info in iterate_headers(files, segment, position, segment.size, 1):
            if info.last_offset == offset:
                times.truncate_to(offset + 1)
                if is_latest(segment, files, times.last_entry(), position + info.size_in_bytes):
                    return position, info.base_offset, info.partition_leader_epoch
                logger.warning("%s: the time index lacks entries; building it again", segment.path)
                return start
            break
        logger.warning("%s: the index entry for offset %d does not lead to it", self._topic_partition, offset)
        return start

    def _load_producers(
        self, before: Sequence[LogSegment], local_log_start_offset: Offset, scan_offset: Offset, durable_offset: Offset
    ) -> None:
        """State as of the scan's start, or of a snapshot between it and the recovery point."""
        state = self._state
        now_ms = self._environment.clock.now_ms()
        offset = state.load_latest(local_log_start_offset, durable_offset, now_ms, keep_later=True)
        self._producers_from = max(offset, scan_offset)
        assert offset <= max(durable_offset, local_log_start_offset), (self._topic_partition, offset, durable_offset)
        if offset >= scan_offset:
            return
        files = self._environment.files
        for at, segment in enumerate(before):
            if at + 1 < len(before) and before[at + 1].base_offset <= offset:
                continue
            position = readable_position(segment, offset)
            for info in readable_headers(segment, files, position, segment.size, strict=False):
                if info.base_offset >= scan_offset:
                    return
                if info.last_offset >= offset and info.producer_id >= 0:
                    self._note_producer(info, segment, index_aborted=False)

    def _note_producer(self, info: BatchInfo, segment: LogSegment, *, index_aborted: bool) -> None:
        note_stored(self._state, self._environment.files, segment, info, index_aborted=index_aborted)

    def _scan(
        self, segment: LogSegment, position: Position, next_offset: Offset, later: Sequence[LogSegment]
    ) -> tuple[Offset, str]:
        """Checks a segment from `position`; (next offset, why it was cut or "").  `later` ones go before a cut."""
        size = segment.size
        self._check_txn_index(segment)
        segment.begin_rebuild(position, next_offset, max(next_offset, self._producers_from))
        # The file is held, not its descriptor alone: other threads open files and may have this one given up.
        files, file = self._environment.files, segment.file()
        reason = ""
        complete = position >= size
        while not complete and not reason:
            scan = files.scan_segment(file.fd, position, size, check_crc=True, max_batches=BATCHES_AT_ONCE)
            complete = scan.complete
            next_offset, position, reason = self._take(segment, scan, position, next_offset)
            reason = reason or scan.reason or ""
        if position < size and not reason:
            reason = "the last batch is not whole"
        if reason and later and next_offset < self._durable_offset:
            self._keep_damaged(segment, size, Stop(None, position, next_offset, reason))
            return later[0].base_offset, ""
        if reason and later:
            self._drop(later, "it follows a cut")
            files.fsync_directory(_directory_of(segment))
        segment.end_rebuild(size, active=bool(reason) or not later)
        if reason:
            logger.warning(
                "%s: cut segment %d from %d to %d bytes, after offset %d: %s",
                self._topic_partition,
                segment.base_offset,
                size,
                segment.size,
                next_offset - 1,
                reason,
            )
        return next_offset, reason

    def _keep_damaged(self, segment: LogSegment, size: int, stop: Stop) -> None:
        """Leaves a closed segment with its damage, indexed as far as its batches can be found."""
        files = self._environment.files
        segment.tail = None
        hole_at(segment, files, stop, size)
        rebuild_offset_index(segment, files, size)
        rebuild_time_index(segment, files, "ends at the damage")

    def _take(
        self, segment: LogSegment, scan: SegmentScan, position: Position, next_offset: Offset
    ) -> tuple[Offset, Position, str]:
        """Accounts for good batches: (next offset, next position, why the rest does not count or "")."""
        epochs = self._epochs
        started = position
        reason = ""
        at, count = 0, len(scan)
        while at < count:
            done, next_offset = _account(segment, scan, at, next_offset, epochs.latest_epoch)
            for info in last_of_each(scan, at, done, self._producers_from):
                self._note_producer(info, segment, index_aborted=True)
            at = done
            if at == count:
                break
            # One that has to be looked at.
            info = scan[at]
            base, last = info.base_offset, info.last_offset
            if last - segment.base_offset > MAX_RELATIVE_OFFSET and not self._is_misplaced(segment, info, next_offset):
                raise TooWideSegmentError(segment)
            if base < next_offset or last - segment.base_offset > MAX_RELATIVE_OFFSET:
                reason = f"offset {base} where {next_offset} or more was expected"
                break
            epochs.found(info)
            if info.producer_id >= 0 and last >= self._producers_from:
                self._note_producer(info, segment, index_aborted=True)
            segment.account(base, last, info.size_in_bytes, info.max_timestamp)
            next_offset = last + 1
            at += 1
        position = segment.size
        self._progress.read(position - started)
        return next_offset, position, reason

    def _is_misplaced(self, segment: LogSegment, info: BatchInfo, next_offset: Offset) -> bool:
        """Whether a batch's far too large offset is damage: the batch behind it then has a smaller base offset, at or
        above `next_offset`."""
        following = info.position + info.size_in_bytes
        header = self._environment.files.pread(segment.file().fd, OFFSET_BYTES, following)
        return len(header) == OFFSET_BYTES and next_offset <= int.from_bytes(header, signed=True) < info.base_offset

    def _check_txn_index(self, segment: LogSegment) -> None:
        """One that begins above the recovery point is made again whole; the others have been looked at."""
        if not segment.has_txn_index:
            return
        try:
            segment.txn_index.sanity_check()
        except CorruptIndexError as error:
            logger.warning("Building a transaction index again: %s", error)
            segment.txn_index.reset()
