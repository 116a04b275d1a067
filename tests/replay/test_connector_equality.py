"""Spark's own Kafka connector and this source read the same topics of kbroker and of real Kafka: equal row for row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.compat.admin import Admin
from tests.replay.connector import connector_jars
from tests.replay.odd_topics import CODECS, produce_odd, produce_transactions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

# The records are older than any retention.
KEPT = {"retention.ms": "-1"}
EVERYTHING = {"startingOffsets": "earliest", "includeHeaders": "true"}


def read(spark: SparkSession, kind: str, bootstrap: str, **options: str) -> DataFrame:
    reader = spark.read.format(kind).option("kafka.bootstrap.servers", bootstrap)
    for name, value in options.items():
        reader = reader.option(name.replace("__", "."), value)
    return reader.load()


def rows(frame: DataFrame) -> list[Any]:
    return sorted(
        (row.asDict(recursive=True) for row in frame.collect()),
        key=lambda row: (row["topic"], row["partition"], row["offset"]),
    )


def compare(spark: SparkSession, bootstrap: str, **options: str) -> list[Any]:
    """The rows, after both readers have given the same."""
    connector_jars()
    theirs = read(spark, "kafka", bootstrap, **options)
    ours = read(spark, "kbroker", bootstrap, **options)
    assert ours.schema == theirs.schema
    found = rows(ours)
    assert found == rows(theirs)
    return found


def test_all_kinds_of_records(spark: SparkSession, bootstrap: str) -> None:
    """A job moved from Spark's connector would see other rows: null for an empty key, a header lost, a time shifted."""
    topic = Admin(bootstrap).create_topic("odd", 3, KEPT)
    for codec in CODECS:
        produce_odd(bootstrap, topic, codec, 3, 300)
    found = compare(spark, bootstrap, subscribe=topic, **EVERYTHING)
    assert len(found) == 300 * len(CODECS)
    assert {row["key"] is None for row in found} == {True, False}
    assert any(row["headers"] and row["headers"][0]["value"] is None for row in found)


def test_the_broker_s_own_time(spark: SparkSession, bootstrap: str) -> None:
    """Jobs that sort by arrival would sort by what producers say."""
    topic = Admin(bootstrap).create_topic("appended", 1, {"message.timestamp.type": "LogAppendTime", **KEPT})
    produce_odd(bootstrap, topic, "none", 1, 50)
    produce_odd(bootstrap, topic, "zstd", 1, 50)
    assert {row["timestampType"] for row in compare(spark, bootstrap, subscribe=topic, **EVERYTHING)} == {1}


def test_ranges_patterns_and_splits(spark: SparkSession, bootstrap: str) -> None:
    """A job that reads a range would read a record more or less than before."""
    admin = Admin(bootstrap)
    first, second = admin.create_topic("ranged", 2, KEPT), admin.create_topic("ranged", 1, KEPT)
    for topic, partitions in ((first, 2), (second, 1)):
        produce_odd(bootstrap, topic, "lz4", partitions, 300)
    one = f'{{"{first}":{{"0":17,"1":-2}},"{second}":{{"0":5}}}}'
    end = f'{{"{first}":{{"0":101,"1":-1}},"{second}":{{"0":6}}}}'
    both = f"{first}, {second}"
    found = compare(spark, bootstrap, subscribe=both, startingOffsets=one, endingOffsets=end, minPartitions="7")
    assert len(found) == 84 + 150 + 1
    assigned = f'{{"{first}":[1],"{second}":[0]}}'
    times = {"startingTimestamp": "1700000001000", "endingTimestamp": "1700000002000"}
    assert 0 < len(compare(spark, bootstrap, assign=assigned, **times)) < 450
    late = {"startingTimestamp": "1700000004990", "startingOffsetsByTimestampStrategy": "latest"}
    assert len(compare(spark, bootstrap, subscribePattern=f"{first}|{second}", **late)) < 600
    # A part of the names is enough.
    assert len(compare(spark, bootstrap, subscribePattern="ange")) == 600
    split = read(spark, "kbroker", bootstrap, subscribe=first, maxRecordsPerPartition="40")
    assert split.rdd.getNumPartitions() == 8
    assert split.count() == 300


def test_aborted_transactions_are_left_out(spark: SparkSession, bootstrap: str) -> None:
    """A job with read_committed would count what was taken back."""
    topic = Admin(bootstrap).create_topic("transactions", 1)
    produce_transactions(bootstrap, topic, lambda number: number % 3 != 1)
    everything = compare(spark, bootstrap, subscribe=topic, kafka__isolation__level="read_uncommitted")
    committed = compare(spark, bootstrap, subscribe=topic, kafka__isolation__level="read_committed")
    assert len(everything) == 8 * 21
    assert len(committed) == 5 * 20 + 8
    assert {bytes(row["key"]) for row in committed} == {b"0", b"2", b"3", b"5", b"6", b"plain"}
