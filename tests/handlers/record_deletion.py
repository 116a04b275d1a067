"""What is asked of a broker about deleting records, directories and producers (`tests.handlers.changes`)."""

from __future__ import annotations

from typing import Any

from kbroker.schemas import message
from tests.handlers.changes import change
from tests.scenarios.batches import T0, Batch
from tests.scenarios.session import Session


def delete(s: Session, step: str, *rows: tuple[str, int, int], version: int = 2) -> None:
    """Delete records before an offset: (topic, partition, offset) each."""
    topics: dict[str, list[dict[str, int]]] = {}
    for name, partition, offset in rows:
        topics.setdefault(name, []).append({"partition_index": partition, "offset": offset})
    asked = [{"name": name, "partitions": partitions} for name, partitions in topics.items()]
    s.ask(step, "DeleteRecords", version, topics=asked, timeout_ms=10_000)


def earliest(s: Session, step: str, name: str) -> None:
    """Record the first offset."""
    rows = [{"name": name, "partitions": [{"partition_index": 0, "timestamp": -2}]}]
    s.ask(step, "ListOffsets", 7, replica_id=-1, topics=rows)


def fetch(s: Session, step: str, name: str, offset: int) -> None:
    """Record what lies from an offset on."""
    rows = [{"topic": name, "partitions": [{"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}]}]
    s.ask(step, "Fetch", 11, replica_id=-1, max_wait_ms=100, min_bytes=0, max_bytes=1 << 20, topics=rows)


@change
def records_deleted(s: Session) -> None:
    name = "delete-records"
    s.create(name, 2)
    s.fill(name, *[Batch([(b"k", b"v")] * 3) for _ in range(4)])
    for version in range(3):
        delete(s, f"v{version}", (name, 0, version + 1), version=version)
    earliest(s, "start", name)
    fetch(s, "below the start", name, 1)
    fetch(s, "in the middle of a batch", name, 4)
    delete(s, "below the start again", (name, 0, 1))
    delete(s, "at the start", (name, 0, 3))
    delete(s, "past the end", (name, 0, 13))
    delete(s, "negative", (name, 0, -2))
    delete(s, "empty partition at 0", (name, 1, 0))
    delete(s, "empty partition past 0", (name, 1, 1))
    delete(s, "partition that is not", (name, 7, 0))
    delete(s, "negative partition", (name, -1, 0))
    delete(s, "topic that is not", ("delete-never", 0, 0))
    delete(s, "topic of no name", ("", 0, 0))
    delete(s, "two", (name, 0, 5), (name, 1, 9), ("delete-never", 0, 1))
    delete(s, "one twice", (name, 0, 6), (name, 0, 7))
    delete(s, "nothing")
    delete(s, "everything", (name, 0, -1))
    earliest(s, "start at the end", name)
    fetch(s, "at the end", name, 12)
    s.produce("goes on", name, Batch())
    fetch(s, "the next", name, 12)


@change
def records_of_compacted_topics(s: Session) -> None:
    """What only compaction may remove is refused; with the delete policy beside it, it is not."""
    for name, policy in (("compacted", "compact"), ("compacted-too", "compact,delete"), ("kept", "")):
        s.create(f"records-{name}", configs={"cleanup.policy": policy})
        s.fill(f"records-{name}", Batch([(b"k", b"v")] * 3))
        delete(s, name, (f"records-{name}", 0, 2))
    s.coordinator("records-group")
    delete(s, "internal", ("__consumer_offsets", 0, 0))


# -- log directories


def log_dirs(s: Session, step: str, topics: Any, version: int = 5) -> None:
    """Record what lies where; paths and the disk's size are not comparable."""
    answer = s.quietly("DescribeLogDirs", version, topics=topics)
    for row in answer.results:
        assert row.log_dir.startswith("/")
        row.log_dir = "directory"
        if version >= 4:
            assert 0 < row.usable_bytes < row.total_bytes
            row.total_bytes = row.usable_bytes = 1
    s.record(step, s.normal.answer(message("DescribeLogDirsResponse"), version, answer))


@change
def log_directories(s: Session) -> None:
    s.create("dirs-a", 2)
    s.create("dirs-b")
    s.fill("dirs-a", Batch([(b"k", b"v")] * 3), Batch())
    a, b = {"topic": "dirs-a", "partitions": [0, 1]}, {"topic": "dirs-b", "partitions": [0]}
    for version in range(1, 6):
        log_dirs(s, f"v{version}", [a, b], version)
    log_dirs(s, "one partition", [{"topic": "dirs-a", "partitions": [1]}])
    log_dirs(s, "no partitions", [{"topic": "dirs-a", "partitions": []}])
    log_dirs(s, "partition that is not", [{"topic": "dirs-a", "partitions": [1, 7]}])
    log_dirs(s, "topic that is not", [{"topic": "dirs-never", "partitions": [0]}])
    log_dirs(s, "no topics", [])
    found = s.quietly("DescribeLogDirs", 4, topics=None).results[0].topics
    s.record("all", sorted(row.name for row in found if row.name.startswith("dirs-")))


# -- producers


def producers(s: Session, step: str, name: str, *partitions: int) -> None:
    """Record who writes to a partition."""
    s.ask(step, "DescribeProducers", 0, topics=[{"name": name, "partition_indexes": list(partitions)}])


@change
def active_producers(s: Session) -> None:
    name = "producers"
    s.create(name, 2)
    producers(s, "none", name, 0, 1)
    first, second = s.producer_id(), s.producer_id()
    s.fill(name, Batch([(b"k", b"v")] * 3, producer_id=first, producer_epoch=0, base_sequence=0))
    s.fill(name, Batch(producer_id=first, producer_epoch=0, base_sequence=3, timestamps=[T0 + 50]))
    producers(s, "one", name, 0)
    s.fill(name, Batch(producer_id=second, producer_epoch=4, base_sequence=0))
    s.fill(name, Batch())
    producers(s, "two", name, 0, 1)
    producers(s, "partition that is not", name, 7)
    producers(s, "topic that is not", "producers-never", 0)
    producers(s, "invalid topic", "not a name", 0)
    producers(s, "no partitions", name)
    producers(s, "twice", name, 1, 1)
    s.ask("nothing", "DescribeProducers", 0, topics=[])
