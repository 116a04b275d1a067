"""Threads that read into the page cache the ranges of files that connections are about to send.

A connection whose next bytes are not in the page cache waits for one range of them, and then sends it as it sends
everything else.  The thread that has read the range goes on with the bytes that follow: those queued behind it in the
same answer, and, in a file that is read from front to back, those that the next fetch will ask for.  So the disk works
while the client takes what it got, and most fetches find their bytes there.  Reading ahead makes way as soon as a
connection waits for a range.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor

from kbroker._fast.files.file_region import FileRegion
from kbroker._fast.files.page_cache import bring_in
from kbroker._fast.net.connection import Connection

COLD_READ_THREADS = 4
# What is read ahead of a reader; `AHEAD_BYTES` of `_fast/net/answer_queue.pyx` is the same for what is queued.
AHEAD_BYTES = 4 << 20
# Between two of these a thread looks whether a connection waits.
SLICE_BYTES = 1 << 20
# A reader that was last seen less than this before is the same one, and reads on.
NEAR_BYTES = 16 << 20
# Of so many files the place that was read last is remembered.
FILES = 1024

#: Region, position in its file and size.
FileRange = tuple[FileRegion, int, int]
Wanted = tuple[Connection, list[FileRange]]


class ColdReads:
    """The cold reads of one listener.  `done` is called on the loop once a connection's first range is there."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        executor: Executor | None,
        done: Callable[[Connection, FileRegion, Exception | None], object],
    ) -> None:
        self._loop = loop
        self._executor = executor or ThreadPoolExecutor(COLD_READ_THREADS, thread_name_prefix="cold-read")
        self._done = done
        self._wanted: deque[Wanted] = deque()
        self._places: dict[int, int] = {}
        self._sink = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)

    def __del__(self) -> None:
        os.close(self._sink)

    def read(self, connection: Connection, ranges: list[FileRange]) -> None:
        """Bring the first range in and tell, then the others, then what follows them if it will be wanted."""
        if self._reads_on(*ranges[0]):
            region = ranges[-1][0]
            ranges.append((region, region.position + region.size, AHEAD_BYTES))
        self._wanted.append((connection, ranges))
        self._executor.submit(self._serve)

    def _reads_on(self, region: FileRegion, position: int, size: int) -> bool:
        """Whether a client reads this file from front to back, as far as cold reads show."""
        last = self._places.pop(region.fd, position)
        self._places[region.fd] = position
        if len(self._places) > FILES:
            del self._places[next(iter(self._places))]
        return position == 0 or last < position <= last + NEAR_BYTES

    def _serve(self) -> None:
        connection, ranges = self._wanted.popleft()
        region, position, size = ranges[0]
        try:
            bring_in(region.fd, position, size, self._sink)
        except Exception as error:
            self._tell(connection, region, error)
            return
        self._tell(connection, region, None)
        try:
            for region, position, size in ranges[1:]:
                self._read_ahead(region, position, position + size)
        except OSError:
            pass  # Who comes to this place meets the error there.

    def _read_ahead(self, region: FileRegion, position: int, end: int) -> None:
        while position < end and not self._wanted:
            size = min(SLICE_BYTES, end - position)
            if bring_in(region.fd, position, size, self._sink) < size:
                return
            position += size

    def _tell(self, connection: Connection, region: FileRegion, error: Exception | None) -> None:
        try:
            self._loop.call_soon_threadsafe(self._done, connection, region, error)
        except RuntimeError:
            pass  # The broker has ended meanwhile.
