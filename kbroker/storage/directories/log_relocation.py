"""A log takes over the files that were copied to another log directory: Kafka's replaceCurrentWithFutureLog.

All of it happens in one turn of the loop, and the log stays the same object: its offsets, producers, epochs, waiting
fetches and appends know nothing of it.  In order:

    1  the last bytes of the active segment, its last index entries and snapshots go into the copy; epochs are there
    2  the copy is whole; the names of its files are durable since before step 1 (`FutureLog.has_durable_names`)
    3  the old directory becomes `-delete`
    4  the `-future` directory takes the partition's name
    5  the log's parts take over the new directory

A crash before 3 leaves the log where it was, with a copy to go on with; between 3 and 4 it leaves a copy without a log,
which the next start puts in its place (`future_dirs`); after that the log in its new directory.  The machine may also
lose step 3 and keep step 4: then there are two logs, of which the longer is the partition's (`longer_of_two`).

Up to step 4 an error leaves the log as it was; step 5 does no I/O.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kbroker.errors import KafkaStorageError
from kbroker.storage.directories.future_log import FutureLog, SegmentCopy, copy_bytes, write_index_tails
from kbroker.storage.directories.log_dirs import DELETE_SUFFIX, marked_directory
from kbroker.storage.log.local_log import LocalLog
from kbroker.storage.log.log_segment import TXN_INDEX_SUFFIX, LogSegment, file_prefix
from kbroker.storage.log.log_segments import LogSegments
from kbroker.storage.log.producer_snapshot import SNAPSHOT_SUFFIX
from kbroker.storage.log.space_guard import FailedDirectoryGuard, SpaceGuard
from kbroker.types import FIRST_OFFSET

if TYPE_CHECKING:
    from kbroker.storage.files.filesystem import FileSystem
    from kbroker.storage.log.unified_log import UnifiedLog

logger = logging.getLogger("kbroker.storage")


def take_over(future: FutureLog) -> str:
    """Steps 1 to 5, for a copy whose `ready_bytes` are few.  Returns the old directory's new name.

    OSError when the disk refuses a step: the log goes on where it was.
    """
    log, files = future.log, future.files
    future.remove_dropped()
    log.local.finish_removals()
    old, copies = log.local, future.copies()
    _finish_active(future, copies[-1])
    _write_small_files(future)
    tail = _open_tail(future, copies[-1])
    log.leader_epoch_cache.withdraw()
    doomed = f"{log.parent}/{marked_directory(*log.topic_partition, DELETE_SUFFIX)}"
    target = f"{future.parent}/{log.topic_partition}"
    files.rename(log.directory, doomed)
    try:
        files.rename(future.directory, target)
    except OSError:
        _put_back(log, files, doomed)
        raise
    segments = LogSegments(_segment_at(target, copy, old) for copy in copies)
    segments.active.tail = tail.tail
    segments.active.indexes_full = tail.indexes_full
    _tell(future, target, segments)
    for segment in old.segments:
        segment.close_files()
    return doomed


def _finish_active(future: FutureLog, copy: SegmentCopy) -> None:
    """What is still missing of the active segment."""
    files, source, target = future.files, copy.source, copy.file
    if target is None or not future.has_durable_names:
        raise RuntimeError(f"{future} is not ready to be taken over")
    copy_bytes(files, source.file().fd, target.fd, copy.written, source.size, lambda _: None)
    files.ftruncate(target.fd, source.size)
    for suffix, length in write_index_tails(source).items():
        future.copy_index(copy, suffix, source.path_of(suffix), length, sync=False)
    entries = source.path_of(TXN_INDEX_SUFFIX)
    if files.exists(entries):
        files.write_file(future.path_of(copy.base_offset, TXN_INDEX_SUFFIX), files.read_file(entries), sync=False)
        copy.has_txn_index = True
    copy.file = None


def _write_small_files(future: FutureLog) -> None:
    """The snapshots that were taken since the last were copied."""
    log, files = future.log, future.files
    for offset in log.producer_state.snapshots:
        name = f"{file_prefix(offset)}{SNAPSHOT_SUFFIX}"
        if not files.exists(f"{future.directory}/{name}"):
            files.write_file(f"{future.directory}/{name}", files.read_file(f"{log.directory}/{name}"), sync=False)


def _open_tail(future: FutureLog, copy: SegmentCopy) -> LogSegment:
    """The active segment as it was copied, ready to be appended to: what cannot be opened is found out before."""
    segment = _segment_at(future.directory, copy, future.log.local)
    tail = segment.prepare_append()
    segment.resize_indexes()
    segment.close_files()
    if tail.size != copy.source.size:
        raise RuntimeError(f"{future}: the copy has {tail.size} bytes, not {copy.source.size}")
    return segment


def _segment_at(directory: str, copy: SegmentCopy, local: LocalLog) -> LogSegment:
    source, environment = copy.source, local.environment
    return LogSegment(
        environment.files,
        environment.open_files,
        directory,
        source.base_offset,
        source.config,
        size=source.size,
        has_txn_index=copy.has_txn_index,
        created_ms=source.created_ms,
        roll_jitter_ms=source.roll_jitter_ms,
        failures=environment.failures,
    )


def _put_back(log: UnifiedLog, files: FileSystem, doomed: str) -> None:
    try:
        files.rename(doomed, log.directory)
    except OSError as error:
        # The bytes are all there, under a name that a start takes for a copy; none may be added to them.
        logger.critical("%s lies in %s and cannot be given its name again: %s", log.topic_partition, doomed, error)
        log.space_guard = FailedDirectoryGuard(
            KafkaStorageError(f"The log of {log.topic_partition} was left under another name")
        )


def _tell(future: FutureLog, target: str, segments: LogSegments) -> None:
    """Step 5.  The old files' recovery point counts only as far as the copy was fsynced, too."""
    log, old = future.log, future.log.local
    bases = [segment.base_offset for segment in old.segments]
    assert [segment.base_offset for segment in segments] == bases, f"{future}: the copy has other segments: {bases}"
    assert segments.size_bytes == old.segments.size_bytes, (future, segments.size_bytes, old.segments.size_bytes)
    old.left = True
    covered = max(future.synced_offset, FIRST_OFFSET)
    epochs, epochs_end = future.epochs
    if log.leader_epoch_cache.encode() != epochs:
        # The copy's epoch file lacks newer epochs: recovery must find them in the batches above the recovery point.
        covered = min(covered, epochs_end)
    recovery_point = min(old.recovery_point, covered)
    environment = old.environment
    assert recovery_point <= old.recovery_point, f"{future}: nothing is durable because it was copied"
    log.local = LocalLog(
        target, log.topic_partition, old.config, environment, segments, recovery_point, old.log_end_offset
    )
    log.directory = target
    log.space_guard = environment.space_guards.get(log.parent) or SpaceGuard()
    log.leader_epoch_cache.moved_to(target)
    log.producer_state.moved_to(target)
    log.partition_metadata.moved_to(target)
