"""How counters have grown lately, for rates and percentiles of the last minutes, which Kafka's names stand for.

Counters are read every SAMPLE_SECONDS and the last KEPT readings are kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

SAMPLE_SECONDS = 15
#: The last five minutes, to which the percentiles of Kafka's histograms lean as well.
KEPT = 20
#: Over a shorter time a rate says little: the oldest reading that is compared with.
LEAST_SECONDS = 5

Counters = Mapping[tuple[str, ...], Sequence[float]]


class Reading(NamedTuple):
    """All counters at one time, in seconds."""

    at: float
    counters: Counters


class Recent:
    """`read`: the counters now; `now`: the time, on a clock that never goes back."""

    __slots__ = ("_kept", "_now", "_read", "_start")

    def __init__(self, read: Callable[[], Counters], now: Callable[[], float]) -> None:
        self._read = read
        self._now = now
        self._start = Reading(now(), {})
        self._kept: deque[Reading] = deque(maxlen=KEPT)

    @property
    def started_at(self) -> float:
        """When all counters were 0."""
        return self._start.at

    def sample(self) -> None:
        """Keeps a reading."""
        self._kept.append(self.now())

    def now(self) -> Reading:
        """The counters as they are."""
        return Reading(self._now(), self._read())

    def before(self, reading: Reading, seconds: float) -> Reading:
        """What to compare a new reading with: the newest one that is so much older; without one the oldest, or zeros
        as of the start."""
        found = self._start
        if self._kept and reading.at - self._kept[0].at >= LEAST_SECONDS:
            found = self._kept[0]
        for each in self._kept:
            if reading.at - each.at < seconds:
                break
            found = each
        return found


def growth(key: tuple[str, ...], old: Reading, new: Reading) -> list[float]:
    """How much each number of a counter has grown; from 0 where it was not there, or has begun anew."""
    now = new.counters.get(key, ())
    then = old.counters.get(key, ())
    if len(then) != len(now) or any(a < b for a, b in zip(now, then, strict=True)):
        return list(now)
    return [a - b for a, b in zip(now, then, strict=True)]


def rate(key: tuple[str, ...], old: Reading, new: Reading) -> float:
    """Per second, of a counter of one number."""
    grown = growth(key, old, new)
    return grown[0] / max(new.at - old.at, 0.001) if grown else 0.0
