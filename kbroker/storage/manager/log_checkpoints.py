"""The offset checkpoints of all log directories: which file holds what, and writing them without holding the loop.

This module also advances the recovery points of logs that group commits make durable: a commit fsyncs the records
alone, but a recovery point states that the indexes are durable, too.

A periodic write copies the offsets on the loop and leaves the rest (encoding, fsync, rename) to a thread; it is left
out while the one before is under way, and nothing is written when nothing has changed.  A clean stop writes in place,
after what was under way.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future, wait
from typing import NamedTuple

from kbroker._fast.base.slices import Slices
from kbroker.errors import KafkaError, bare
from kbroker.outage import Outages
from kbroker.storage.directories.future_log import FutureLog
from kbroker.storage.files.checkpoints import (
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    OffsetCheckpoint,
)
from kbroker.storage.files.filesystem import DirectoryEntry, FileSystem
from kbroker.storage.files.log_dir_failure import LogDirFailureChannel, suppressing_no_space
from kbroker.storage.log.unified_log import UnifiedLog
from kbroker.types import Offset, TopicPartition

logger = logging.getLogger("kbroker.storage")

Offsets = dict[TopicPartition, Offset]


class DirectoryCheckpoints(NamedTuple):
    """The offset checkpoints of one directory."""

    recovery_points: OffsetCheckpoint
    log_starts: OffsetCheckpoint
    high_watermarks: OffsetCheckpoint

    def begin(self, entries: Iterable[DirectoryEntry]) -> None:
        """Creates empty checkpoints in a new directory: once it has recovery points, a missing file counts as lost."""
        names = {entry.name for entry in entries if entry.size}
        if RECOVERY_POINT_CHECKPOINT not in names:
            for name, checkpoint in (
                (LOG_START_OFFSET_CHECKPOINT, self.log_starts),
                (REPLICATION_OFFSET_CHECKPOINT, self.high_watermarks),
            ):
                if name not in names:
                    with suppressing_no_space():
                        checkpoint.write({})


def _recovery_points(logs: Iterable[UnifiedLog]) -> Offsets:
    for log in logs:
        log.local.collect_flushes()
    return {log.topic_partition: log.recovery_point for log in logs}


def _log_starts(logs: Iterable[UnifiedLog]) -> Offsets:
    """Only of logs whose start is not the first segment's: the rest is seen from the files."""
    return {
        log.topic_partition: log.log_start_offset
        for log in logs
        if log.log_start_offset != log.local.segments.first.base_offset
    }


def _high_watermarks(logs: Iterable[UnifiedLog]) -> Offsets:
    return {log.topic_partition: log.high_watermark for log in logs}


