"""ListOffsets by a new leader that does not know yet how much is committed (KIP-207), over the wire.

Clients may have been told of records that the last leader had committed, which this one has not learnt: until its high
watermark has reached the start of its epoch, it refuses what would be answered with an end that lies behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.broker.client import Batch, Client
from tests.replication.led_partition import THEIRS, TOPIC, Cluster, run
from tests.scenarios.batches import T0

VERSIONS = range(12)
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = -1, -2, -3, -4, -5, -6
SINCE = {LATEST: 0, EARLIEST: 0, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING: 11}
READ_COMMITTED = 1
LEADER_NOT_AVAILABLE, OFFSET_NOT_AVAILABLE, UNKNOWN_EPOCH, FENCED_EPOCH = 5, 78, 75, 74
FIRST_WITH_LEADER_EPOCH, FIRST_WITH_OFFSET_NOT_AVAILABLE = 4, 5
CONSUMER, DEBUGGER = -1, -2
COMMITTED, END = 2, 5


def refusal(version: int) -> int:
    return OFFSET_NOT_AVAILABLE if version >= FIRST_WITH_OFFSET_NOT_AVAILABLE else LEADER_NOT_AVAILABLE


class Asking:
    """A client of the new leader."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def __call__(self, version: int, timestamp: int, replica_id: int = CONSUMER, **values: Any) -> Any:
        row = {"partition_index": 0, "timestamp": timestamp}
        row |= {name: values.pop(name) for name in ("current_leader_epoch", "max_num_offsets") if name in values}
        topics = [{"name": TOPIC, "partitions": [row]}]
        request = {"replica_id": replica_id, "topics": topics, **values}
        answer = await asyncio.to_thread(self._client.ask, "ListOffsets", version, request)
        return answer.topics[0].partitions[0]

    async def offset(self, version: int, timestamp: int, **values: Any) -> tuple[int, int]:
        """(error, offset)."""
        found = await self(version, timestamp, **values)
        return found.error_code, found.offset


def behind_a_leader_change(directory: Path, scenario: Callable[[Cluster, Asking, Client], Awaitable[None]]) -> None:
    """Five records, of which two were committed when this broker became the leader again; a follower has yet to ask."""

    async def main(cluster: Cluster) -> None:
        with await cluster.client() as client, await cluster.client() as follower:
            asking = Asking(client)
            for number in range(END):
                await asyncio.to_thread(client.produce, TOPIC, Batch(timestamps=[T0 + number]), acks=1)
            await cluster.follow(follower, COMMITTED)
            assert await asking.offset(7, LATEST) == (0, COMMITTED), "the leader of this epoch knows"
            cluster.place(leader_epoch=1)
            log = cluster.partition().log
            assert (log.high_watermark, log.log_end_offset) == (COMMITTED, END)
            await scenario(cluster, asking, follower)

    run(directory, main)


@pytest.mark.parametrize("isolation", [0, READ_COMMITTED])
def test_a_new_leader_does_not_say_an_end_that_clients_have_seen_passed(tmp_path: Path, isolation: int) -> None:
    """A consumer that starts at the end would read again what came before its start; a lag would be negative."""

    async def scenario(cluster: Cluster, asking: Asking, follower: Client) -> None:
        for version in VERSIONS[1:]:
            values = {"isolation_level": isolation} if version >= 2 else {}
            found = await asking(version, LATEST, **values)
            assert (found.error_code, found.offset, found.leader_epoch) == (refusal(version), -1, -1), version
        # One record short of the epoch's start is not enough.
        await cluster.follow(follower, END - 1)
        assert cluster.partition().log.high_watermark == END - 1
        for version in VERSIONS[1:]:
            assert await asking.offset(version, LATEST) == (refusal(version), -1), version
        await cluster.follow(follower, END)
        for version in VERSIONS[1:]:
            found = await asking(version, LATEST, **({"isolation_level": isolation} if version >= 2 else {}))
            epoch = 1 if version >= FIRST_WITH_LEADER_EPOCH else -1
            assert (found.error_code, found.offset, found.leader_epoch) == (0, END, epoch), version

    behind_a_leader_change(tmp_path, scenario)


