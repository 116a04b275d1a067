"""Deadlines of members and groups, on the clock and loop that the coordinator was given.

`Deadline` is a timer whose time is moved far more often than it fires: a heartbeat only stores the new time, and the
loop's timer, when it goes off early, arms itself anew for what is left.  A group of thousands of members thus costs the
loop one timer per member and session, not one per heartbeat.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING

from kbroker.clock import Clock

if TYPE_CHECKING:
    from asyncio import TimerHandle

    from kbroker.waiting import CallLater


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

    def end(self) -> None:
        """Never expire, and give back what it calls, which has this."""
        self.cancel()
        self._expire = _nothing

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
        # A loop may call a timer a clock tick early; half a millisecond is below the resolution of session timeouts.
        if left > 0.0005:
            self._arm(left)
        else:
            self._fire()

    def _fire(self) -> None:
        self._expire()


class Timers:
    """Timers by key: setting one again moves it, and all end together when their shard is unloaded."""

    __slots__ = ("_by_key", "_call_later", "_clock")

    def __init__(self, clock: Clock, call_later: CallLater) -> None:
        self._clock = clock
        self._call_later = call_later
        self._by_key: dict[Hashable, _KeyedDeadline] = {}

    def __contains__(self, key: Hashable) -> bool:
        return key in self._by_key

    def __len__(self) -> int:
        return len(self._by_key)

    def find(self, key: Hashable) -> Deadline | None:
        """The timer of this key."""
        return self._by_key.get(key)

    def set(self, key: Hashable, seconds: float, expire: Callable[[], None]) -> None:
        """Call `expire` in `seconds` from now, in place of what was set for this key before."""
        timer = self._by_key.get(key)
        if timer is None:
            timer = self._by_key[key] = _KeyedDeadline(self._clock, self._call_later, self._by_key, key)
        timer.callback = expire
        timer.move(seconds)

    def cancel(self, key: Hashable) -> None:
        """Forget the timer of this key; nothing where there is none."""
        timer = self._by_key.pop(key, None)
        if timer is not None:
            timer.cancel()

    def cancel_all(self) -> None:
        """Forget every timer."""
        timers = list(self._by_key.values())
        self._by_key.clear()
        for timer in timers:
            timer.cancel()


class _KeyedDeadline(Deadline):
    """Leaves the table before it calls back, so that the callback may set its key anew."""

    __slots__ = ("_by_key", "_key", "callback")

    def __init__(
        self, clock: Clock, call_later: CallLater, by_key: dict[Hashable, _KeyedDeadline], key: Hashable
    ) -> None:
        super().__init__(clock, call_later, _nothing)  # A method of its own would be a cycle.
        self._by_key = by_key
        self._key = key
        self.callback: Callable[[], None] = _nothing

    def _fire(self) -> None:
        assert self._by_key.get(self._key) is self, f"a timer of {self._key} that was replaced goes off"
        del self._by_key[self._key]
        self.callback()


def _nothing() -> None:
    """Before a callback is set."""
