"""Fetches of so many partitions that they are served in slices of the loop's time, and look again while they wait."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kbroker.handlers.records.fetch import MANY_PARTITIONS
from tests.broker.client import Batch, Client
from tests.conftest import BrokerProcess

PARTITIONS = MANY_PARTITIONS + 1
LAST = PARTITIONS - 1
LOGS_SECONDS = 110


@pytest.fixture(scope="module", name="topic")
def _topic(module_broker: BrokerProcess) -> Iterator[str]:
    """Its logs are all there: those that nobody has asked for are made later, which takes as long as the disk likes."""
    with Client(module_broker.port, seconds=LOGS_SECONDS) as client:
        client.create("wide", PARTITIONS)
        assert found(client.ask("Fetch", 4, values("wide", 0))) == {}
    yield "wide"


def values(topic: str, wait_ms: int, offset: int = 0, least_bytes: int = 1) -> dict[str, Any]:
    rows = [
        {"partition": at, "fetch_offset": offset if at == LAST else 0, "partition_max_bytes": 1000}
        for at in range(PARTITIONS)
    ]
    return {
        "replica_id": -1,
        "max_wait_ms": wait_ms,
        "min_bytes": least_bytes,
        "max_bytes": 1 << 20,
        "topics": [{"topic": topic, "partitions": rows}],
    }


def found(answer: Any) -> dict[int, int]:
    """The bytes of each partition that has any; all partitions are named, none with an error."""
    (topic,) = answer.responses
    assert [row.partition_index for row in topic.partitions] == list(range(PARTITIONS))
    assert {row.error_code for row in topic.partitions} == {0}
    return {row.partition_index: len(row.records) for row in topic.partitions if len(row.records or b"")}


def test_a_fetch_in_slices_hears_of_what_is_written_while_it_waits(module_broker: BrokerProcess, topic: str) -> None:
    """A consumer of thousands of partitions would get each record only when its wait is over."""
    with Client(module_broker.port, seconds=50) as reader, Client(module_broker.port) as writer:
        offset = writer.offset(topic, partition=LAST)
        reader.send("Fetch", 4, values(topic, 600_000, offset))
        size = len(Batch().encoded())
        writer.write(topic, Batch(), partition=LAST)
        assert found(reader.answer("Fetch", 4)) == {LAST: size}


def test_a_fetch_in_slices_ends_when_its_time_is_up(module_broker: BrokerProcess, topic: str) -> None:
    """A consumer would wait for ever for topics in which nothing is written."""
    with Client(module_broker.port, seconds=50) as reader:
        offset = reader.offset(topic, partition=LAST)
        assert found(reader.ask("Fetch", 4, values(topic, 50, offset))) == {}


def test_a_fetch_in_slices_waits_for_its_least_bytes(module_broker: BrokerProcess, topic: str) -> None:
    """A consumer that asks for large answers would get one for each record."""
    with Client(module_broker.port, seconds=50) as reader, Client(module_broker.port) as writer:
        offset = writer.offset(topic, partition=LAST)
        size = len(Batch().encoded())
        writer.write(topic, Batch(), partition=LAST)
        reader.send("Fetch", 4, values(topic, 600_000, offset, 2 * size))
        writer.write(topic, Batch(), partition=LAST)
        assert found(reader.answer("Fetch", 4)) == {LAST: 2 * size}
