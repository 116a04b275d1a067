"""The memory that converted records take, its limit, and counts of conversions.

Converted records have a file of their own until the client has taken them or is gone, and leave by sendfile like any
others.  The file is in memory (a memfd) as long as all such files together hold at most `limit_bytes`; beyond that it
is a file without a name in the log directory of the records.  So consumers that do not read their answers do not block
the conversions of others.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from kbroker._fast.files.file_region import FileRegion

if TYPE_CHECKING:
    from kbroker.metrics.families import Values
    from kbroker.storage.files.filesystem import FileSystem

# Together with the working memory of the one thread, all conversions stay below 64 MB if batches have at most the
# default size.
LIMIT_BYTES = 24 << 20
MOST_BYTES = 4 << 20


class Conversions:
    """The budget of converted records, and what was converted so far.  It belongs to the loop.

    `turn` lets one thread convert at a time, for producers and for consumers: the unpacked records are larger than the
    result.
    """

    def __init__(self, limit_bytes: int = LIMIT_BYTES) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self.turn = asyncio.Lock()
        self._produced = (0, 0.0)
        self._fetched = (0, 0.0)

    def produced(self, count: int, seconds: float) -> None:
        """Counts records that were converted to be stored."""
        self._produced = (self._produced[0] + count, self._produced[1] + seconds)

    def fetched(self, count: int, seconds: float) -> None:
        """Counts records that were converted for a consumer."""
        self._fetched = (self._fetched[0] + count, self._fetched[1] + seconds)

    def figures(self) -> Values:
        """What the metrics tell."""
        (produced, produce_seconds), (fetched, fetch_seconds) = self._produced, self._fetched
        return {
            "kbroker_produce_message_conversions": produced,
            "kbroker_produce_message_conversions_seconds": produce_seconds,
            "kbroker_fetch_message_conversions": fetched,
            "kbroker_fetch_message_conversions_seconds": fetch_seconds,
            "kbroker_converted_bytes": self.held_bytes,
        }

    def room(self, files: FileSystem, directory: str) -> ConvertedRecords:
        """Where one answer's records go; in memory as far as that is free, else into a file of `directory`."""
        return ConvertedRecords(self, asyncio.get_running_loop(), files, directory)


class ConvertedRecords:
    """The converted records of one answer; holding it, or a region of it, keeps them.

    It belongs to one thread at a time.
    """

    def __init__(
        self, conversions: Conversions, loop: asyncio.AbstractEventLoop, files: FileSystem, directory: str
    ) -> None:
        self._conversions = conversions
        self._loop = loop
        self._files = files
        self._directory = directory
        self._fd = -1
        self.in_memory = conversions.held_bytes + MOST_BYTES <= conversions.limit_bytes
        self._counted_bytes = MOST_BYTES if self.in_memory else 0
        conversions.held_bytes += self._counted_bytes
        self.size = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Adds records, in any thread.  OSError."""
        if self.in_memory and self.size + len(data) > MOST_BYTES:
            # One batch that is larger than what was set apart.
            self._move_to_file()
        if self._fd < 0:
            self._fd = self._open()
        self._files.pwrite(self._fd, data, self.size)
        self.size += len(data)

    def _open(self) -> int:
        return os.memfd_create("converted records", os.MFD_CLOEXEC) if self.in_memory else self._open_file()

    def _open_file(self) -> int:
        return self._files.open(self._directory, os.O_TMPFILE | os.O_RDWR, 0o600)

    def _move_to_file(self) -> None:
        """The descriptor's number stays: the regions of partitions before this one name it."""
        if self._fd >= 0:
            moved = self._open_file()
            try:
                self._files.pwrite(moved, self._files.pread(self._fd, self.size, 0), 0)
                os.dup2(moved, self._fd, inheritable=False)
            finally:
                self._files.close(moved)
        self.in_memory = False

    def settle(self) -> None:
        """Nothing is added any more: what was set apart and not needed is free again.  On the loop."""
        held = self.size if self.in_memory else 0
        self._conversions.held_bytes += held - self._counted_bytes
        self._counted_bytes = held

    def region(self, position: int, size: int) -> FileRegion:
        """A range of what was written, for an answer."""
        return FileRegion(self._fd, position, size, self)

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        if self._counted_bytes:
            # The last one to hold it may be a thread; a loop that is closed needs no room.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(_release, self._conversions, self._counted_bytes)


def _release(conversions: Conversions, size: int) -> None:
    conversions.held_bytes -= size
