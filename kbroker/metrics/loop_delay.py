"""How late the event loop is: a timer that compares when it fired with when it was due.

The sample is taken on the machine's monotonic clock, because uvloop's `loop.time()` is the time at which the present
round of the loop began.  A stall shorter than the interval may fall between two timers; a stall of S seconds shows up
as at least S - interval.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from kbroker._fast.base.counters import Histogram
from kbroker.clock import until_beat

#: While there is work: close enough to see any stall of 50 ms.
BUSY_INTERVAL_SECONDS = 0.02

#: While there is none: far enough apart to let the processor sleep.
IDLE_INTERVAL_SECONDS = 0.5

#: So much within the idle interval is no work: followers, heartbeats and members of groups that wait for something.
IDLE_ACTIVITY = 16

#: libuv rounds timers to whole milliseconds, so that much lateness says nothing about the loop.
_TIMER_RESOLUTION_NS = 1_000_000


class LoopDelaySampler:
    """Samples the running loop from `start` to `stop`.

    `activity` returns a number that grows while there is work, such as the count of requests; without it the sampler
    takes every moment for a busy one.
    """

    __slots__ = (
        "_activity",
        "_busy_seconds",
        "_due_ns",
        "_handle",
        "_is_busy",
        "_loop",
        "_seen",
        "histogram",
        "max_ns",
    )

    def __init__(
        self, activity: Callable[[], int] | None = None, *, busy_seconds: float = BUSY_INTERVAL_SECONDS
    ) -> None:
        self.histogram = Histogram()
        self.max_ns = 0
        self._activity = activity
        self._seen = 0
        self._is_busy = False
        self._busy_seconds = busy_seconds
        self._due_ns = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._handle: asyncio.TimerHandle | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin sampling; call it on the loop."""
        self._loop = loop
        self._arm()

    def stop(self) -> None:
        """End sampling."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self._loop = None

    def _arm(self) -> None:
        if self._loop is not None:
            interval = until_beat(self._loop.time(), self._next_interval())
            self._due_ns = time.monotonic_ns() + int(interval * 1e9) + _TIMER_RESOLUTION_NS
            self._handle = self._loop.call_later(interval, self._fire)

    def _next_interval(self) -> float:
        if self._activity is None:
            return self._busy_seconds
        before, self._seen = self._seen, self._activity()
        self._is_busy = self._seen - before > (0 if self._is_busy else IDLE_ACTIVITY)
        return self._busy_seconds if self._is_busy else IDLE_INTERVAL_SECONDS

    def _fire(self) -> None:
        late_ns = max(0, time.monotonic_ns() - self._due_ns)
        self.histogram.add(late_ns)
        self.max_ns = max(self.max_ns, late_ns)
        self._arm()
