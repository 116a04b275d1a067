"""How fast counters grow, as the one-minute rates of Kafka's meters: exponentially weighted averages over a minute.

A meter of Yammer's is brought up to date every five seconds by a thread.  Here that is done when a scrape asks, at most
so often: what was counted since the last time counts as evenly spread over the time between, which gives what such a
meter has for it.  So a counter costs nothing while no client asks.
"""

from __future__ import annotations

import math

TICK_SECONDS = 5.0
MINUTE_SECONDS = 60.0


class RecentRates:
    """The rates of counters by their keys.  `begin` before each scrape, `rate` for each counter, `end` behind it."""

    __slots__ = ("_known", "_last", "_next", "_now", "_start")

    def __init__(self, start: float) -> None:
        """`start`: when all counters were 0, on the clock whose time `begin` is given."""
        self._start = self._last = self._now = start
        self._known: dict[tuple[str, ...], tuple[float, float]] = {}
        self._next: dict[tuple[str, ...], tuple[float, float]] = {}

    def begin(self, now: float) -> None:
        """The counters are as of this time."""
        self._now = now
        self._next = {}

    def rate(self, key: tuple[str, ...], count: float) -> float:
        """Per second, of a counter that stands there."""
        elapsed = self._now - self._last
        before, average = self._known.get(key, (0.0, 0.0))
        if elapsed < TICK_SECONDS:
            return average
        grown = (count - before if count >= before else count) / elapsed
        if self._last == self._start:
            average = grown
        else:
            average += (grown - average) * (1 - math.exp(-elapsed / MINUTE_SECONDS))
        self._next[key] = count, average
        return average

    def end(self) -> None:
        """All counters were asked for; what was not asked for is forgotten."""
        if self._now - self._last >= TICK_SECONDS:
            self._known = self._next
            self._last = self._now
