"""What our jobs ask of a Spark session."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import pyarrow as pa

from kbroker.replay.session import ARROW_BYTES, MOST_ARROW_BYTES, bounded_batches

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROW_BYTES = 500_000
ROWS = 200


def _sizes(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.record_batch([pa.array([batch.num_rows]), pa.array([batch.nbytes])], names=["rows", "bytes"])


def batches_of(spark: SparkSession) -> list[tuple[int, int]]:
    """(rows, bytes) of what Spark hands to Python."""
    rows = spark.range(ROWS, numPartitions=1).selectExpr(f"repeat('x', {ROW_BYTES}) AS value")
    found = rows.mapInArrow(_sizes, "rows long, bytes long").collect()
    return [(row["rows"], row["bytes"]) for row in found]


def test_large_values_come_in_small_pieces_and_the_session_is_as_before(spark: SparkSession) -> None:
    """Executors of a replay of large records would need gigabytes, and be killed for it."""
    before = spark.conf.get(ARROW_BYTES, "12345")
    with bounded_batches(spark):
        inside = batches_of(spark)
    assert sum(rows for rows, _ in inside) == ROWS
    assert max(size for _, size in inside) <= MOST_ARROW_BYTES + 2 * ROW_BYTES
    assert len(inside) > 3
    assert spark.conf.get(ARROW_BYTES, "12345") == before


def test_a_sessions_own_bound_stays(spark: SparkSession) -> None:
    """Somebody with little memory for each task would get more than he allowed."""
    before = spark.conf.get(ARROW_BYTES, str(MOST_ARROW_BYTES))
    spark.conf.set(ARROW_BYTES, 4 * ROW_BYTES)
    try:
        with bounded_batches(spark):
            inside = batches_of(spark)
        assert max(size for _, size in inside) <= 6 * ROW_BYTES
        assert spark.conf.get(ARROW_BYTES) == str(4 * ROW_BYTES)
    finally:
        spark.conf.set(ARROW_BYTES, before)
