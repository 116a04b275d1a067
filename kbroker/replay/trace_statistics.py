"""What `kbroker trace inspect` says about a trace: computed in executors, of which only small tables come back.

Burstiness has three measures.  The index of dispersion is the variance of the number of rows in a window over its mean:
1 for arrivals at random (Poisson) at each window, 0 for a metronome, above 1 for bursts; how it grows with the window
tells how long bursts last.  Peak over mean compares the busiest window with the average one.  The coefficient of
variation of the gaps between rows is 1 for arrivals at random.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812

from kbroker.replay.trace_schema import MICROSECONDS
from kbroker.types import JsonObject

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row
    from typing_extensions import Buffer

WINDOWS_MS = (10, 100, 1000, 10_000, 60_000)
POINTS = 240
"""How many steps of time the rate is given for, at most."""

TOP_KEYS = 10
_STEPS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800,
            3600, 7200, 14_400, 21_600, 43_200, 86_400)  # fmt: skip
_GAPS = "first long, last long, count long, squares double"

Statistics = JsonObject


def describe_trace(rows: DataFrame) -> Statistics:
    """Numbers of a trace, as JSON takes them; {"rows": 0} for one without rows.

    `rows` is read several times: only small columns of it are kept, on executors' disks when memory is short.
    """
    from pyspark import StorageLevel

    key = F.when(F.col("key").isNotNull(), F.xxhash64("key"))
    slim = rows.select(
        "arrival_time", "source", "sequence", "topic", "kind", key.alias("hash"), "key",
        F.coalesce(F.col("value_size"), F.lit(0)).alias("size"),
    )  # fmt: skip
    slim = slim.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        summary = _summary(slim)
        if summary["rows"]:
            summary["sizes"] = _sizes(slim)
            summary["kinds"] = _counts(slim, "kind")
            summary["topics"] = _counts(slim, "topic")
            summary["sources"] |= {"busiest": _counts(slim, "source")}
            summary["keys"] = _keys(slim, summary["rows"])
            summary["rate"] = _rate(slim, summary)
            summary["bursts"] = _bursts(slim, summary)
            summary["order"] = _order(slim, summary["rows"])
        return summary
    finally:
        slim.unpersist()


def _summary(slim: DataFrame) -> Statistics:
    row = slim.agg(
        F.count("*").alias("rows"), F.min("arrival_time").alias("first"), F.max("arrival_time").alias("last"),
        F.sum("size").alias("bytes"), F.countDistinct("source").alias("sources"),
        F.countDistinct("topic").alias("topics"),
    ).first()  # fmt: skip
    assert row is not None
    if not row["rows"]:
        return {"rows": 0}
    seconds = (row["last"] - row["first"]) / MICROSECONDS
    return {
        "rows": row["rows"],
        "bytes": row["bytes"],
        "first_us": row["first"],
        "last_us": row["last"],
        "seconds": seconds,
        "rows_per_second": row["rows"] / seconds if seconds else None,
        "bytes_per_second": row["bytes"] / seconds if seconds else None,
        "sources": {"count": row["sources"]},
        "topic_count": row["topics"],
    }


def _counts(slim: DataFrame, column: str) -> dict[str, int]:
    top = slim.groupBy(column).count().orderBy(F.desc("count"), column).limit(TOP_KEYS).collect()
    return {row[column]: row["count"] for row in top}


def _sizes(slim: DataFrame) -> Statistics:
    shares = (0.5, 0.9, 0.99, 0.999)
    row = slim.agg(
        F.min("size").alias("min"), F.avg("size").alias("mean"), F.max("size").alias("max"),
        F.percentile_approx("size", list(shares), 10_000).alias("shares"),
    ).first()  # fmt: skip
    assert row is not None
    bucket = F.when(F.col("size") > 0, F.floor(F.log2("size") * 4)).otherwise(-1)
    histogram = slim.groupBy(bucket.cast("int").alias("bucket")).count().orderBy("bucket").collect()
    percentiles = {f"p{share * 100:g}": value for share, value in zip(shares, row["shares"], strict=True)}
    return {
        "min": row["min"], "mean": row["mean"], **percentiles, "max": row["max"],
        "histogram": [{"from": 0 if one["bucket"] < 0 else 2 ** (one["bucket"] / 4), "rows": one["count"]}
                      for one in histogram],
    }  # fmt: skip


def _keys(slim: DataFrame, rows: int) -> Statistics:
    keyed = (
        slim.where(F.col("hash").isNotNull()).groupBy("hash").agg(F.count("*").alias("rows"), F.min("key").alias("key"))
    )
    # How many keys have how many rows: at most some ten thousand different counts, for any number of keys.
    counts = keyed.groupBy("rows").agg(F.count("*").alias("keys")).orderBy(F.desc("rows")).collect()
    distinct = sum(row["keys"] for row in counts)
    with_key = sum(row["keys"] * row["rows"] for row in counts)
    result: Statistics = {"distinct": distinct, "rows_without_key": rows - with_key}
    if not distinct:
        return result
    top = keyed.orderBy(F.desc("rows"), "hash").limit(TOP_KEYS).collect()
    result["top"] = [{"key": _shown(row["key"]), "rows": row["rows"], "share": row["rows"] / with_key} for row in top]
    hundredth = max(1, math.ceil(distinct / 100))
    result["top_1_percent"] = {"keys": hundredth, "share": _top_rows(counts, hundredth) / with_key}
    ranks = sorted({1, *(round(distinct ** (step / 60)) for step in range(61))})
    result["skew"] = [{"keys": rank, "share": _top_rows(counts, rank) / with_key} for rank in ranks]
    return result


def _top_rows(counts: list[Row], keys: int) -> int:
    """Rows of the `keys` keys with the most rows."""
    total = 0
    for row in counts:
        taken = min(keys, row["keys"])
        total += taken * row["rows"]
        keys -= taken
        if not keys:
            break
    return total


def _shown(key: Buffer) -> str:
    data = bytes(key)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = ""
    return text if text.isprintable() and text else "0x" + data[:32].hex()


def _rate(slim: DataFrame, summary: Statistics) -> Statistics:
    seconds = summary["seconds"]
    step = next((step for step in _STEPS_S if seconds / step <= POINTS), math.ceil(seconds / POINTS / 86_400) * 86_400)
    width = round(step * MICROSECONDS)
    bucket = F.expr(f"(arrival_time - {summary['first_us']}L) div {width}L").alias("bucket")
    found = slim.groupBy(bucket).agg(F.count("*").alias("rows"), F.sum("size").alias("bytes")).collect()
    steps = {row["bucket"]: row for row in found}
    last = (summary["last_us"] - summary["first_us"]) // width
    points = [steps.get(number) for number in range(last + 1)]
    return {
        "step_seconds": step,
        "rows": [point["rows"] if point is not None else 0 for point in points],
        "bytes": [point["bytes"] if point is not None else 0 for point in points],
    }


def _bursts(slim: DataFrame, summary: Statistics) -> Statistics:
    span = summary["last_us"] - summary["first_us"]
    windows = []
    since = F.col("arrival_time") - F.lit(summary["first_us"])
    counts = slim.groupBy(F.floor(since / (WINDOWS_MS[0] * 1000)).cast("long").alias("window")).count()
    finer = WINDOWS_MS[0]
    for window in WINDOWS_MS:
        if window != finer:
            wider = F.floor(F.col("window") / (window // finer)).cast("long").alias("window")
            counts = counts.groupBy(wider).agg(F.sum("count").alias("count"))
            finer = window
        number = span // (window * 1000) + 1
        # Windows without rows count as well; one or two windows say nothing about how rows vary.
        if number < 3:
            break
        row = counts.agg(F.sum(F.pow("count", F.lit(2))).alias("squares"), F.max("count").alias("peak")).first()
        assert row is not None
        mean = summary["rows"] / number
        variance = row["squares"] / number - mean * mean
        windows.append({
            "window_ms": window, "mean": mean, "peak": row["peak"], "peak_over_mean": row["peak"] / mean,
            "dispersion": variance / mean,
        })  # fmt: skip
    return {"windows": windows, "gap_variation": _gap_variation(slim)}


def _gap_variation(slim: DataFrame) -> float | None:
    """Standard deviation over mean of the gaps between rows; None with fewer than two gaps or no time between rows."""
    times = slim.select("arrival_time").repartitionByRange("arrival_time").sortWithinPartitions("arrival_time")
    parts = sorted(times.mapInArrow(_gap_squares, _GAPS).collect())
    if not parts:
        return None
    squares = sum(own for _, _, _, own in parts)
    squares += sum(float(after[0] - before[1]) ** 2 for before, after in pairwise(parts))
    gaps = sum(count for _, _, count, _ in parts) - 1
    span = parts[-1][1] - parts[0][0]
    if gaps < 2 or not span:
        return None
    mean = span / gaps
    return float(math.sqrt(max(0.0, squares / gaps - mean * mean)) / mean)


def _gap_squares(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    first = last = None
    count, squares = 0, 0.0
    for batch in batches:
        times = batch.column(0)
        if not len(times):
            continue
        if first is None:
            first = times[0].as_py()
        else:
            squares += float(times[0].as_py() - last) ** 2
        gaps = pc.subtract(times.slice(1), times.slice(0, len(times) - 1)).cast(pa.float64())
        squares += pc.sum(pc.multiply(gaps, gaps)).as_py() or 0.0
        last = times[len(times) - 1].as_py()
        count += len(times)
    if count:
        yield pa.RecordBatch.from_pydict({"first": [first], "last": [last], "count": [count], "squares": [squares]})


def _order(slim: DataFrame, rows: int) -> Statistics:
    """Rows whose time is before that of an earlier row of their source."""
    before = Window.partitionBy("source").orderBy("sequence").rowsBetween(Window.unboundedPreceding, -1)
    back = F.max("arrival_time").over(before) - F.col("arrival_time")
    late = slim.select("source", back.alias("back")).where(F.col("back") > 0)
    row = late.agg(
        F.count("*").alias("rows"), F.max("back").alias("most"), F.countDistinct("source").alias("sources")
    ).first()
    assert row is not None
    return {
        "rows_back_in_time": row["rows"],
        "share": row["rows"] / rows,
        "largest_step_back_us": row["most"] or 0,
        "sources": row["sources"],
    }
