"""Rates and token buckets against plain models that keep every record."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.quotas.rate import SampledRate, TokenBucket, Windows


@dataclass
class RingOfSamples:
    """Kafka's `SampledStat`: a ring of samples that are reset where they are too old, and never dropped."""

    windows: Windows
    samples: list[list[float]] = field(default_factory=list)
    current: int = 0

    def record(self, value: float, now: int) -> None:
        if not self.samples:
            self.samples.append([now, now, 0.0])
        if now - self.samples[self.current][0] >= self.windows.window_ms:
            self.current = (self.current + 1) % (self.windows.samples + 1)
            if self.current >= len(self.samples):
                self.samples.append([now, now, 0.0])
            else:
                self.samples[self.current] = [now, now, 0.0]
        sample = self.samples[self.current]
        sample[2] += value
        sample[1] = now

    def measure(self, now: int) -> float:
        for sample in self.samples:
            if now - sample[1] >= self.windows.span_ms:
                sample[:] = [now, now, 0.0]
        elapsed = now - min((sample[0] for sample in self.samples), default=now)
        full = elapsed // self.windows.window_ms
        if full < self.windows.samples - 1:
            elapsed += (self.windows.samples - 1 - full) * self.windows.window_ms
        return sum(sample[2] for sample in self.samples) / (elapsed / 1000)


@given(
    samples=st.integers(2, 12),
    window_ms=st.sampled_from([100, 1000, 3000]),
    events=st.lists(st.tuples(st.integers(0, 5000), st.integers(-50, 1000)), max_size=60),
    measured=st.booleans(),
)
def test_a_rate_is_what_kafkas_samples_give(
    samples: int, window_ms: int, events: list[tuple[int, int]], measured: bool
) -> None:
    """A client would be throttled where Kafka does not, or for another time."""
    windows = Windows(samples, window_ms)
    rate, model = SampledRate(windows), RingOfSamples(windows)
    now = 1_000_000
    for pause, value in events:
        now += pause
        rate.record(value, now)
        model.record(value, now)
        if measured:
            assert rate.measure(now)[0] == pytest.approx(model.measure(now))
    now += 137
    assert rate.measure(now)[0] == pytest.approx(model.measure(now))


def test_the_throttle_time_brings_the_rate_back_to_its_limit() -> None:
    """A client would be muted for ever, or not long enough to keep to its quota."""
    rate = SampledRate(Windows(11, 1000))
    rate.record(10_000, 0)
    assert rate.throttle_ms(1000, 0) == 0
    rate.record(5_000, 0)
    assert rate.measure(0) == (1500, 10_000)
    assert rate.throttle_ms(1000, 0) == 5000
    assert rate.measure(5000)[0] == pytest.approx(1500)
    assert rate.measure(11_000) == (0, 10_000)


@given(events=st.lists(st.tuples(st.integers(0, 20_000), st.integers(0, 100)), max_size=40), limit=st.integers(1, 50))
def test_a_bucket_never_gives_more_than_its_burst_and_its_rate(events: list[tuple[int, int]], limit: int) -> None:
    """Topics could be made faster than the quota, or a client would wait for a quota that it has not used."""
    windows = Windows(5, 1000)
    bucket = TokenBucket(windows)
    now, model = 10**6, limit * 5.0
    for pause, count in events:
        now += pause
        model = min(limit * 5.0, model + limit * pause / 1000)
        assert bucket.tokens(limit, now) == pytest.approx(model)
        bucket.take(count, limit, now)
        model -= count
        expected = 0 if model >= 0 else round(-model / limit * 1000)
        assert bucket.throttle_ms(limit, now) == pytest.approx(expected, abs=1)
