"""Histograms of times, and cells that add up."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow")

from hypothesis import given
from hypothesis import strategies as st

from kbroker.replay.player.outcome import Cells, bucket_bounds, bucket_of, percentile

times = st.integers(0, 10**11)


@given(times)
def test_a_bucket_is_as_fine_as_promised(microseconds: int) -> None:
    """A percentile could be off by more than the report says."""
    low, high = bucket_bounds(bucket_of(microseconds))
    assert low <= microseconds < high
    assert high - low <= max(1, microseconds // 32)


@given(times, times)
def test_buckets_keep_the_order(one: int, other: int) -> None:
    """A slower record could count as a faster one."""
    assert (bucket_of(one) <= bucket_of(other)) or one > other


@given(st.lists(times, min_size=1, max_size=200), st.sampled_from([0.5, 0.9, 0.99, 1.0]))
def test_percentiles_come_near_the_exact_ones(measured: list[int], share: float) -> None:
    """The report's latency would not be that of the records."""
    histogram: dict[int, int] = {}
    for one in measured:
        histogram[bucket_of(one)] = histogram.get(bucket_of(one), 0) + 1
    wanted, seen = share * len(measured), 0
    exact = next(one for one in sorted(measured) if (seen := seen + 1) >= wanted)
    found = percentile(histogram, share)
    assert found is not None and abs(found - exact) <= exact / 32 + 1


def test_cells_are_taken_once() -> None:
    """Records would be counted twice, or never."""
    cells = Cells(3)
    cells.at(1, "produce", "t").offered += 2
    cells.at(1, "produce", "t", 0).exceptions.append(("s", 7, "NO"))
    batch = cells.take()
    assert batch is not None and cells.take() is None
    rows = sorted(batch.to_pylist(), key=lambda row: row["partition"])
    assert [(row["executor"], row["partition"], row["offered"]) for row in rows] == [(3, -1, 2), (3, 0, 0)]
    assert rows[1]["exceptions"] == [{"source": "s", "sequence": 7, "why": "NO"}]
