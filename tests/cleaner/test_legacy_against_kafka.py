"""A directory of an old broker, with messages of magic 0 and 1, under Apache Kafka and under kbroker.

Both give a real client the same records and answer the same offsets for timestamps; both compact it to the same
messages.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from functools import partial
from pathlib import Path

import pytest

from kbroker.config import LogConfig
from kbroker.records.batch import Record, RecordBatchBuilder
from kbroker.records.compression import Codec
from kbroker.records.legacy import iterate_stored_records
from kbroker.storage.files.filesystem import SYSTEM_FILES
from kbroker.types import TopicPartition
from tests.cleaner.compaction import ask_for_compaction, create
from tests.cleaner.logs import clean
from tests.compat.brokers import BrokerProcess, KbrokerProcess
from tests.compat.real_kafka import KafkaProcess
from tests.compat.waiting import wait_for
from tests.records.stored import encode_messages, stored_batches
from tests.storage.batches import HandClock, environment, open_log

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

TOPIC = "table"
TP = TopicPartition(TOPIC, 0)
START_MS = 1_700_000_000_000
CODECS = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
PER_SEGMENT = 600
until = partial(wait_for, seconds=60.0, every=0.1)


def old_directory(target: Path) -> int:
    """Segments of magic 0, 1 and 2 with all codecs; the active one, of magic 2, is empty of old messages: its base."""
    draw = random.Random(5)
    offset = 0
    # (magic, append time) of each segment.
    for magic, append_time in ((0, False), (1, False), (1, True), (2, False), (2, False)):
        base, data = offset, bytearray()
        while offset < base + PER_SEGMENT:
            codec = draw.choice(CODECS)
            records = []
            for _ in range(draw.randrange(1, 30)):
                offset += draw.choice((1, 1, 1, 4))
                key = b"key-%03d" % draw.randrange(300) if draw.random() > 0.05 else None
                value = None if draw.random() < 0.15 else draw.randbytes(draw.randrange(1, 60)) * draw.randrange(1, 9)
                timestamp = START_MS + offset * 10 + draw.randrange(-50, 50) if magic else -1
                records.append(Record(offset, timestamp, key, value))
            if magic < 2:
                data += encode_messages(records, magic, codec, START_MS + offset * 10 if append_time else None)
                continue
            builder = RecordBatchBuilder(records[0].offset, codec, partition_leader_epoch=0)
            for record in records:
                builder.append(record.key, record.value, record.timestamp)
            offset = records[0].offset + len(records) - 1
            data += builder.build()
        offset += 1
        path = target / f"{base:020d}.log"
        path.write_bytes(data)
        if magic == 0:
            # Kafka takes the file's time for its records' and looks no further; kbroker goes on.
            os.utime(path, (START_MS // 1000 - 1, START_MS // 1000 - 1))
    return base


def give_directory(broker: BrokerProcess) -> Path:
    """A topic whose directory is an old broker's; the broker is stopped."""
    broker.start()
    create(broker.bootstrap)
    broker.stop()
    directory = broker.data / f"{TOPIC}-0"
    for path in directory.iterdir():
        if path.name != "partition.metadata":
            path.unlink()
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint", ".kafka_cleanshutdown"):
        (broker.data / name).unlink(missing_ok=True)
    return directory


def records_in(directory: Path, end: int = 1 << 62) -> list[Record]:
    return [
        record
        for path in sorted(directory.glob("*.log"))
        for batch, info in stored_batches(path.read_bytes())
        for record in iterate_stored_records(batch)
        if info.last_offset < end
    ]


def consume(broker: BrokerProcess, last: int) -> list[tuple[int, int, bytes | None, bytes | None]]:
    from confluent_kafka import Consumer
    from confluent_kafka import TopicPartition as Place

    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "x", "enable.auto.commit": False})
    consumer.assign([Place(TOPIC, 0, 0)])
    found: list[tuple[int, int, bytes | None, bytes | None]] = []
    while not found or found[-1][0] < last:
        message = consumer.poll(30)
        assert message is not None, f"nothing after {found[-1:]}"
        assert message.error() is None, message.error()
        found.append((message.offset(), message.timestamp()[1], message.key(), message.value()))
    consumer.close()
    return found


def offsets_for_times(broker: BrokerProcess) -> list[int]:
    from confluent_kafka import Consumer
    from confluent_kafka import TopicPartition as Place

    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "x"})
    times = [START_MS + at for at in range(0, 36_000, 1_111)]
    found = [consumer.offsets_for_times([Place(TOPIC, 0, at)], timeout=20)[0].offset for at in times]
    consumer.close()
    return found


def batches_in(directory: Path, end: int) -> list[tuple[int, ...]]:
    """What the header of each batch says, but for its base timestamp: kbroker keeps that of a batch of magic 2."""
    return [
        (
            info.magic,
            info.base_offset,
            info.last_offset,
            info.attributes,
            info.records_count,
            info.max_timestamp,
            info.partition_leader_epoch,
            info.producer_id,
            info.producer_epoch,
            info.base_sequence,
        )
        for path in sorted(directory.glob("*.log"))
        for _, info in stored_batches(path.read_bytes())
        if info.last_offset < end
    ]


def test_old_directory_is_served_and_compacted_as_kafka_does(tmp_path: Path) -> None:
    """Who comes with the files of an old broker would lose records, or get others than Kafka gives."""
    original = tmp_path / "original"
    original.mkdir()
    active = old_directory(original)
    written = records_in(original)
    kafka = KafkaProcess(tmp_path / "kafka", {"log.cleaner.backoff.ms": "100"})
    ours = KbrokerProcess(tmp_path / "kbroker")
    try:
        answers = []
        for broker in (kafka, ours):
            shutil.copytree(original, give_directory(broker), dirs_exist_ok=True)
            broker.start()
            answers.append((consume(broker, written[-1].offset), offsets_for_times(broker)))
            if broker is ours:
                broker.stop()
        # The client says 0 for a record without time.
        assert [(r.offset, max(r.timestamp, 0), r.key, r.value) for r in written] == answers[1][0]
        assert answers[0] == answers[1]
        ask_for_compaction(kafka.bootstrap)
        checkpoint = kafka.data / "cleaner-offset-checkpoint"
        until(lambda: checkpoint.exists() and f"{TOPIC} 0 {active}\n" in checkpoint.read_text(), "Kafka's compaction")
        kafka.stop()
    finally:
        for broker in (kafka, ours):
            if broker.alive:
                broker.stop()
    theirs = kafka.data / f"{TOPIC}-0"
    directory = ours.data / f"{TOPIC}-0"
    settings = LogConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=1 << 20, file_delete_delay_ms=0)
    now_ms = int(time.time() * 1000)
    log = open_log(
        directory,
        settings,
        clean=True,
        recovery_point=1 << 40,
        env=environment(SYSTEM_FILES, HandClock(now_ms)),
        topic_partition=TP,
    )
    summary = clean(log, now_ms=now_ms, files=SYSTEM_FILES)
    assert summary is not None
    assert summary.end_offset == active
    log.close()
    kept = records_in(theirs, active)
    assert 0 < len(kept) < len([record for record in written if record.offset < active])
    assert records_in(directory, active) == kept
    assert batches_in(directory, active) == batches_in(theirs, active)
    assert {row[0] for row in batches_in(directory, active)} == {2}
