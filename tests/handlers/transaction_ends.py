"""What is asked of a broker about the markers that end transactions (`tests.handlers.changes`)."""

from __future__ import annotations

from typing import Any

from tests.handlers.changes import change
from tests.scenarios.batches import Batch
from tests.scenarios.session import Session


def marker(producer_id: int, epoch: int, *, commit: bool, at: dict[str, list[int]], coordinator: int = 0) -> Any:
    """A marker of WriteTxnMarkers v1."""
    return {
        "producer_id": producer_id,
        "producer_epoch": epoch,
        "transaction_result": commit,
        "topics": [{"name": name, "partition_indexes": indexes} for name, indexes in at.items()],
        "coordinator_epoch": coordinator,
    }


def end(s: Session, step: str, *markers: Any) -> None:
    """Record the codes that markers get; without the ids of producers, which count the brokers' starts, too."""
    answer = s.quietly("WriteTxnMarkers", 2 if "transaction_version" in str(markers) else 1, markers=list(markers))
    codes = [
        {topic.name: {str(row.partition_index): row.error_code for row in topic.partitions} for topic in result.topics}
        for result in answer.markers
    ]
    s.record(step, codes)


def ends(s: Session, step: str, name: str) -> None:
    """Record where a partition ends for both kinds of readers, and what it knows of its producers."""
    offsets = []
    for isolation in (0, 1):
        rows = [{"name": name, "partitions": [{"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}]}]
        found = s.quietly("ListOffsets", 7, replica_id=-1, isolation_level=isolation, topics=rows)
        offsets.append(found.topics[0].partitions[0].offset)
    answer = s.quietly("DescribeProducers", 0, topics=[{"name": name, "partition_indexes": [0]}])
    known = [
        [each.producer_epoch, each.last_sequence, each.coordinator_epoch, each.current_txn_start_offset]
        for each in answer.topics[0].partitions[0].active_producers
    ]
    s.record(step, {"ends": offsets, "producers": known})


@change
def transaction_markers(s: Session) -> None:
    name = "markers"
    s.create(name, 2)
    producer = s.producer_id()
    s.fill(name, Batch([(b"k", b"v")] * 3, producer_id=producer, producer_epoch=1, base_sequence=0))
    here = {name: [0]}
    end(s, "nothing open", marker(producer, 1, commit=False, at=here))
    ends(s, "after that", name)
    for version, epoch in ((0, 1), (2, 1), (2, 0), (2, 2)):
        given = marker(producer, epoch, commit=False, at=here) | {"transaction_version": version}
        end(s, f"transaction version {version}, epoch {epoch}", given)
    end(s, "an epoch before", marker(producer, 1, commit=True, at=here))
    for coordinator in (5, 4, -1):
        end(s, f"coordinator epoch {coordinator}", marker(producer, 2, commit=True, at=here, coordinator=coordinator))
    ends(s, "after these", name)
    end(s, "an unknown producer", marker(424_242, 7, commit=True, at={name: [1]}))
    end(s, "a partition that is not", marker(producer, 3, commit=True, at={name: [9]}))
    end(s, "a topic that is not", marker(producer, 3, commit=True, at={"markers-never": [0]}))
    end(s, "an invalid topic", marker(producer, 3, commit=True, at={"not a name": [0]}))
    end(s, "no partitions", marker(producer, 3, commit=True, at={name: []}))
    end(s, "nothing")
    end(s, "two", marker(producer, 3, commit=True, at=here, coordinator=5), marker(424_243, 0, commit=False, at=here))
    ends(s, "in the end", name)
