"""What records of a topic are like, by partition.

Of `kbroker.console.statistics`.
"""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from tests.broker_process import BrokerProcess
from tests.console.viewer import Viewer


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_sizes_keys_nulls_and_rates_are_counted(console_broker: BrokerProcess, viewer: Viewer, codec: str) -> None:
    """A person could not see that half of the records have no key, or that one partition has all of them."""
    name = console_broker.create_topic(f"counted-{codec}", 3)
    producer = Producer({"bootstrap.servers": console_broker.bootstrap, "compression.type": codec, "linger.ms": 50})
    for index in range(41):
        key = None if index % 4 == 0 else f"key-{index % 4}"
        value = None if index == 40 else b"x" * (1000 if index == 7 else 10)
        headers: list[tuple[str, str | bytes | None]] = [("a", b"1"), ("b", b"2")] if index == 0 else []
        producer.produce(name, value, key, partition=1, timestamp=1_000_000 + 50 * index, headers=headers)
    producer.produce(name, b"alone", partition=2, timestamp=5)
    assert producer.flush(30) == 0
    told = viewer.ask("statistics", topic=name)
    assert (told["partition_count"], told["start"]) == (3, 0)
    empty, full, single = told["partitions"]
    assert (empty["record_count"], empty["rate"], empty["first_ms"], empty["is_whole"]) == (0, None, None, True)
    assert (full["record_count"], full["null_keys"], full["key_count"], full["null_values"]) == (41, 11, 3, 1)
    assert (full["key_bytes"], full["largest_key"]) == (30 * 5, 5)
    assert (full["value_bytes"], full["largest_value"], full["header_count"]) == (39 * 10 + 1000, 1000, 2)
    assert (full["first_ms"], full["last_ms"], full["rate"]) == (1_000_000, 1_002_000, 20.0)
    assert full["is_whole"] and full["problem"] == "" and full["stored_bytes"] > 0
    assert (single["record_count"], single["rate"], single["last_ms"]) == (1, None, 5)
    assert [row["partition"] for row in viewer.ask("statistics", topic=name, start=2)["partitions"]] == [2]


def test_the_newest_records_count_where_there_are_many(console_broker: BrokerProcess, viewer: Viewer) -> None:
    """A look at a large topic would hold the reader for minutes, or tell of records from years ago."""
    name = console_broker.create_topic("counted-long", 1)
    producer = Producer({"bootstrap.servers": console_broker.bootstrap, "linger.ms": 50})
    for index in range(25_000):
        producer.produce(name, b"old" if index < 5_000 else b"newer", timestamp=1_000_000 + index)
        producer.poll(0)
    assert producer.flush(60) == 0
    (row,) = viewer.ask("statistics", topic=name)["partitions"]
    assert (row["first_offset"], row["record_count"], row["is_whole"]) == (5_000, 20_000, False)
    assert row["value_bytes"] == 20_000 * 5 and row["first_ms"] == 1_005_000


def test_records_that_a_viewer_may_not_read_are_not_counted(viewer: Viewer) -> None:
    """The page would tell what the records' own page refuses."""
    assert viewer.refused("statistics", topic="none")[0] == 404
    assert viewer.refused("statistics")[0] == 400
