"""Partitions moved between log directories with Kafka's own tools, under real producers and consumers.

The broker has two log directories; on KBROKER_TEST_TARGET=kafka the same tests run against Apache Kafka.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from tests.compat.admin import Admin
from tests.compat.brokers import BrokerProcess, broker_kind
from tests.compat.tooling import run_java
from tests.compat.waiting import wait_for
from tests.scenarios.wire import Wire

TOOLS = "org.apache.kafka.tools"
REASSIGN = f"{TOOLS}.reassign.ReassignPartitionsCommand"
LOG_DIRS = f"{TOOLS}.LogDirsCommand"
SEGMENT_BYTES = 1 << 20
# A consumer that hears nothing for so long while there is something has lost it.
SILENT_SECONDS = 90


class Moving:
    """A broker with the log directories `a` and `b`, and a wire to move partitions by."""

    def __init__(self, broker: BrokerProcess, folder: Path) -> None:
        self.broker = broker
        self.a, self.b = str(folder / "a"), str(folder / "b")
        self.admin = Admin(broker.bootstrap)

    def alter(self, path: str, topic: str, partitions: list[int]) -> None:
        wire = Wire(self.broker.port)
        topics = [{"name": topic, "partitions": partitions}]
        answer = wire.ask("AlterReplicaLogDirs", 2, {"dirs": [{"path": path, "topics": topics}]})
        wire.close()
        assert [row.error_code for topic in answer.results for row in topic.partitions] == [0] * len(partitions)

    def where(self, topic: str) -> dict[str, list[tuple[int, bool]]]:
        """(partition, whether it is a copy on the move) by directory."""
        wire = Wire(self.broker.port)
        answer = wire.ask("DescribeLogDirs", 4, {"topics": None})
        wire.close()
        return {
            row.log_dir: sorted(
                (each.partition_index, each.is_future_key)
                for named in row.topics
                if named.name == topic
                for each in named.partitions
            )
            for row in answer.results
        }

    def settled(self, path: str, topic: str, partitions: list[int]) -> bool:
        return self.where(topic)[path] == [(partition, False) for partition in partitions]


@pytest.fixture(scope="module")
def moving(target: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Moving]:
    folder = tmp_path_factory.mktemp("moves")
    settings = {
        "log.dirs": f"{folder}/a,{folder}/b",
        "log.segment.bytes": str(SEGMENT_BYTES),
        "log.cleaner.backoff.ms": "100",
        "log.cleaner.min.cleanable.ratio": "0.01",
        "log.initial.task.delay.ms": "500",
        "log.segment.delete.delay.ms": "1000",
    }
    broker = broker_kind(target)(folder, settings)
    broker.start(seconds=240)
    yield Moving(broker, folder)
    assert broker.stop() == 0


def fill(moving: Moving, topic: str, partitions: int, count: int, size: int = 1000) -> None:
    producer = Producer({"bootstrap.servers": moving.broker.bootstrap, "linger.ms": 20})
    for at in range(count):
        producer.produce(topic, key=b"%d" % at, value=(b"%d " % at).ljust(size, b"."), partition=at % partitions)
        producer.poll(0)
    assert producer.flush(30) == 0


def read_all(moving: Moving, topic: str, partitions: int) -> dict[int, list[tuple[bytes | None, bytes | None]]]:
    """Key and value of everything in a topic, by partition."""
    ends = moving.admin.end_offsets(topic, partitions)
    consumer = Consumer(
        {"bootstrap.servers": moving.broker.bootstrap, "group.id": "none", "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in ends])
    found: dict[int, list[tuple[bytes | None, bytes | None]]] = {partition: [] for partition in ends}
    at_end: set[int] = set()
    while len(at_end) < partitions:
        message = consumer.poll(90)
        assert message is not None
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            at_end.add(message.partition())
        else:
            found[message.partition()].append((message.key(), message.value()))
    consumer.close()
    return found


def test_the_tools_move_partitions(moving: Moving, tmp_path: Path) -> None:
    """Operators could not balance disks with kafka-reassign-partitions and kafka-log-dirs."""
    broker = moving.broker
    topic = moving.admin.create_topic("reassigned", 3)
    fill(moving, topic, 3, 9000)
    before = read_all(moving, topic, 3)
    for target, throttle in ((moving.b, 4_000_000), (moving.a, None)):
        plan = tmp_path / "plan.json"
        rows = [
            {"topic": topic, "partition": partition, "replicas": [1], "log_dirs": [target]} for partition in range(3)
        ]
        plan.write_text(json.dumps({"version": 1, "partitions": rows}))
        shared = ("--bootstrap-server", broker.bootstrap, "--reassignment-json-file", str(plan))
        throttled = ("--replica-alter-log-dirs-throttle", str(throttle)) if throttle else ()
        done = run_java(REASSIGN, *shared, "--execute", *throttled)
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.count("Successfully started moving log directory to") == 3

        def verified(shared: tuple[str, ...] = shared) -> str:
            said = run_java(REASSIGN, *shared, "--verify")
            assert said.returncode == 0, said.stdout + said.stderr
            return said.stdout if "still in progress" not in said.stdout else ""

        said = wait_for(verified, "the moves to end")
        assert said.count("has been completed") + said.count("is complete") >= 3, said
        told = run_java(LOG_DIRS, "--bootstrap-server", broker.bootstrap, "--describe", "--topic-list", topic)
        assert told.returncode == 0, told.stderr
        described = json.loads(re.search(r"^\{.*\}$", told.stdout, re.M)[0])  # type: ignore[index]
        rows = {
            each["logDir"]: sorted((row["partition"], row["isFuture"]) for row in each["partitions"])
            for each in described["brokers"][0]["logDirs"]
        }
        assert rows[target] == [(f"{topic}-{partition}", False) for partition in range(3)]
        assert sum(map(len, rows.values())) == 3
    assert read_all(moving, topic, 3) == before


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_kafka_python_sees_where_partitions_lie(moving: Moving) -> None:
    """Scripts with kafka-python that watch disks would not find the partitions of a move."""
    from kafka import KafkaAdminClient

    topic = moving.admin.create_topic("watched", 1)
    fill(moving, topic, 1, 2000)
    client = KafkaAdminClient(bootstrap_servers=moving.broker.bootstrap)
    for target in (moving.b, moving.a, moving.b):
        moving.alter(target, topic, [0])
        wait_for(lambda path=target: moving.settled(path, topic, [0]), "the move")
    answer: Any = client.describe_log_dirs()
    found = answer.log_dirs if hasattr(answer, "log_dirs") else answer
    assert topic in str(found)
    client.close()


class Traffic:
    """An idempotent producer and a consumer in a group, each on a thread, until told to stop."""

    def __init__(self, moving: Moving, topic: str) -> None:
        self.sent = 0
        self.received: list[int] = []
        self.errors: list[str] = []
        self._topic = topic
        self._bootstrap = moving.broker.bootstrap
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=run) for run in (self._produce, self._consume)]
        for thread in self._threads:
            thread.start()

    def _produce(self) -> None:
        settings = {"bootstrap.servers": self._bootstrap, "enable.idempotence": True, "linger.ms": 1}
        producer = Producer({**settings, "error_cb": lambda error: self.errors.append(str(error))})

        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                self.errors.append(str(error))

        # A pace that leaves the log small enough to be moved often.
        while not self._stop.wait(0.0005):
            try:
                producer.produce(self._topic, value=(b"%d " % self.sent).ljust(500, b"."), on_delivery=delivered)
                self.sent += 1
            except BufferError:
                producer.poll(0.01)
            producer.poll(0)
        if producer.flush(30):
            self.errors.append("not delivered")

    def _consume(self) -> None:
        settings = {"bootstrap.servers": self._bootstrap, "group.id": self._topic, "auto.offset.reset": "earliest"}
        consumer = Consumer({**settings, "error_cb": lambda error: self.errors.append(str(error))})
        consumer.subscribe([self._topic])
        heard = time.monotonic()
        while not (self._stop.is_set() and len(self.received) >= self.sent):
            # Short, as nothing more may come: the producer may have been told to stop meanwhile.
            message = consumer.poll(0.1)
            if message is None:
                if time.monotonic() - heard < SILENT_SECONDS:
                    continue
                self.errors.append(f"nothing came for {SILENT_SECONDS} s after {len(self.received)} of {self.sent}")
                break
            if message.error():
                self.errors.append(str(message.error()))
                break
            heard = time.monotonic()
            self.received.append(int(message.value().split()[0]))
        consumer.close()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(200)


def test_clients_see_nothing_of_moves(moving: Moving) -> None:
    """A move would lose, double or reorder records, or show clients an error."""
    topic = moving.admin.create_topic("busy", 1)
    traffic = Traffic(moving, topic)
    wire = Wire(moving.broker.port)
    asked = 0

    def ask() -> None:
        nonlocal asked
        partitions = [{"partition_index": 0, "timestamp": -1}]
        body = {"replica_id": -1, "topics": [{"name": topic, "partitions": partitions}]}
        (row,) = wire.ask("ListOffsets", 4, body).topics[0].partitions
        assert row.error_code == 0
        rows = [{"partition": 0, "fetch_offset": max(0, row.offset - 5), "partition_max_bytes": 4096}]
        body = {"replica_id": -1, "max_bytes": 1 << 20, "topics": [{"topic": topic, "partitions": rows}]}
        (fetched,) = wire.ask("Fetch", 5, body).responses[0].partitions
        assert fetched.error_code == 0
        asked += 1

    def settled(path: str) -> bool:
        ask()
        return moving.settled(path, topic, [0])

    try:
        wait_for(lambda: traffic.sent > 2000 and traffic.received, "some traffic")
        for round_number in range(8):
            target = (moving.a, moving.b)[round_number % 2]
            moving.alter(target, topic, [0])
            sent = traffic.sent
            wait_for(lambda path=target: settled(path), "the move", every=0)
            wait_for(lambda many=sent: traffic.sent > many + 200, "traffic to go on")
    finally:
        traffic.stop()
        wire.close()
    assert traffic.errors == []
    assert traffic.received == list(range(traffic.sent))
    assert asked > 8
    assert traffic.sent > 3000


def test_compaction_goes_on_while_a_topic_moves(moving: Moving) -> None:
    """Moved while it is compacted, a topic would lose last values or bring deleted ones back."""
    config = {"cleanup.policy": "compact", "delete.retention.ms": "0", "min.cleanable.dirty.ratio": "0.01"}
    topic = moving.admin.create_topic("table", 1, config)
    producer = Producer({"bootstrap.servers": moving.broker.bootstrap, "linger.ms": 5})
    table: dict[bytes, bytes | None] = {}
    at = 0

    def write(count: int) -> None:
        nonlocal at
        for _ in range(count):
            key = b"k%d" % (at * 7919 % 500)
            value = None if at % 11 == 0 else (b"%d " % at).ljust(1000, b"x")
            producer.produce(topic, key=key, value=value)
            table[key] = value
            at += 1
            producer.poll(0)
        assert producer.flush(30) == 0

    write(4000)
    for round_number in range(6):
        target = (moving.a, moving.b)[round_number % 2]
        moving.alter(target, topic, [0])

        def moved(path: str = target) -> bool:
            write(300)
            return moving.settled(path, topic, [0])

        wait_for(moved, "the move")

    def compacted() -> bool:
        """Reads what is there; True once records are gone that were written over."""
        rows = read_all(moving, topic, 1)[0]
        found = dict(rows)
        assert {key: value for key, value in found.items() if value} == {
            key: value for key, value in table.items() if value
        }
        return len(rows) < at

    wait_for(compacted, "the cleaner to compact the topic")


def test_a_move_outlives_a_crash(moving: Moving) -> None:
    """Killed in the middle of a move, the broker would lose the partition or forget the move."""
    topic = moving.admin.create_topic("killed", 1)
    fill(moving, topic, 1, 20_000)
    before = read_all(moving, topic, 1)
    moving.alter(moving.a, topic, [0])
    wait_for(lambda: moving.settled(moving.a, topic, [0]), "the partition to be in a")
    moving.alter(moving.b, topic, [0])
    moving.broker.kill()
    moving.broker.start()
    wait_for(lambda: moving.where(topic)[moving.b] == [(0, False)], "the move to go on")
    assert moving.where(topic)[moving.a] == []
    assert read_all(moving, topic, 1) == before
