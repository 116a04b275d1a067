"""A partition's copy in another log directory while it moves there (KIP-113): `topic-partition.<id>-future`.

The copy follows the log segment by segment, byte for byte, until it is the same; then the log takes its files over
(`log_relocation`).  So what happens to the log meanwhile happens to the copy as well:

    append      the active segment's copy grows behind it
    roll        its copy is brought to its end, with its indexes, and counts as whole
    retention   the copies of deleted segments go
    compaction  the copies of replaced segments go, and the new ones are copied
    truncation  the copies of what was cut go (`LocalLog.lowest_cut`)

A file that is being copied is called `<base offset>.log.copy`.  It loses the suffix when the segment is whole, its
indexes are there, and every batch has passed its checksum: a `-future` directory always holds a valid start of a log.
The active segment's copy loses it with the first step that makes it durable, so that its name is durable, too, before
the log takes it over.  After a stop the copy goes on: `.log` and `.copy` files are compared with the segments, and
copied from the first byte that differs.  Each step makes some files durable; a step with `sync` makes all of them
durable.

`next_steps` looks at the segments on the loop; what it returns runs on a thread, which sees descriptors, paths and
lengths.  Between steps all state belongs to the loop.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from kbroker.records.layout import LENGTH_END, LENGTH_POSITION, LOG_OVERHEAD, MAGIC_POSITION
from kbroker.storage.directories.log_dirs import FUTURE_SUFFIX, marked_directory
from kbroker.storage.files.checkpoints import LEADER_EPOCH_CHECKPOINT
from kbroker.storage.files.open_files import SegmentFile
from kbroker.storage.log.local_log import NEVER_CUT
from kbroker.storage.log.log_segment import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    LogSegment,
    base_offset_of,
    file_prefix,
)
from kbroker.storage.log.partition_metadata import PARTITION_METADATA, PartitionMetadata
from kbroker.types import FIRST_OFFSET, NO_OFFSET, Offset

if TYPE_CHECKING:
    from kbroker.storage.files.filesystem import FileSystem
    from kbroker.storage.files.throttle import Throttle
    from kbroker.storage.log.unified_log import UnifiedLog

COPY_SUFFIX = ".copy"
CHUNK_BYTES = 1 << 20
CHUNK_BYTES_MIN = 4 << 10
STEP_BYTES = 16 << 20
MAX_STEPS = 64
UNSYNCED_BYTES = 64 << 20
SCAN_BATCHES = 8192
INDEX_SUFFIXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX)


class MoveCancelledError(Exception):
    """The move was cancelled: the copy is not wanted any more."""


class SourceChangedError(Exception):
    """Files of the log went away while they were copied: look at its segments again."""


class CorruptSourceError(Exception):
    """A segment has bytes that are no valid batch; moving it would hide where it was damaged."""


class SegmentCopy:
    """What there is of one segment.  `source` tells by its identity whether it is still the log's segment.

    `copied`: bytes copied, owned by the loop; `written` and `verified`: bytes written and verified, owned by the
    thread.  `verifies` is False once messages of the old formats were found, which have no header that could be checked
    here.  `named`: the file is called as the segment's is.
    """

    __slots__ = (
        "base_offset",
        "copied",
        "file",
        "has_txn_index",
        "index_bytes",
        "named",
        "source",
        "verified",
        "verifies",
        "whole",
        "written",
    )

    def __init__(self, source: LogSegment) -> None:
        self.source = source
        self.base_offset = source.base_offset
        self.file: SegmentFile | None = None
        self.copied = 0
        self.written = 0
        self.verified = 0
        self.verifies = True
        self.has_txn_index = self.named = False
        self.index_bytes = {INDEX_SUFFIX: 0, TIME_INDEX_SUFFIX: 0}
        self.whole = False

    @property
    def suffix(self) -> str:
        """What the file's name ends with."""
        return LOG_SUFFIX if self.named else LOG_SUFFIX + COPY_SUFFIX


class CopyStep(NamedTuple):
    """Work for a thread: a segment as it was when the loop looked.

    `source` is kept open by this.  `indexes` has the lengths of an active segment's indexes, None for a whole segment.
    """

    copy: SegmentCopy
    source: SegmentFile
    source_path: str
    size: int
    paths: dict[str, str]
    indexes: dict[str, int] | None
    end_offset: Offset
    sync: bool


