"""Rates and percentiles of the last minutes.

Also of `kbroker.metrics.percentiles`, `kbroker.metrics.recent`.
"""

from __future__ import annotations

import pytest

from kbroker._fast.base.counters import BUCKET_BOUNDS_NS
from kbroker.metrics.percentiles import percentile
from kbroker.metrics.recent import (
    HOUR_KEPT,
    KEPT,
    SAMPLE_BYTES,
    SAMPLE_SECONDS,
    Counters,
    Hour,
    Recent,
    Totals,
    growth,
    rate,
)

KEY = ("accepted", "PLAINTEXT")


class Growing:
    """A clock, and a counter that grows by `step` each second."""

    def __init__(self, step: float) -> None:
        self.seconds = 1_000.0
        self.step = step
        self.count = 0.0

    def read(self) -> Counters:
        return {KEY: (self.count,)}

    def now(self) -> float:
        return self.seconds

    def pass_time(self, seconds: float) -> None:
        self.seconds += seconds
        self.count += self.step * seconds


def test_a_rate_is_that_of_the_last_while() -> None:
    """A burst long ago would be shown as the present."""
    source = Growing(100.0)
    recent = Recent(source.read, source.now)
    for _ in range(10):
        source.pass_time(SAMPLE_SECONDS)
        recent.sample()
    source.step = 2.0
    for _ in range(2):
        source.pass_time(SAMPLE_SECONDS)
        recent.sample()
    now = recent.now()
    assert rate(KEY, recent.before(now, 2 * SAMPLE_SECONDS), now) == 2.0
    assert rate(KEY, recent.before(now, 4 * SAMPLE_SECONDS), now) == 51.0


def test_before_there_is_a_reading_a_rate_counts_from_the_start() -> None:
    """A broker that has just started would show no rates, or those since its first reading."""
    source = Growing(3.0)
    recent = Recent(source.read, source.now)
    source.pass_time(SAMPLE_SECONDS / 3)
    now = recent.now()
    assert rate(KEY, recent.before(now, 2 * SAMPLE_SECONDS), now) == 3.0
    assert rate(("no", "such"), recent.before(now, 1), now) == 0.0


def test_a_rate_is_not_taken_over_a_moment() -> None:
    """The first client of a broker would be a crowd of hundreds a second."""
    source = Growing(0.0)
    recent = Recent(source.read, source.now)
    source.pass_time(10)
    recent.sample()
    source.count += 1
    source.pass_time(0.01)
    now = recent.now()
    assert rate(KEY, recent.before(now, 30), now) == pytest.approx(0.1, rel=0.01)
    source.pass_time(10)
    now = recent.now()
    assert rate(KEY, recent.before(now, 30), now) == pytest.approx(0.1, rel=0.01)


def test_readings_do_not_pile_up() -> None:
    """A broker would grow for as long as it runs."""
    source = Growing(1.0)
    recent = Recent(source.read, source.now)
    for _ in range(10 * KEPT):
        source.pass_time(SAMPLE_SECONDS)
        recent.sample()
    now = recent.now()
    assert now.at - recent.before(now, 1e9).at == (KEPT - 1) * SAMPLE_SECONDS


def test_the_last_hour_is_kept_and_no_more() -> None:
    """Charts would begin when a person comes, which is after the fault; or the broker would grow while it runs."""
    hour = Hour()
    assert hour.totals() == [] and 8 * len(Totals._fields) == SAMPLE_BYTES
    for index in range(2 * HOUR_KEPT):
        hour.add(Totals(float(index), *(index + each / 8 for each in range(len(Totals._fields) - 1))))
    kept = hour.totals()
    assert [each.at for each in kept] == [float(index) for index in range(HOUR_KEPT, 2 * HOUR_KEPT)]
    assert kept[-1].loop_delay_count == 2 * HOUR_KEPT - 1 + 6 / 8 and HOUR_KEPT * SAMPLE_SECONDS == 3600


def test_a_counter_that_begins_anew_has_grown_from_0() -> None:
    """A connection to a leader that was opened again would have a negative rate."""
    source = Growing(5.0)
    recent = Recent(source.read, source.now)
    source.pass_time(SAMPLE_SECONDS)
    old = recent.now()
    source.count = 4.0
    source.pass_time(1)
    assert growth(KEY, old, recent.now()) == [9.0]


def buckets(**counts: int) -> list[float]:
    """Of so many values in each of the first buckets: `b0`, `b1`, …"""
    found = [0.0] * (len(BUCKET_BOUNDS_NS) + 1)
    for name, count in counts.items():
        found[int(name[1:])] = float(count)
    return found


@pytest.mark.parametrize(
    ("counted", "quantile", "milliseconds"),
    [
        pytest.param(buckets(), 0.99, 0.0, id="nothing"),
        pytest.param(buckets(b0=100), 0.5, 0.005, id="half-way through the first"),
        pytest.param(buckets(b0=50, b1=50), 0.5, 0.01, id="at a bound"),
        pytest.param(buckets(b0=50, b1=50), 0.75, 0.015, id="half-way through the second"),
        pytest.param(buckets(b0=99, b4=1), 0.999, 0.152, id="the last one"),
        pytest.param(buckets(b21=1), 0.5, BUCKET_BOUNDS_NS[-1] / 1e6, id="beyond the last bound"),
    ],
)
def test_percentiles_of_buckets(counted: list[float], quantile: float, milliseconds: float) -> None:
    """Alerts on latency would fire too late, or for nothing."""
    assert percentile(counted, quantile) == pytest.approx(milliseconds)
