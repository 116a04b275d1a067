"""Segments that replace others, put in place so that a crash at any point leaves the old or the new ones.

    1  the new segment is written to `.cleaned` files, which are durable, names and content
    2  `.cleaned` becomes `.swap`, the segment with the highest base offset first, each durable before the next
    3  the new segments take the old ones' place in memory
    4  the old ones become `.deleted`, durably, to be unlinked after `file.delete.delay.ms`
    5  `.swap` loses its suffix
    6  the directory is made durable

After a crash before the end of step 2 the loader finds a `.cleaned` file: the `.swap` files at or above its base offset
are an unfinished replacement and are removed.  After a later crash the `.swap` segments are complete, and replace the
segments that they overlap.  A `.cleaned` file left over from an earlier clean would make the loader drop a finished
replacement, so such files are removed first (`remove_leftovers`).

The directory is fsynced between steps that depend on each other.  Otherwise the file system might persist the later
rename first, and a crash could leave neither the old segments nor the new ones, or both.

When a step fails with a disk error, the log stays complete in memory and on disk.  Up to step 2 the old segments stay;
after it the new ones serve as `.swap` until the next clean (`finish_swap`) or a restart completes the swap.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from kbroker.errors import again, bare
from kbroker.storage.cleaner.cleaner_plan import Source
from kbroker.storage.files.filesystem import Buffer, FileSystem
from kbroker.storage.files.open_files import SegmentFile
from kbroker.storage.log.local_log import segment_config
from kbroker.storage.log.log_segment import (
    CLEANED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    LogSegment,
)
from kbroker.storage.log.txn_index import CURRENT_VERSION, ENTRY, AbortedTransaction
from kbroker.types import Offset

if TYPE_CHECKING:
    from kbroker.storage.log.unified_log import UnifiedLog

logger = logging.getLogger("kbroker.cleaner")


class SegmentsChangedError(Exception):
    """The segments that were read are not the log's any more."""


class CleanedSegment:
    """The `.cleaned` files of a new segment.  The loop makes them, a thread fills them."""

    __slots__ = ("_index", "_log", "_time_index", "_txn_index", "base_offset", "has_txn_index", "prefix", "size")

    def __init__(self, files: FileSystem, directory: str, base_offset: Offset) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC
        self.prefix = f"{directory}/{base_offset:020d}"
        self.base_offset = base_offset
        self.size = 0
        self.has_txn_index = False
        self._log = SegmentFile(files, self.path_of(LOG_SUFFIX), flags)
        self._index = SegmentFile(files, self.path_of(INDEX_SUFFIX), flags)
        self._time_index = SegmentFile(files, self.path_of(TIME_INDEX_SUFFIX), flags)
        self._txn_index: SegmentFile | None = None

    def path_of(self, kind: str) -> str:
        """The path of the file of this kind."""
        return f"{self.prefix}{kind}{CLEANED_SUFFIX}"

    @property
    def log_path(self) -> str:
        """The path of the log file."""
        return self.path_of(LOG_SUFFIX)

    @property
    def fd(self) -> int:
        """Of the log file."""
        return self._log.fd

    def append(self, files: FileSystem, data: Buffer) -> None:
        """Write bytes at the end of the log file.  OSError."""
        files.pwrite(self._log.fd, data, self.size)
        self.size += len(data)

    def finish(
        self, files: FileSystem, offset_index: bytes, time_index: bytes, aborted: Sequence[AbortedTransaction]
    ) -> None:
        """Writes the indexes and makes all files durable."""
        parts = [(self._log, b""), (self._index, offset_index), (self._time_index, time_index)]
        if aborted:
            self.has_txn_index = True
            flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC
            self._txn_index = SegmentFile(files, self.path_of(TXN_INDEX_SUFFIX), flags)
            entries = b"".join(ENTRY.pack(CURRENT_VERSION, *entry) for entry in aborted)
            parts.append((self._txn_index, entries))
        for file, content in parts:
            if content:
                files.pwrite(file.fd, content, 0)
            files.fsync(file.fd)


def open_cleaned(files: FileSystem, directory: str, base_offset: Offset) -> CleanedSegment:
    """A new, empty segment beside those that it will replace.  OSError."""
    return CleanedSegment(files, directory, base_offset)


def remove_leftovers(files: FileSystem, directory: str) -> None:
    """Removes what a clean that failed could not remove."""
    for entry in files.list_directory(directory):
        if entry.name.endswith(CLEANED_SUFFIX):
            logger.info("Removing %s/%s, left by a compaction that failed", directory, entry.name)
            files.unlink(f"{directory}/{entry.name}")


def discard_cleaned(files: FileSystem, written: Sequence[CleanedSegment]) -> None:
    """Removes the files of segments that were not put in place."""
    for segment in written:
        for kind in SEGMENT_SUFFIXES:
            try:
                files.unlink_if_exists(segment.path_of(kind))
            except OSError as error:
                logger.warning("Cannot remove %s: %s", segment.path_of(kind), error)


