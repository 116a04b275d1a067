"""What `format("kbroker")` writes, read by Spark's own connector and the other way round, and restarted streams.

Also of `kbroker.replay.sources.write_options`, `kbroker.replay.sources.writer`, `kbroker._fast.replay.replay_producer`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from kbroker.replay.sources.option_table import Effect
from kbroker.replay.sources.write_options import parse_write
from kbroker.replay.sources.write_table import WRITING
from tests.broker_process import BrokerProcess
from tests.compat.admin import Admin
from tests.replay.connector import connector_jars

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

KEPT = {"retention.ms": "-1"}
COUNT = 2000


def frame_of(spark: SparkSession, count: int = COUNT) -> DataFrame:
    """Null and repeated keys, null values, headers with and without a value."""
    from pyspark.sql import functions as f

    some = f.array(
        f.struct(f.lit("a").alias("key"), f.col("id").cast("string").cast("binary").alias("value")),
        f.struct(f.lit("b").alias("key"), f.lit(None).cast("binary").alias("value")),
    )
    return spark.range(count).select(
        f.when(f.col("id") % 3 != 0, f.concat(f.lit("key-"), f.col("id") % 50)).alias("key"),
        f.when(f.col("id") % 7 != 0, f.concat(f.lit("value-"), f.col("id"))).alias("value"),
        f.when(f.col("id") % 2 == 0, some).alias("headers"),
    )


def write(frame: DataFrame, kind: str, bootstrap: str, **options: str) -> None:
    writer = frame.write.format(kind).mode("append").option("kafka.bootstrap.servers", bootstrap)
    for name, value in options.items():
        writer = writer.option(name.replace("__", "."), value)
    writer.save()


def read(spark: SparkSession, kind: str, bootstrap: str, topic: str) -> list[Any]:
    reader = spark.read.format(kind).option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    frame = reader.option("startingOffsets", "earliest").option("includeHeaders", "true").load()
    return [row.asDict(recursive=True) for row in frame.drop("timestamp", "timestampType").collect()]


def content(rows: list[Any]) -> list[Any]:
    """Everything but the place."""
    return sorted((bytes(row["key"] or b""), bytes(row["value"] or b""), str(row["headers"])) for row in rows)


def places(rows: list[Any]) -> set[tuple[bytes, int]]:
    return {(bytes(row["key"]), row["partition"]) for row in rows if row["key"] is not None}


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_the_connector_reads_what_was_written(spark: SparkSession, bootstrap: str, codec: str) -> None:
    """Rows would be lost, changed, or lie in other partitions than where Spark's connector puts their keys."""
    connector_jars()
    admin = Admin(bootstrap)
    ours, theirs = admin.create_topic("ours", 4, KEPT), admin.create_topic("theirs", 4, KEPT)
    write(frame_of(spark), "kbroker", bootstrap, topic=ours, kafka__compression__type=codec)
    write(frame_of(spark), "kafka", bootstrap, topic=theirs, kafka__compression__type=codec)
    found, expected = read(spark, "kafka", bootstrap, ours), read(spark, "kafka", bootstrap, theirs)
    assert len(found) == COUNT
    assert content(found) == content(expected)
    assert places(found) == places(expected)
    by_place = sorted((row["partition"], row["offset"]) for row in found)
    assert len(set(by_place)) == COUNT
    assert content(read(spark, "kbroker", bootstrap, ours)) == content(found)


def test_topics_partitions_and_times_of_rows(spark: SparkSession, kbroker_broker: BrokerProcess) -> None:
    """A copy of a topic would not be one: other partitions, other times."""
    from pyspark.sql import functions as f

    admin = Admin(kbroker_broker.bootstrap)
    topics = [admin.create_topic("row-topic", 3, KEPT) for _ in range(2)]
    frame = spark.range(300).select(
        f.when(f.col("id") % 2 == 0, topics[0]).otherwise(topics[1]).alias("topic"),
        (f.col("id") % 3).cast("int").alias("partition"),
        f.col("id").cast("string").alias("value"),
        f.timestamp_millis(f.lit(1_600_000_000_000) + f.col("id")).alias("timestamp"),
    )
    write(frame, "kbroker", kbroker_broker.bootstrap, includeTimestamp="true")
    reader = spark.read.format("kbroker").option("kafka.bootstrap.servers", kbroker_broker.bootstrap)
    found = reader.option("subscribe", ",".join(topics)).load()
    rows = found.select("topic", "partition", "value", f.unix_millis("timestamp").alias("time")).collect()
    assert len(rows) == 300
    for row in rows:
        number = int(row.value)
        assert (row.topic, row.partition) == (topics[number % 2], number % 3)
        assert row.time == 1_600_000_000_000 + number


