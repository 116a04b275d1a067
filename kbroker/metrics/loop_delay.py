"""How late the event loop is: a timer that compares when it fired with when it was due.

The sample is taken on the machine's monotonic clock, because uvloop's `loop.time()` is the time at which the present
round of the loop began.  A stall shorter than the interval may fall between two timers; a stall of S seconds shows up
as at least S - interval.
"""

from __future__ import annotations

import asyncio
import time

from kbroker._fast.counters import Histogram

#: Close enough to see any stall of 50 ms, far enough apart to cost less than a thousandth of a core.
DEFAULT_INTERVAL_SECONDS = 0.02

#: libuv rounds timers to whole milliseconds, so that much lateness says nothing about the loop.
_TIMER_RESOLUTION_NS = 1_000_000


class LoopDelaySampler:
    """Samples the running loop from `start` to `stop`."""

    __slots__ = ("_due_ns", "_handle", "_interval", "_loop", "histogram", "max_ns")

    def __init__(self, interval_seconds: float = DEFAULT_INTERVAL_SECONDS) -> None:
        self.histogram = Histogram()
        self.max_ns = 0
        self._interval = interval_seconds
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
            self._due_ns = time.monotonic_ns() + int(self._interval * 1e9) + _TIMER_RESOLUTION_NS
            self._handle = self._loop.call_later(self._interval, self._fire)

    def _fire(self) -> None:
        late_ns = max(0, time.monotonic_ns() - self._due_ns)
        self.histogram.add(late_ns)
        self.max_ns = max(self.max_ns, late_ns)
        self._arm()
