"""Compaction and retention as users of a running broker see them, through real clients and Kafka's own tools."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.broker_process import BrokerProcess
from tests.cleaner.logs import clean, config, pairs_batch
from tests.compat.tooling import run_java
from tests.compat.waiting import wait_for
from tests.storage.batches import append, open_log

pytestmark = pytest.mark.compat

PATIENCE_SECONDS = 60.0
KEYS = 200


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    settings = {
        "log.cleaner.backoff.ms": "200",
        "log.retention.check.interval.ms": "200",
        "log.initial.task.delay.ms": "200",
        "log.cleaner.dedupe.buffer.size": "4194304",
    }
    process = BrokerProcess(tmp_path / "broker", settings)
    process.start()
    yield process
    process.stop()


until = partial(wait_for, seconds=PATIENCE_SECONDS, every=0.05)


def create(bootstrap: str, topic: str, settings: dict[str, str]) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1, config=settings)])[topic].result(PATIENCE_SECONDS)


def consumer_of(bootstrap: str, topic: str, **settings: Any) -> Any:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "check.crcs": True,
            **settings,
        }
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    return consumer


def read_to_end(bootstrap: str, topic: str, **settings: Any) -> list[tuple[int, bytes, bytes | None]]:
    """(offset, key, value) of everything, without an error on the way."""
    from confluent_kafka import KafkaError

    consumer = consumer_of(bootstrap, topic, **settings)
    found: list[tuple[int, bytes, bytes | None]] = []
    try:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            assert time.monotonic() < deadline
            message = consumer.poll(0.5)
            if message is None:
                continue
            if message.error() is not None:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                return found
            found.append((message.offset(), message.key(), message.value()))
    finally:
        consumer.close()


def table_of(records: list[tuple[int, bytes, bytes | None]]) -> dict[bytes, bytes]:
    table: dict[bytes, bytes] = {}
    for _, key, value in records:
        if value is None:
            table.pop(key, None)
        else:
            table[key] = value
    return table


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_a_reader_from_the_start_finds_the_latest_of_each_key(broker: BrokerProcess, codec: str) -> None:
    """A table restored from a compacted topic would lack a key, or hold an old or deleted value."""
    from confluent_kafka import Producer

    topic = f"table-{codec}"
    create(
        broker.bootstrap,
        topic,
        {
            "cleanup.policy": "compact",
            "segment.bytes": "1048576",
            "min.cleanable.dirty.ratio": "0.01",
            "delete.retention.ms": "0",
            "file.delete.delay.ms": "0",
        },
    )
    producer = Producer({"bootstrap.servers": broker.bootstrap, "compression.type": codec, "linger.ms": 5})
    draw = random.Random(7)
    expected: dict[bytes, bytes] = {}
    count = 0
    while count < 40_000:
        key = b"key-%05d" % draw.randrange(KEYS)
        value = None if draw.random() < 0.1 else b"%08d" % count + draw.randbytes(120)
        producer.produce(topic, key=key, value=value)
        if value is None:
            expected.pop(key, None)
        else:
            expected[key] = value
        count += 1
        if count % 2000 == 0:
            producer.flush()
            # Read while it is compacted: no error, offsets ascend, nothing that is not the latest of what was written.
            if count % 10_000 == 0:
                seen = read_to_end(broker.bootstrap, topic)
                offsets = [offset for offset, _, _ in seen]
                assert offsets == sorted(set(offsets))
                assert table_of(seen) == expected
    assert producer.flush(PATIENCE_SECONDS) == 0

    def records_of_closed_segments() -> int:
        return sum(broker.log_sizes(f"{topic}-0")[:-1])

    until(lambda: records_of_closed_segments() < 300_000, "compaction")
    seen = read_to_end(broker.bootstrap, topic)
    assert table_of(seen) == expected
    assert len(seen) < 20_000
    broker.restart(kill=True)
    assert table_of(read_to_end(broker.bootstrap, topic)) == expected


def test_old_records_go_and_readers_go_on(broker: BrokerProcess) -> None:
    """A topic would outgrow its disk, or its consumers would stop with an error when old records go."""
    from confluent_kafka import Producer, TopicPartition

    topic = "events"
    create(
        broker.bootstrap,
        topic,
        {"segment.bytes": "1048576", "retention.bytes": "3000000", "file.delete.delay.ms": "0"},
    )
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5})
    consumer = consumer_of(broker.bootstrap, topic, **{"auto.offset.reset": "error"})
    sent = received = 0
    try:
        while sent < 12_000:
            producer.produce(topic, key=b"k", value=b"%06d" % sent + b"x" * 1000)
            sent += 1
            if sent % 500 == 0:
                producer.flush()
                while received < sent:
                    message = consumer.poll(PATIENCE_SECONDS)
                    assert message is not None
                    if message.error() is None:
                        assert message.offset() == received
                        received += 1
        until(lambda: sum(broker.log_sizes(f"{topic}-0")) < 4_200_000, "retention")
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=PATIENCE_SECONDS)
        assert (low > 6_000, high) == (True, 12_000)
    finally:
        consumer.close()
    # A new reader begins at the first record that is left.
    assert read_to_end(broker.bootstrap, topic, **{"auto.offset.reset": "earliest"})[0][0] == low


@pytest.mark.kafka
def test_kafkas_tools_read_what_we_compacted(tmp_path: Path) -> None:
    """Operators could not look into compacted segments with the tools that they know, or go back to Kafka."""
    from kbroker.records.compression import Codec

    directory = tmp_path / "table-0"
    log = open_log(directory, config(internal_segment_bytes=2000))
    for at in range(200):
        codec = list(Codec)[at % 5]
        value = None if at % 9 == 0 else b"%d" % at
        append(log, pairs_batch([(b"k%d" % (at % 31), value), (b"x%d" % at, b"y")], codec=codec))
    for at in range(3):
        append(log, pairs_batch([(b"only", b"%d" % at)], producer_id=5, epoch=0, sequence=at))
    log.roll()
    assert clean(log) is not None
    held = {record.offset for segment in log.local.segments for record in _records(Path(segment.path))}
    log.close()
    logs = sorted(path for path in directory.glob("*.log") if path.stat().st_size)
    files = ",".join(
        str(path) for kind in ("log", "index", "timeindex") for path in (p.with_suffix(f".{kind}") for p in logs)
    )
    shown = run_java("org.apache.kafka.tools.DumpLogSegments", "--deep-iteration", "--files", files)
    assert shown.returncode == 0, shown.stderr
    text = shown.stdout
    assert "isvalid: false" not in text
    assert "deleteHorizonMs" in text
    for complaint in ("Mismatches in", "Found timestamp mismatch", "out of order", "Index position"):
        assert complaint not in text, text
    offsets = {int(line.split("offset: ")[1].split()[0]) for line in text.splitlines() if line.startswith("| offset: ")}
    assert offsets == held


def _records(path: Path) -> list[Any]:
    from kbroker._fast.records.record_batch import iterate_batches
    from kbroker.records.batch import iterate_records

    data = path.read_bytes()
    return [record for info in iterate_batches(data) for record in iterate_records(data, info)]


def test_committed_offsets_survive_the_compaction_of_their_topic(tmp_path: Path) -> None:
    """A group would read records again, or skip some, after its offsets were compacted and the broker restarted."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    settings = {
        "log.cleaner.backoff.ms": "200",
        "log.cleaner.min.cleanable.ratio": "0.01",
        "offsets.topic.num.partitions": "1",
        "offsets.topic.segment.bytes": "1048576",
    }
    broker = BrokerProcess(tmp_path / "broker", settings)
    broker.start()
    try:
        create(broker.bootstrap, "events", {})
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for at in range(5000):
            producer.produce("events", value=b"%d" % at)
        assert producer.flush(PATIENCE_SECONDS) == 0
        consumers = {
            name: Consumer({"bootstrap.servers": broker.bootstrap, "group.id": name, "enable.auto.commit": False})
            for name in ("left", "right")
        }
        for at in range(1, 1001):
            for step, consumer in enumerate(consumers.values()):
                place = TopicPartition("events", 0, at + step, metadata="x" * 3000)
                consumer.commit(offsets=[place], asynchronous=False)
        until(lambda: sum(broker.log_sizes("__consumer_offsets-0")) < 1_200_000, "compaction")
        for consumer in consumers.values():
            consumer.close()
        for kill in (True, False):
            broker.restart(kill=kill)
            for step, name in enumerate(("left", "right")):
                reader = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": name})
                (found,) = reader.committed([TopicPartition("events", 0)], timeout=PATIENCE_SECONDS)
                assert found.offset == 1000 + step
                reader.close()
    finally:
        broker.stop()
