"""What counting one request costs, from Python, beside the dictionary of counters that it stands in for."""

from __future__ import annotations

import bisect
from collections import Counter

from pytest_benchmark.fixture import BenchmarkFixture

from kbroker._fast.base.counters import BUCKET_BOUNDS_NS, Histogram, RequestStats


def test_count_a_request(benchmark: BenchmarkFixture) -> None:
    """RequestStats.add."""
    stats = RequestStats()
    benchmark(stats.add, 0, 15_000, 200, 50)


def test_count_a_request_in_python(benchmark: BenchmarkFixture) -> None:
    """The same numbers in a Counter and a list."""
    totals: Counter[tuple[int, str]] = Counter()
    buckets = [0] * (len(BUCKET_BOUNDS_NS) + 1)

    def add(api_key: int, total_ns: int, bytes_in: int, bytes_out: int) -> None:
        totals[api_key, "count"] += 1
        totals[api_key, "in"] += bytes_in
        totals[api_key, "out"] += bytes_out
        totals[api_key, "ns"] += total_ns
        buckets[bisect.bisect_left(BUCKET_BOUNDS_NS, total_ns)] += 1

    benchmark(add, 0, 15_000, 200, 50)


def test_histogram(benchmark: BenchmarkFixture) -> None:
    """Histogram.add."""
    benchmark(Histogram().add, 15_000)


def test_snapshot_of_twenty_apis(benchmark: BenchmarkFixture) -> None:
    """What a scrape reads."""
    stats = RequestStats()
    for key in range(20):
        stats.add(key, 15_000, 200, 50)
    benchmark(stats.snapshot)
