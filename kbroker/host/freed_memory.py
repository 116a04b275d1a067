"""Gives memory that was freed back to the kernel.

What Python, OpenSSL and SQLite allocate in pieces of up to 128 kB comes from malloc's heap.  glibc gives that back from
its end alone: of 19,000 connections in their TLS handshakes 230 MB stay with the process when all have closed, for one
small piece that was allocated behind theirs and lives on.  `malloc_trim` gives back the pages in between.

It holds the heap while it does, half a millisecond for each 4 MB, so it is called where much is to be given back, and
in a thread.  What it would give is not known: malloc counts as free what it has given back as well.  The memory that
the process has beside malloc's pieces in use is either such pages, or not of the heap; the least that was seen of it is
not.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
from pathlib import Path
from typing import Final, NamedTuple

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class HeapUse(NamedTuple):
    """What this process has of memory, without pages of files, and what of malloc's pieces is in use and free."""

    resident_bytes: int
    used_bytes: int
    free_bytes: int


class _Mallinfo2(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks")),
        *((name, ctypes.c_size_t) for name in ("uordblks", "fordblks", "keepcost")),
    ]


class Heap:
    """malloc's heap of this process, with a library of C that knows how to trim it: glibc since 2.33."""

    __slots__ = ("_mallinfo2", "trim")

    def __init__(self, library: ctypes.CDLL) -> None:
        self._mallinfo2 = library.mallinfo2
        self._mallinfo2.restype = _Mallinfo2
        self.trim = library.malloc_trim
        self.trim.argtypes = (ctypes.c_size_t,)

    def use(self) -> HeapUse:
        """What is in use now; some 20 us."""
        info = self._mallinfo2()
        pages = Path("/proc/self/statm").read_text().split()
        resident = (int(pages[1]) - int(pages[2])) * _PAGE_BYTES
        return HeapUse(resident, info.uordblks + info.hblkhd, info.fordblks)


def heap() -> Heap | None:
    """The heap of this process; None with another library of C."""
    try:
        return Heap(ctypes.CDLL(None))
    except AttributeError:
        return None


class FreedMemory:
    """Looks at every turn of its task whether there are `MOST_BYTES` or more to give back.  Make it at the start."""

    INTERVAL_MS: Final = 10_000
    MOST_BYTES: Final = 16 << 20

    __slots__ = ("_elsewhere_bytes", "_heap")

    def __init__(self, of_process: Heap | None) -> None:
        self._heap = of_process
        self._elsewhere_bytes = 0 if of_process is None else _beside(of_process.use())

    async def run(self) -> None:
        """Give back what is free, if it is much; call it every `INTERVAL_MS`."""
        if self._heap is None:
            return
        use = self._heap.use()
        self._elsewhere_bytes = min(self._elsewhere_bytes, _beside(use))
        if min(_beside(use) - self._elsewhere_bytes, use.free_bytes) < self.MOST_BYTES:
            return
        await asyncio.get_running_loop().run_in_executor(None, self._heap.trim, 0)
        now = self._heap.use()
        # What the loop has freed meanwhile may be there still: the next look decides.
        self._elsewhere_bytes = _beside(now) - max(0, use.used_bytes - now.used_bytes)


def _beside(use: HeapUse) -> int:
    """What is not one of malloc's pieces in use."""
    return use.resident_bytes - use.used_bytes
