"""Directories that Kafka 0.10, 2.8 and 3.9 wrote in their old message formats: opened, served, cleaned, recovered."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tests.compat.brokers import KbrokerProcess
from tests.compat.old_clients import OLD_LIBRDKAFKA
from tests.compat.old_directories import (
    COMMITTED,
    FORMATS,
    GROUP,
    KEYS,
    RELEASES,
    T0,
    archive,
    rows,
    topic_of,
    unpack,
    write,
)
from tests.compat.tooling import ROOT
from tests.compat.waiting import wait_for

Row = tuple[bytes, bytes, int]
SETTINGS = {"offsets.topic.num.partitions": "1", "log.cleaner.backoff.ms": "100", "log.retention.ms": "-1"}
IN_TRANSACTION = (b"in-transaction", b"transaction-0", T0)


def read(bootstrap: str, topic: str, most: int = 1 << 30, **values: object) -> list[Row]:
    """Everything, in order, or the first `most`."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.partition.eof": True,
            "check.crcs": True,
            **values,
        }
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found: list[Row] = []
    deadline = time.monotonic() + 90
    try:
        while time.monotonic() < deadline:
            if len(found) >= most:
                return found[:most]
            for each in consumer.consume(200, 0.2):
                if each.error() is not None:
                    assert each.error().name() == "_PARTITION_EOF", each.error()
                    return found
                found.append((each.key() or b"", each.value() or b"", each.timestamp()[1]))
    finally:
        consumer.close()
    raise AssertionError(f"no end after {len(found)} records")


def expected(message_format: str) -> list[Row]:
    """What lies in the topic of this format; magic 0 has no times."""
    if message_format == "0.9.0":
        return [(key, value, 0) for key, value, _ in rows()]
    return [*rows(), IN_TRANSACTION] if message_format == "2.8" else rows()


def check(folder: Path, release: str) -> None:
    """The directory in `folder` under a broker: served, then cleaned, and the same after another start."""
    broker = KbrokerProcess(folder, SETTINGS)
    rebuild = [word if word != "start" else "metadata rebuild" for word in broker.command()]
    done = subprocess.run(" ".join(rebuild).split(), cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    broker.start()
    try:
        for each in FORMATS[release]:
            assert read(broker.bootstrap, topic_of(each)) == expected(each), each
            # As a consumer of 0.9 asks, which knows magic 0 alone.
            old = read(broker.bootstrap, topic_of(each), len(rows()), **OLD_LIBRDKAFKA)
            assert [row[:2] for row in old] == [row[:2] for row in rows()], each
        _check_places(broker, release)
        latest = {key: value for key, value, _ in rows()}
        for each in FORMATS[release]:
            _compact(broker, topic_of(each))
        for each in FORMATS[release]:
            _wait_until_compact(broker, topic_of(each), latest)
        broker.restart()
        for each in FORMATS[release]:
            _wait_until_compact(broker, topic_of(each), latest)
    finally:
        broker.kill()
    assert "Traceback" not in broker.output.read_text()


def _check_places(broker: KbrokerProcess, release: str) -> None:
    """The group's offset, and offsets by time."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": GROUP})
    try:
        first = topic_of(FORMATS[release][0])
        (committed,) = consumer.committed([TopicPartition(first, 0)], 90)
        assert committed.offset == COMMITTED
        asked = [TopicPartition(topic_of(each), 0, T0 + 5000) for each in FORMATS[release] if each != "0.9.0"]
        assert [place.offset for place in consumer.offsets_for_times(asked, 90)] == [5 * KEYS] * len(asked)
    finally:
        consumer.close()


def _compact(broker: KbrokerProcess, topic: str) -> None:
    """Have it cleaned up to its last segment, which a record begins that is newer than all."""
    wanted = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "segment.bytes": "1048576",
        "segment.ms": "1",
    }
    entries = [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in wanted.items()]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(90)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for turn in range(2):
        producer.produce(topic, b"last", b"last", timestamp=T0 + 10_000_000 * (turn + 1))
        assert producer.flush(90) == 0
        time.sleep(0.01)  # Longer than segment.ms.


def _wait_until_compact(broker: KbrokerProcess, topic: str, latest: dict[bytes, bytes]) -> None:
    def compact() -> bool:
        found = [row for row in read(broker.bootstrap, topic) if row[0] in latest]
        assert {key: value for key, value, _ in found} == latest
        return len(found) == len(latest)

    wait_for(compact, f"{topic} to be cleaned", seconds=120)


# One of them quick enough for every day; the others are slow together.
RECORDED = [
    pytest.param(
        release,
        killed,
        id=f"{release}-{'killed' if killed else 'stopped'}",
        marks=[] if killed and release == RELEASES[0] else [pytest.mark.slow],
    )
    for release in RELEASES
    for killed in (False, True)
]


@pytest.mark.parametrize(("release", "killed"), RECORDED)
def test_a_directory_on_record(tmp_path: Path, release: str, killed: bool) -> None:
    """Data that an old broker wrote would be lost, or unreadable, or never cleaned, after a move to kbroker."""
    assert archive(release, killed=killed).stat().st_size < 100_000
    unpack(release, tmp_path, killed=killed)
    check(tmp_path, release)


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("release", RELEASES)
def test_a_directory_of_a_broker_that_was_just_killed(tmp_path: Path, release: str) -> None:
    """What is on record could be something that no broker writes."""
    data = write(release, tmp_path / "kafka", killed=True)
    (tmp_path / "kbroker").mkdir()
    data.rename(tmp_path / "kbroker" / "data")
    check(tmp_path / "kbroker", release)
