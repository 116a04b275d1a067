"""Files that the broker writes, read by Kafka's own DumpLogSegments."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from kbroker.storage.log.log_values import AppendOrigin
from tests.compat.admin import Admin, unique
from tests.compat.brokers import BrokerProcess
from tests.compat.client import ClientKind, Driver, gather
from tests.compat.kinds import CONFLUENT
from tests.compat.records import CODECS, Record, ends, odd_records, plain_records
from tests.compat.tooling import run_java
from tests.storage.batches import append, batch, marker, open_log

DUMP = "org.apache.kafka.tools.DumpLogSegments"
RECORD = re.compile(r"^\| offset: (\d+) .*?keySize: (-?\d+) valueSize: (-?\d+)", re.MULTILINE)
# One segment per few batches, an index entry for nearly every batch: much to check in little data.
SMALL = {"segment.bytes": "1048576", "index.interval.bytes": "100"}


def dump(*arguments: str) -> str:
    """What the tool prints; it must succeed."""
    done = run_java(DUMP, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def complaints(text: str) -> list[str]:
    """Lines in which the tool says that something is wrong."""
    words = (
        "mismatch",
        "corrupt",
        "invalid",
        "out of order",
        "found timestamp",
        "not found",
        "exception",
        "isvalid: false",
    )
    return [line for line in text.splitlines() if any(word in line.lower() for word in words)]


@pytest.fixture(scope="module")
def written(shared_broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Record]]:
    """Topics with several segments in each codec, and the records in them; the broker has stopped in order."""
    admin = Admin(shared_broker.bootstrap)
    driver = Driver(CONFLUENT, shared_broker.bootstrap, tmp_path_factory.mktemp("dump") / "errors")
    found = {}
    try:
        for codec in CODECS:
            topic = admin.create_topic(f"dump-{codec}", 1, SMALL)
            sent: list[Record] = []
            for number in range(12):
                sent += driver.produce(topic, plain_records(f"r{number}", 20, 1), codec, idempotent=number % 2 == 0)
            sent += driver.produce(topic, odd_records(1), codec)
            found[topic] = sent
    finally:
        driver.close()
    shared_broker.restart()
    return found


@pytest.mark.parametrize("codec", CODECS)
def test_segments(codec: str, shared_broker: BrokerProcess, written: dict[str, list[Record]]) -> None:
    """Kafka could not open a partition that kbroker wrote, or would find other records in it."""
    topic, sent = next((topic, sent) for topic, sent in written.items() if f"-{codec}-" in topic)
    logs = sorted((shared_broker.data / f"{topic}-0").glob("*.log"))
    text = dump("--deep-iteration", "--files", ",".join(map(str, logs)))
    assert not complaints(text)
    found = [(int(offset), int(key), int(value)) for offset, key, value in RECORD.findall(text)]
    expected = [
        (
            record.offset,
            -1 if record.key is None else len(record.key),
            -1 if record.value is None else len(record.value),
        )
        for record in sent
    ]
    assert found == expected


def test_indexes(shared_broker: BrokerProcess, written: dict[str, list[Record]]) -> None:
    """Kafka would rebuild or distrust the indexes that kbroker wrote."""
    folders = [shared_broker.data / f"{topic}-0" for topic in written]
    indexes = [path for folder in folders for path in sorted(folder.glob("*.index"))]
    times = [path for folder in folders for path in sorted(folder.glob("*.timeindex"))]
    assert any(path.stat().st_size for path in indexes)
    files = ",".join(map(str, indexes))
    text = dump("--index-sanity-check", "--files", files)
    assert text.count("passed sanity check") == len(indexes), text
    verified = dump("--verify-index-only", "--files", ",".join(map(str, indexes + times)))
    assert not complaints(verified)


def test_other_files(shared_broker: BrokerProcess, written: dict[str, list[Record]]) -> None:
    """Kafka would not know the directory for its own, or would forget its idempotent producers."""
    data = shared_broker.data
    meta = dict(line.split("=", 1) for line in (data / "meta.properties").read_text().split("\n") if "=" in line)
    assert meta["version"] == "1"
    assert len(meta["cluster.id"]) == 22
    assert {"node.id", "directory.id"} <= meta.keys()
    for topic in written:
        lines = (data / f"{topic}-0" / "partition.metadata").read_text().split("\n")
        assert lines[0] == "version: 0"
        assert re.fullmatch(r"topic_id: \S{22}", lines[1])
    for name in ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint"):
        version, count, *entries = (data / name).read_text().split("\n")
        assert version == "0"
        assert len([entry for entry in entries if entry]) == int(count)
    snapshots = [path for topic in written for path in (data / f"{topic}-0").glob("*.snapshot")]
    assert snapshots
    text = dump("--files", ",".join(map(str, snapshots)))
    assert "producerId:" in text
    assert not complaints(text)


def test_offsets_topic(
    broker: BrokerProcess, admin: Admin, drivers: Callable[[ClientKind], Driver], tmp_path: Path
) -> None:
    """Kafka could not read the groups and offsets that kbroker keeps."""
    topic = admin.create_topic("dump-offsets", 2)
    group = unique("dump-offsets")
    driver, member = drivers(CONFLUENT), drivers(CONFLUENT)
    sent = driver.produce(topic, plain_records("r", 20, 2))
    member.join(topic, group)

    gather([member], lambda: len(member.received) == len(sent), "the member to read everything")
    member.commit()
    member.leave()
    logs = sorted(path for path in broker.data.glob("__consumer_offsets-*/*.log") if path.stat().st_size)
    text = dump("--offsets-decoder", "--files", ",".join(map(str, logs)))
    assert not complaints(text)
    for partition, end in ends(sent).items():
        key = rf'"group":"{group}","topic":"{topic}","partition":{partition}\b'
        assert re.search(rf'{key}.*"offset":{end}\b', text), text[-3000:]
    assert re.search(rf'"type":"2","data":\{{"group":"{group}"\}}.*"protocolType":"consumer"', text), text[-3000:]


def test_transactions(tmp_path: Path) -> None:
    """Kafka would show readers of committed records what was aborted, or forget who has a transaction open."""
    log = open_log(tmp_path / "orders-2")
    for turn in range(3):
        for pid in (1, 2):
            append(log, batch(producer_id=pid, epoch=0, sequence=turn, transactional=True))
        for pid in (1, 2):
            append(log, marker(pid, 0, abort=pid == 1 or turn == 2), origin=AppendOrigin.COORDINATOR)
    append(log, batch(producer_id=3, epoch=5, sequence=7, transactional=True))
    log.close()
    (index,) = (tmp_path / "orders-2").glob("*.txnindex")
    text = dump("--files", str(index))
    assert not complaints(text)
    found = re.findall(r"producerId: (\d+) firstOffset: (\d+) lastOffset: (\d+) lastStableOffset: (\d+)", text)
    assert [tuple(map(int, row)) for row in found] == [
        (entry.producer_id, entry.first_offset, entry.last_offset, entry.last_stable_offset)
        for entry in log.local.segments.active.txn_index.entries
    ]
    assert len(found) == 4
    (snapshot,) = (tmp_path / "orders-2").glob("*.snapshot")
    text = dump("--files", str(snapshot))
    assert not complaints(text)
    producers = re.findall(r"producerId: (\d+) producerEpoch: (\d+) .*?currentTxnFirstOffset: (\S+)", text)
    assert sorted((int(pid), int(epoch), "12" in first) for pid, epoch, first in producers) == [
        (1, 0, False),
        (2, 0, False),
        (3, 5, True),
    ]
