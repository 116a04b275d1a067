"""Shaping of traces: what is kept, what is exact, and that partitions and runs change nothing."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark")

from kbroker.replay import shape
from kbroker.replay.shape import Shape
from kbroker.replay.trace_schema import TRACE_SCHEMA
from kbroker.replay.traces import TraceError
from kbroker.replay.traces.errors import explain

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

Rows = list[dict[str, Any]]
FEW = settings(deadline=None, max_examples=4, suppress_health_check=list(HealthCheck), derandomize=True)
SECRET = b"0123456789abcdef"

one_row = st.fixed_dictionaries(
    {
        "arrival_time": st.integers(0, 10**7),
        "source": st.sampled_from(["a", "b", "c"]),
        "key": st.sampled_from([None, b"k1", b"k2", b"\xff"]),
        "value_size": st.integers(0, 3000),
    }
)
traces = st.lists(one_row, min_size=1, max_size=30)


def frame(spark: SparkSession, rows: Rows, partitions: int = 1) -> DataFrame:
    nothing = {"topic": "t", "partition": None, "value": None, "headers": [], "kind": "produce", "group": None}
    full = [{**nothing, "sequence": number, **row} for number, row in enumerate(rows)]
    ordered = [tuple(row[name] for name in TRACE_SCHEMA.names) for row in full]
    return spark.createDataFrame(ordered, TRACE_SCHEMA).repartition(partitions)


def rows_of(trace: DataFrame) -> Rows:
    assert trace.schema.simpleString() == TRACE_SCHEMA.simpleString()
    found = [row.asDict(recursive=True) for row in trace.collect()]
    return sorted(found, key=lambda row: (row["source"], row["sequence"]))


ALL = Shape(
    order="sort", secret=SECRET, sources=2.5, jitter=1.5, distinct_keys=True, loops=2, speed=1.5, values=0.3, seed=7
)


@FEW
@given(rows=traces)
def test_partitions_change_nothing(spark: SparkSession, rows: Rows) -> None:
    """Two runs of the same replay could not be compared."""
    once = rows_of(shape.apply(frame(spark, rows, 1), ALL))
    assert once == rows_of(shape.apply(frame(spark, rows, 5), ALL))
    for source in {row["source"] for row in once}:
        own = [row for row in once if row["source"] == source]
        assert len({row["sequence"] for row in own}) == len(own)
        assert [row["arrival_time"] for row in own] == sorted(row["arrival_time"] for row in own)
    assert all(len(row["value"]) == row["value_size"] for row in once)


@FEW
@given(rows=traces, speed=st.sampled_from([2, 0.5, 3, 0.001, 1000]))
def test_speed_scales_time_exactly(spark: SparkSession, rows: Rows, speed: float) -> None:
    """A replay at ten times the speed would have another rate than ten times the recorded one."""
    start = min(row["arrival_time"] for row in rows)
    found = rows_of(shape.change_speed(frame(spark, rows), speed))
    by_sequence = {row["sequence"]: row["arrival_time"] for row in found}
    factor = round(1 / speed) if speed < 1 else None
    for number, row in enumerate(rows):
        since = row["arrival_time"] - start
        assert by_sequence[number] == start + (since * factor if factor else since // int(speed))


@FEW
@given(rows=traces, times=st.integers(1, 4))
def test_loops_repeat_everything_in_order(spark: SparkSession, rows: Rows, times: int) -> None:
    """A later round would overtake an earlier one, or lose rows."""
    found = rows_of(shape.loop(frame(spark, rows), times))
    assert len(found) == times * len(rows)
    for source in {row["source"] for row in rows}:
        before = [row for row in rows if row["source"] == source]
        own = [row for row in found if row["source"] == source]
        assert [row["key"] for row in own] == [row["key"] for row in before] * times
        gaps = [row["arrival_time"] - before[0]["arrival_time"] for row in before]
        for number in range(times):
            part = own[number * len(before) : (number + 1) * len(before)]
            assert [row["arrival_time"] - part[0]["arrival_time"] for row in part] == gaps
    last = max(row["arrival_time"] for row in rows)
    if times > 1:
        assert sum(row["arrival_time"] > last for row in found) == (times - 1) * len(rows)


@FEW
@given(rows=traces, factor=st.sampled_from([1.0, 3.0]))
def test_copies_of_sources_keep_order_and_gaps(spark: SparkSession, rows: Rows, factor: float) -> None:
    """More load would be another load: other gaps, or keys of one source that are out of order."""
    found = rows_of(shape.scale_sources(frame(spark, rows), factor, jitter=2, seed=3))
    assert len(found) == int(factor) * len(rows)
    for source in {row["source"] for row in found}:
        before = [row for row in rows if row["source"] == source.partition("~")[0]]
        own = [row for row in found if row["source"] == source]
        late = {row["arrival_time"] - old["arrival_time"] for row, old in zip(own, before, strict=True)}
        assert len(late) == 1
        assert late == {0} if "~" not in source else 0 <= next(iter(late)) <= 2_000_000


def test_half_of_the_sources(spark: SparkSession) -> None:
    """Traffic could be scaled by whole numbers only, or a source would lose some of its rows."""
    rows = [{"arrival_time": n, "source": f"s{n % 400}", "key": None, "value_size": 1} for n in range(800)]
    counts = Counter(row["source"] for row in rows_of(shape.scale_sources(frame(spark, rows), 0.5, seed=1)))
    assert 150 < len(counts) < 250
    assert set(counts.values()) == {2}
    more = Counter(row["source"] for row in rows_of(shape.scale_sources(frame(spark, rows), 1.5, seed=1)))
    assert set(counts) == {name.removesuffix("~1") for name in more if name.endswith("~1")}


BACKWARDS = [
    {"arrival_time": time, "source": source, "key": None, "value_size": 0}
    for time, source in ((10, "a"), (5, "a"), (7, "a"), (20, "b"), (12, "a"))
]


def test_time_that_goes_back(spark: SparkSession) -> None:
    """A replay would wait for a time that has passed, or send records of a source in an order that nobody chose."""
    trace = frame(spark, BACKWARDS)
    hold = [(row["source"], row["arrival_time"]) for row in rows_of(shape.order_time(trace, "hold"))]
    assert hold == [("a", 10), ("a", 10), ("a", 10), ("a", 12), ("b", 20)]
    ordered = [(row["source"], row["arrival_time"]) for row in rows_of(shape.order_time(trace, "sort"))]
    assert ordered == [("a", 5), ("a", 7), ("a", 10), ("a", 12), ("b", 20)]
    assert len(rows_of(shape.order_time(trace, "keep"))) == 5
    with pytest.raises(Exception, match="TraceError") as failed:
        shape.order_time(trace, "refuse").collect()
    assert str(explain(failed.value)).startswith("time goes back in source a at sequence 1 by 5 us: sort")


def test_cuts(spark: SparkSession) -> None:
    """A part of a trace would be another part than the one asked for."""
    trace = frame(
        spark, [{"arrival_time": 10**6 * n + 500, "source": "a", "key": None, "value_size": 0} for n in range(9)]
    )
    assert [row["sequence"] for row in rows_of(shape.cut(trace, first=2))] == [0, 1]
    assert [row["sequence"] for row in rows_of(shape.cut(trace, skip=1.5, first=2))] == [2, 3]
    assert [row["sequence"] for row in rows_of(shape.cut(trace, start=7 * 10**6 + 500, end=8 * 10**6 + 500))] == [7]


def test_hashes_hide_and_keep_apart(spark: SparkSession) -> None:
    """Keys could be read or guessed from a trace that is given away, or their skew would be lost."""
    keys = [None, b"k1", b"k2", b"k1", b""]
    rows = [{"arrival_time": n, "source": "k1", "key": key, "value": b"secret", "value_size": 6,
             "headers": [("h", b"v")]} for n, key in enumerate(keys)]  # fmt: skip
    hidden = rows_of(shape.anonymise(frame(spark, rows), SECRET))
    found = [None if row["key"] is None else bytes(row["key"]) for row in hidden]
    assert found[0] is None and found[1] == found[3] and len({found[1], found[2], found[4]}) == 3
    assert all(len(key) == 16 for key in found[1:])
    assert hidden[0]["source"] != "k1" and hidden[0]["source"] != found[1].hex()[:16]
    assert [(row["value"], row["value_size"], row["headers"]) for row in hidden] == [(None, 6, [])] * 5
    assert found == [row["key"] for row in rows_of(shape.anonymise(frame(spark, rows, 3), SECRET))]
    assert found[1] != rows_of(shape.anonymise(frame(spark, rows), SECRET[::-1]))[1]["key"]
    plan = shape.anonymise(frame(spark, rows), SECRET)._jdf.queryExecution().toString()  # type: ignore[operator]
    assert SECRET.decode() not in plan


def test_values_that_are_there_stay(spark: SparkSession) -> None:
    """Recorded values would be replaced, or tombstones be given one."""
    sizes = [None, 5, 300, 3_000_000]
    rows = [{"arrival_time": 0, "source": "a", "key": None, "value_size": size} for size in sizes]
    rows.append({"arrival_time": 0, "source": "a", "key": None, "value": b"mine", "value_size": 4})
    found = rows_of(shape.synthesise_values(frame(spark, rows), 0.5, seed=1))
    assert found[0]["value"] is None and found[4]["value"] == b"mine"
    assert [len(row["value"]) for row in found[1:4]] == sizes[1:]


@pytest.mark.parametrize(
    "wrong", [Shape(speed=0), Shape(speed=-1), Shape(loops=0), Shape(sources=0), Shape(values=1.1), Shape(order="x"),
              Shape(secret=b"short"), Shape(first=0), Shape(skip=-1)],
)  # fmt: skip
def test_numbers_that_make_no_sense_are_refused(spark: SparkSession, wrong: Shape) -> None:
    """A typing error would give an empty trace, or one that nobody asked for."""
    with pytest.raises(TraceError):
        shape.apply(frame(spark, BACKWARDS), wrong)
