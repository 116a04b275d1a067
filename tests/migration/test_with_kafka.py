"""From Apache Kafka to kbroker and back, on the same directories: real Kafka 4.3.1, and 3.9.1 with KRaft and ZooKeeper.

What Kafka's own tools say of topics, settings, quotas and groups, and all records, are compared at each stop.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compat.brokers import BrokerProcess, KbrokerProcess
from tests.compat.interchange import consume, transact
from tests.compat.old_kafka import OldKafka, zookeeper
from tests.compat.real_kafka import KafkaProcess
from tests.compat.tooling import ROOT, run_java
from tests.compat.waiting import wait_for
from tests.migration.kafka_data import log_sums

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(1200)]

SETTINGS = {"transaction.state.log.num.partitions": "2", "offsets.topic.num.partitions": "3"}
CONFIGS = "kafka.admin.ConfigCommand"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
TOPICS = ("orders", "state", "single")
ENTITIES = (
    ("--entity-type", "clients", "--entity-name", "app"),
    ("--entity-type", "users", "--entity-default"),
    ("--entity-type", "ips", "--entity-default"),
)
LIMITS = (
    "producer_byte_rate=1000000,consumer_byte_rate=2000000",
    "request_percentage=50",
    "connection_creation_rate=99",
)


def tool(broker: BrokerProcess, java_class: str, *words: str) -> str:
    """What one of Kafka's tools prints."""
    done = run_java(java_class, "--bootstrap-server", broker.bootstrap, *words, seconds=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def kbroker(*words: str | Path) -> str:
    """What a command of kbroker prints."""
    command = [sys.executable, "-m", "kbroker.cli", *map(str, words)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def fill(broker: BrokerProcess) -> None:
    """Topics, records of all kinds, an open transaction, a group, settings and quotas."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    topics = [
        NewTopic("orders", 3, 1, config={"retention.ms": "86400000000", "segment.bytes": "1048576"}),
        NewTopic("state", 2, 1, config={"cleanup.policy": "compact"}),
        NewTopic("single", 1, 1),
    ]
    for future in admin.create_topics(topics).values():
        future.result(30)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "compression.type": "lz4"})
    for number in range(3000):
        producer.produce("orders", f"order {number} ".encode() * 60, str(number).encode(), number % 3)
        producer.produce("state", str(number).encode(), f"key {number % 20}".encode())
        producer.poll(0)
    assert producer.flush(60) == 0
    transact(broker.bootstrap, "single", "committed", commit=True)
    transact(broker.bootstrap, "single", "aborted", commit=False)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "readers", "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition("orders", each, 100 + each) for each in range(3)], asynchronous=False)
    consumer.close()
    for entity, limit in zip(ENTITIES, LIMITS, strict=True):
        tool(broker, CONFIGS, "--alter", *entity, "--add-config", limit)
    all_brokers = ("--entity-type", "brokers", "--entity-default")
    tool(broker, CONFIGS, "--alter", *all_brokers, "--add-config", "log.retention.ms=987654321")
    credential = "SCRAM-SHA-256=[iterations=4096,password=secret]"
    tool(broker, CONFIGS, "--alter", "--entity-type", "users", "--entity-name", "alice", "--add-config", credential)


def shown(broker: BrokerProcess) -> dict[str, object]:
    """What Kafka's tools and a consumer find."""
    found: dict[str, object] = {}
    described = tool(broker, "org.apache.kafka.tools.TopicCommand", "--describe")
    rows = re.findall(r"Topic: (\S+)\s+TopicId: (\S+)\s+PartitionCount: (\d+)\s+ReplicationFactor: (\d+)", described)
    found["topics"] = sorted(rows)
    found["leaders"] = sorted(
        re.findall(r"Topic: (\S+)\s+Partition: (\d+)\s+Leader: (\d+)\s+Replicas: (\d+)\s+Isr: (\d+)", described)
    )
    for topic in (*TOPICS, "__consumer_offsets"):
        text = tool(broker, CONFIGS, "--describe", "--entity-type", "topics", "--entity-name", topic)
        found[f"settings of {topic}"] = sorted(re.findall(r"^  (\S+)=(\S+) sensitive", text, re.MULTILINE))
    for entity in ENTITIES:
        text = tool(broker, CONFIGS, "--describe", *entity)
        found[" ".join(entity)] = sorted(re.findall(r"(\w+=[\d.]+)", text))
    text = tool(broker, CONFIGS, "--describe", "--entity-type", "brokers", "--entity-default")
    found["settings of brokers"] = re.findall(r"log.retention.ms=\d+", text)
    text = tool(
        broker, "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", "--describe", "--group", "readers"
    )
    found["group"] = sorted(re.findall(r"^readers +(\S+) +(\d+) +(\d+) +(\d+) +(\d+)", text, re.MULTILINE))
    found["transactions"] = sorted(
        re.findall(r"^(committed|aborted) ", tool(broker, "org.apache.kafka.tools.TransactionsCommand", "list"), re.M)
    )
    found["single"] = consume(broker.bootstrap, "single", "read_committed")
    found["orders"] = consume(broker.bootstrap, "orders")
    return found


def changed(broker: BrokerProcess) -> dict[str, object]:
    """What they find once kbroker has written a record and made a topic."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("orders", b"written by kbroker", partition=0)
    assert producer.flush(30) == 0
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("new", 2, 1)])["new"].result(30)
    return shown(broker)


def adopt(broker: BrokerProcess, data: Path) -> None:
    """Lets a broker have the directories of another one."""
    if broker.data != data:
        broker.data.parent.mkdir(parents=True, exist_ok=True)
        broker.data.symlink_to(data)


@pytest.mark.parametrize("release", ["4.3.1", "3.9.1"])
def test_there_and_back_on_the_same_directories(tmp_path: Path, release: str) -> None:
    """Who moves to kbroker, or back, would lose topics, settings, quotas, offsets or records, or not start at all."""
    kinds: dict[str, Callable[..., BrokerProcess]] = {"4.3.1": KafkaProcess, "3.9.1": OldKafka}
    kafka = kinds[release](tmp_path / "kafka", SETTINGS)
    kafka.start(180)
    try:
        fill(kafka)
        expected = shown(kafka)
    finally:
        kafka.stop()
    logs = log_sums([kafka.data])
    text = kbroker("import", kafka.data)
    assert "1 users with SCRAM credentials" in text and "readers" in text and log_sums([kafka.data]) == logs
    broker = KbrokerProcess(tmp_path / "kbroker", SETTINGS)
    adopt(broker, kafka.data)
    broker.start(60)
    try:
        assert shown(broker) == expected
        expected = changed(broker)
    finally:
        broker.stop()
    logs = log_sums([kafka.data])
    kbroker("export", kafka.data, "--in-place", "--kafka-version", release)
    assert log_sums([kafka.data]) == logs
    kafka.start(180)
    try:
        assert shown(kafka) == expected
        users = tool(kafka, CONFIGS, "--describe", "--entity-type", "users", "--entity-name", "alice")
        assert "SCRAM-SHA-256=iterations=4096" in users
        kafka.restart()
        assert shown(kafka) == expected
    finally:
        kafka.stop()


def test_a_broker_that_kafka_never_wrote_to_becomes_kafkas(tmp_path: Path) -> None:
    """Who began with kbroker could not leave it."""
    broker = KbrokerProcess(tmp_path / "kbroker", SETTINGS)
    broker.start(60)
    try:
        fill_settings = ("--entity-type", "clients", "--entity-name", "app")
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for future in admin.create_topics(
            [NewTopic(each, 3 if each == "orders" else 1, 1) for each in TOPICS]
        ).values():
            future.result(30)
        transact(broker.bootstrap, "single", "committed", commit=True)
        transact(broker.bootstrap, "single", "aborted", commit=False)
        tool(broker, CONFIGS, "--alter", *fill_settings, "--add-config", "producer_byte_rate=5")
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "readers"})
        consumer.commit(offsets=[TopicPartition("single", 0, 7)], asynchronous=False)
        consumer.close()
        expected = shown(broker)
    finally:
        broker.stop()
    kafka = KafkaProcess(tmp_path / "kafka", SETTINGS)
    kbroker("export", broker.data, "--to", kafka.data)
    assert log_sums([kafka.data]) == log_sums([broker.data])
    kafka.start(180)
    try:
        assert shown(kafka) == expected
    finally:
        kafka.stop()
    broker.start(60)
    try:
        assert shown(broker) == expected
    finally:
        broker.stop()


def test_a_kafka_that_was_killed_is_taken_over(tmp_path: Path) -> None:
    """A Kafka that lost its power, or its machine, would be lost with its metadata."""
    kafka = KafkaProcess(tmp_path / "kafka", SETTINGS)
    kafka.start(180)
    try:
        fill(kafka)
        expected = shown(kafka)
    finally:
        kafka.kill()
    broker = KbrokerProcess(tmp_path / "kbroker", SETTINGS)
    text = kbroker("import", kafka.data, "--to", broker.data)
    assert "Kafka did not end in order" in text
    broker.start(60)
    try:
        assert shown(broker) == expected
    finally:
        broker.stop()


def test_a_broker_with_zookeeper_is_taken_over(tmp_path: Path) -> None:
    """Who still has ZooKeeper would set all settings and quotas again by hand."""
    with zookeeper(tmp_path / "zookeeper") as connect:
        kafka = OldKafka(tmp_path / "kafka", SETTINGS, connect)
        kafka.start(180)
        try:
            fill(kafka)
            expected = shown(kafka)
        finally:
            kafka.stop()
        without = kbroker("import", kafka.data, "--dry-run")
        assert "--zookeeper" in without and "orders" in without
        text = kbroker("import", kafka.data, "--to", tmp_path / "kbroker" / "data", "--zookeeper", connect)
        assert "1 users with SCRAM credentials" in text
    broker = KbrokerProcess(tmp_path / "kbroker", SETTINGS)
    broker.start(60)
    try:
        found = shown(broker)
    finally:
        broker.stop()
    # This broker has the state topics' settings by default, which ZooKeeper's controller writes down as Kafka's does.
    assert found == expected
    shutil.rmtree(broker.data)


def test_a_running_kafka_is_refused(tmp_path: Path) -> None:
    """Two brokers would write into the same segments."""
    kafka = KafkaProcess(tmp_path / "kafka", SETTINGS)
    kafka.start(180)
    try:
        command = [sys.executable, "-m", "kbroker.cli", "import", str(kafka.data)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
        assert kafka.process is not None
        assert done.returncode == 1 and f"process {kafka.process.pid}" in done.stderr
        start = [sys.executable, "-m", "kbroker.cli", "start", "--override", f"log.dirs={kafka.data}"]
        done = subprocess.run(start, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 1 and "is in use by another broker" in done.stdout + done.stderr
        wait_for(lambda: kafka.alive, "Kafka to go on")
    finally:
        kafka.stop()


def of_own_quorum(folder: Path, kafka: KafkaProcess) -> KbrokerProcess:
    """A kbroker that is broker and controller, with the directories and the quorum of a Kafka that is stopped."""
    names = ("process.roles", "controller.quorum.voters", "controller.listener.names")
    kafka.command()
    written = dict(each.split("=", 1) for each in (kafka.folder / "server.properties").read_text().splitlines())
    broker = KbrokerProcess(folder, {**SETTINGS, **{name: written[name] for name in names}})
    broker.settings["listeners"] = f"PLAINTEXT://127.0.0.1:{broker.port},CONTROLLER://127.0.0.1:{kafka.controller_port}"
    adopt(broker, kafka.data)
    return broker


def quorum_status(broker: BrokerProcess) -> list[str]:
    """The leader and the voters that Kafka's tool shows."""
    text = tool(broker, "org.apache.kafka.tools.MetadataQuorumCommand", "describe", "--status")
    return re.findall(r"^(LeaderId: +\d+|CurrentVoters: .*)$", text, re.MULTILINE)


def test_a_node_of_its_own_quorum_and_kafka_take_turns_on_the_same_directories(tmp_path: Path) -> None:
    """Who has broker and controller in one process could not change to kbroker without an import, or back without an
    export."""
    kafka = KafkaProcess(tmp_path / "kafka", SETTINGS)
    kafka.start(180)
    try:
        fill(kafka)
        expected, quorum = shown(kafka), quorum_status(kafka)
    finally:
        kafka.stop()
    broker = of_own_quorum(tmp_path / "kbroker", kafka)
    broker.start(60)
    try:
        assert shown(broker) == expected and quorum_status(broker) == quorum
        expected = changed(broker)
        broker.kill()
        broker.start(60)
        assert shown(broker) == expected
    finally:
        broker.stop()
    kafka.start(180)
    try:
        assert shown(kafka) == expected and quorum_status(kafka) == quorum
        users = tool(kafka, CONFIGS, "--describe", "--entity-type", "users", "--entity-name", "alice")
        assert "SCRAM-SHA-256=iterations=4096" in users
    finally:
        kafka.kill()
    broker.start(60)
    try:
        assert shown(broker) == expected
    finally:
        broker.stop()


def test_an_earlier_kbroker_is_kafkas_once_it_was_its_own_controller(tmp_path: Path) -> None:
    """Kafka would refuse, or misread, the log that an earlier store has become."""
    broker = KbrokerProcess(tmp_path / "kbroker", SETTINGS)
    broker.start(60)
    try:
        fill(broker)
        expected = shown(broker)
    finally:
        broker.kill()
    kafka = KafkaProcess(tmp_path / "kafka", SETTINGS)
    kafka.data.symlink_to(broker.data)
    controller = of_own_quorum(tmp_path / "controller", kafka)
    controller.start(60)
    try:
        assert shown(controller) == expected
    finally:
        controller.stop()
    kafka.start(180)
    try:
        assert shown(kafka) == expected
    finally:
        kafka.stop()
