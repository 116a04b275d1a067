"""Topics as traces: from a running cluster, and from the segment files of a broker's disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from confluent_kafka import Producer

from kbroker.replay.traces import read_trace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.broker_process import BrokerProcess

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def test_a_topic_and_its_files_are_the_same_trace(spark: SparkSession, kbroker_broker: BrokerProcess) -> None:
    """The best trace that there is, a production broker's disk, could not be replayed, or not as it was."""
    producer = Producer({"bootstrap.servers": kbroker_broker.bootstrap})
    sent = [(f"k{number % 3}".encode(), b"value %d" % number, 1_700_000_000_000 + 10 * number) for number in range(50)]
    for key, value, time in sent:
        producer.produce("trace-source", value, key, timestamp=time, headers=[("h", key)])
    producer.produce("trace-source", None, b"gone", timestamp=1_700_000_001_000)
    assert producer.flush(60) == 0
    options = {"kafka.bootstrap.servers": kbroker_broker.bootstrap}
    topic = read_trace(spark, ["trace-source"], "kafka", options=options).rows.orderBy("source", "sequence").collect()
    read = sorted((row["key"], row["value"], row["arrival_time"] // 1000) for row in topic if row["value"] is not None)
    assert read == sorted(sent)
    tombstone = next(row for row in topic if row["value"] is None)
    assert (bytes(tombstone["key"]), tombstone["value_size"], tombstone["headers"]) == (b"gone", None, [])
    assert all([(header["key"], header["value"]) for header in row["headers"]] == [("h", row["key"])]
               for row in topic if row["value"] is not None)  # fmt: skip
    assert all(row["source"] == f"trace-source-{row['partition']}" for row in topic)
    files = read_trace(spark, [str(kbroker_broker.data_dir)], "kafka-log", options={"topics": "trace-source"})
    assert files.rows.orderBy("source", "sequence").collect() == topic
