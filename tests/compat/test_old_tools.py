"""Kafka's console tools of older releases, and groups of old and new clients."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer

from tests.broker.client import Client
from tests.compat.old_clients import CLIENTS, OLD_LIBRDKAFKA, Rows, expected, records_of, write_by_librdkafka
from tests.compat.tooling import old_client_jars
from tests.compat.waiting import wait_for
from tests.conftest import BrokerProcess, StartBroker

RELEASES = ("0.10.2.2", "1.1.1", "2.8.2")
# The tools that ask brokers alone; before 2.2 kafka-topics asks ZooKeeper.
WITH_TOPICS = ("2.8.2",)
COUNT = 60


def tool(release: str, java_class: str, *args: str, stdin: str = "") -> str:
    """What one of the tools prints."""
    options = ["-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
    command = ["java", *options, "-cp", f"{old_client_jars(release, 'tools')}/*", java_class, *args]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, f"{command}:\n{done.stdout[-1500:]}\n{done.stderr[-3000:]}"
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("release", RELEASES)
def test_the_console_tools_of_an_old_release(module_broker: BrokerProcess, release: str) -> None:
    """Scripts around the tools of a release that is on a machine for years would stop working."""
    topic, group = f"console-{release}", f"console-group-{release}"
    broker = module_broker.bootstrap
    if release in WITH_TOPICS:
        topics = ("kafka.admin.TopicCommand", "--bootstrap-server", broker)
        tool(release, *topics, "--create", "--topic", topic, "--partitions", "2", "--replication-factor", "1")
        assert topic in tool(release, *topics, "--list").split()
        described = tool(release, *topics, "--describe", "--topic", topic)
        assert "PartitionCount: 2" in described and described.count("Leader: ") == 2
        tool(release, *topics, "--alter", "--topic", topic, "--partitions", "3")
        assert "PartitionCount: 3" in tool(release, *topics, "--describe", "--topic", topic)
    else:
        with Client(module_broker.port) as client:
            client.create(topic, 3)
    lines = [f"line {number}" for number in range(COUNT)]
    for codec in ("none", "gzip"):
        text = "".join(f"{codec} {line}\n" for line in lines)
        producer = ("kafka.tools.ConsoleProducer", "--broker-list", broker, "--topic", topic)
        tool(release, *producer, "--compression-codec", codec, stdin=text)
    found = tool(
        release,
        "kafka.tools.ConsoleConsumer",
        *("--bootstrap-server", broker, "--topic", topic, "--from-beginning", "--max-messages", str(2 * COUNT)),
        *("--timeout-ms", "30000", "--consumer-property", f"group.id={group}"),
    )
    assert sorted(found.splitlines()) == sorted(f"{codec} {line}" for codec in ("none", "gzip") for line in lines)
    groups = ("kafka.admin.ConsumerGroupCommand", "--bootstrap-server", broker)
    assert group in tool(release, *groups, "--list").split()
    described = tool(release, *groups, "--describe", "--group", group)
    rows = [line.split() for line in described.splitlines() if topic in line]
    # The columns of a partition: its committed offset, its end, the lag.
    first = rows[0].index(topic) + 2
    assert sum(int(row[first]) for row in rows) == 2 * COUNT
    assert all(row[first + 2] == "0" for row in rows)
    if release in WITH_TOPICS:
        tool(release, *groups, "--delete", "--group", group)
        assert group not in tool(release, *groups, "--list").split()
        tool(release, *topics, "--delete", "--topic", topic)
        assert topic not in tool(release, *topics, "--list").split()


def librdkafka(**values: object) -> Callable[[str, str], Consumer]:
    """A consumer of librdkafka with these settings."""
    return lambda bootstrap, group: Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": "range",
            **values,
        }
    )


class _Member(threading.Thread):
    """Polls until it is stopped."""

    def __init__(self, consumer: Consumer, topic: str) -> None:
        super().__init__()
        self.consumer = consumer
        self.assigned: list[int] = []
        self.records: Rows = set()
        self.stopped = threading.Event()
        consumer.subscribe([topic], on_assign=self._assigned)

    def _assigned(self, _: Consumer, partitions: list[object]) -> None:
        self.assigned.append(len(partitions))

    def run(self) -> None:
        while not self.stopped.is_set():
            for each in self.consumer.consume(50, 0.1):
                assert not each.error(), each.error()
                self.records.add((each.key().decode(), each.value().decode()))
        self.consumer.close()


# The codec is one that both have.
MIXED = {
    "java-0.10.2 and librdkafka": ("java-0.10.2", {}, "lz4"),
    "java-0.10.2 and librdkafka as for 0.9": ("java-0.10.2", OLD_LIBRDKAFKA, "snappy"),
    "java-1.1 and librdkafka": ("java-1.1", {}, "lz4"),
    "kafka-python 1.4 as for 0.9 and librdkafka": ("kafka-python-1.4-as-0.9", {}, "none"),
}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", MIXED)
def test_an_old_and_a_new_client_share_a_group(kbroker_process: StartBroker, name: str) -> None:
    """A service that is upgraded instance by instance has both in one group, in different versions of each request."""
    kind, values, codec = MIXED[name]
    broker = kbroker_process({"group.initial.rebalance.delay.ms": "500"})
    with Client(broker.port) as client:
        client.create("mixed", 4)
    write_by_librdkafka(broker.bootstrap, "mixed", "gzip")
    new = _Member(librdkafka(**values)(broker.bootstrap, "mixed-group"), "mixed")
    new.start()
    try:
        wait_for(lambda: 4 in new.assigned, "the new client to have all partitions")
        old = subprocess.Popen(
            CLIENTS[kind][0]("share", broker.bootstrap, "mixed", "22", "mixed-group"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            wait_for(lambda: 2 in new.assigned, "the old client to have its share")
            write_by_librdkafka(broker.bootstrap, "mixed", codec)
            out, errors = old.communicate(timeout=180)
        finally:
            old.kill()
        assert old.returncode == 0, errors[-3000:]
        wait_for(lambda: new.assigned[-1] == 4, "all partitions to come back")
        lines = [line.split() for line in out.splitlines()]
        assert ["assigned", "2"] in lines, lines
        wait_for(lambda: records_of(lines) | new.records >= expected("gzip", codec), "all records")
        assert records_of(lines) & expected(codec)
        assert new.records & expected(codec)
    finally:
        new.stopped.set()
        new.join(30)


def test_members_that_take_the_broker_for_0_9_share_a_group(module_broker: BrokerProcess) -> None:
    """Members that ask for no versions would not come to one generation."""
    with Client(module_broker.port) as client:
        client.create("for-0.9", 4)
    write_by_librdkafka(module_broker.bootstrap, "for-0.9", "none", **OLD_LIBRDKAFKA)
    start = librdkafka(**OLD_LIBRDKAFKA)
    members = [_Member(start(module_broker.bootstrap, "group-for-0.9"), "for-0.9") for _ in range(2)]
    for member in members:
        member.start()
    try:
        wait_for(lambda: all(member.assigned[-1:] == [2] for member in members), "each to have its share")
        wait_for(lambda: members[0].records | members[1].records == expected("none"), "all records")
    finally:
        for member in members:
            member.stopped.set()
        for member in members:
            member.join(30)
