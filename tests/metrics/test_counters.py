"""The C counters against a plain Python count of the same requests."""

from __future__ import annotations

import bisect
import itertools
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker._fast.base.counters import BUCKET_BOUNDS_NS, Histogram, RequestStats

times_ns = st.one_of(
    st.integers(0, 2**62),
    st.sampled_from([bound + shift for bound in BUCKET_BOUNDS_NS for shift in (-1, 0, 1)]),
)
requests = st.tuples(st.integers(-3, 140), times_ns, st.integers(0, 2**40), st.integers(0, 2**40))


def test_bounds_run_from_ten_microseconds_to_ten_seconds() -> None:
    """A dashboard's quantiles are wrong when the documented bounds are not the real ones."""
    assert BUCKET_BOUNDS_NS[0] == 10_000
    assert BUCKET_BOUNDS_NS[-1] == 10_485_760_000
    assert all(high == 2 * low for low, high in itertools.pairwise(BUCKET_BOUNDS_NS))


@given(st.lists(requests, max_size=60), st.lists(st.integers(-3, 140), max_size=10))
def test_request_stats_agree_with_a_plain_count(rows: list[tuple[int, int, int, int]], errors: list[int]) -> None:
    """Request counts, bytes and times per API would be wrong, and an odd key could write outside the table."""
    stats = RequestStats()
    expected: dict[int, list[int]] = defaultdict(lambda: [0] * 5)
    buckets: dict[int, list[int]] = defaultdict(lambda: [0] * (len(BUCKET_BOUNDS_NS) + 1))
    for api_key, total_ns, bytes_in, bytes_out in rows:
        stats.add(api_key, total_ns, bytes_in, bytes_out)
        key = api_key if 0 <= api_key < 128 else -1
        totals = expected[key]
        totals[0] += 1
        totals[2] += bytes_in
        totals[3] += bytes_out
        totals[4] = (totals[4] + total_ns) % 2**64
        buckets[key][bisect.bisect_left(BUCKET_BOUNDS_NS, total_ns)] += 1
    for api_key in errors:
        stats.add_error(api_key)
        expected[api_key if 0 <= api_key < 128 else -1][1] += 1
    assert stats.total() == len(rows)
    assert {key: stats.count(key) for key in expected} == {key: totals[0] for key, totals in expected.items()}
    assert {row[0]: (list(row[1:6]), list(row[6])) for row in stats.snapshot()} == {
        key: (totals, buckets[key]) for key, totals in expected.items()
    }


@given(st.lists(times_ns, max_size=60))
def test_histogram_agrees_with_a_plain_count(values: list[int]) -> None:
    """The loop's delay would be shown in the wrong bucket."""
    histogram = Histogram()
    buckets = [0] * (len(BUCKET_BOUNDS_NS) + 1)
    for value in values:
        histogram.add(value)
        buckets[bisect.bisect_left(BUCKET_BOUNDS_NS, value)] += 1
    assert histogram.snapshot() == (sum(values) % 2**64, tuple(buckets))


def test_negative_sizes_are_refused() -> None:
    """A byte counter that goes down looks like a restart to whoever graphs it."""
    with pytest.raises(ValueError, match="negative"):
        RequestStats().add(0, 1, -1, 0)


@given(st.lists(st.tuples(st.integers(0, 127), times_ns, times_ns, st.booleans()), max_size=40))
def test_what_requests_waited_and_worked_agrees_with_a_plain_count(rows: list[tuple[int, int, int, bool]]) -> None:
    """The time that a broker works on requests would have their waits for records in it."""
    stats = RequestStats()
    worked: dict[int, list[int]] = defaultdict(lambda: [0] * (len(BUCKET_BOUNDS_NS) + 1))
    waited: dict[int, int] = defaultdict(int)
    followers = 0
    for api, one, other, by_follower in rows:
        total, wait = max(one, other), min(one, other)
        stats.add(api, total, 0, 0)
        if wait:
            stats.add_wait(api, wait, total, by_follower)
            followers += by_follower
            waited[api] += wait
        worked[api][bisect.bisect_left(BUCKET_BOUNDS_NS, total - wait)] += 1
    totals = {api: buckets for api, *_, buckets in stats.snapshot()}
    rows_of_waits = {api: (sum_ns, moved) for api, _, sum_ns, _, moved in stats.waits_by_api()}
    assert {api: sum_ns for api, (sum_ns, _) in rows_of_waits.items()} == waited
    nothing = [0] * (len(BUCKET_BOUNDS_NS) + 1)
    for api, buckets in totals.items():
        _, moved = rows_of_waits.get(api, (0, nothing))
        assert [a + b for a, b in zip(buckets, moved, strict=True)] == worked[api]
    assert stats.followers()[0][0] == followers


def test_errors_are_counted_by_api_and_code() -> None:
    """An error that is rare would drown in another one."""
    stats = RequestStats()
    for code in (3, 87, 87):
        stats.add_code(0, code)
    stats.add_code(1, 87)
    assert stats.codes == {(0, 3): 1, (0, 87): 2, (1, 87): 1}
