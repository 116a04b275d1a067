"""A budget of descriptors and maps for segments (`kbroker.max.open.segments`).

A segment opens its log file, and maps an index, at the first read or append; 10,000 partitions with 100 segments
each would otherwise hold a million descriptors and two million maps, of which Linux gives a process 65,530.  Owners
register the files that they opened.  Over the budget, an owner that was not used since the last sweep is asked to close
its files.  This is a second-chance queue, so each use costs one attribute store only.

The budget counts segments: each has a descriptor and up to two maps, which have a queue of their own.  Segments may
always use a third of the process's descriptors, and the rest while connections do not need it (`network.limits`): with
few clients 10,000 partitions stay open, with 10,000 clients they are closed and opened again.

A `SegmentFile` closes its descriptor when the last reference goes: a file region that waits to be sent keeps it open,
whatever happens to the segment meanwhile.  Code that uses a descriptor more than once must hold a reference, too: while
logs are loaded, other threads open files, and the number of a closed descriptor is soon that of another file.
"""

from __future__ import annotations

import resource
import threading
from collections import deque
from pathlib import Path
from typing import NamedTuple, Protocol

from kbroker._fast.log.log_fields import FileFields
from kbroker.storage.files.filesystem import FileSystem

MAPS_PER_SEGMENT = 2
LEAST_SEGMENTS = 16
# Descriptors that segments never get, however low the limit is: for connections, metadata and small files.
KEPT_DESCRIPTORS = 128
MAP_LIMIT = Path("/proc/sys/vm/max_map_count")
LINUX_MAP_LIMIT = 65_530
# The reserve between the descriptors of connections and those of segments: neither has to wait for the other.
SLACK_DESCRIPTORS = 512
# The share of the process's maps for segments; libraries, thread stacks and the allocator use the rest.
MAP_SHARE = 3 / 4


class OpenFilesError(ValueError):
    """More open segments are asked for than the process may have."""


class SegmentFile(FileFields):
    """An open file.  `fd` stays valid as long as this object is referenced."""

    __slots__ = ("_files",)

    def __init__(self, files: FileSystem, path: str, flags: int) -> None:
        self._files = files
        # A FileSystem of a test (fault injection) must see every write.
        self.pwrite = None if type(files) is FileSystem else files.pwrite
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


class HolderQueue:
    """Counts holders and makes the idle ones release."""

    __slots__ = ("_lock", "_queue", "budget", "evictions")

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.evictions = 0
        self._queue: deque[Holder] = deque()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._queue)

    def opened(self, holder: Holder) -> None:
        """Registers a holder that has just opened its files; call once until it released."""
        with self._lock:
            self._queue.append(holder)
            self._trim(holder)

    def _trim(self, kept: Holder | None = None) -> None:
        excess = len(self._queue) - self.budget
        chances = 2 * len(self._queue)
        while excess > 0 and chances > 0:
            chances -= 1
            candidate = self._queue.popleft()
            if candidate.recently_used or candidate is kept:
                candidate.recently_used = False
                self._queue.append(candidate)
            elif candidate.release():
                excess -= 1
                self.evictions += 1
            else:
                self._queue.append(candidate)

    def change_budget(self, budget: int) -> None:
        """Another budget from now on; what is over it is let go."""
        with self._lock:
            self.budget = budget
            self._trim()

    def closed(self, holder: Holder) -> None:
        """Takes out a holder that let go on its own."""
        with self._lock:
            try:
                self._queue.remove(holder)
            except ValueError:
                return


class OpenFiles(HolderQueue):
    """The open files of segments, and in `maps` those of their indexes.

    At least `least_budget` of them may be open, and up to `most` while connections leave as much.
    """

    __slots__ = ("least_budget", "maps", "most")

    def __init__(self, budget: int, most: int = 0) -> None:
        super().__init__(max(budget, LEAST_SEGMENTS))
        self.least_budget = self.budget
        self.most = max(most, self.budget)
        self.maps = HolderQueue(self.budget * MAPS_PER_SEGMENT)
        self.leave_room(0)

    def leave_room(self, connections: int) -> None:
        """Follows how many connections there are: what they do not need of the descriptors is for segments."""
        budget = max(self.least_budget, self.most - connections - SLACK_DESCRIPTORS)
        if budget != self.budget:
            self.change_budget(budget)
            self.maps.change_budget(budget * MAPS_PER_SEGMENT)


class ProcessLimits(NamedTuple):
    """What the system lets this process have."""

    descriptors: int
    maps: int


def process_limits() -> ProcessLimits:
    """The current limits: a start may have raised that of descriptors."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        maps = int(MAP_LIMIT.read_text())
    except (OSError, ValueError):
        maps = LINUX_MAP_LIMIT
    return ProcessLimits(soft if soft != resource.RLIM_INFINITY else 1 << 20, maps)


def open_segments(configured: int | None, limits: ProcessLimits) -> OpenFiles:
    """The files of segments: `configured` of them, or what the process's limits give.  OpenFilesError as below."""
    budget = segment_budget(configured, limits)
    return OpenFiles(budget, budget if configured else min(limits.descriptors - KEPT_DESCRIPTORS, _by_maps(limits)))


def _by_maps(limits: ProcessLimits) -> int:
    return int(limits.maps * MAP_SHARE) // MAPS_PER_SEGMENT


def segment_budget(configured: int | None, limits: ProcessLimits) -> int:
    """How many segments may be open at a time however many connections there are.

    Unless configured: a third of the descriptors, as far as the maps go.
    OpenFilesError when more is configured than the process may have.
    """
    by_maps = _by_maps(limits)
    if configured is None:
        return max(min(limits.descriptors // 3, by_maps), LEAST_SEGMENTS)
    if configured + KEPT_DESCRIPTORS > limits.descriptors:
        raise OpenFilesError(
            f"kbroker.max.open.segments={configured}: this process may open {limits.descriptors} files (ulimit -n), "
            f"{KEPT_DESCRIPTORS} of which are kept for all else"
        )
    if configured > by_maps:
        raise OpenFilesError(
            f"kbroker.max.open.segments={configured}: the maps of their indexes may be {by_maps * MAPS_PER_SEGMENT}, "
            f"three quarters of vm.max_map_count, which is enough for {by_maps} segments"
        )
    return configured
