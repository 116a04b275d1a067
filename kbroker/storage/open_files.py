"""A budget of descriptors and maps for segments.

A segment opens its log file, and maps an index, when somebody reads or appends; 10,000 partitions with 100 segments
each would otherwise hold a million descriptors.  Owners register what they opened; over the budget, the one that was
not used since the last sweep is asked to let go (a second-chance queue, so that use costs one attribute store, no
bookkeeping).

A `SegmentFile` closes its descriptor when the last reference goes: a file region that waits to be sent keeps it
alive, whatever happens to the segment meanwhile.  So does everybody who uses a descriptor more than once: while logs
are loaded other threads open files, and a descriptor that a segment has let go of is soon the number of another file.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Protocol

from kbroker.storage.filesystem import FileSystem


class SegmentFile:
    """An open file.  `fd` stays valid as long as somebody holds this object."""

    __slots__ = ("_files", "fd")

    def __init__(self, files: FileSystem, path: str, flags: int) -> None:
        self._files = files
        self.fd = -1
        self.fd = files.open(path, flags)

    def __del__(self) -> None:
        if self.fd >= 0:
            self._files.close(self.fd)
            self.fd = -1


class Holder(Protocol):
    """Something that holds descriptors or maps which it can open again."""

    recently_used: bool

    def release(self) -> bool:
        """Lets go of files.  False when it cannot now (the holder stays registered)."""


class OpenFiles:
    """Counts holders and makes the idle ones release."""

    __slots__ = ("_lock", "_queue", "budget", "evictions")

    def __init__(self, budget: int) -> None:
        self.budget = max(budget, 16)
        self.evictions = 0
        self._queue: deque[Holder] = deque()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._queue)

    def opened(self, holder: Holder) -> None:
        """Registers a holder that has just opened its files; call once until it released."""
        with self._lock:
            self._queue.append(holder)
            excess = len(self._queue) - self.budget
            chances = 2 * len(self._queue)
            while excess > 0 and chances > 0:
                chances -= 1
                candidate = self._queue.popleft()
                if candidate.recently_used or candidate is holder:
                    candidate.recently_used = False
                    self._queue.append(candidate)
                elif candidate.release():
                    excess -= 1
                    self.evictions += 1
                else:
                    self._queue.append(candidate)

    def closed(self, holder: Holder) -> None:
        """Takes out a holder that let go on its own."""
        with self._lock:
            try:
                self._queue.remove(holder)
            except ValueError:
                return


def default_budget() -> int:
    """Two thirds of what the process may open: the rest is for connections and small files."""
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(256, min(soft * 2 // 3, 200_000))
