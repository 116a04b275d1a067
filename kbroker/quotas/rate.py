"""Rates over a sliding window, and the time to wait until one is back at its limit.

A `SampledRate` keeps up to `samples` + 1 samples, each of what came within `window_ms` from its first record on.  A
sample counts until nothing was recorded in it for `samples` windows.  The rate is the sum of all samples divided by the
time since the oldest began, but at least by `samples` - 1 windows: a burst up to the limit times that span is not
throttled.  Kafka's `Rate` and `SampledStat` do the same.

A `TokenBucket` (KIP-599) gets `limit` tokens a second, up to `limit` times all windows; it may go below 0, and the
client is then throttled until it is back at 0.

Pure: time, in milliseconds, is an argument and must not go back.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import inf


@dataclass(frozen=True, slots=True)
class Windows:
    """How many samples a rate has, and how long each is: `quota.window.num` and `quota.window.size.seconds`."""

    samples: int = 11
    window_ms: int = 1000

    @property
    def span_ms(self) -> int:
        """For how long a record counts, at most."""
        return self.samples * self.window_ms


class _Sample:
    __slots__ = ("last_ms", "start_ms", "value")

    def __init__(self, now_ms: int) -> None:
        self.start_ms = self.last_ms = now_ms
        self.value = 0.0


class SampledRate:
    """What was recorded in the last windows, per second."""

    __slots__ = ("_samples", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._samples: deque[_Sample] = deque()

    def record(self, value: float, now_ms: int) -> None:
        """Count `value`, which may be negative to take something back."""
        samples, windows = self._samples, self._windows
        if not samples or now_ms - samples[-1].start_ms >= windows.window_ms:
            samples.append(_Sample(now_ms))
            if len(samples) > windows.samples + 1:
                samples.popleft()
        sample = samples[-1]
        sample.value += value
        sample.last_ms = now_ms

    def measure(self, now_ms: int) -> tuple[float, int]:
        """(per second, the milliseconds that it is measured over)."""
        samples, windows = self._samples, self._windows
        while samples and now_ms - samples[0].last_ms >= windows.span_ms:
            samples.popleft()
        elapsed = now_ms - samples[0].start_ms if samples else 0
        missing = windows.samples - 1 - elapsed // windows.window_ms
        if missing > 0:
            elapsed += missing * windows.window_ms
        # With a single window there may be no time yet, and Kafka would divide by it.
        elapsed = max(elapsed, windows.window_ms if windows.samples == 1 else 1)
        return sum([sample.value for sample in samples]) * 1000 / elapsed, elapsed

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """How long nothing must be recorded until the rate is back at `limit`; 0 where it is not above it."""
        rate, elapsed = self.measure(now_ms)
        return round((rate - limit) / limit * elapsed) if rate > limit else 0


class TokenBucket:
    """Tokens that come at a steady rate and are kept up to a burst."""

    __slots__ = ("_last_ms", "_tokens", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._tokens = inf
        self._last_ms = 0

    def tokens(self, limit: float, now_ms: int) -> float:
        """How many there are; negative where more were taken than there were."""
        burst = limit * self._windows.span_ms / 1000
        self._tokens = min(burst, self._tokens + limit * (now_ms - self._last_ms) / 1000)
        self._last_ms = now_ms
        return self._tokens

    def take(self, count: float, limit: float, now_ms: int) -> None:
        """Take `count`, which may leave fewer than none."""
        self._tokens = self.tokens(limit, now_ms) - count

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """How long until there are 0 again."""
        tokens = self.tokens(limit, now_ms)
        return round(-tokens / limit * 1000) if tokens < 0 else 0
