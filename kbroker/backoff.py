"""Waits between tries: each is twice the one before, up to the longest (Kafka's `ExponentialBackoff`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

JITTER = 0.2
MOST_DOUBLINGS = 30


class ExponentialBackoff(NamedTuple):
    """The first and the longest wait, in the caller's unit of time."""

    initial: float
    longest: float

    def backoff(self, attempts: int, uniform: Callable[[float, float], float] | None = None) -> float:
        """The wait before the next try.

        `attempts`: the tries that failed in a row before the last one, from 0.  `uniform` (that of a `random.Random`)
        spreads the wait by a fifth in both directions: brokers that failed together do not come back together.
        """
        wait = float(min(self.longest, self.initial * 2 ** min(attempts, MOST_DOUBLINGS)))
        return wait if uniform is None else wait * uniform(1 - JITTER, 1 + JITTER)
