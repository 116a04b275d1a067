"""Clients of 0.8 to 3.9 for real: each writes in its codecs, reads what it and others wrote, and shares a group."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.broker.client import Client
from tests.compat.old_clients import (
    CLIENTS,
    COUNT,
    OLD_LIBRDKAFKA,
    SIMPLE,
    Rows,
    expected,
    records_of,
    run,
    write_by_librdkafka,
)
from tests.conftest import BrokerProcess, StartBroker

PARTITIONS = 3


SHARING = ["java-0.10.2", "java-2.8", "kafka-python-1.4-as-0.9", *(name for name in CLIENTS if "confluent" in name)]


def read_by_librdkafka(bootstrap: str, topic: str, count: int, **values: object) -> Rows:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", **values})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    found: Rows = set()
    deadline = time.monotonic() + 90
    while len(found) < count and time.monotonic() < deadline:
        for each in consumer.consume(100, 0.2):
            assert not each.error(), each.error()
            found.add(((each.key() or b"").decode(), (each.value() or b"").decode()))
    consumer.close()
    return found


@pytest.fixture(name="topic")
def _topic(module_broker: BrokerProcess, request: pytest.FixtureRequest) -> Iterator[str]:
    name = request.node.name.translate(str.maketrans("[]", "--")).strip("-")[:200]
    with Client(module_broker.port) as client:
        client.create(name, PARTITIONS)
    yield name


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", CLIENTS)
def test_an_old_client_writes_and_reads(module_broker: BrokerProcess, topic: str, name: str) -> None:
    """Programs that nobody can rebuild would stop working, or lose records."""
    command, codecs = CLIENTS[name]
    for codec in codecs:
        run(command("produce", module_broker.bootstrap, topic, str(COUNT), codec))
    rows = expected(*codecs)
    assert read_by_librdkafka(module_broker.bootstrap, topic, len(rows)) == rows
    lines = run(command("consume", module_broker.bootstrap, topic, str(len(rows)), f"group-{topic}"))
    assert records_of(lines) == rows


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_clients_of_0_8_write_read_and_commit(module_broker: BrokerProcess, topic: str) -> None:
    """The oldest programs that speak this protocol could not work: message sets of magic 0 in versions 0 of all."""
    codecs = ("none", "gzip", "snappy")
    for codec in codecs:
        run(SIMPLE("produce", module_broker.bootstrap, topic, str(COUNT), codec))
    rows = expected(*codecs)
    assert read_by_librdkafka(module_broker.bootstrap, topic, len(rows)) == rows
    # Batches of today reach it, too.
    write_by_librdkafka(module_broker.bootstrap, topic, "lz4")
    rows |= expected("lz4")
    lines = run(SIMPLE("consume", module_broker.bootstrap, topic, str(len(rows)), "old-group"))
    assert records_of(lines) == rows
    committed = {(line[1], line[2]): int(line[3]) for line in lines if line[0] == "committed"}
    assert len(committed) == 2 * PARTITIONS
    for version in "01":
        assert sum(committed[version, str(each)] for each in range(PARTITIONS)) == len(rows)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
def test_librdkafka_that_takes_the_broker_for_0_9(module_broker: BrokerProcess, topic: str, codec: str) -> None:
    """Clients set up for brokers of 0.9, which ask for no versions, would get bytes that they cannot read."""
    values = dict(OLD_LIBRDKAFKA)
    write_by_librdkafka(module_broker.bootstrap, topic, codec, **values)
    assert read_by_librdkafka(module_broker.bootstrap, topic, COUNT, **values) == expected(codec)
    assert read_by_librdkafka(module_broker.bootstrap, topic, COUNT) == expected(codec)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", SHARING)
def test_old_clients_share_a_group(kbroker_process: StartBroker, name: str) -> None:
    """Each would read everything, or one would starve: members of the oldest versions must be balanced, too."""
    broker = kbroker_process({"group.initial.rebalance.delay.ms": "3000"})
    with Client(broker.port) as client:
        client.create("shared", 4)
    write_by_librdkafka(broker.bootstrap, "shared", "none")
    command = CLIENTS[name][0]
    members = [
        subprocess.Popen(
            command("share", broker.bootstrap, "shared", "30", "sharers"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    printed = [member.communicate(timeout=180) for member in members]
    assert [member.returncode for member in members] == [0, 0], printed
    lines = [[line.split() for line in out.splitlines()] for out, _ in printed]
    assert [["assigned", "2"] in each for each in lines] == [True, True], lines
    assert records_of(lines[0]) | records_of(lines[1]) == expected("none")
