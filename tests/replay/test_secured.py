"""Spark's source, sink and mirror at a broker with TLS, users and ACLs, by the options of Spark's own Kafka connector.

Also of `kbroker.replay.sources.security_options`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from kbroker.replay.mirror import MirrorRequest, mirror_once
from kbroker.testing import Security
from tests.broker_process import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("secured"), security=Security()) as broker:
        yield broker


def options(broker: BrokerProcess) -> dict[str, str]:
    """What a job has that was written for Spark's connector."""
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    return {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": f'{module} required username="admin" password="admin-secret";',
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(broker.directory / "tls" / "ca.pem"),
    }


def test_rows_go_there_and_back(spark: SparkSession, secured: BrokerProcess) -> None:
    """Jobs could not use a cluster that has security."""
    secured.create_topic("rows", 2)
    kafka = {"kafka.bootstrap.servers": secured.bootstrap, **options(secured)}
    rows = [(f"k{number}", f"v{number}") for number in range(500)]
    frame = spark.createDataFrame(rows, "key string, value string")
    frame.write.format("kbroker").options(**kafka).option("topic", "rows").mode("append").save()
    found = spark.read.format("kbroker").options(**kafka).option("subscribe", "rows").load()
    pairs = found.selectExpr("cast(key as string)", "cast(value as string)").collect()
    assert sorted(map(tuple, pairs)) == sorted(rows)


def test_without_a_login_the_reason_is_said(spark: SparkSession, secured: BrokerProcess) -> None:
    """A job would fail with a time-out, and no hint at a password."""
    kafka = {"kafka.bootstrap.servers": secured.bootstrap, **options(secured)}
    wrong = {**kafka, "kafka.sasl.jaas.config": kafka["kafka.sasl.jaas.config"].replace("admin-secret", "wrong")}
    with pytest.raises(Exception, match="Authentication failed"):
        spark.read.format("kbroker").options(**wrong).option("subscribe", "rows").load().count()


def test_topics_are_mirrored_into_a_secured_cluster(
    spark: SparkSession, broker: BrokerProcess, secured: BrokerProcess, tmp_path: Path
) -> None:
    """A copy could be made of open clusters alone."""
    from confluent_kafka import Producer

    broker.create_topic("copied", 2)
    producer = Producer(broker.client_settings())
    for number in range(100):
        producer.produce("copied", str(number))
    assert producer.flush(30) == 0
    request = MirrorRequest(
        source=broker.bootstrap,
        target=secured.bootstrap,
        topics=("copied",),
        state=str(tmp_path / "state"),
        target_options=options(secured),
    )
    mirror_once(spark, request)
    assert sum(end for _, end in secured.offsets("copied").values()) == 100
