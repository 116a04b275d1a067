"""Segments that have left a log: renamed at once, unlinked after `file.delete.delay.ms`, both away from the loop.

The oldest is renamed first, so that a crash in between leaves a log without holes: retention then takes the rest away
once more.  When only an empty segment stays, its file name alone holds the log's next offset.  The name is made durable
before the others are renamed: else a power cut could leave neither, and the log would begin at 0 again.  Before a file
name is reused or the directory renamed, the loop renames what a thread has not yet (`finish`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from itertools import count
from typing import Protocol

from kbroker.storage.log.log_segment import DELETED_SUFFIX, LogSegment
from kbroker.types import TopicPartition

logger = logging.getLogger("kbroker.storage")

_retirements = count(1)
_renaming = threading.Lock()


def retired_suffix() -> str:
    """What files are called that wait to be unlinked; no two deletions share it (a start removes what is left)."""
    return f".{next(_retirements)}{DELETED_SUFFIX}"


class ShortenedLog(Protocol):
    """What a removal asks of the log that the segments have left."""

    topic_partition: TopicPartition

    @property
    def left(self) -> bool:
        """Whether the directory is another's affair by now."""

    def report(self, what: str, error: OSError) -> None:
        """Reports an error of the disk."""


class SegmentRemoval:
    """Segments that leave a log together.  Each is renamed once, by the loop or the thread, whichever reaches it first.

    Thousands of these wait when much is deleted at once, so they are made of little that the collector looks at.
    """

    __slots__ = ("_log", "_renamed", "_segments", "_suffix", "_sync_names")

    def __init__(
        self, log: ShortenedLog, segments: Iterable[LogSegment], sync_names: Callable[[], None] | None = None
    ) -> None:
        """`sync_names`: makes the names of what stays durable, where that has to be before the first is renamed."""
        self._log = log
        self._segments = list(segments)
        self._sync_names = sync_names
        self._renamed = 0
        self._suffix = retired_suffix()

    @property
    def is_finished(self) -> bool:
        """Whether all segments are renamed."""
        return self._renamed == len(self._segments)

    def finish(self) -> None:
        """Renames those that have their names yet.  OSError when one cannot be: it and those after it keep theirs."""
        while True:
            with _renaming:
                if self._renamed == len(self._segments):
                    return
                try:
                    if self._sync_names is not None:
                        self._sync_names()
                        self._sync_names = None
                    self._segments[self._renamed].rename_suffix(self._suffix)
                except OSError:
                    del self._segments[self._renamed :]
                    raise
                self._renamed += 1

    def unlink(self) -> None:
        """Takes the files off the disk, unless the directory has become another's affair."""
        self.finish()
        assert self.is_finished and self._sync_names is None, (self._log.topic_partition, self._segments)
        for segment in self._segments:
            if self._log.left:
                return
            segment.delete_files()

    # On a thread

    def finish_in_thread(self) -> None:
        """Rename what is left; errors are reported."""
        self._carry_out(self.finish)

    def unlink_in_thread(self) -> None:
        """Remove the renamed files; errors are reported."""
        self._carry_out(self.unlink)

    def _carry_out(self, action: Callable[[], None]) -> None:
        if self._log.left:
            return
        try:
            action()
        except OSError as error:
            logger.warning("Deleting files of %s failed: %s", self._log.topic_partition, error)
            self._log.report("deleting files", error)
