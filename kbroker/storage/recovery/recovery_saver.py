"""Keeps what a recovery has finished, so that one that is killed goes on from there.

    segment recovered -> its files and what belongs to them fsynced -> recovery point moved -> checkpoint written

fsyncs run on a thread of their own, in the order of the segments, while recovery goes on reading.  They begin when a
recovery has lasted AFTER_SECONDS: reading a shorter one again takes less time than the fsyncs.  A checkpoint is written
at most once in INTERVAL_SECONDS, and after the last fsync that waits.

`close` comes when the logs of the directory are loaded: nothing is written after it, because from then on the
checkpoint belongs to those logs.  An fsync that is under way then ends by itself.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from kbroker.storage.files.checkpoints import OffsetCheckpoint
from kbroker.storage.files.filesystem import FileSystem
from kbroker.storage.files.log_dir_failure import LogDirFailureChannel
from kbroker.storage.log.log_segment import DurableJob
from kbroker.types import Offset, TopicPartition

logger = logging.getLogger("kbroker.storage")

AFTER_SECONDS = 5.0
INTERVAL_SECONDS = 2.0


class Finished(NamedTuple):
    """A range of a log that recovery has read: what to fsync so that all below `end_offset` is durable."""

    topic_partition: TopicPartition
    directory: str
    end_offset: Offset
    jobs: Sequence[DurableJob]


class RecoverySaver:
    """Of one log directory.  `points`: its recovery points as they were read.  `add` may be called by any thread.

    `saved` has the recovery points that moved, by the partition's directory, for the logs once they are loaded.
    """

    def __init__(
        self,
        files: FileSystem,
        checkpoint: OffsetCheckpoint,
        points: dict[TopicPartition, Offset],
        failures: LogDirFailureChannel | None = None,
    ) -> None:
        self._files = files
        self._checkpoint = checkpoint
        self._points = dict(points)
        self._failures = failures
        self._begin = time.monotonic() + AFTER_SECONDS
        self._next_write = 0.0
        self._lock = threading.Lock()
        self._waiting: list[Finished] = []
        self._closed = False
        self.saved: dict[str, Offset] = {}
        self._executor: ThreadPoolExecutor | None = None
        self._saving: Future[None] | None = None

    @property
    def is_due(self) -> bool:
        """Whether this recovery has lasted long enough to be saved."""
        return time.monotonic() >= self._begin

    def add(self, finished: Finished) -> None:
        """Takes a finished range; those of one log come in their order."""
        with self._lock:
            if self._closed:
                return
            self._waiting.append(finished)
            if self.is_due and (self._saving is None or self._saving.done()):
                self._executor = self._executor or ThreadPoolExecutor(1, thread_name_prefix="recovery-save")
                self._saving = self._executor.submit(self._save)

    def close(self) -> None:
        """Ends saving.  Returns at once."""
        with self._lock:
            self._closed = True
            self._waiting.clear()
        if self._executor is not None:
            self._executor.shutdown(wait=False)

    def _next(self) -> Finished | None:
        with self._lock:
            return self._waiting.pop(0) if self._waiting and not self._closed else None

    def _save(self) -> None:
        while (finished := self._next()) is not None:
            try:
                for job in finished.jobs:
                    job.run(self._files)
                self._files.fsync_directory(finished.directory)
            except OSError as error:
                logger.error("Cannot keep what recovery finished of %s: %s", finished.topic_partition, error)
                if self._failures is not None:
                    self._failures.report(finished.directory, "saving a recovery", error, fsync=True)
                self.close()
                return
            self._note(finished)

    def _note(self, finished: Finished) -> None:
        with self._lock:
            if self._closed:
                return
            self._points[finished.topic_partition] = self.saved[finished.directory] = finished.end_offset
            if self._waiting and time.monotonic() < self._next_write:
                return
            try:
                self._checkpoint.write(self._points)
            except OSError as error:
                logger.error("Cannot write %s: %s", self._checkpoint.path, error)
                if self._failures is not None:
                    self._failures.report(self._checkpoint.path, "writing a checkpoint", error)
            self._next_write = time.monotonic() + INTERVAL_SECONDS
