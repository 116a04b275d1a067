"""ListOffsets and OffsetForLeaderEpoch against a running broker: where a log begins, ends, and was at some time."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from typing import Any

import pytest

from tests.broker.client import Batch, Client
from tests.conftest import BrokerProcess, StartBroker
from tests.handlers.aged import Aged, aged
from tests.scenarios.batches import T0

__all__ = ["aged"]

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = -1, -2, -3, -4, -5, -6
UNKNOWN_TOPIC, UNSUPPORTED_VERSION, INVALID_REQUEST, FENCED_EPOCH, UNKNOWN_EPOCH = 3, 35, 42, 74, 75
FIRST_WITH_LEADER_EPOCH = 4
PAIRS = [(b"k", b"v")] * 3


def ask(client: Client, topic: str, *rows: dict[str, Any], version: int = 11, **values: Any) -> Any:
    topics = [{"name": topic, "partitions": [{"partition_index": 0, **each} for each in rows]}]
    return client.ask("ListOffsets", version, {"replica_id": -1, "topics": topics, **values}).topics[0].partitions


def at(client: Client, topic: str, timestamp: int, version: int = 11, **values: Any) -> tuple[int, int, int]:
    """(error, timestamp, offset) of one partition."""
    (found,) = ask(client, topic, {"timestamp": timestamp, **values}, version=version)
    return found.error_code, found.timestamp, found.offset


@pytest.fixture(name="client")
def _client(module_broker: BrokerProcess) -> Iterator[Client]:
    with Client(module_broker.port) as client:
        yield client


@pytest.mark.parametrize("version", range(1, 12))
def test_each_version_finds_offsets(client: Client, version: int) -> None:
    """Clients of some age could not start where they are told to."""
    topic = f"versions-{version}"
    client.create(topic)
    client.write(topic, Batch(PAIRS, [T0, T0 + 10, T0 + 20]), Batch(timestamps=[T0 + 100]))
    assert at(client, topic, LATEST, version) == (0, -1, 4)
    assert at(client, topic, EARLIEST, version) == (0, -1, 0)
    assert at(client, topic, T0 + 15, version) == (0, T0 + 20, 2)
    assert at(client, topic, T0 + 101, version) == (0, -1, -1)
    (found,) = ask(client, topic, {"timestamp": T0}, version=version)
    assert found.leader_epoch == (0 if version >= FIRST_WITH_LEADER_EPOCH else -1)


@pytest.mark.parametrize(
    ("timestamp", "since", "expected"),
    [
        (MAX_TIMESTAMP, 7, (0, T0 + 99, 1)),
        (EARLIEST_LOCAL, 8, (0, -1, 0)),
        (LATEST_TIERED, 9, (0, -1, -1)),
        (EARLIEST_PENDING, 11, (0, -1, -1)),
    ],
)
def test_special_times(client: Client, timestamp: int, since: int, expected: tuple[int, int, int]) -> None:
    """Admin tools would get wrong ends, or an answer that their version does not know."""
    topic = f"special{timestamp}"
    client.create(topic)
    client.write(topic, *[Batch(timestamps=[T0 + number]) for number in (9, 99, 50)])
    assert at(client, topic, timestamp, since) == expected
    assert at(client, topic, timestamp, since - 1)[0] == UNSUPPORTED_VERSION
    client.create(topic + "-empty")
    assert at(client, topic + "-empty", timestamp, since)[0] == 0
    assert at(client, topic + "-empty", MAX_TIMESTAMP, 11) == (0, -1, -1)
    assert at(client, topic, -10)[0] == UNSUPPORTED_VERSION


@pytest.mark.parametrize("codec", [0, 1, 4])
def test_the_first_record_at_or_after_a_time(client: Client, codec: int) -> None:
    """A consumer that starts at a time would miss records, or read too many."""
    topic = f"times-{codec}"
    client.create(topic)
    first = Batch(PAIRS, [T0, T0 + 10, T0 + 20], codec=codec)
    client.write(topic, first, Batch(PAIRS, [T0 + 30, T0 + 25, T0 + 40], codec=codec))
    expected = {
        0: (T0, 0),
        T0: (T0, 0),
        T0 + 1: (T0 + 10, 1),
        T0 + 20: (T0 + 20, 2),
        T0 + 21: (T0 + 30, 3),
        T0 + 26: (T0 + 30, 3),
        T0 + 31: (T0 + 40, 5),
        T0 + 41: (-1, -1),
        2**62: (-1, -1),
    }
    assert {time: at(client, topic, time)[1:] for time in expected} == expected


def old_offsets(client: Client, topic: str, timestamp: int, count: int = 100, **values: Any) -> tuple[int, list[int]]:
    """(error, offsets) of version 0."""
    (found,) = ask(client, topic, {"timestamp": timestamp, "max_num_offsets": count, **values}, version=0)
    return found.error_code, found.old_style_offsets


def test_the_oldest_version_lists_where_segments_begin(kbroker_process: StartBroker) -> None:
    """Consumers of 0.8 and 0.9 could not find where a partition begins and ends."""
    broker = kbroker_process({"log.segment.bytes": "1048576"})
    with Client(broker.port) as client:
        client.create("old")
        assert old_offsets(client, "old", LATEST) == old_offsets(client, "old", EARLIEST) == (0, [0])
        client.write("old", *[Batch([(None, bytes(40_000))] * 2) for _ in range(40)])
        files = sorted((broker.data_dir / "old-0").glob("*.log"))
        begins = [int(file.stem) for file in files]
        assert len(begins) > 3
        every = [80, *begins[::-1]]
        assert old_offsets(client, "old", LATEST) == (0, every)
        assert old_offsets(client, "old", LATEST, 2) == (0, every[:2])
        assert old_offsets(client, "old", EARLIEST) == (0, [0])
        assert old_offsets(client, "old", EARLIEST, 0) == (0, [])
        assert old_offsets(client, "old", T0) == (0, [])
        assert old_offsets(client, "old", 2**62) == (0, every)
        # A segment counts from the time on at which its file was last changed.
        for file in files[:2]:
            os.utime(file, (T0 / 1000, T0 / 1000))
        assert old_offsets(client, "old", T0 + 1) == (0, [begins[1], 0])
        assert old_offsets(client, "old", T0 + 1, 1) == (0, [begins[1]])
        assert old_offsets(client, "old", T0 - 1000) == (0, [])
        assert old_offsets(client, "never", LATEST) == (UNKNOWN_TOPIC, [])
        assert old_offsets(client, "old", LATEST, -1) == (-1, [])


def test_times_are_found_over_many_segments(kbroker_process: StartBroker) -> None:
    """A consumer that starts at a time would read from the wrong segment, also after a restart."""
    broker = kbroker_process({"log.segment.bytes": "1048576", "log.index.interval.bytes": "4096"})
    with Client(broker.port) as client:
        client.create("segments")
        for number in range(60):
            client.write("segments", Batch([(None, bytes(40_000))] * 2, [T0 + 20 * number, T0 + 20 * number + 10]))
    assert len(list((broker.data_dir / "segments-0").glob("*.log"))) > 2
    for _ in range(2):
        with Client(broker.port) as client:
            for offset in (0, 1, 27, 28, 63, 118, 119):
                assert at(client, "segments", T0 + 10 * offset) == (0, T0 + 10 * offset, offset)
                assert at(client, "segments", T0 + 10 * offset - 9) == (0, T0 + 10 * offset, offset)
            assert at(client, "segments", MAX_TIMESTAMP) == (0, T0 + 1190, 119)
        broker.restart()


def test_what_is_not_there_is_refused(client: Client) -> None:
    """A consumer would start at offset 0 of nothing."""
    client.create("known")
    assert at(client, "never", LATEST)[0] == UNKNOWN_TOPIC
    assert at(client, "known", LATEST, partition_index=5)[0] == UNKNOWN_TOPIC
    assert at(client, "known", T0, partition_index=-1)[0] == UNKNOWN_TOPIC
    (found,) = ask(client, "known", {"timestamp": LATEST}, {"timestamp": EARLIEST})
    assert (found.error_code, found.offset) == (INVALID_REQUEST, -1)


def test_many_partitions_at_once(client: Client) -> None:
    """A consumer of many partitions would start in the wrong one."""
    client.create("many", 20)
    for partition in range(20):
        client.write("many", *[Batch()] * (partition % 4 + 1), partition=partition)
    rows = [{"partition_index": partition, "timestamp": LATEST} for partition in range(20)]
    found = ask(client, "many", *rows)
    assert [(each.partition_index, each.offset) for each in found] == [(n, n % 4 + 1) for n in range(20)]


def test_committed_ends_without_transactions(client: Client) -> None:
    """Consumers with `read_committed` would see a lag that is none."""
    client.create("committed")
    client.write("committed", Batch())
    (found,) = ask(client, "committed", {"timestamp": LATEST}, isolation_level=1)
    assert found.offset == 1


# Epochs


def test_offsets_come_with_their_epoch(aged: Aged) -> None:
    """A consumer would take its position for one of another leader, and be fenced."""
    with Client(aged.broker.port) as client:

        def epoch(timestamp: int, **values: Any) -> tuple[int, int]:
            (found,) = ask(client, aged.topic, {"timestamp": timestamp, **values})
            return found.error_code, found.leader_epoch

        assert [epoch(time) for time in (EARLIEST, T0 + 10, T0 + 20, LATEST)] == [(0, 0), (0, 0), (0, 5), (0, 5)]
        assert epoch(LATEST, current_leader_epoch=5) == (0, 5)
        assert epoch(LATEST, current_leader_epoch=4)[0] == FENCED_EPOCH
        assert epoch(LATEST, current_leader_epoch=-2)[0] == FENCED_EPOCH
        assert epoch(T0, current_leader_epoch=6)[0] == UNKNOWN_EPOCH


@pytest.mark.parametrize("version", [2, 3, 4])
def test_where_an_epoch_ends(aged: Aged, version: int) -> None:
    """A consumer could not find out whether records that it read were lost."""
    with Client(aged.broker.port) as client:

        def end(epoch: int, topic: str = aged.topic, partition: int = 0, current: int = -1) -> tuple[int, int, int]:
            row = {"partition": partition, "leader_epoch": epoch, "current_leader_epoch": current}
            values: dict[str, Any] = {"replica_id": -1} if version > 2 else {}
            asked = {"topics": [{"topic": topic, "partitions": [row]}], **values}
            found = client.ask("OffsetForLeaderEpoch", version, asked).topics[0].partitions[0]
            return found.error_code, found.leader_epoch, found.end_offset

        assert end(0) == (0, 0, 2)
        assert end(3) == (0, 0, 2)
        assert end(5) == (0, 5, 3)
        assert end(6) == (0, -1, -1)
        assert end(-1) == (0, -1, -1)
        assert end(0, current=5) == (0, 0, 2)
        assert end(0, current=4)[0] == FENCED_EPOCH
        assert end(0, current=6)[0] == UNKNOWN_EPOCH
        assert end(0, "never")[0] == UNKNOWN_TOPIC
        assert end(0, partition=3)[0] == UNKNOWN_TOPIC


@pytest.mark.parametrize("version", [0, 1])
def test_where_an_epoch_ends_in_the_oldest_versions(aged: Aged, version: int) -> None:
    """Followers of old brokers, which name no epoch of their own, could not find where their log parts from ours."""
    with Client(aged.broker.port) as client:
        for epoch, found, end_offset in ((0, 0, 2), (3, 0, 2), (5, 5, 3), (6, -1, -1)):
            row = {"partition": 0, "leader_epoch": epoch}
            asked = {"topics": [{"topic": aged.topic, "partitions": [row]}]}
            answer = client.ask("OffsetForLeaderEpoch", version, asked).topics[0].partitions[0]
            expected = found if version else -1
            assert (answer.error_code, answer.leader_epoch, answer.end_offset) == (0, expected, end_offset)


@pytest.mark.parametrize("codec", [1, 4])
def test_a_long_batch_is_searched_aside(client: Client, codec: int) -> None:
    """Everybody would wait while one consumer's start is looked for in a large compressed batch."""
    topic = f"long-{codec}"
    client.create(topic)
    count = 3000
    # Hard to compress, so that the batch stays long.
    pairs = [(b"%d" % number, random.Random(number).randbytes(40)) for number in range(count)]
    client.write(topic, Batch(pairs, [T0 + 2 * number for number in range(count)], codec=codec))
    client.write(topic, Batch(PAIRS, [T0 + 3 * count + number for number in range(3)], codec=codec))
    assert at(client, topic, T0 + 2001) == (0, T0 + 2002, 1001)
    assert at(client, topic, T0 + 2 * count) == (0, T0 + 3 * count, count)
    assert at(client, topic, T0 + 9 * count) == (0, -1, -1)
    gone = [{"name": topic, "partitions": [{"partition_index": 0, "offset": 2000}]}]
    client.ask("DeleteRecords", 2, {"topics": gone, "timeout_ms": 10_000})
    # What lies before the start of the log is passed over, also within its batch.
    assert at(client, topic, T0) == (0, T0 + 4000, 2000)