class FutureLog:
    """See the module.  `directory` is the `-future` directory, `parent` the log directory that it lies in."""

    __slots__ = (
        "_copies",
        "_dropped",
        "_unsynced",
        "_unsynced_bytes",
        "_leftovers",
        "_seen",
        "cancelled",
        "cleaning_paused",
        "copied_bytes",
        "directory",
        "discarded_bytes",
        "end_offset",
        "epochs",
        "files",
        "log",
        "parent",
        "resumed",
        "synced_offset",
    )

    def __init__(self, files: FileSystem, log: UnifiedLog, parent: str, found: str | None = None) -> None:
        """`found`: a directory that a stop left, to go on with."""
        self.files, self.log, self.parent = files, log, parent
        self.directory = found or f"{parent}/{marked_directory(*log.topic_partition, FUTURE_SUFFIX)}"
        self.resumed = found is not None
        self.cancelled = False
        self.epochs = b"", FIRST_OFFSET  # what the copy's epoch file holds, and the log's end when that was read
        self.cleaning_paused = False
        self.copied_bytes = 0
        self.discarded_bytes = 0
        self.end_offset = log.local_log_start_offset
        self.synced_offset = NO_OFFSET
        self._copies: dict[int, SegmentCopy] = {}
        self._dropped: list[str] = []
        self._unsynced: list[str] = []
        self._unsynced_bytes = 0
        self._leftovers: dict[int, str] = {}
        self._seen: object = None

    def __repr__(self) -> str:
        return f"FutureLog({self.log.topic_partition} -> {self.parent}, {self.copied_bytes} bytes)"

    @property
    def offset_lag(self) -> int:
        """Offsets that the copy is behind; while a segment is copied it counts up to the last batch checked."""
        return max(0, self.log.log_end_offset - self.end_offset)

    @property
    def bytes_left(self) -> int:
        """How much of the log is not in the copy yet."""
        return max(0, self.log.size_bytes - self.copied_bytes)

    def copies(self) -> list[SegmentCopy]:
        """In order of the segments."""
        return [self._copies[base] for base in sorted(self._copies)]

    def path_of(self, base_offset: Offset, suffix: str) -> str:
        """The path of a file of the copy."""
        return f"{self.directory}/{file_prefix(base_offset)}{suffix}"

    def check(self) -> None:
        """Raises MoveCancelledError when the copy is not wanted any more; asked by the thread all the time."""
        if self.cancelled:
            raise MoveCancelledError(f"the move of {self.log.topic_partition} was cancelled")

    # -- on the loop --------------------------------------------------------------------------------------------------

    def create(self) -> None:
        """Makes the directory, with the topic's id: all that a start needs to go on with the move."""
        files, log = self.files, self.log
        files.mkdir(self.directory)
        try:
            PartitionMetadata(files, self.directory, exists=False).assign(log.topic_id, log.topic_partition)
        except OSError:
            with contextlib.suppress(OSError):
                files.remove_tree(self.directory)
            raise

    def refresh(self) -> None:
        """Gives up copies of what is not in the log any more."""
        local = self.log.local
        cut, local.lowest_cut = local.lowest_cut, NEVER_CUT
        if local.segments is self._seen and cut == NEVER_CUT:
            return
        live = {id(segment) for segment in local.segments}
        previous_end = None
        for copy in reversed(self.copies()):
            reaches_cut = previous_end is None or previous_end > cut
            previous_end = copy.base_offset
            if id(copy.source) not in live or (cut != NEVER_CUT and reaches_cut):
                self._drop(copy)
        self._seen = local.segments

    def _drop(self, copy: SegmentCopy) -> None:
        del self._copies[copy.base_offset]
        self.copied_bytes -= copy.copied
        self.discarded_bytes += copy.copied
        copy.file = None
        # What an interrupted move left of it goes too: `_open` must not look for it.
        self._leftovers.pop(copy.base_offset, None)
        prefix = self.path_of(copy.base_offset, "")
        self._dropped.extend(
            prefix + suffix for suffix in (LOG_SUFFIX, LOG_SUFFIX + COPY_SUFFIX, *INDEX_SUFFIXES, TXN_INDEX_SUFFIX)
        )

    def next_steps(self, *, sync: bool = False) -> list[CopyStep]:
        """The next pieces of work, for about STEP_BYTES; none when the copy is as long as the log.

        With `sync` the whole copy is durable when the step for the active segment is done, also when nothing was left
        to copy.
        """
        self.refresh()
        segments = list(self.log.local.segments)
        steps: list[CopyStep] = []
        size = 0
        for segment in segments[:-1]:
            copy = self._copies.get(segment.base_offset)
            if copy is None or not copy.whole:
                steps.append(self._step(segment, None, sync=False))
                size += segment.size
                if size >= STEP_BYTES or len(steps) == MAX_STEPS:
                    return steps
        active = segments[-1]
        copy = self._copies.get(active.base_offset)
        if sync or copy is None or copy.copied != active.size:
            steps.append(self._step(active, {}, sync=sync))
        elif not steps:
            self.end_offset = self.log.log_end_offset
        return steps

    def _step(self, segment: LogSegment, indexes: dict[str, int] | None, *, sync: bool) -> CopyStep:
        copy = self._copies.get(segment.base_offset)
        if copy is None:
            copy = self._copies[segment.base_offset] = SegmentCopy(segment)
        following = self.log.local.segments.higher(segment.base_offset)
        if indexes is not None:
            indexes = write_index_tails(segment)
        paths = {suffix: segment.path_of(suffix) for suffix in (*INDEX_SUFFIXES, TXN_INDEX_SUFFIX)}
        end = self.log.log_end_offset if following is None else following.base_offset
        return CopyStep(copy, segment.file(), segment.path, segment.size, paths, indexes, end, sync)

    def finished(self, steps: list[CopyStep], copied: list[int]) -> None:
        """Takes over what steps have done: `copied` is how far the segments' copies go now, of those carried out."""
        for step, size in zip(steps, copied, strict=False):
            self._finished(step, size)

    def _finished(self, step: CopyStep, copied: int) -> None:
        copy = step.copy
        if self._copies.get(copy.base_offset) is not copy:
            return
        self.copied_bytes += copied - copy.copied
        copy.copied = copied
        if copied == step.size:
            if step.indexes is None:
                copy.whole = True
            elif step.sync:
                self.synced_offset = step.end_offset
            self.end_offset = max(self.end_offset, step.end_offset)

    def ready_bytes(self) -> int | None:
        """Bytes of the active segment that are still missing; None while more than that is."""
        self.refresh()
        segments = self.log.local.segments
        active = self._copies.get(segments.active.base_offset)
        if active is None or active.file is None or len(self._copies) != len(segments):
            return None
        if not all(copy.whole for copy in self._copies.values() if copy is not active):
            return None
        return segments.active.size - active.copied

    @property
    def has_durable_names(self) -> bool:
        """Whether the names of all files are durable: that of the active segment comes last."""
        copies = self.copies()
        return bool(copies) and copies[-1].named

    # -- on a thread --------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Looks at what is in a directory to go on with."""
        files = self.files
        if not self.resumed:
            return
        for entry in files.list_directory(self.directory):
            name = entry.name
            if name.endswith((LOG_SUFFIX, LOG_SUFFIX + COPY_SUFFIX)) and name[:20].isdigit():
                self._leftovers[base_offset_of(name)] = name
            elif name != PARTITION_METADATA and not entry.is_directory:
                files.unlink(f"{self.directory}/{name}")

    def remove_dropped(self) -> None:
        """Remove the copies of segments that the log has not any more.  OSError."""
        dropped, self._dropped = self._dropped, []
        for path in dropped:
            self.files.unlink_if_exists(path)

    def carry_out(self, steps: list[CopyStep], throttle: Throttle, copied: list[int]) -> None:
        """Copies up to STEP_BYTES of each segment; with its end come its indexes.  Adds to `copied` how far it goes.

        Ends with a segment that was not finished.  SourceChangedError when the log's files have gone,
        CorruptSourceError when a batch fails its checksum.
        """
        self.remove_dropped()
        for step in steps:
            copied.append(self._carry_out(step, throttle))
            if copied[-1] < step.size:
                return

    def _carry_out(self, step: CopyStep, throttle: Throttle) -> int:
        copy = step.copy
        self.check()
        if copy.file is None:
            self._open(step, throttle)
        target = copy.file
        if target is None:
            raise RuntimeError("a copy without a file")
        rate = throttle.bytes_per_second
        start, end = copy.written, min(step.size, copy.written + int(min(STEP_BYTES, max(rate, CHUNK_BYTES_MIN))))
        copy_bytes(self.files, step.source.fd, target.fd, start, end, self._spender(throttle), chunk_bytes(rate))
        copy.written = end
        self._verify(copy, target.fd, end)
        if end < step.size:
            return end
        if step.indexes is None:
            self._complete(step, target)
        else:
            self._copy_active_indexes(step, target)
        return end

    def _spender(self, throttle: Throttle) -> Callable[[int], None]:
        return lambda size: throttle.spend(size, self.check)

    def _open(self, step: CopyStep, throttle: Throttle) -> None:
        copy = step.copy
        path = self.path_of(copy.base_offset, copy.suffix)
        leftover = self._leftovers.pop(copy.base_offset, None)
        flags = os.O_RDWR | os.O_CREAT | (os.O_TRUNC if leftover is None else 0)
        if leftover is not None and not leftover.endswith(COPY_SUFFIX):
            self.files.rename(f"{self.directory}/{leftover}", path)
        file = SegmentFile(self.files, path, flags)
        if leftover is not None:
            end = min(step.size, self.files.size(file.fd))
            same = equal_bytes(self.files, step.source.fd, file.fd, end, self._spender(throttle))
            self.files.ftruncate(file.fd, same)
            copy.written = same
        copy.file = file

    def _verify(self, copy: SegmentCopy, fd: int, end: int) -> None:
        """Walks the whole batches of the copy up to `end`; a batch that goes on behind it comes with the next step."""
        if not copy.verifies:
            copy.verified = end
        while copy.verified < end:
            scan = self.files.scan_segment(fd, copy.verified, end, check_crc=True, max_batches=SCAN_BATCHES)
            if scan.batches:
                self.end_offset = max(self.end_offset, scan.batches[-1].last_offset + 1)
            at = copy.verified = scan.valid_end
            if scan.reason is None:
                if scan.complete:
                    return
                continue
            header = self.files.pread(fd, MAGIC_POSITION + 1, at)
            if len(header) <= MAGIC_POSITION:
                return
            if header[MAGIC_POSITION] < 2:
                copy.verifies = False
                copy.verified = end
            elif at + LOG_OVERHEAD + int.from_bytes(header[LENGTH_POSITION:LENGTH_END], signed=True) > end:
                return
            else:
                where = f"segment {copy.base_offset} of {self.log.topic_partition} at position {at}"
                raise CorruptSourceError(f"{where}: {scan.reason}")

    def _complete(self, step: CopyStep, target: SegmentFile) -> None:
        """The segment's bytes are all there: its indexes, its age, then its name."""
        copy, files = step.copy, self.files
        if copy.verified != step.size:
            raise CorruptSourceError(
                f"{self.log.topic_partition}: segment {copy.base_offset} does not end with a whole batch"
            )
        try:
            modified_ms = files.modified_ms(step.source_path)
        except FileNotFoundError as error:
            raise SourceChangedError(str(error)) from error
        for suffix, path in step.paths.items():
            copied = self.path_of(copy.base_offset, suffix)
            try:
                files.copy_file(path, copied)
            except FileNotFoundError as error:
                # A segment may do without one, but not without its log.
                if not files.exists(step.source_path):
                    raise SourceChangedError(str(error)) from error
                continue
            self._unsynced.append(copied)
            copy.has_txn_index = copy.has_txn_index or suffix == TXN_INDEX_SUFFIX
        files.set_modified_ms(self.path_of(copy.base_offset, copy.suffix), modified_ms)
        path = self._name(copy)
        copy.file = None
        self._unsynced.append(path)
        self._unsynced_bytes += step.size
        if self._unsynced_bytes > UNSYNCED_BYTES:
            self._sync()

    def _name(self, copy: SegmentCopy) -> str:
        """Gives the copy the name of the segment's file; that in its directory."""
        path = self.path_of(copy.base_offset, LOG_SUFFIX)
        if not copy.named:
            self.files.rename(self.path_of(copy.base_offset, copy.suffix), path)
            copy.named = True
        return path

    def _sync(self) -> None:
        """Makes the whole segments that are not durable yet so; those that were given up are gone."""
        unsynced, self._unsynced, self._unsynced_bytes = self._unsynced, [], 0
        for path in unsynced:
            self.check()
            self.files.sync_path(path)

    def _copy_active_indexes(self, step: CopyStep, target: SegmentFile) -> None:
        """Brings the entries that are in the active segment's index files over, so that few are left for the end."""
        for suffix, length in (step.indexes or {}).items():
            self.copy_index(step.copy, suffix, step.paths[suffix], length, sync=step.sync)
        if step.sync:
            self._sync()
            self.files.fsync(target.fd)
            self._name(step.copy)
            self.files.fsync_directory(self.directory)

    def copy_index(self, copy: SegmentCopy, suffix: str, source_path: str, length: int, *, sync: bool) -> None:
        """Copies the entries of an index from where the last time ended.  SourceChangedError when it is gone.

        An index without entries need not have a file: a power cut may have taken that."""
        files = self.files
        target = SegmentFile(files, self.path_of(copy.base_offset, suffix), os.O_RDWR | os.O_CREAT)
        if length > copy.index_bytes[suffix]:
            try:
                source = SegmentFile(files, source_path, os.O_RDONLY)
            except FileNotFoundError as error:
                raise SourceChangedError(str(error)) from error
            copy_bytes(files, source.fd, target.fd, copy.index_bytes[suffix], length, lambda _: None)
            copy.index_bytes[suffix] = length
        if sync:
            files.fsync(target.fd)

    def copy_small_files(self, snapshots: list[Offset], epochs: bytes) -> None:
        """Brings topic id, producers' snapshots and epochs over, durable; removes what belongs to no segment."""
        files = self.files
        self.remove_dropped()
        source = self.log.directory
        wanted = [PARTITION_METADATA, *(f"{file_prefix(offset)}.snapshot" for offset in snapshots)]
        for name in wanted:
            try:
                files.write_file(f"{self.directory}/{name}", files.read_file(f"{source}/{name}"), sync=True)
            except FileNotFoundError:
                continue
        files.write_atomic(f"{self.directory}/{LEADER_EPOCH_CHECKPOINT}", epochs)
        for leftover in self._leftovers.values():
            files.unlink_if_exists(f"{self.directory}/{leftover}")
        self._leftovers.clear()
        files.fsync_directory(self.directory)
        files.fsync_directory(self.parent)


