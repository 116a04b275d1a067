"""How counters have grown lately, for rates and percentiles of the last minutes, which Kafka's names stand for.

Counters are read every SAMPLE_SECONDS and the last KEPT readings are kept.  Of a few figures the last hour is kept as
well (`Hour`), for who looks at the console for the first time: HOUR_KEPT samples of SAMPLE_BYTES, some 24 KB with what
Python has around each.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

SAMPLE_SECONDS = 15
#: The last five minutes, to which the percentiles of Kafka's histograms lean as well.
KEPT = 20
#: Over a shorter time a rate says little: the oldest reading that is compared with.
LEAST_SECONDS = 5

#: Of the last hour.
HOUR_KEPT = 3600 // SAMPLE_SECONDS

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


class Totals(NamedTuple):
    """Figures of a broker at a time, in seconds since the epoch; all but `at` only grow while it runs.
    `records`: the high watermarks of all partitions, which falls with deleted topics."""

    at: float
    records: float
    produced_bytes: float
    fetched_bytes: float
    requests: float
    cpu_seconds: float
    loop_delay_seconds: float
    loop_delay_count: float


_PACKED = struct.Struct(f"<{len(Totals._fields)}d")
SAMPLE_BYTES = _PACKED.size


class Hour:
    """The totals of the last hour, packed."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: deque[bytes] = deque(maxlen=HOUR_KEPT)

    def add(self, totals: Totals) -> None:
        """Keeps a sample; the oldest one gives way."""
        self._kept.append(_PACKED.pack(*totals))

    def totals(self) -> list[Totals]:
        """Oldest first."""
        return [Totals(*_PACKED.unpack(each)) for each in self._kept]
