"""Proves what became of a replay's records: reads all back through `format("kbroker")` and compares it with the ids.

For each partition, by a Spark job that returns nothing but these counts to the driver:

    acknowledged  how many records executors had acknowledged there
    found         records with an id of this replay; `distinct` of them by id
    lost          acknowledged and not found (by partition: the acknowledged count less those found, if positive)
    duplicates    found beyond the first of each id, in whichever partition
    damaged       found with another checksum of key, value and headers than its id says or the trace had
    out_of_order  first copies that come after a later record of the same source in the same partition

`total` adds: `expected` records of the trace, `excused` of them (never sent, failed, or unanswered when the replay was
stopped), `excused_found` (there all the same: a broker may store what it could not answer), `unknown` (an id that was
never given), `foreign` (records without an id of this replay between its start and the end of the topics).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import StorageLevel
from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812

from kbroker.replay.player.plan import ID_HEADER, checksum_text
from kbroker.replay.player.run import read_run
from kbroker.replay.player.settings import ReplayError
from kbroker.replay.trace_output import write_complete
from kbroker.types import JsonObject

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

Result = JsonObject
_KEYS = ("topic", "partition")
_SUMS = ("found", "distinct", "duplicates", "damaged", "out_of_order")


def verify_run(
    spark: SparkSession, run: str, *, bootstrap: str | None = None, details: str | None = None, overwrite: bool = False
) -> Result:
    """Verifies the run in this directory and leaves the result in its verify.json.  ReplayError when it cannot be.

    details  where to write the records that something is wrong with: (what, topic, partition, offset, source, sequence)
    """
    document = read_run(run)
    if not document["ids"] or not (Path(run) / "expected").is_dir():
        raise ReplayError(f"{run}: its records have no ids to verify by (a replay with --no-ids, or without records)")
    records = read_back(spark, document, bootstrap)
    marked = mark(records, document["run_id"]).persist(StorageLevel.DISK_ONLY)
    try:
        mine = marked.where(F.col("source").isNotNull())
        checked = check(spark, run, mine).persist(StorageLevel.DISK_ONLY)
        try:
            result = _result(spark, run, document, marked, checked)
            if details is not None:
                write_complete(problems(checked), details, overwrite=overwrite)
        finally:
            checked.unpersist()
    finally:
        marked.unpersist()
    (Path(run) / "verify.json").write_text(json.dumps(result, indent=2))
    return result


def read_back(spark: SparkSession, document: Result, bootstrap: str | None = None) -> DataFrame:
    """All records of the replay's topics from the end offsets before the replay."""
    reader = spark.read.format("kbroker").options(
        **{
            "kafka.bootstrap.servers": bootstrap or document["bootstrap"],
            "subscribe": ",".join(document["topics"]),
            "startingOffsets": json.dumps(document["starting_offsets"]),
            "includeHeaders": "true",
            "kafka.isolation.level": "read_committed",
        }
    )
    return reader.load()


def mark(records: DataFrame, run_id: str) -> DataFrame:
    """(topic, partition, offset, source, sequence, sent, there); `sent` and `there` are checksums.  Records without an
    id of this run have a null source, sequence and `sent`."""
    name = F.lit(ID_HEADER)
    headers = F.coalesce(F.col("headers"), F.array().cast(records.schema["headers"].dataType))
    own = F.filter(headers, lambda one: one["key"] == name)
    text = F.try_element_at(own, F.lit(-1))["value"].cast("string")
    mine = F.when(text.startswith(f"{run_id}/"), text)
    # The source comes last, because it may hold any character.
    parts = F.split(mine, "/", 4)
    others = F.filter(headers, lambda one: one["key"] != name)
    digest = checksum_text(F.col("key"), F.col("value"), others)
    return records.select(
        "topic", "partition", "offset",
        F.get(parts, 3).alias("source"),
        F.get(parts, 2).try_cast("long").alias("sequence"),
        F.get(parts, 1).alias("sent"),
        digest.alias("there"),
    )  # fmt: skip