def write_index_tails(segment: LogSegment) -> dict[str, int]:
    """Puts the index entries of an active segment into their files; how long the files are with them."""
    lengths = {}
    for suffix, index in ((INDEX_SUFFIX, segment.offset_index), (TIME_INDEX_SUFFIX, segment.time_index)):
        index.write_tail()
        lengths[suffix] = index.stored_bytes
    return lengths


def chunk_bytes(rate: float) -> int:
    """How much to copy at once at a rate in bytes/s: a tenth of a second's worth, so that a change is soon heeded."""
    return int(min(STEP_BYTES, max(rate / 10, CHUNK_BYTES_MIN)))


def copy_bytes(
    files: FileSystem,
    source: int,
    target: int,
    start: int,
    end: int,
    spend: Callable[[int], None],
    chunk: int = STEP_BYTES,
) -> None:
    """Copies a range of a file to the same place of another; `spend` gets each piece's size before it is copied.

    Raises SourceChangedError."""
    while start < end:
        want = min(chunk, end - start)
        spend(want)
        came = files.copy_range(source, target, start, start + want)
        if came < start + want:
            raise SourceChangedError(f"bytes are missing at position {came}")
        start = came


def equal_bytes(files: FileSystem, one: int, other: int, end: int, spend: Callable[[int], None]) -> int:
    """How many leading bytes of two files are the same, up to `end`; counted in pieces of CHUNK_BYTES."""
    at = 0
    while at < end:
        want = min(CHUNK_BYTES, end - at)
        spend(want)
        if files.pread(one, want, at) != files.pread(other, want, at):
            break
        at += want
    return at