def swap_in(
    log: UnifiedLog, old: Sequence[Source], written: Sequence[CleanedSegment], check: Callable[[], None]
) -> Generator[Callable[[], None], None, None]:
    """Steps 2 to 6; yields what a thread is to run, and goes on when that is done.

    SegmentsChangedError when the log has not the segments any more that were read; `check` raises when the clean is
    to end.
    """
    retired = _unchanged(log, old)
    local = log.local
    environment = local.environment
    sync = partial(environment.files.fsync_directory, local.directory)
    new = [
        LogSegment(
            environment.files,
            environment.open_files,
            local.directory,
            cleaned.base_offset,
            segment_config(local.config),
            size=cleaned.size,
            has_txn_index=cleaned.has_txn_index,
            created_ms=environment.clock.now_ms(),
            suffix=CLEANED_SUFFIX,
            failures=environment.failures,
        )
        for cleaned in written
    ]
    try:
        yield sync
        for segment in reversed(new):
            check()
            segment.rename_suffix(SWAP_SUFFIX)
            yield sync
        check()
        retired = _unchanged(log, old)
    except BaseException:
        _take_back(environment.files, new)
        raise
    active = local.segments.active
    assert active not in retired and new[-1].base_offset < active.base_offset, (log, retired, new)
    assert retired[0].base_offset <= new[0].base_offset, f"{log}: a segment begins before what was compacted: {new}"
    local.segments = local.segments.replacing(retired, new)
    assert local.segments.active is active, f"{log}: {active} is appended to and was replaced"
    _retire(log, retired)
    yield sync
    for segment in new:
        _go_live(environment.files, segment)
    log.producer_state.remove_strays(frozenset(segment.base_offset for segment in local.segments))
    yield sync


def _unchanged(log: UnifiedLog, old: Sequence[Source]) -> list[LogSegment]:
    """The segments that were read, as the log has them."""
    found = []
    for source in old:
        segment = log.local.segments.get(source.base_offset)
        if segment is None or segment.path != source.path or segment.size != source.size:
            raise SegmentsChangedError(f"segment {source.base_offset} of {log.topic_partition} has changed")
        found.append(segment)
    return found


def _take_back(files: FileSystem, new: Sequence[LogSegment]) -> None:
    """Removes `.swap` files, of the first segment last: as long as it is `.cleaned`, a restart drops the others."""
    first = f"{live_path(new[0], LOG_SUFFIX)}"
    if files.exists(first + SWAP_SUFFIX):
        files.rename(first + SWAP_SUFFIX, first + CLEANED_SUFFIX)
    for segment in reversed(new):
        for kind in SEGMENT_SUFFIXES:
            files.unlink_if_exists(f"{live_path(segment, kind)}{SWAP_SUFFIX}")


def live_path(segment: LogSegment, kind: str) -> str:
    """The name of a segment's file once it is in place."""
    return segment.path_of(kind).removesuffix(CLEANED_SUFFIX).removesuffix(SWAP_SUFFIX)


def _retire(log: UnifiedLog, retired: Sequence[LogSegment]) -> None:
    """Step 4, for as many segments as possible.  If one cannot be renamed, step 5 must wait (`finish_swap`): a restart
    would find the old and the new segment, which overlap."""
    failure: OSError | None = None
    for segment in retired:
        try:
            log.local.discard([segment], log.config.file_delete_delay_ms)
        except OSError as error:
            failure = failure or bare(error)
    if failure is not None:
        raise again(failure)


def _go_live(files: FileSystem, segment: LogSegment) -> None:
    """Step 5, all files of a segment or none."""
    try:
        segment.rename_suffix("")
    except OSError:
        for kind in SEGMENT_SUFFIXES:
            if files.exists(live_path(segment, kind)):
                files.rename(live_path(segment, kind), segment.path_of(kind))
        raise


def finish_swap(log: UnifiedLog) -> None:
    """Steps 4 and 5 again for segments that a failing disk kept in `.swap`: they serve under that name meanwhile."""
    segments = list(log.local.segments)
    waiting = [segment for segment in segments if segment.path.endswith(SWAP_SUFFIX)]
    if not waiting:
        return
    files = log.local.environment.files
    log.local.finish_removals()
    in_use = {segment.path_of(kind) for segment in segments for kind in SEGMENT_SUFFIXES}
    for entry in files.list_directory(log.directory):
        path = f"{log.directory}/{entry.name}"
        if entry.name.endswith(SEGMENT_SUFFIXES) and path not in in_use:
            logger.info("Removing %s, which has been replaced", path)
            files.unlink(path)
    for segment in waiting:
        _go_live(files, segment)
