"""The same log compacted by Apache Kafka and by kbroker keeps the same batches, with the same records."""

from __future__ import annotations

import random
import shutil
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kbroker._fast.records.record_batch import iterate_batches, validate_crc
from kbroker.config import LogConfig
from kbroker.records.batch import Record, iterate_records
from kbroker.storage.files.filesystem import SYSTEM_FILES
from kbroker.storage.log.log_values import FetchIsolation
from kbroker.types import TopicPartition
from tests.cleaner.compaction import SEGMENT_BYTES, TOPIC, ask_for_compaction, create
from tests.cleaner.logs import clean
from tests.compat.real_kafka import KafkaProcess
from tests.compat.waiting import wait_for
from tests.storage.batches import HandClock, environment, open_log

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PATIENCE_SECONDS = 60.0
TRANSACTIONAL, CONTROL, DELETE_HORIZON = 0x10, 0x20, 0x40


until = partial(wait_for, seconds=PATIENCE_SECONDS, every=0.1)


def fill(bootstrap: str) -> None:
    """All codecs, tombstones, headers, idempotent and plain producers, transactions committed and aborted."""
    from confluent_kafka import Producer

    draw = random.Random(11)

    def send(producer: Any, count: int) -> None:
        for at in range(count):
            # Some keys are written once, so that something of every producer stays.
            key = b"once-%d" % draw.getrandbits(60) if at % 50 == 0 else b"key-%04d" % draw.randrange(700)
            value = None if draw.random() < 0.15 else draw.randbytes(draw.randrange(20, 400))
            headers = [("h", b"x")] if draw.random() < 0.2 else []
            producer.produce(TOPIC, key=key, value=value, headers=headers)
        assert producer.flush(30) == 0

    base = {"bootstrap.servers": bootstrap, "linger.ms": 20}
    for turn in range(3):
        for codec in CODECS:
            settings = {**base, "compression.type": codec, "enable.idempotence": turn == 1}
            plain = Producer(settings)
            send(plain, 1500)
            # A last batch of one record, which another will replace: its sequence is all that stays of it.
            plain.produce(TOPIC, key=b"key-0001", value=b"last of its producer")
            assert plain.flush(30) == 0
        for name in ("one", "two"):
            producer = Producer({**base, "transactional.id": f"{name}-{turn}", "compression.type": CODECS[turn]})
            producer.init_transactions(30)
            for abort in (False, True, False):
                producer.begin_transaction()
                send(producer, 200)
                (producer.abort_transaction if abort else producer.commit_transaction)(30)
    sweep = Producer({**base, "compression.type": "zstd"})
    for at in range(700):
        sweep.produce(TOPIC, key=b"key-%04d" % at, value=draw.randbytes(2000))
    assert sweep.flush(30) == 0


Held = list[tuple[tuple[int, ...], list[Record]]]


def batches_below(paths: list[Path], end: int) -> Held:
    """Each batch: offsets, sequence, attributes with delete horizon, times, and its records."""
    found: Held = []
    for path in paths:
        data = path.read_bytes()
        for info in iterate_batches(data):
            if info.base_offset >= end:
                return found
            validate_crc(data, info)
            header = (
                info.base_offset,
                info.last_offset,
                info.records_count,
                info.attributes,
                info.max_timestamp,
                info.partition_leader_epoch,
                info.producer_id,
                info.producer_epoch,
                info.base_sequence,
            )
            found.append((header, list(iterate_records(data, info))))
    return found


def test_the_same_batches_stay(tmp_path: Path) -> None:
    """Users who move from Kafka would find other records in their compacted topics."""
    kafka = KafkaProcess(tmp_path / "kafka", {"log.cleaner.backoff.ms": "100"})
    kafka.start()
    try:
        create(kafka.bootstrap)
        fill(kafka.bootstrap)
        kafka.stop()
        theirs = kafka.data / f"{TOPIC}-0"
        ours = tmp_path / "ours" / f"{TOPIC}-0"
        shutil.copytree(theirs, ours)
        active = int(max(path.stem for path in ours.glob("*.log")))
        assert active > 0
        kafka.start()
        ask_for_compaction(kafka.bootstrap)
        checkpoint = kafka.data / "cleaner-offset-checkpoint"
        until(lambda: checkpoint.exists() and f"{TOPIC} 0 {active}\n" in checkpoint.read_text(), "Kafka's compaction")
        kafka.stop()
    finally:
        if kafka.process is not None:
            kafka.stop()
    settings = LogConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=SEGMENT_BYTES, file_delete_delay_ms=0)
    log = open_log(
        ours,
        settings,
        clean=True,
        recovery_point=1 << 40,
        env=environment(SYSTEM_FILES, HandClock(int(time.time() * 1000))),
        topic_partition=TopicPartition(TOPIC, 0),
    )
    before = len(batches_below(sorted(ours.glob("*.log")), active))
    summary = clean(log, now_ms=int(time.time() * 1000), files=SYSTEM_FILES)
    assert summary is not None
    assert summary.end_offset == active
    kept_here = batches_below([Path(segment.path) for segment in log.local.segments], active)
    kept_there = batches_below(sorted(theirs.glob("*.log")), active)
    assert len(kept_there) < before
    attributes = [header[3] for header, _ in kept_there]
    for flag in (DELETE_HORIZON, CONTROL, TRANSACTIONAL):
        assert any(each & flag for each in attributes), f"no batch has the flag {flag:#x}"
    assert {each & 7 for each in attributes} == set(range(5)), "a codec is missing"
    assert any(not header[2] for header, _ in kept_there), "no batch was kept for its producer alone"
    assert [header for header, _ in kept_here] == [header for header, _ in kept_there]
    assert kept_here == kept_there
    aborted_here = [entry for segment in log.local.segments for entry in segment.txn_index.entries]
    theirs_opened = open_log(
        theirs, settings, clean=True, recovery_point=1 << 40, topic_partition=TopicPartition(TOPIC, 0)
    )
    aborted_there = [entry for segment in theirs_opened.local.segments for entry in segment.txn_index.entries]
    assert aborted_here == aborted_there
    assert log.read(0, 1 << 20, FetchIsolation.TXN_COMMITTED, True).size > 0
