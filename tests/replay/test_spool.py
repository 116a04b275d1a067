"""Rows on the executor's machine before a replay, and cells that C counts."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from kbroker._fast.replay.delivery_cells import COUNT_NAMES, DeliveryCells
from kbroker.replay.player.outcome import COUNTS, bucket_of
from kbroker.replay.player.settings import ReplayError
from kbroker.replay.player.spool import Spool


@given(st.lists(st.lists(st.one_of(st.none(), st.binary(max_size=20)), max_size=5), max_size=10), st.integers(0, 200))
def test_rows_come_back_in_order(made: list[list[bytes | None]], memory_bytes: int) -> None:
    """Records would be lost, or a source's order, where a trace does not fit into memory."""
    batches = [pa.RecordBatch.from_arrays([pa.array(one, pa.binary())], ["v"]) for one in made]
    spool = Spool(iter(batches), memory_bytes)
    assert [batch.column(0).to_pylist() for batch in spool.batches()] == made


def test_rows_that_have_no_place_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user would find a stack trace of a worker, and not which directory is full."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path}/gone,{tmp_path}")
    batch = pa.RecordBatch.from_arrays([pa.array([b"x"])], ["v"])
    with pytest.raises(ReplayError, match=r"cannot be kept in .*/gone"):
        Spool(iter([batch]), 0)


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 40), st.integers(-1, 5), st.integers(-5, 10**12)), max_size=300
    )
)
def test_cells_count_as_the_reference_does(records: list[tuple[int, int, int, int]]) -> None:
    """The report of a quick replay would show other seconds, partitions or times than that of a slow one."""
    cells = DeliveryCells()
    expected: dict[tuple[int, int, int], dict[int, int]] = {}
    for second, topic, partition, time_us in records:
        cells.add(second, topic, partition, time_us, time_us // 2)
        own = expected.setdefault((second, topic, partition), {})
        own[bucket_of(time_us)] = own.get(bucket_of(time_us), 0) + 1
    taken = cells.take()
    assert {one[:3]: dict(one[4]) for one in taken} == expected and len(taken) == len(expected)
    assert set(COUNT_NAMES) < set(COUNTS)
    for *_, counts, sent_error, latency in taken:
        total = sum(count for _, count in sent_error)
        assert counts == (total, total, total, 0, 0, 0) and sum(count for _, count in latency) == total
    assert cells.take() == []
