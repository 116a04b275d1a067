"""The C counters against a plain Python count of the same requests."""

from __future__ import annotations

import bisect
import itertools
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker._fast.base.counters import BUCKET_BOUNDS_BYTES, BUCKET_BOUNDS_NS, PARTS, Histogram, RequestStats

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


@given(st.lists(st.tuples(st.integers(0, 127), times_ns, times_ns, times_ns, st.booleans()), max_size=40))
def test_what_requests_waited_and_worked_agrees_with_a_plain_count(
    rows: list[tuple[int, int, int, int, bool]],
) -> None:
    """The time that a broker works on requests would have their waits for records in it."""
    stats = RequestStats()
    worked: dict[int, list[int]] = defaultdict(lambda: [0] * (len(BUCKET_BOUNDS_NS) + 1))
    sums: dict[tuple[str, int], int] = defaultdict(int)
    counts: dict[tuple[str, int], int] = defaultdict(int)
    followers = 0
    for api, *times, by_follower in rows:
        queued, waited, total = sorted(time // 2 for time in times)
        stats.add(api, total, 0, 0)
        stats.add_parts(api, total, waited, queued, times[0], by_follower)
        followers += by_follower
        for part, time in (("queued", queued), ("waited", waited), ("throttled", times[0])):
            sums[part, api] += time
            counts[part, api] += time > 0
        worked[api][bisect.bisect_left(BUCKET_BOUNDS_NS, max(0, total - waited - queued))] += 1
    totals = {api: buckets for api, *_, buckets in stats.snapshot()}
    for api, parts, moved, _ in stats.parts_by_api():
        for part, (count, sum_ns, buckets) in zip(PARTS[:3], parts, strict=False):
            assert (count, sum_ns, sum(buckets)) == (counts[part, api], sums[part, api] % 2**64, counts[part, api])
        assert [a + b for a, b in zip(totals[api], moved, strict=True)] == worked[api]
    assert stats.followers()[0][0] == followers


@given(st.lists(st.tuples(st.integers(0, 127), times_ns, times_ns, times_ns, st.booleans()), max_size=40))
def test_what_answers_take_to_leave_agrees_with_a_plain_count(rows: list[tuple[int, int, int, int, bool]]) -> None:
    """A slow network would look like a slow broker, or not at all."""
    stats = RequestStats()
    whole: dict[int, list[int]] = defaultdict(lambda: [0] * (len(BUCKET_BOUNDS_NS) + 1))
    sums: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for api, *times, by_follower in rows:
        ready, held, sent = (time // 4 for time in times)
        stats.add(api, ready, 0, 0)
        stats.add_answer(api, ready, held, sent, by_follower)
        one = sums[api]
        one[:] = one[0] + (held > 0), one[1] + held, one[2] + 1, one[3] + sent
        whole[api][bisect.bisect_left(BUCKET_BOUNDS_NS, ready + held + sent)] += 1
    totals = {api: buckets for api, *_, buckets in stats.snapshot()}
    for api, (*_, held_part, sent_part), _, moved in stats.parts_by_api():
        assert [*held_part[:2], *sent_part[:2]] == [number % 2**64 for number in sums[api]]
        assert [a + b for a, b in zip(totals[api], moved, strict=True)] == whole[api]
    _, (_, (*_, sent_part), *_), _ = stats.followers()
    assert sent_part[0] == sum(by_follower for *_, by_follower in rows)


@given(st.lists(st.tuples(st.integers(0, 127), st.integers(0, 2**40)), max_size=40))
def test_sizes_of_requests_agree_with_a_plain_count(rows: list[tuple[int, int]]) -> None:
    """Clients that send requests of a wrong size would not be seen."""
    stats = RequestStats()
    sizes: dict[int, list[int]] = defaultdict(lambda: [0] * (len(BUCKET_BOUNDS_BYTES) + 1))
    sums: dict[int, int] = defaultdict(int)
    for api, size in rows:
        stats.add(api, 1, size, 0, size)
        sizes[api][bisect.bisect_left(BUCKET_BOUNDS_BYTES, size)] += 1
        sums[api] += size
    assert {api: (size, list(buckets)) for api, _, size, buckets in stats.sizes_by_api()} == {
        api: (sums[api], sizes[api]) for api in sums
    }


def test_errors_are_counted_by_api_and_code() -> None:
    """An error that is rare would drown in another one."""
    stats = RequestStats()
    for code in (3, 87, 87):
        stats.add_code(0, code)
    stats.add_code(1, 87)
    assert stats.codes == {(0, 3): 1, (0, 87): 2, (1, 87): 1}
