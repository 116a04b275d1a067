"""Monitors by sarama and franz-go, which kafka_exporter and kminion are made with, see what they see at Kafka.

The programs themselves are not run: `go/monitors.go` asks what they ask, in the same versions.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compat.brokers import BrokerProcess, KbrokerProcess
from tests.compat.real_kafka import KafkaProcess
from tests.compat.tooling import go_clients
from tests.compat.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(300)]

TOPIC, PARTITIONS, RECORDS = "logs", 3, 90


def consumer(broker: BrokerProcess, group: str, **settings: str) -> Consumer:
    """A member of a group that commits when it is told."""
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            **settings,
        }
    )


@contextmanager
def member(broker: BrokerProcess, group: str, **settings: str) -> Iterator[None]:
    """A member that has all partitions, and has committed 10 of the first."""
    one = consumer(broker, group, **settings)
    try:
        one.subscribe([TOPIC])

        def has_all() -> bool:
            one.poll(0.1)
            return len(one.assignment()) == PARTITIONS

        wait_for(has_all, f"the partitions of {group}")
        one.commit(offsets=[TopicPartition(TOPIC, 0, 10)], asynchronous=False)
        yield
    finally:
        one.close()


def asked(library: str, broker: BrokerProcess) -> list[dict[str, Any]]:
    """What a monitor is told of the broker."""
    done = subprocess.run(
        [str(go_clients()), "lag", library, broker.bootstrap], capture_output=True, text=True, timeout=90, check=False
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def facts(broker: BrokerProcess) -> dict[str, list[dict[str, Any]]]:
    """What both monitors are told of a classic group, one of the newer protocol, and one whose members have left."""
    broker.start()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(30)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(RECORDS):
        producer.produce(TOPIC, str(number).encode(), partition=number % PARTITIONS, timestamp=1_700_000_000_000)
        producer.flush()
    empty = consumer(broker, "left")
    empty.commit(offsets=[TopicPartition(TOPIC, each, 30) for each in range(PARTITIONS)], asynchronous=False)
    empty.close()
    with member(broker, "classic"), member(broker, "newer", **{"group.protocol": "consumer"}):
        return {library: asked(library, broker) for library in ("sarama", "franz-go")}


def test_monitors_of_groups_are_told_what_kafka_tells_them(tmp_path: Path) -> None:
    """A monitor would show another lag, or none, or end with an error in place of its series."""
    brokers = (KbrokerProcess(tmp_path / "kbroker"), KafkaProcess(tmp_path / "kafka"))
    try:
        ours, kafkas = (facts(broker) for broker in brokers)
    finally:
        for broker in brokers:
            broker.stop()
    assert ours == kafkas
    lags = {
        each["consumergroup"]: each["lag"] for each in ours["sarama"] if "lag" in each and each.get("partition") == 0
    }
    assert lags["classic"] == lags["newer"] == RECORDS // PARTITIONS - 10
    assert lags["left"] == 0
