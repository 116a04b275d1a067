"""Columns decoded by schemas in Spark's executors: `kbroker.replay.decoding`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kbroker.registry.wire_format import PREFIX
from kbroker.replay import decoded
from kbroker.replay.decoding import NO_SCHEMA
from tests.registry.stand_in import stand_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.broker_process import BrokerProcess

pytestmark = pytest.mark.spark


def test_values_of_a_topic_are_decoded_by_a_registry(spark: SparkSession, broker: BrokerProcess) -> None:
    """A user would have to write a decoder for each topic."""
    from confluent_kafka import Producer

    topic = broker.create_topic("decoded", 2)
    with stand_in() as registry:
        registry.user_info = "user:secret"
        number = registry.add(
            "decoded-value", '{"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}'
        )
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for value in (PREFIX.pack(0, number) + b"\x0e", PREFIX.pack(0, 99) + b"x", b"plain", None):
            producer.produce(topic, value, "k")
        assert producer.flush(30) == 0
        frame = (
            spark.read.format("kbroker")
            .option("kafka.bootstrap.servers", broker.bootstrap)
            .option("subscribe", topic)
            .option("includeHeaders", "true")
            .load()
            .select(
                "offset",
                decoded("value", registry=registry.url, user_info="user:secret", headers="headers").alias("read"),
            )
            .orderBy("offset")
        )
        rows = [row["read"] and row["read"].asDict() for row in frame.collect()]
        assert rows[0] == {"json": '{"n": 7}', "schema": str(number), "problem": ""}
        assert (rows[1]["json"], rows[1]["schema"]) == (None, "99")
        assert "has no schema 99" in rows[1]["problem"]
        assert rows[2] == {"json": None, "schema": "", "problem": NO_SCHEMA}
        assert rows[3] is None
        plan = frame._jdf.queryExecution().toString()
        assert "secret" not in plan


def test_values_are_decoded_by_a_file(spark: SparkSession, tmp_path: Path) -> None:
    """Who has no registry could not use it."""
    path = tmp_path / "text.avsc"
    path.write_text('"string"')
    frame = spark.createDataFrame([(b"\x02a",), (b"\x08a",), (None,)], "value binary")
    rows = [row[0] for row in frame.select(decoded(frame.value, schema_file=str(path))).collect()]
    assert (rows[0]["json"], rows[0]["schema"]) == ('"a"', "text.avsc")
    assert rows[1]["json"] is None
    assert "not Avro of this schema" in rows[1]["problem"]
    assert rows[2] is None


def test_what_to_decode_by_is_said_once(spark: SparkSession) -> None:
    """A mistake would show nothing but nulls."""
    with pytest.raises(ValueError, match="registry or schema_file"):
        decoded("value")
    with pytest.raises(ValueError, match=r"ends in \.avsc"):
        decoded("value", schema_file="x.txt")
