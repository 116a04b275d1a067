"""Deadlines of members and groups, on whatever clock and loop the coordinator was given.

`Deadline` is a timer whose time is moved far more often than it fires: a heartbeat only stores the new time, and the
loop's timer, when it goes off early, arms itself anew for what is left.  A group of thousands of members thus costs the
loop one timer per member and session, not one per heartbeat.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kbroker.clock import Clock


class TimerHandle(Protocol):
    """What scheduling gives back."""

    def cancel(self) -> None:
        """Never run it."""


class CallLater(Protocol):
    """asyncio's `loop.call_later`, or a test's own."""

    def __call__(self, delay: float, callback: Callable[[], None], /) -> TimerHandle:
        """Run `callback` in `delay` seconds."""


class Deadline:
    """Calls `expire` once `due` (seconds on the monotonic clock) has passed without having been moved on."""

    __slots__ = ("due", "_armed_for", "_call_later", "_clock", "_expire", "_handle")

    def __init__(self, clock: Clock, call_later: CallLater, expire: Callable[[], None]) -> None:
        self._clock = clock
        self._call_later = call_later
        self._expire = expire
        self._handle: TimerHandle | None = None
        self._armed_for = 0.0
        self.due = 0.0

    def move(self, seconds: float) -> None:
        """Expire `seconds` from now, not earlier and not later."""
        due = self._clock.monotonic() + seconds
        self.due = due
        if self._handle is None:
            self._arm(seconds)
        elif due < self._armed_for:
            self._handle.cancel()
            self._arm(seconds)

    def cancel(self) -> None:
        """Never expire, unless moved again."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    @property
    def armed(self) -> bool:
        """Whether it will expire one day."""
        return self._handle is not None

    def _arm(self, seconds: float) -> None:
        self._armed_for = self.due
        self._handle = self._call_later(max(seconds, 0.0), self._on_timer)

    def _on_timer(self) -> None:
        self._handle = None
        left = self.due - self._clock.monotonic()
        # A loop may wake a timer a clock tick early; half a millisecond is below anything that a session counts in.
        if left > 0.0005:
            self._arm(left)
        else:
            self._expire()