def test_a_stream_goes_on_after_a_restart(spark: SparkSession, kbroker_broker: BrokerProcess, tmp_path: Path) -> None:
    """A stream between topics would lose what came while it was down, or write all again."""
    admin = Admin(kbroker_broker.bootstrap)
    source, target = admin.create_topic("from", 2, KEPT), admin.create_topic("to", 2, KEPT)
    for turn in range(3):
        write(frame_of(spark, 300), "kbroker", kbroker_broker.bootstrap, topic=source)
        stream = spark.readStream.format("kbroker").option("kafka.bootstrap.servers", kbroker_broker.bootstrap)
        query = (
            stream.option("subscribe", source)
            .option("startingOffsets", "earliest")
            .option("includeHeaders", "true")
            .load()
            .select("key", "value", "headers")
            .writeStream.format("kbroker")
            .option("kafka.bootstrap.servers", kbroker_broker.bootstrap)
            .option("topic", target)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(120)
        assert query.exception() is None
        found = read(spark, "kbroker", kbroker_broker.bootstrap, target)
        assert len(found) == 300 * (turn + 1)
    assert content(found) == content(read(spark, "kbroker", kbroker_broker.bootstrap, source))


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ("key", {"topic": "x"}, "no column named value"),
        ("value", {}, "nothing says where to write"),
        ("value", {"topic": "not a name"}, "cannot be the name of a topic"),
        ("value", {"topic": "x", "kafka__compression__lz4__level": "18"}, "is at most 17"),
        ("value", {"topic": "x", "kafka__acks": "some"}, "is one of"),
        ("value", {"topic": "x", "kafka__transactional__id": "t"}, "without transactions"),
        ("value", {"topic": "x", "kafka__compresion__type": "lz4"}, "did you mean kafka.compression.type"),
    ],
)
def test_what_cannot_be_written_is_told(
    spark: SparkSession, kbroker_broker: BrokerProcess, columns: str, options: dict[str, str], message: str
) -> None:
    """A mistake would show as a stack trace, or not at all."""
    with pytest.raises(Exception, match=message):
        write(frame_of(spark, 5).select(columns), "kbroker", kbroker_broker.bootstrap, **options)


def test_a_topic_that_no_broker_makes_is_told_when_the_patience_ends(spark: SparkSession, tmp_path: Path) -> None:
    """A misspelt topic would let a job wait for ever, or its rows go nowhere."""
    broker = BrokerProcess(tmp_path, {"auto.create.topics.enable": "false"}).start()
    try:
        with pytest.raises(Exception, match=r"gave up after 1 s.*nobody-made-this does not exist"):
            write(
                frame_of(spark, 5), "kbroker", broker.bootstrap, topic="nobody-made-this", kafka__max__block__ms="1000"
            )
    finally:
        broker.kill()


def test_the_documented_defaults_of_writing_are_the_code_s() -> None:
    """The table would name values that nobody has."""
    from pyspark.sql.types import StringType, StructField, StructType

    schema = StructType([StructField("value", StringType())])
    base = {"kafka.bootstrap.servers": "a:1", "topic": "t"}
    for option in WRITING.options:
        value = option.default.strip("`")
        if option.effect is Effect.TAKEN and re.fullmatch(r"[\w-]+", value) and value != "required":
            assert parse_write({**base, option.name: value}, schema) == parse_write(base, schema), option
    levels = {"kafka.compression.type": "gzip", "kafka.compression.gzip.level": "9", "kafka.compression.lz4.level": "3"}
    assert parse_write(base | levels, schema).producer.level == 9
