"""One segment: `<base offset>.log` with its offset, time and transaction index.

The base offset, zero-padded to 20 digits, names the files.  A segment is cheap until it is used: it knows its size
and opens its file, reads its indexes' ends and maps them at the first read or append.  Only the active segment of a log
is appended to; its `AppendTail` counts bytes, finds index entries due and remembers the last batches for readers at the
tail.

Invariants: offsets in the log and its offset index ascend strictly; every offset is at most 2**31 - 1 above the base
offset; an index entry comes at the first batch after more than `index.interval.bytes` since the last one, and points
at that batch by its last offset.

A write that fails leaves the segment at its last whole batch: the size only moves after the write, and what the
failed one left behind is cut off.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kbroker._fast.base.build_facts import CHECKED
from kbroker._fast.log.batch_rules import check_offset
from kbroker._fast.log.batch_seek import FollowUps, max_timestamp_of
from kbroker._fast.log.index import AppendTail
from kbroker._fast.log.log_fields import SegmentFields
from kbroker.records.layout import BATCH_OVERHEAD, LEAST_STORED_BYTES
from kbroker.storage.files.filesystem import Buffer, FileSystem
from kbroker.storage.files.open_files import OpenFiles, SegmentFile
from kbroker.storage.log import segment_search
from kbroker.storage.log.indexes import OffsetIndex, TimeIndex
from kbroker.storage.log.segment_damage import begin_of
from kbroker.storage.log.segment_view import BatchLocation, Hole, SegmentConfig
from kbroker.storage.log.txn_index import TransactionIndex
from kbroker.types import NO_OFFSET, LeaderEpoch, Offset, Position

if TYPE_CHECKING:
    from kbroker.storage.files.log_dir_failure import LogDirFailureChannel

logger = logging.getLogger("kbroker.storage")

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TXN_INDEX_SUFFIX = ".txnindex"
DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
SEGMENT_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)

ASK_RULE = -(2**63)
"""Of `roll_after_timestamp`: below every timestamp, so that each batch asks `storage.log.roll`."""
ALLOCATE_FROM_BYTES = 4 << 20
ALLOCATE_STEP_BYTES = 16 << 20
NO_LIMIT = 1 << 62
UNCUT = -1


class SegmentOffsetOverflowError(ValueError):
    """A batch's last offset is too far from the segment's base offset for the indexes."""


class DurableJob(Protocol):
    """Something to be made durable, away from the loop."""

    def run(self, files: FileSystem) -> None:
        """Waits for the disk.  OSError when it fails."""


class SyncJob(NamedTuple):
    """Files of a segment to fsync, by path: may run away from the loop."""

    paths: tuple[str, ...]

    def run(self, files: FileSystem) -> None:
        """Make the files durable.  OSError."""
        for path in self.paths:
            files.sync_path(path)


def file_prefix(base_offset: Offset) -> str:
    """The name of a segment's files without suffix: the offset in 20 digits."""
    return f"{base_offset:020d}"


def base_offset_of(name: str) -> Offset:
    """The offset in a segment file's or snapshot's name.  ValueError when the name is not of that form."""
    digits, dot, _ = name.partition(".")
    if not dot or not digits.isascii() or not digits.isdigit():
        raise ValueError(f"{name!r} does not begin with an offset")
    return Offset(int(digits))


