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
