"""Topics with keys, headers and times to move, and what a topic holds, as its readers see it."""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa

from kbroker.client.cluster import Cluster
from kbroker.client.list_offsets import list_offsets
from kbroker.replay.sources.offset_ranges import Range
from kbroker.replay.sources.read_options import parse
from kbroker.replay.sources.read_range import read_range
from kbroker.types import EARLIEST, LATEST

NOW_MS = 1_700_000_000_000
COLUMNS = ("key", "value", "timestamp", "headers")


class Held(NamedTuple):
    """A partition's records without their offsets."""

    keys: list[bytes | None]
    values: list[bytes | None]
    times: list[Any]
    headers: list[Any]


def produce(bootstrap: str, topic: str, partitions: int, first: int, count: int) -> None:
    """Records with numbers as values, among them some without key, value or headers."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for number in range(first, first + count):
        headers: Any = [("n", b"%d" % number), ("n", None), ("é", b"")] if number % 5 else None
        producer.produce(
            topic,
            key=None if number % 7 == 0 else b"key-%d" % (number % 50),
            value=None if number % 11 == 0 else b"%d" % number,
            partition=number % partitions,
            timestamp=NOW_MS + number,
            headers=headers,
        )
        producer.poll(0)
    assert producer.flush(60) == 0


def held(bootstrap: str, topic: str, partition: int) -> Held:
    read = parse({"kafka.bootstrap.servers": bootstrap, "subscribe": topic}, streaming=False)
    at = (topic, partition)
    with Cluster(bootstrap) as cluster:
        first, last = (list_offsets(cluster, {at: place})[at].offset for place in (EARLIEST, LATEST))
    batches = list(read_range(Range(topic, partition, first, last), COLUMNS, read))
    if not batches:
        return Held([], [], [], [])
    table = pa.Table.from_batches(batches)
    return Held(*(table.column(name).to_pylist() for name in COLUMNS))


def assert_same(source: tuple[str, str], target: tuple[str, str], partitions: int) -> None:
    """Equal record for record, in order, in each partition.  Places are (bootstrap, topic)."""
    for partition in range(partitions):
        expected, found = held(*source, partition), held(*target, partition)
        assert len(found.values) == len(expected.values), f"partition {partition}: records were lost or written twice"
        assert found == expected, f"partition {partition}: records were changed"


def assert_spread_by_key(bootstrap: str, topic: str, partitions: int, count: int) -> None:
    """So many numbers as values, in all partitions, and each key in one of them."""
    found = [held(bootstrap, topic, partition) for partition in range(partitions)]
    assert sorted(int(value or b"") for part in found for value in part.values) == list(range(count))
    for number, part in enumerate(found):
        others = {key for other in found[:number] + found[number + 1 :] for key in other.keys}
        assert part.keys
        assert not others & set(part.keys)


def delete_before(bootstrap: str, topic: str, partition: int, offset: int) -> None:
    """As retention does."""
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    client = AdminClient({"bootstrap.servers": bootstrap})
    for future in client.delete_records([TopicPartition(topic, partition, offset)]).values():
        future.result(30)