class LogSegment(SegmentFields):
    """A segment of one partition's log.  Changed by its owner alone."""

    __slots__ = (
        "_failures",
        "_files",
        "_has_txn_index",
        "_log_path",
        "_offset_index",
        "_open_files",
        "_prefix",
        "_rolling_timestamp",
        "_size",
        "_suffix",
        "_time_index",
        "_txn_index",
        "config",
        "created_ms",
        "holes",
        "is_index_checked",
        "roll_jitter_ms",
        "times_checked",
    )

    tail: AppendTail | None
    open_file: SegmentFile | None
    follow_ups: FollowUps | None

    def __init__(
        self,
        files: FileSystem,
        open_files: OpenFiles,
        directory: str,
        base_offset: Offset,
        config: SegmentConfig,
        *,
        size: int = 0,
        has_txn_index: bool = False,
        created_ms: int = 0,
        roll_jitter_ms: int = 0,
        suffix: str = "",
        failures: LogDirFailureChannel | None = None,
    ) -> None:
        self._failures = failures
        self._files = files
        self._open_files = open_files
        self.follow_ups: FollowUps | None = None
        self.times_checked = False
        self.is_index_checked = False
        self.holes: tuple[Hole, ...] = ()
        self._prefix = f"{directory}/{base_offset:020d}"
        self._suffix = suffix
        self._log_path = f"{self._prefix}{LOG_SUFFIX}{suffix}"
        self._size = Position(size)
        self.allocated_bytes = max(ALLOCATE_FROM_BYTES, size)
        self.open_file: SegmentFile | None = None
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._txn_index: TransactionIndex | None = None
        self._has_txn_index = has_txn_index
        self._rolling_timestamp: int | None = None
        self.tail: AppendTail | None = None
        self.base_offset = base_offset
        self.config = config
        self.created_ms = created_ms
        self.roll_jitter_ms = roll_jitter_ms
        self.indexes_full = config.max_index_bytes < 2 * 12
        self.roll_after_timestamp = ASK_RULE
        self.recently_used = False

    def __repr__(self) -> str:
        return f"LogSegment({self._log_path}, {self.size} bytes)"

    # -- files --------------------------------------------------------------------------------------------------------

    @property
    def path(self) -> str:
        """The path of the log file."""
        return self._log_path

    @property
    def size(self) -> Position:
        """The bytes of the log file that hold records."""
        return self._size if self.tail is None else self.tail.size

    def path_of(self, suffix: str) -> str:
        """The path of the segment's file with this suffix."""
        return f"{self._prefix}{suffix}{self._suffix}"

    def create_files(self) -> None:
        """Makes the files of a new, empty active segment; what a crash left of the same name is emptied."""
        file = SegmentFile(self._files, self._log_path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        if self.config.preallocate_bytes:
            self._files.fallocate(file.fd, 0, self.config.preallocate_bytes)
        self._hold(file)
        self.offset_index.create()
        self.time_index.create()
        self.times_checked = True
        self.txn_index.reset()
        assert not self.offset_index.table.entries and not self.time_index.table.entries, f"{self}: entries of another"
        self.tail = AppendTail(self._size, -1, self.base_offset, 0, self.config.index_interval_bytes)

    def _hold(self, file: SegmentFile) -> None:
        self.open_file = file
        self._open_files.opened(self)

    def file(self) -> SegmentFile:
        """The open log file; it stays valid for as long as the caller keeps the object."""
        file = self.open_file
        if file is None:
            file = SegmentFile(self._files, self._log_path, os.O_RDWR)
            self._hold(file)
        self.recently_used = True
        return file

    def release(self) -> bool:
        """Close the log file; readers that hold it keep it open."""
        self.open_file = None
        return True

    @property
    def offset_index(self) -> OffsetIndex:
        """The offset index, opened when first needed."""
        if self._offset_index is None:
            self._offset_index = OffsetIndex(
                self._files,
                self._open_files.maps,
                self.path_of(INDEX_SUFFIX),
                self.base_offset,
                self.config.max_index_bytes,
            )
        return self._offset_index

    @property
    def time_index(self) -> TimeIndex:
        """The time index, opened when first needed."""
        if self._time_index is None:
            self._time_index = TimeIndex(
                self._files,
                self._open_files.maps,
                self.path_of(TIME_INDEX_SUFFIX),
                self.base_offset,
                self.config.max_index_bytes,
            )
        return self._time_index

    @property
    def txn_index(self) -> TransactionIndex:
        """The transaction index, read when first needed."""
        if self._txn_index is None:
            path = self.path_of(TXN_INDEX_SUFFIX)
            self._txn_index = TransactionIndex(self._files, path, self.base_offset, exists=self._has_txn_index)
        return self._txn_index

    @property
    def has_txn_index(self) -> bool:
        """Whether a transaction was aborted in this segment, by what was found on disk or has been written since."""
        index = self._txn_index
        return self._has_txn_index if index is None else index.has_entries

    def rename_suffix(self, suffix: str) -> None:
        """Gives every file of the segment another last suffix (".1.deleted", ".swap" or none).

        The log goes first when a segment leaves, so that a crash never shows a log without the meaning of its name.
        """
        assert suffix != self._suffix, (self, suffix)
        for kind in SEGMENT_SUFFIXES:
            path = self.path_of(kind)
            try:
                self._files.rename(path, f"{self._prefix}{kind}{suffix}")
            except FileNotFoundError:
                # Not every segment has every file: to find that out here takes fewer calls than to ask before.
                if self._files.exists(path):
                    raise
        self._suffix = suffix
        self._log_path = self.path_of(LOG_SUFFIX)
        self.close_files()
        # A reader that still holds the segment must not open the files of one that has its name now.
        for kind, index in (
            (INDEX_SUFFIX, self._offset_index),
            (TIME_INDEX_SUFFIX, self._time_index),
            (TXN_INDEX_SUFFIX, self._txn_index),
        ):
            if index is not None:
                index.path = self.path_of(kind)

    def delete_files(self) -> None:
        """Remove all files of the segment.  OSError."""
        self.close_files()
        for kind in SEGMENT_SUFFIXES:
            self._files.unlink_if_exists(self.path_of(kind))

    def close_files(self) -> None:
        """Lets go of descriptor and maps; what others hold stays open."""
        if self.open_file is not None:
            self._open_files.closed(self)
            self.open_file = None
        for index in (self._offset_index, self._time_index):
            if index is not None:
                index.close()

    def check_invariants(self) -> None:
        """Raises AssertionError unless sizes, entries and holes fit each other."""
        tail, size = self.tail, self.size
        assert size >= 0, (self, size)
        assert self.is_damaged == bool(self.holes), self
        if tail is not None:
            # If the cut after a failed write has itself failed, the bytes behind the last batch are cut before the next
            # append.
            assert self.allocated_bytes == UNCUT or self.allocated_bytes >= size, (self, self.allocated_bytes)
            assert tail.max_timestamp >= -1 or size, self
        for index in (self._offset_index, self._time_index):
            if index is not None:
                index.check_invariants()
        if self._offset_index is not None and self._offset_index.table.entries:
            assert self._offset_index.table.last_value < size, (self, self._offset_index.table.last_value)

    # -- append -------------------------------------------------------------------------------------------------------

    def prepare_append(self) -> AppendTail:
        """Makes an existing segment ready to be appended to: counters from its index ends and last batches."""
        tail = self.tail
        if tail is None:
            _, max_timestamp, offset_of_max = self.measure()
            since = self._size - self.offset_index.table.last_value if self._size else 0
            tail = AppendTail(self._size, max_timestamp, offset_of_max, since, self.config.index_interval_bytes)
            self.tail = tail
            self.indexes_full = self.offset_index.is_full or self.time_index.is_full
        return tail

    def write(self, data: Buffer, size: int, last_offset: Offset) -> None:
        """Writes `size` bytes of batches up to `last_offset` at the end; `append_steps.count_in` counts them.

        OSError leaves everything as it was.
        """
        if not check_offset(self, last_offset):
            raise SegmentOffsetOverflowError(f"offset {last_offset} does not fit a segment from {self.base_offset}")
        position = self.prepare_append().size
        file = self.open_file or self.file()
        try:
            if position + size > self.allocated_bytes:
                self._cut_leftover(file)
                self._allocate_ahead(file, position, size)
            self._files.pwrite(file.fd, data, position)
        except OSError:
            self.cut_failed_write(file, position)
            raise

    def take_file(self, path: str, file: SegmentFile, allocated_bytes: int) -> None:
        """Replaces the log file of an empty segment; `append_steps.count_in` counts the batch that it holds.

        OSError leaves everything as it was.
        """
        if self.prepare_append().size:
            raise RuntimeError(f"{self} is not empty")
        assert allocated_bytes > 0 and path.endswith(DELETED_SUFFIX), (self, path, allocated_bytes)
        self._files.rename(path, self._log_path)
        if self.open_file is None:
            self._hold(file)
        self.open_file = file
        self.allocated_bytes = allocated_bytes

    def _allocate_ahead(self, file: SegmentFile, position: Position, size: int) -> None:
        """Reserves the next blocks of a segment that has shown that it grows; it is written without them too."""
        end = max(position + size, min(position + ALLOCATE_STEP_BYTES, self.config.segment_bytes))
        ahead = self._files.allocate_ahead(file.fd, position, end - position)
        self.allocated_bytes = end if ahead else NO_LIMIT

    def begin_rebuild(self, position: Position, offset: Offset, txn_offset: Offset) -> None:
        """Drops the index entries from `offset` on; the batches from `position` on are accounted for again.

        Aborted transactions are forgotten from `txn_offset` on, where the replay of producers begins.
        """
        assert position >= 0 and self.base_offset <= offset <= txn_offset, (self, position, offset, txn_offset)
        self._keep_holes(position)
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.txn_index.truncate_to(txn_offset)
        max_timestamp, offset_of_max = self.time_index.last_entry()
        interval = self.config.index_interval_bytes
        # The first batch gets an entry, as it had one before, unless it is the first of the segment, which never has
        # one.
        self.tail = AppendTail(position, max_timestamp, offset_of_max, interval + 1 if position else 0, interval)

    def account(self, base_offset: Offset, last_offset: Offset, size: int, max_timestamp: int) -> None:
        """Counts and indexes a batch that recovery has found in the file."""
        tail = self.tail
        if tail is None:
            raise RuntimeError("account() needs a tail: begin_rebuild() first")
        position = tail.size
        if tail.append(base_offset, last_offset, size, max_timestamp):
            self.index_batch(tail, last_offset, position)

    def end_rebuild(self, file_size: int, *, active: bool) -> None:
        """Cuts the file after the last batch accounted for; an inactive segment gets its final shape."""
        tail = self.prepare_append()
        assert tail.size <= file_size, (self, tail.size, file_size)
        if file_size > tail.size or tail.size > ALLOCATE_FROM_BYTES:
            self._files.ftruncate(self.file().fd, tail.size)
        self._size = tail.size
        if not active:
            self.become_inactive(loading=True)
            self.tail = None

    def fill(self, batch: bytes) -> None:
        """Puts a batch without records behind an inactive segment's last one, up to where the next segment begins."""
        assert self.tail is None, f"{self} is appended to"
        self._files.pwrite(self.file().fd, batch, self._size)
        self._size += len(batch)

    def index_batch(self, tail: AppendTail, last_offset: Offset, position: Position) -> None:
        """Makes the index entries that are due with a batch."""
        offset_index, time_index = self.offset_index, self.time_index
        if not self.indexes_full:
            try:
                offset_index.append(last_offset, position)
                time_index.append(tail.max_timestamp, tail.offset_of_max_timestamp)
            except OSError as error:  # The entries are in memory; the next one, a flush or a roll writes them.
                self._tell("writing an index", error)
        self.indexes_full = offset_index.is_full or time_index.is_full

    def cut_failed_write(self, file: SegmentFile, position: Position) -> None:
        """Cuts off the bytes that a failed write may have left behind `position`."""
        # Leftover bytes must not pass for records: until they are cut, nothing is appended and no stop is clean.
        self.allocated_bytes = UNCUT
        try:
            self._cut_leftover(file)
        except OSError as error:
            self._tell(f"cutting a failed write at {position}", error)

    def _tell(self, what: str, error: OSError) -> None:
        """Reports an I/O error that no caller gets; if the disk caused it, the directory has failed."""
        logger.warning("%s failed for %s, trying again later: %s", what, self._log_path, error)
        if self._failures is not None:
            self._failures.report(self._log_path, what, error)

    def _cut_leftover(self, file: SegmentFile) -> None:
        if self.allocated_bytes == UNCUT:
            self._files.ftruncate(file.fd, self.size)
            self.allocated_bytes = max(ALLOCATE_FROM_BYTES, self.size)

    def first_timestamp(self) -> int:
        """The max timestamp of the first batch, which time-based rolling counts from; -1 while empty."""
        if self._rolling_timestamp is None:
            if self.size < LEAST_STORED_BYTES:
                return -1
            self._rolling_timestamp = max_timestamp_of(self._files.pread(self.file().fd, BATCH_OVERHEAD, 0))
        return self._rolling_timestamp

    def become_inactive(self, *, loading: bool = False) -> None:
        """The final time index entry, then indexes cut to their entries and the file to its bytes.

        `loading`: what finds no room may stay in memory.
        """
        tail = self.prepare_append()
        if self.allocated_bytes == UNCUT:
            self._cut_leftover(self.file())
        if tail.max_timestamp >= 0:
            self.time_index.table.append(tail.max_timestamp, tail.offset_of_max_timestamp)
        positions = self.offset_index.table
        assert not positions.entries or positions.last_value < tail.size, (self, positions.last_value, tail.size)
        for index in (self.offset_index, self.time_index):
            if loading:
                index.settle(trim=True)
            else:
                index.trim()
        if self.config.preallocate_bytes or tail.size > ALLOCATE_FROM_BYTES:
            # Gives back blocks that were reserved and not written.
            self._files.ftruncate(self.file().fd, tail.size)
            self.allocated_bytes = max(ALLOCATE_FROM_BYTES, tail.size)

    # -- read ---------------------------------------------------------------------------------------------------------

    def locate(self, offset: Offset) -> BatchLocation | None:
        """The first batch that ends at or after `offset`; None when there is none.

        DamagedSegmentError when it cannot be found because the bytes at its place are no batches.
        """
        tail = self.tail
        if tail is not None:
            # The tail remembers appended batches, which may be damaged on disk since.
            found = tail.find(offset) if not any(hole.holds(offset) for hole in self.holes) else None
            if found is not None:
                return BatchLocation(found[0], found[1], NO_OFFSET, NO_OFFSET)
            end = tail.size
        else:
            end = self._size
        return segment_search.find_location(self, self._files, offset, end)

    def add_hole(self, hole: Hole) -> None:
        """Keeps a hole that a read has found: from now on the fast paths leave reads of this segment to `locate` and
        `readable_end`."""
        assert 0 <= hole.position <= hole.end_position, (self, hole)
        assert hole.end_offset is None or hole.offset <= hole.end_offset, (self, hole)
        self.holes = tuple(sorted((*self.holes, hole)))
        self.is_damaged = True

    def _keep_holes(self, position: Position) -> None:
        """Forgets the holes that begin at or behind `position`."""
        self.holes = tuple(hole for hole in self.holes if hole.position < position)
        self.is_damaged = bool(self.holes)

    def readable_end(self, position: Position) -> Position:
        """The end of the contiguous batches from `position` on: the next hole, or the segment's end."""
        return min((hole.position for hole in self.holes if hole.position >= position), default=self.size)

    def measure(self) -> tuple[Offset, int, Offset]:
        """(next offset, max timestamp, offset of it) from the index ends and the batches after them.

        CorruptSegmentError when the log does not end with a whole batch, or its index does not lead to one.
        """
        return segment_search.measure(self, self._files)

    def end(self, *, is_indexed: bool) -> tuple[Offset, LeaderEpoch]:
        """The offset after the last batch, and that one's leader epoch (-1 without one).

        Errors as `measure`; without `is_indexed` the offset index is known to be empty.
        """
        measured = segment_search.measure_end(self, self._files, is_indexed=is_indexed)
        return measured.next_offset, measured.leader_epoch

    @property
    def max_timestamp(self) -> tuple[int, Offset]:
        """The largest timestamp and the last offset of its batch; (-1, base offset) while empty."""
        if self.tail is not None:
            return self.tail.max_timestamp, self.tail.offset_of_max_timestamp
        return self.time_index.last_entry()

    def largest_timestamp(self) -> int:
        """What retention by time goes by: the records' largest timestamp, or the file's age without one."""
        timestamp = self.max_timestamp[0]
        return timestamp if timestamp >= 0 else self._files.modified_ms(self._log_path)

    # -- durability and truncation ------------------------------------------------------------------------------------

    def sync_job(self) -> SyncJob:
        """Writes what is in memory; the job that makes the files durable."""
        paths = [self._log_path]
        for suffix, index in ((INDEX_SUFFIX, self._offset_index), (TIME_INDEX_SUFFIX, self._time_index)):
            if index is not None:
                index.write_tail()
                paths.append(self.path_of(suffix))
        if self._txn_index is not None and self._txn_index.entries:
            self._txn_index.write_tail()
            paths.append(self.path_of(TXN_INDEX_SUFFIX))
        return SyncJob(tuple(paths))

    def truncate_to(self, offset: Offset) -> int:
        """Drops the batches from the one that holds `offset`.  Returns the bytes dropped."""
        self.prepare_append()
        position = begin_of(self, offset)
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.txn_index.truncate_to(offset)
        return 0 if position is None else self.cut(position)

    def cut(self, position: Position) -> int:
        """Drops the bytes from `position`, which begins a batch; the indexes must be cut already."""
        dropped = self.size - position
        assert position >= 0 and dropped >= 0, (self, position)
        self._files.ftruncate(self.file().fd, position)
        self._size = position
        self.tail = None
        self.follow_ups = None
        self._keep_holes(position)
        self.roll_after_timestamp = ASK_RULE
        if position == 0:
            self._rolling_timestamp = None
        self.prepare_append()
        assert self.size == position and all(hole.position < position for hole in self.holes), (self, position)
        if CHECKED:
            self.check_invariants()
        return dropped

    def resize_indexes(self) -> None:
        """Gives the indexes of a segment that is active again their full size."""
        self.offset_index.extend()
        self.time_index.extend()

    def close(self) -> None:
        """Writes and trims the indexes of a segment that was appended to, then lets go of its files."""
        if self.tail is not None:
            self.become_inactive()
            self._size = self.tail.size
            self.tail = None
        self.close_files()
