"""The one thread that reads, unpacks and decodes records for viewers, with few looks waiting for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from kbroker.console.parameters import NotShownError
from kbroker.console.record_rows import Found, Wanted, look

if TYPE_CHECKING:
    from kbroker._fast.files.file_region import FileRegion
    from kbroker.storage.files.filesystem import FileSystem

T = TypeVar("T")

MOST_LOOKS = 64
"""At a time: a viewer of all partitions asks for up to 24 of them at once."""

MOST_FILES = 2
"""Made at a time; others wait."""


class Reader:
    """Made with the console; its thread with the first look."""

    def __init__(self) -> None:
        self._threads: ThreadPoolExecutor | None = None
        self._looks = 0
        self.files = asyncio.Semaphore(MOST_FILES)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """While a viewer looks.  NotShownError where too many do."""
        if self._looks >= MOST_LOOKS:
            raise NotShownError("Too many viewers read records just now; try again.")
        self._looks += 1
        try:
            yield
        finally:
            self._looks -= 1

    async def look(self, files: FileSystem, records: FileRegion | bytes, wanted: Wanted) -> Found:
        """What a region of a segment holds, or bytes.  OSError when it cannot be read."""
        return await self.read(files, records, partial(look, wanted=wanted))

    async def read(self, files: FileSystem, records: FileRegion | bytes, work: Callable[[bytes], T]) -> T:
        """What the thread makes of a region of a segment, or bytes.  OSError when it cannot be read."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(1, thread_name_prefix="console")
        return await asyncio.get_running_loop().run_in_executor(self._threads, _read, files, records, work)


def _read(files: FileSystem, records: FileRegion | bytes, work: Callable[[bytes], T]) -> T:
    if isinstance(records, bytes):
        return work(records)
    return work(files.pread(records.fd, records.size, records.position))