def test_what_lies_below_the_high_watermark_is_answered_by_a_new_leader(tmp_path: Path) -> None:
    """Consumers could not start at the beginning, or at a time, while a follower is slow."""

    async def scenario(_cluster: Cluster, asking: Asking, _follower: Client) -> None:
        for version in VERSIONS[1:]:
            assert await asking.offset(version, EARLIEST) == (0, 0), version
            assert await asking.offset(version, T0 + 1) == (0, 1), version
            # This one may have been seen, and this broker does not know; the one after that may have been, too.
            assert await asking.offset(version, T0 + COMMITTED) == (refusal(version), -1), version
            assert await asking.offset(version, T0 + END) == (refusal(version), -1), version
        for timestamp, expected in (
            (MAX_TIMESTAMP, (OFFSET_NOT_AVAILABLE, -1)),
            (EARLIEST_LOCAL, (0, 0)),
            (EARLIEST_PENDING, (0, -1)),
        ):
            for version in VERSIONS[SINCE[timestamp] :]:
                assert await asking.offset(version, timestamp) == expected, (timestamp, version)

    behind_a_leader_change(tmp_path, scenario)


def test_the_oldest_version_knows_nothing_of_it(tmp_path: Path) -> None:
    """Consumers of 0.8 take what the leader knows, as from Kafka."""

    async def scenario(_cluster: Cluster, asking: Asking, _follower: Client) -> None:
        for timestamp, expected in ((LATEST, [COMMITTED, 0]), (EARLIEST, [0])):
            found = await asking(0, timestamp, max_num_offsets=10)
            assert (found.error_code, found.old_style_offsets) == (0, expected)

    behind_a_leader_change(tmp_path, scenario)


def test_brokers_and_tools_that_stand_in_for_them_are_told_where_the_log_ends(tmp_path: Path) -> None:
    """A follower that has to cut its log could not learn to where; it is what the high watermark waits for."""

    async def scenario(_cluster: Cluster, asking: Asking, _follower: Client) -> None:
        for version in VERSIONS[1:]:
            for replica_id in (THEIRS, DEBUGGER):
                assert await asking.offset(version, LATEST, replica_id=replica_id) == (0, END), version
                assert await asking.offset(version, T0 + END - 1, replica_id=replica_id) == (0, END - 1), version

    behind_a_leader_change(tmp_path, scenario)


def test_a_wrong_leader_epoch_is_said_before_that(tmp_path: Path) -> None:
    """A client with old metadata would ask the wrong broker again and again."""

    async def scenario(_cluster: Cluster, asking: Asking, _follower: Client) -> None:
        for version in VERSIONS[FIRST_WITH_LEADER_EPOCH:]:
            for epoch, code in ((0, FENCED_EPOCH), (1, refusal(version)), (2, UNKNOWN_EPOCH)):
                found = await asking.offset(version, LATEST, current_leader_epoch=epoch)
                assert found == (code, -1), (version, epoch)

    behind_a_leader_change(tmp_path, scenario)


def test_a_leader_without_records_that_may_be_committed_answers_at_once(tmp_path: Path) -> None:
    """Each election would cost clients of idle partitions a moment."""

    async def scenario(cluster: Cluster) -> None:
        with await cluster.client() as client, await cluster.client() as follower:
            asking = Asking(client)
            cluster.place(leader_epoch=1)
            assert await asking.offset(7, LATEST) == (0, 0)
            await asyncio.to_thread(client.produce, TOPIC, Batch(), acks=1)
            # What came in this epoch was not told to anyone.
            assert await asking.offset(7, LATEST) == (0, 0)
            await cluster.follow(follower, 1)
            cluster.place(leader_epoch=2)
            assert await asking.offset(7, LATEST) == (0, 1)

    run(tmp_path, scenario)
