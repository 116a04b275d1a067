"""A client of raw requests: any version, any field, nothing retried, nothing hidden.

with Client(broker.port) as client:
    client.create("topic")
    client.produce("topic", Batch())          # the answer of partition 0
    client.fetch("topic", wait_ms=20_000)     # the answer of partition 0
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from tests.compat.waiting import wait_for
from tests.network.raw_client import readiness, scrape
from tests.scenarios.batches import Batch
from tests.scenarios.wire import Closed, Wire, build

__all__ = [
    "Batch",
    "Client",
    "Closed",
    "Wire",
    "build",
    "open_connections",
    "readiness",
    "scrape",
    "until_waiting",
    "wait_for",
]

MEGABYTE = 1 << 20
FIRST_WITH_TOPIC_IDS = 13
Records = Batch | bytes | None


class Client(Wire):
    """One connection, with the requests that most tests need."""

    def __init__(self, port: int, host: str = "127.0.0.1", *, source: str = "", seconds: float = 60) -> None:
        self._socket = socket.create_connection((host, port), seconds, (source, 0) if source else None)
        self._correlation_id = 0

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def socket(self) -> socket.socket:
        return self._socket

    def hung_up(self) -> bool:
        """Waits for the broker to say something or to close; whether it closed."""
        try:
            self.receive()
        except Closed:
            return True
        return False

    def half_close(self) -> None:
        """Send nothing more, as a client that is done; it still reads."""
        self._socket.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """End as a client whose connection breaks: the broker learns of it at once."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()

    # Topics

    def create(self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> bytes:
        """Create a topic; its id."""
        rows = [{"name": key, "value": value} for key, value in (configs or {}).items()]
        topic = {"name": name, "num_partitions": partitions, "replication_factor": 1, "configs": rows}
        made = self.ask("CreateTopics", 7, {"topics": [topic], "timeout_ms": 30_000}).topics[0]
        assert made.error_code == 0, f"{name} was not created: {made.error_code} {made.error_message}"
        return bytes(made.topic_id)

    def delete(self, name: str) -> None:
        answer = self.ask("DeleteTopics", 6, {"topics": [{"name": name}], "timeout_ms": 30_000})
        assert answer.responses[0].error_code == 0

    # Records

    def produce(self, topic: str | bytes, records: Records, version: int = 9, **values: Any) -> Any:
        """Produce to one partition (0 unless `partition`); its part of the answer."""
        return (
            self.ask("Produce", version, produce_values(topic, records, **values)).responses[0].partition_responses[0]
        )

    def write(self, topic: str, *batches: Records, partition: int = 0) -> int:
        """Produce each batch, which must be taken; the offset of the last one."""
        offset = -1
        for records in batches or (Batch(),):
            answer = self.produce(topic, records, partition=partition)
            assert answer.error_code == 0, f"{topic}: {answer.error_code}"
            offset = answer.base_offset
        return int(offset)

    def fetch(self, topic: str | bytes, version: int = 11, **values: Any) -> Any:
        """Fetch one partition (0 unless `partition`) by itself; its part of the answer."""
        answer = self.ask("Fetch", version, fetch_values(topic, **values))
        assert answer.error_code == 0, f"the fetch was refused: {answer.error_code}"
        return answer.responses[0].partitions[0]

    def offset(self, topic: str, timestamp: int = -1, partition: int = 0) -> int:
        """The offset for a timestamp; the end unless said otherwise."""
        rows = [{"partition_index": partition, "timestamp": timestamp}]
        asked = {"replica_id": -1, "topics": [{"name": topic, "partitions": rows}]}
        found = self.ask("ListOffsets", 7, asked).topics[0].partitions[0]
        assert found.error_code == 0, f"{topic}: {found.error_code}"
        return int(found.offset)

    def producer_id(self) -> int:
        """A new idempotent producer."""
        return int(
            self.ask("InitProducerId", 4, {"transactional_id": None, "transaction_timeout_ms": 60_000}).producer_id
        )


def produce_values(
    topic: str | bytes, records: Records, *, partition: int = 0, acks: int = -1, **values: Any
) -> dict[str, Any]:
    """The fields of a Produce request with one batch; a topic in bytes is a topic id."""
    data = records.encoded() if isinstance(records, Batch) else records
    parts = [{"index": partition, "records": data}]
    return {"acks": acks, "timeout_ms": 10_000, "topic_data": [{**named(topic), "partition_data": parts}], **values}


def fetch_values(
    topic: str | bytes,
    *,
    partition: int = 0,
    offset: int = 0,
    limit: int = MEGABYTE,
    wait_ms: int = 0,
    min_bytes: int = 1,
    place: Mapping[str, Any] | None = None,
    **values: Any,
) -> dict[str, Any]:
    """The fields of a Fetch request of one partition; `place` adds fields of the partition."""
    row = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": limit, **(place or {})}
    name = {"topic_id": topic} if isinstance(topic, bytes) else {"topic": topic}
    return {
        "max_wait_ms": wait_ms,
        "min_bytes": min_bytes,
        "max_bytes": 50 * MEGABYTE,
        "topics": [{**name, "partitions": [row]}],
        **values,
    }


def named(topic: str | bytes) -> dict[str, Any]:
    return {"topic_id": topic} if isinstance(topic, bytes) else {"name": topic}


# What the broker tells of itself


def open_connections(metrics_url: str) -> int:
    """Client connections, over all listeners."""
    found = scrape(metrics_url)
    return int(sum(value for key, value in found.items() if key.startswith("kbroker_connections{")))


def until_waiting(metrics_url: str, count: int = 1) -> None:
    """Wait until so many fetches are parked, no fewer and no more."""
    until(lambda: scrape(metrics_url)["kbroker_fetches_waiting"] == count, f"{count} waiting fetches")


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for a condition."""
    wait_for(condition, what)
