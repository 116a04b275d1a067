"""Partition directories carried between brokers: written by one, opened and consumed by the other.

A directory is carried as an operator would: the topic is made anew on the other side, that broker is stopped, the
partition's files take the place of its empty ones (all but `partition.metadata`, which binds a directory to a topic
id), its row in `log-start-offset-checkpoint` is taken over, and it is started.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.compat.admin import Admin
from tests.compat.brokers import BrokerProcess, KbrokerProcess
from tests.compat.interchange import Read, consume, transact
from tests.compat.old_kafka import OldKafka, zookeeper
from tests.compat.real_kafka import KafkaProcess
from tests.compat.records import CODECS
from tests.compat.tooling import run_java
from tests.compat.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

# Several segments and many index entries in little data.
SMALL = {"segment.bytes": "1048576", "index.interval.bytes": "200"}
BOUND_TO_THE_TOPIC = "partition.metadata"
LOG_STARTS = "log-start-offset-checkpoint"
# Within the first segment: without its row in that file these records would be back.
DELETED = 30
# Either cluster counts its producer ids from 0: one that is new on the second side may be known to the partition.
WITHOUT_ID = {"enable.idempotence": False}
ISOLATIONS = ("read_committed", "read_uncommitted")


def produce(bootstrap: str, topic: str, prefix: str, **settings: Any) -> None:
    """40 records of every codec, each codec by an idempotent producer of its own."""
    for codec in CODECS:
        given = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "compression.type": codec}
        producer = Producer({**given, "linger.ms": 5, "batch.num.messages": 15, **settings})
        for number in range(40):
            key = None if number % 5 == 0 else f"{prefix}-{codec}-{number % 7}".encode()
            value = None if number % 6 == 0 else (f"{codec} {number} ".encode() * (1 + number * 7))
            producer.produce(topic, key=key, value=value, headers=[("n", str(number).encode()), ("none", None)])
        assert producer.flush(30) == 0


def producers(bootstrap: str, topic: str) -> set[tuple[int, int, int]]:
    """Id, epoch and last sequence of every producer that the partition knows."""

    tool = "org.apache.kafka.tools.TransactionsCommand"
    arguments = ("--bootstrap-server", bootstrap, "describe-producers", "--topic", topic, "--partition", "0")
    done = run_java(tool, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line.split() for line in done.stdout.splitlines()[1:] if line.strip()]
    return {(int(row[0]), int(row[1]), int(row[3])) for row in rows}


def delete_records(bootstrap: str, topic: str, before: int) -> None:
    """Delete the records of partition 0 below an offset, in the middle of a segment."""
    client = AdminClient({"bootstrap.servers": bootstrap})
    (future,) = client.delete_records([TopicPartition(topic, 0, before)]).values()
    assert future.result(30).low_watermark == before


def carry_log_start(source: Path, target: Path) -> None:
    """Take over where the log starts: a row `topic partition offset`, below a version and the number of rows."""
    starts = [row.split() for row in (source.parent / LOG_STARTS).read_text().splitlines()[2:]]
    offsets = [row[2] for row in starts if f"{row[0]}-{row[1]}" == source.name]
    file = target.parent / LOG_STARTS
    rows = file.read_text().splitlines()[2:] if file.exists() else []
    topic, _, partition = target.name.rpartition("-")
    rows = [row for row in rows if not row.startswith(f"{topic} {partition} ")]
    rows += [f"{topic} {partition} {offset}" for offset in offsets]
    file.write_text("\n".join(["0", str(len(rows)), *rows, ""]))


def carry(source: Path, target: Path) -> None:
    """Put the files of one stopped broker's partition in place of the other's."""
    carry_log_start(source, target)
    for path in target.iterdir():
        if path.name != BOUND_TO_THE_TOPIC:
            path.unlink()
    for path in source.iterdir():
        if path.name != BOUND_TO_THE_TOPIC:
            shutil.copy2(path, target / path.name)


def carry_to(
    other: BrokerProcess, partition: Path, config: dict[str, str], *, clean: bool = True, settle: bool = True
) -> str:
    """Make the topic on the other broker, give it the files, and start it again; the topic."""
    if not other.alive:
        other.start()
    topic = Admin(other.bootstrap).create_topic("carried", 1, config)
    wait_for((other.data / f"{topic}-0").is_dir, "the partition's directory")
    other.stop()
    carry(partition, other.data / f"{topic}-0")
    if not clean:
        (other.data / ".kafka_cleanshutdown").unlink()
    other.start()
    if settle:
        wait_for(lambda: topic in AdminClient({"bootstrap.servers": other.bootstrap}).list_topics().topics, "the topic")
    return topic


class Written(NamedTuple):
    """What a Kafka wrote, and what it told of it itself."""

    partition: Path
    reads: dict[str, list[Read]]
    producers: set[tuple[int, int, int]]


def write_all(kafka: BrokerProcess) -> Written:
    """Codecs, transactions committed, aborted and open, over three leader epochs."""
    kafka.start()
    try:
        topic = Admin(kafka.bootstrap).create_topic("written", 1, SMALL)
        produce(kafka.bootstrap, topic, "a")
        transact(kafka.bootstrap, topic, "first", commit=True)
        kafka.restart()
        transact(kafka.bootstrap, topic, "second", commit=False)
        produce(kafka.bootstrap, topic, "b")
        transact(kafka.bootstrap, topic, "third", commit=False)
        kafka.restart()
        transact(kafka.bootstrap, topic, "fourth", commit=True)
        open_one = transact(kafka.bootstrap, topic, "fifth", commit=True, end=False)
        produce(kafka.bootstrap, topic, "c")
        delete_records(kafka.bootstrap, topic, DELETED)
        reads = {isolation: consume(kafka.bootstrap, topic, isolation) for isolation in ISOLATIONS}
        told = producers(kafka.bootstrap, topic)
    finally:
        kafka.stop()
    del open_one
    return Written(kafka.data / f"{topic}-0", reads, told)


@pytest.fixture(scope="module", params=["4.3.1", "3.9.1", "3.9.1 with ZooKeeper"])
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Written]:
    """A partition that a Kafka wrote and closed in order."""
    folder = tmp_path_factory.mktemp("kafka")
    if request.param == "4.3.1":
        yield write_all(KafkaProcess(folder))
    elif request.param == "3.9.1":
        yield write_all(OldKafka(folder))
    else:
        with zookeeper(folder / "zookeeper") as address:
            yield write_all(OldKafka(folder / "kafka", zookeeper=address))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
def test_partitions_of_kafka_open_here(written: Written, clean: bool, tmp_path: Path) -> None:
    """Who moves from Kafka would lose records, epochs, producers, or see what was aborted."""
    broker = KbrokerProcess(tmp_path)
    try:
        topic = carry_to(broker, written.partition, SMALL, clean=clean)
        for isolation in ISOLATIONS:
            assert consume(broker.bootstrap, topic, isolation) == written.reads[isolation]
        assert producers(broker.bootstrap, topic) == written.producers
        produce(broker.bootstrap, topic, "d", **WITHOUT_ID)
        after = consume(broker.bootstrap, topic)
        assert after[: len(written.reads["read_uncommitted"])] == written.reads["read_uncommitted"]
        assert len(after) == len(written.reads["read_uncommitted"]) + 40 * len(CODECS)
    finally:
        broker.stop()


@pytest.mark.timeout(300)
def test_a_directory_of_kafka_becomes_one_of_kbroker(written: Written, tmp_path: Path) -> None:
    """Who moves from Kafka for good would have to carry every partition by hand."""
    broker = KbrokerProcess(tmp_path)
    shutil.copytree(written.partition.parent, broker.data)
    rebuild = ["metadata", "rebuild", "--override", f"log.dirs={broker.data}"]
    done = subprocess.run(
        [sys.executable, "-m", "kbroker.cli", *rebuild], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    topic = written.partition.name.removesuffix("-0")
    broker.start()
    try:
        for isolation in ISOLATIONS:
            found = consume(broker.bootstrap, topic, isolation)
            assert found == written.reads[isolation]
        assert producers(broker.bootstrap, topic) == written.producers
        produce(broker.bootstrap, topic, "d")
        assert len(consume(broker.bootstrap, topic)) == len(written.reads["read_uncommitted"]) + 40 * len(CODECS)
    finally:
        broker.stop()


@pytest.mark.timeout(300)
def test_kafkas_tool_aborts_a_transaction_that_was_carried_open(written: Written, tmp_path: Path) -> None:
    """Its coordinator stayed behind, so read_committed consumers would wait at its first record for good."""
    broker = KbrokerProcess(tmp_path)
    try:
        topic = carry_to(broker, written.partition, SMALL)
        end = len(written.reads["read_committed"])
        assert produced_behind(broker.bootstrap, topic, "read_committed") == end
        start = open_transactions(broker.bootstrap, topic)
        tool = "org.apache.kafka.tools.TransactionsCommand"
        arguments = ("abort", "--topic", topic, "--partition", "0", "--start-offset", str(start))
        done = run_java(tool, "--bootstrap-server", broker.bootstrap, *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        assert open_transactions(broker.bootstrap, topic) is None
        values = [read.value for read in consume(broker.bootstrap, topic, "read_committed")]
        assert values[-1] == b"behind" and not any(value and value.startswith(b"fifth") for value in values)
    finally:
        broker.stop()
    newest = max((broker.data / f"{topic}-0").glob("*.log"))
    dumped = run_java("org.apache.kafka.tools.DumpLogSegments", "--files", str(newest), "--print-data-log")
    assert dumped.returncode == 0, dumped.stdout + dumped.stderr
    assert "endTxnMarker: ABORT" in dumped.stdout.splitlines()[-1]


def open_transactions(bootstrap: str, topic: str) -> int | None:
    """Where the one open transaction of the partition begins."""
    tool = "org.apache.kafka.tools.TransactionsCommand"
    arguments = ("--bootstrap-server", bootstrap, "describe-producers", "--topic", topic, "--partition", "0")
    done = run_java(tool, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    found = [line.split()[-1] for line in done.stdout.splitlines()[1:] if line.strip()]
    (start,) = [each for each in found if each.isdigit()] or [None]
    return None if start is None else int(start)


def produced_behind(bootstrap: str, topic: str, isolation: str) -> int:
    """Write a record; how many a consumer sees after that."""
    producer = Producer({"bootstrap.servers": bootstrap, **WITHOUT_ID})
    producer.produce(topic, b"behind")
    assert producer.flush(30) == 0
    return len(consume(bootstrap, topic, isolation))


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Read], set[tuple[int, int, int]]]:
    """A partition that kbroker wrote over two starts, one of them after a crash, and closed in order."""
    broker = KbrokerProcess(tmp_path_factory.mktemp("kbroker"))
    broker.start()
    try:
        topic = Admin(broker.bootstrap).create_topic("ours", 1, SMALL)
        produce(broker.bootstrap, topic, "a")
        broker.kill()
        broker.start()
        for round_number in range(3):
            produce(broker.bootstrap, topic, f"b{round_number}")
        delete_records(broker.bootstrap, topic, DELETED)
        reads = consume(broker.bootstrap, topic)
        told = producers(broker.bootstrap, topic)
    finally:
        broker.stop()
    return broker.data / f"{topic}-0", reads, told


@pytest.mark.timeout(300)
@pytest.mark.parametrize("version", ["4.3.1", "3.9.1 with ZooKeeper"])
@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
def test_kafka_opens_partitions_written_here(
    version: str, clean: bool, ours: tuple[Path, list[Read], set[tuple[int, int, int]]], tmp_path: Path
) -> None:
    """Who goes back to Kafka would lose records, or Kafka would not start."""
    partition, reads, told = ours

    def check(kafka: BrokerProcess) -> None:
        try:
            topic = carry_to(kafka, partition, SMALL, clean=clean)
            assert consume(kafka.bootstrap, topic) == reads
            assert producers(kafka.bootstrap, topic) == told
            produce(kafka.bootstrap, topic, "d", **WITHOUT_ID)
            assert len(consume(kafka.bootstrap, topic)) == len(reads) + 40 * len(CODECS)
        finally:
            kafka.stop()

    if version == "4.3.1":
        check(KafkaProcess(tmp_path))
    else:
        with zookeeper(tmp_path / "zookeeper") as address:
            check(OldKafka(tmp_path / "kafka", zookeeper=address))
