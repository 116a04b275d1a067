"""Time behind a seam: wall-clock milliseconds for records and retention, monotonic seconds for deadlines."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """What the broker asks of time.  Tests pass a clock that they move by hand."""

    def now_ms(self) -> int:
        """Wall-clock time in milliseconds since the epoch."""

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back."""


class SystemClock:
    """The machine's own time."""

    __slots__ = ()

    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return time.monotonic()


SYSTEM_CLOCK = SystemClock()

BEAT_SECONDS = 0.5
_TIMER_SECONDS = 0.01


def until_beat(now: float, seconds: float) -> float:
    """How long to wait from `now` on for something that is to happen in so many seconds, or up to a beat sooner.

    What waits for a beat or more ends with one, so that timers of a process that has nothing else to do fire together
    and wake it once.  A timer that fires a hundredth of a second before its beat, or less, is one of that beat, and
    waits for as much longer.
    """
    if seconds < BEAT_SECONDS:
        return seconds
    return (now + seconds + _TIMER_SECONDS) // BEAT_SECONDS * BEAT_SECONDS - now
