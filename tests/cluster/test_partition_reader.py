"""What the leaders of partitions are asked for, and what becomes of their answers.

Also of `kbroker.cluster.partition_reader`.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kbroker.cluster.partition_reader import Fetched, PartitionReader, by_leader
from kbroker.errors import ErrorCode, KafkaError
from kbroker.metadata.image import ClusterImage, PartitionImage, TopicImage
from kbroker.types import READ_COMMITTED

NONE, LEFT_BY = -1, -2
ID = bytes(range(16))


def image(*leaders: int) -> ClusterImage:
    rows = tuple(PartitionImage(at, leader, 0, (1, 2), (1, 2)) for at, leader in enumerate(leaders))
    return ClusterImage("c", topics={"t": TopicImage("t", ID, rows)})


class Leaders:
    """Answers fetches; `codes` of the partitions that are refused."""

    def __init__(self, *leaders: int) -> None:
        self.image = image(*leaders)
        self.asked: list[tuple[int, Any]] = []
        self.codes: dict[int, int] = {}
        self.reader = PartitionReader(self.ask, lambda: self.image)

    async def ask(self, kind: type[Any], request: Any, node_id: int) -> Any:
        self.asked.append((node_id, request))
        (row,) = request.topics[0].partitions
        found = kind.PartitionData(
            partition_index=row.partition,
            error_code=self.codes.get(row.partition, 0),
            high_watermark=9,
            log_start_offset=2,
            aborted_transactions=[kind.AbortedTransaction(producer_id=7, first_offset=3)],
            records=memoryview(b"records") if row.fetch_offset < 9 else None,
        )
        return kind(responses=[kind.FetchableTopicResponse(topic="t", partitions=[found])])


@pytest.mark.parametrize(
    ("place", "code"),
    [
        (("t", 1), ErrorCode.LEADER_NOT_AVAILABLE),
        (("t", 2), ErrorCode.LEADER_NOT_AVAILABLE),
        (("t", 3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (("other", 0), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_what_has_no_leader_is_refused_before_any_broker_is_asked(place: tuple[str, int], code: ErrorCode) -> None:
    """Half of an answer would be taken for all of it."""
    leaders = Leaders(1, NONE, LEFT_BY)
    with pytest.raises(KafkaError) as caught:
        asyncio.run(leaders.reader.read(*place, 0, 1))
    assert caught.value.code == code
    assert not leaders.asked
    assert by_leader(leaders.image, [("t", 0), place]) == {1: {"t": [0]}}


def test_a_refusal_is_raised() -> None:
    """A leader that has changed would look like an empty partition."""
    leaders = Leaders(1, 2)
    leaders.codes = {1: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    with pytest.raises(KafkaError) as caught:
        asyncio.run(leaders.reader.read("t", 1, 0, 1))
    assert caught.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_records_are_read_from_the_leader_by_then() -> None:
    """A reader would ask a broker that leads no more, or hold a connection without being asked to wait."""
    leaders = Leaders(1)
    fetched = asyncio.run(leaders.reader.read("t", 0, 5, 1000))
    assert fetched == Fetched(b"records", [(7, 3)], 9, 2)
    leaders.image = image(2)
    assert asyncio.run(leaders.reader.read("t", 0, 9, 1000, isolation=READ_COMMITTED, wait_ms=500)).records == b""
    (first, one), (second, other) = leaders.asked
    assert (first, second) == (1, 2)
    row = one.topics[0].partitions[0]
    assert (one.topics[0].topic_id, row.fetch_offset, row.partition_max_bytes, one.max_bytes) == (ID, 5, 1000, 1000)
    assert (one.max_wait_ms, one.min_bytes, one.isolation_level) == (0, 0, 0)
    assert (other.max_wait_ms, other.min_bytes, other.isolation_level) == (500, 1, READ_COMMITTED)