def check(spark: SparkSession, run: str, mine: DataFrame) -> DataFrame:
    """A row for each record that was expected or found, with what is wrong as booleans.

    Columns: source, sequence, topic, partition, offset (null: not there), expected, excused, copy (0 the first),
    damaged, out_of_order.
    """
    in_place = Window.partitionBy("topic", "partition", "source").orderBy("offset")
    earlier = in_place.rowsBetween(Window.unboundedPreceding, -1)
    copies = Window.partitionBy("source", "sequence").orderBy("partition", "offset")
    found = mine.withColumn("highest", F.max("sequence").over(earlier)).withColumn(
        "copy", F.row_number().over(copies) - 1
    )
    wanted = spark.read.parquet(str(Path(run) / "expected"))
    wanted = wanted.select(
        "source", "sequence", F.col("topic").alias("wanted_topic"), F.col("partition").alias("wanted_partition"),
        F.col("checksum").alias("wanted_checksum"),
    )  # fmt: skip
    joined = wanted.join(found, ["source", "sequence"], "full").join(
        _excused(spark, run), ["source", "sequence"], "left"
    )
    is_expected = F.col("wanted_checksum").isNotNull()
    is_found = F.col("offset").isNotNull()
    differs = (F.col("sent") != F.col("there")) | (is_expected & (F.col("wanted_checksum") != F.col("there")))
    moved = (F.col("wanted_topic") != F.col("topic")) | (F.col("wanted_partition") != F.col("partition"))
    return joined.select(
        "source", "sequence",
        F.coalesce("topic", "wanted_topic").alias("topic"),
        F.coalesce("partition", "wanted_partition", F.lit(-1)).alias("partition"),
        "offset",
        is_expected.alias("expected"),
        F.coalesce("excused", F.lit(False)).alias("excused"),
        F.when(is_found, F.col("copy")).alias("copy"),
        F.coalesce(is_found & (differs | F.coalesce(moved, F.lit(False))), F.lit(False)).alias("damaged"),
        F.coalesce((F.col("copy") == 0) & (F.col("sequence") < F.col("highest")), F.lit(False)).alias("out_of_order"),
    )  # fmt: skip


def problems(checked: DataFrame) -> DataFrame:
    """Each record that something is wrong with, and what."""
    what = F.filter(
        F.array(
            F.when(_lost(), "lost"),
            F.when(F.col("copy") > 0, "duplicate"),
            F.when(F.col("damaged"), "damaged"),
            F.when(F.col("out_of_order"), "out of order"),
            F.when(~F.col("expected"), "unknown"),
        ),
        lambda one: one.isNotNull(),
    )
    return checked.select(F.explode(what).alias("what"), "topic", "partition", "offset", "source", "sequence")


def _lost() -> Column:
    return F.col("expected") & ~F.col("excused") & F.col("offset").isNull()


def _excused(spark: SparkSession, run: str) -> DataFrame:
    """The records without an acknowledgement."""
    outcomes = spark.read.parquet(str(Path(run) / "outcomes"))
    each = outcomes.where("kind = 'produce'").select(F.explode("exceptions").alias("one"))
    return each.select("one.source", "one.sequence", F.lit(True).alias("excused")).distinct()


def _count(test: Column) -> Column:
    return F.count(F.when(test, 1))


def _result(spark: SparkSession, run: str, document: Result, marked: DataFrame, checked: DataFrame) -> Result:
    there = F.col("offset").isNotNull()
    counts = checked.groupBy(*_KEYS).agg(
        _count(F.col("expected")).alias("expected"),
        _count(F.col("expected") & F.col("excused") & (F.coalesce("copy", F.lit(0)) == 0)).alias("excused"),
        _count(F.col("excused") & (F.col("copy") == 0)).alias("excused_found"),
        _count(_lost()).alias("absent"),
        _count(there).alias("found"),
        _count(F.col("copy") == 0).alias("distinct"),
        _count(F.col("copy") > 0).alias("duplicates"),
        _count(F.col("damaged")).alias("damaged"),
        _count(F.col("out_of_order")).alias("out_of_order"),
        _count(~F.col("expected") & (F.col("copy") == 0)).alias("unknown"),
    )
    rows = {(row["topic"], row["partition"]): row.asDict() for row in counts.collect()}
    acknowledged = _acknowledged(spark, run)
    partitions = []
    for topic, partition in sorted({at for at in rows if at[1] >= 0} | acknowledged.keys()):
        row = rows.get((topic, partition), {})
        sums = {name: row.get(name, 0) for name in _SUMS}
        answered = acknowledged.get((topic, partition), 0)
        proved = sums["distinct"] - row.get("excused_found", 0) - row.get("unknown", 0)
        partitions.append(
            {
                "topic": topic,
                "partition": partition,
                "acknowledged": answered,
                "lost": max(0, answered - proved),
                **sums,
            }
        )
    every = list(rows.values())
    total = {name: sum(row[name] for row in every) for name in (*_SUMS, "excused", "excused_found", "unknown")}
    total["expected"] = document["kinds"]["produce"]
    total["acknowledged"] = sum(acknowledged.values())
    total["lost"] = max(sum(row["absent"] for row in every), sum(row["lost"] for row in partitions))
    total["foreign"] = marked.where(F.col("source").isNull()).count()
    return {"run_id": document["run_id"], "promises": document["promises"], "total": total, "partitions": partitions}


def _acknowledged(spark: SparkSession, run: str) -> dict[tuple[str, int], int]:
    outcomes = spark.read.parquet(str(Path(run) / "outcomes"))
    rows = outcomes.where("kind = 'produce' and acknowledged > 0").groupBy(*_KEYS).agg(F.sum("acknowledged").alias("n"))
    return {(row["topic"], row["partition"]): row["n"] for row in rows.collect()}