class LogCheckpoints:
    """The checkpoints of one broker."""

    __slots__ = (
        "_contents",
        "_directories",
        "_executor",
        "_failures",
        "_files",
        "_futures",
        "_logs",
        "_outages",
        "_slices",
        "_writing",
    )

    def __init__(
        self,
        files: FileSystem,
        logs: Mapping[TopicPartition, UnifiedLog],
        executor: Executor,
        failures: LogDirFailureChannel,
        futures: Mapping[TopicPartition, FutureLog] | None = None,
        slices: Slices | None = None,
    ) -> None:
        self._slices = slices or Slices()
        self._failures = failures
        self._files = files
        self._logs = logs
        self._futures: Mapping[TopicPartition, FutureLog] = {} if futures is None else futures
        self._executor = executor
        self._directories: dict[str, DirectoryCheckpoints] = {}
        self._writing: dict[OffsetCheckpoint, Future[OSError | None]] = {}
        self._contents: dict[OffsetCheckpoint, Offsets] = {}
        self._outages = Outages(logger, logging.ERROR)

    def __getitem__(self, path: str) -> DirectoryCheckpoints:
        return self._directories[path]

    def add(self, path: str) -> None:
        """A log directory."""
        self._directories[path] = DirectoryCheckpoints(
            OffsetCheckpoint(self._files, f"{path}/{RECOVERY_POINT_CHECKPOINT}"),
            OffsetCheckpoint(self._files, f"{path}/{LOG_START_OFFSET_CHECKPOINT}"),
            OffsetCheckpoint(self._files, f"{path}/{REPLICATION_OFFSET_CHECKPOINT}"),
        )

    def drop(self, path: str) -> None:
        """A log directory has failed: nothing is written there any more."""
        self._directories.pop(path, None)

    def by_directory(self) -> dict[str, list[UnifiedLog]]:
        """The logs, by the directory that they lie in."""
        found: dict[str, list[UnifiedLog]] = {path: [] for path in self._directories}
        for log in self._logs.values():
            found[log.parent].append(log)
        return found

    # Periodic

    async def move_recovery_points(self) -> None:
        """Flushes what group commits made durable, indexes included, so that recovery points move; writes them then."""
        pace = self._slices.pace()
        flushed = []
        for log in list(self._logs.values()):
            committer = log.committer
            if committer is not None and committer.durable_offset > log.recovery_point and not log.local.flush_failed:
                try:
                    log.flush_later()
                    self._outages.over(log.topic_partition, "Flushing %s is started again", log.topic_partition)
                except KafkaError as error:
                    text = "Flushing %s could not be started, trying again at its next turn: %s"
                    self._outages.failed(log.topic_partition, text, log.topic_partition, error)
                # A stop that cancels this wait does not call off the flushes, whose results the logs collect.
                flushed += [asyncio.shield(asyncio.wrap_future(flush)) for flush in log.local.flushes_under_way]
            await pace
        # Each log collects the result of its flush when its recovery point is read.
        await asyncio.gather(*flushed, return_exceptions=True)
        self.start_recovery_points()

    def start_recovery_points(self) -> None:
        """Write `recovery-point-offset-checkpoint` of each directory, in a thread."""
        for checkpoints, logs in self._pairs():
            self._start(checkpoints.recovery_points, _recovery_points, logs)

    def start_log_starts(self) -> None:
        """Write `log-start-offset-checkpoint` of each directory, in a thread."""
        for checkpoints, logs in self._pairs_of_starts():
            self._start(checkpoints.log_starts, _log_starts, logs)

    def start_high_watermarks(self) -> None:
        """Write `replication-offset-checkpoint` of each directory, in a thread."""
        for checkpoints, logs in self._pairs():
            self._start(checkpoints.high_watermarks, _high_watermarks, logs)

    def _pairs(self) -> Iterator[tuple[DirectoryCheckpoints, list[UnifiedLog]]]:
        for path, logs in self.by_directory().items():
            yield self._directories[path], logs

    def _pairs_of_starts(self) -> Iterator[tuple[DirectoryCheckpoints, list[UnifiedLog]]]:
        """With the logs that move into a directory: their start must be known there before they are."""
        for path, logs in self.by_directory().items():
            arriving = [future.log for future in self._futures.values() if future.parent == path]
            yield self._directories[path], [*logs, *arriving]

    def _start(
        self, checkpoint: OffsetCheckpoint, offsets: Callable[[list[UnifiedLog]], Offsets], logs: list[UnifiedLog]
    ) -> None:
        under_way = self._writing.get(checkpoint)
        if under_way is not None and not under_way.done():
            return
        before = self._contents.get(checkpoint)
        content = self._contents[checkpoint] = offsets(logs)
        if content == before and under_way is not None and under_way.result() is None:
            return  # It was written: making the same bytes again for ten thousand logs would keep an idle broker busy.
        self._writing[checkpoint] = self._executor.submit(self._write, checkpoint, content)

    # On demand

    def save_log_starts(self) -> list[Future[OSError | None]]:
        """Starts writing the current log starts, each after the write under way.  The futures have the error, or
        None."""
        futures = []
        for checkpoints, logs in self._pairs_of_starts():
            checkpoint = checkpoints.log_starts
            before, content = self._writing.get(checkpoint), _log_starts(logs)
            job = self._executor.submit(self._write_after, before, checkpoint, content)
            self._writing[checkpoint], self._contents[checkpoint] = job, content
            futures.append(job)
        return futures

    # In place

    def write_all(self, path: str | None = None) -> None:
        """Writes every checkpoint, of one directory or of all, after those under way.  OSError when one cannot be."""
        wait(self._writing.values())
        for checkpoints, logs in self._pairs():
            if path is not None and checkpoints is not self._directories[path]:
                continue
            checkpoints.recovery_points.write(_recovery_points(logs))
            checkpoints.log_starts.write(_log_starts(logs))
            checkpoints.high_watermarks.write(_high_watermarks(logs))

    def forget(self, path: str, topic_partition: TopicPartition) -> None:
        """Called before a log is created: removes the entries of an earlier log of the same name.

        They would stay until the next periodic write, and after a crash before it the new log would get the old one's
        start.  OSError when a file cannot be written.
        """
        for checkpoint in self._directories[path]:
            under_way = self._writing.get(checkpoint)
            waits = under_way is not None and not under_way.done()
            if checkpoint.names(topic_partition) or (waits and topic_partition in self._contents.get(checkpoint, {})):
                if under_way is not None:
                    wait((under_way,))
                checkpoint.forget(topic_partition)
                self._contents.pop(checkpoint, None)

    # On threads

    def _write(self, checkpoint: OffsetCheckpoint, offsets: Offsets) -> OSError | None:
        try:
            checkpoint.write(offsets)
        except OSError as error:
            if not self._failures.report(checkpoint.path, "writing a checkpoint", error):
                text = "Cannot write %s, trying again at its next turn: %s"
                self._outages.failed(checkpoint.path, text, checkpoint.path, error)
            return bare(error)
        self._outages.over(checkpoint.path, "%s is written again", checkpoint.path)
        return None

    def _write_after(
        self, under_way: Future[OSError | None] | None, checkpoint: OffsetCheckpoint, offsets: Offsets
    ) -> OSError | None:
        # The write under way was submitted earlier, so it already has a thread, and waiting for it cannot deadlock.
        if under_way is not None:
            wait((under_way,))
        return self._write(checkpoint, offsets)
