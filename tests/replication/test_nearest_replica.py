"""Consumers that read from a replica near them (KIP-392): where leaders send them, and what followers serve."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kbroker.metadata.image import BrokerImage, BrokersImage, Endpoint, MetadataDelta
from kbroker.replication.replica_selector import Candidate, RackAwareSelector, nearest
from tests.broker.client import Batch, Client, fetch_values
from tests.replication.led_partition import LONG_MS, NOT_LEADER, OURS, THEIRS, TOPIC, Cluster, run, until

OFFSET_OUT_OF_RANGE, FENCED_LEADER_EPOCH = 1, 74
NOBODY = -1
RACKS = {"broker.rack": "a"}


@pytest.mark.parametrize(
    ("rack", "candidates", "expected"),
    [
        ("", [Candidate(9, 1.0, 2, "")], None),
        ("a", [Candidate(9, 1.0, 2, "a")], None),
        ("b", [], None),
        ("b", [Candidate(9, 1.0, 2, "c"), Candidate(9, 1.0, 3, None)], None),
        ("b", [Candidate(9, 1.0, 2, "b"), Candidate(8, 2.0, 3, "b")], 2),
        ("b", [Candidate(9, 1.0, 2, "b"), Candidate(9, 2.0, 3, "b")], 3),
        ("b", [Candidate(9, 1.0, 2, "b"), Candidate(9, 1.0, 3, "b")], 3),
    ],
)
def test_the_replica_with_most_records_in_the_rack_is_nearest(
    rack: str, candidates: list[Candidate], expected: int | None
) -> None:
    """Consumers would pay for traffic between racks, or be sent to a replica that has less than another there."""
    assert nearest(rack, "a", candidates) == expected


async def with_racks(cluster: Cluster, rack: str | None = "b") -> None:
    """The other broker stands in `rack`, and consumers are sent to the nearest one."""
    services = cluster.broker.services
    cache = services.metadata_cache
    brokers = dict(cache.image.brokers)
    brokers[THEIRS] = BrokerImage(THEIRS, {"PLAINTEXT": Endpoint("127.0.0.1", 9)}, rack)
    cache.apply(MetadataDelta(brokers=BrokersImage(brokers, OURS)))
    services.replica_manager.selector = RackAwareSelector(lambda: cache.image)


async def read(client: Client, rack: str, offset: int = 0, version: int = 11, **values: Any) -> Any:
    return await asyncio.to_thread(client.fetch, TOPIC, version, offset=offset, rack_id=rack, **values)


def test_a_leader_sends_consumers_to_the_follower_in_their_rack(tmp_path: Path) -> None:
    """client.rack would do nothing; or consumers would be sent where their records are not, and back again."""

    async def scenario(cluster: Cluster) -> None:
        client, follower = await cluster.client(), await cluster.client()
        await with_racks(cluster)
        for _ in range(3):
            await asyncio.to_thread(client.produce, TOPIC, Batch(), acks=1)
        await cluster.follow(follower, 2)
        for version in (11, 12):
            found = await read(client, "b", 2, version, wait_ms=LONG_MS)
            assert (found.preferred_read_replica, found.records, found.error_code) == (THEIRS, b"", 0)
            assert found.high_watermark == 2
        at_once = {"a": 0, "": 0, "nowhere": 0}
        for rack, offset in at_once.items():
            found = await read(client, rack, offset)
            assert found.preferred_read_replica == NOBODY and len(found.records) > 0
        # The follower does not have what is asked for.
        found = await read(client, "b", 3)
        assert (found.preferred_read_replica, found.error_code) == (NOBODY, 0)
        # A session is told so, too, each time that it asks.
        first = await asyncio.to_thread(
            client.ask, "Fetch", 11, fetch_values(TOPIC, rack_id="b", session_id=0, session_epoch=0)
        )
        values = {"rack_id": "b", "session_id": first.session_id, "session_epoch": 1}
        again = await asyncio.to_thread(client.ask, "Fetch", 11, {**fetch_values(TOPIC, wait_ms=LONG_MS), **values})
        for answer in (first, again):
            assert answer.responses[0].partitions[0].preferred_read_replica == THEIRS
        cluster.place(isr=(OURS,))
        found = await read(client, "b")
        assert found.preferred_read_replica == NOBODY and len(found.records) > 0
        client.close()
        follower.close()

    run(tmp_path, scenario, **RACKS)


def test_a_follower_serves_consumers_what_is_committed(tmp_path: Path) -> None:
    """A consumer would read from the follower what its leader may still lose, or be served nowhere."""

    async def scenario(cluster: Cluster) -> None:
        client, follower = await cluster.client(), await cluster.client()
        for _ in range(5):
            await asyncio.to_thread(client.produce, TOPIC, Batch(), acks=1)
        await cluster.follow(follower, 3)
        cluster.broker.services.replica_manager.exists = lambda topic, _index: topic == TOPIC
        cluster.place(leader=THEIRS, leader_epoch=1)
        one = len(Batch().encoded())
        for version, epoch in ((11, -1), (12, 1)):
            found = await read(client, "a", 1, version, place={"current_leader_epoch": epoch})
            assert (found.error_code, found.high_watermark, len(found.records)) == (0, 3, 2 * one)
        assert (await read(client, "a", 4)).records == b""
        assert (await read(client, "a", 6)).error_code == OFFSET_OUT_OF_RANGE
        assert (await read(client, "a", place={"current_leader_epoch": 0})).error_code == FENCED_LEADER_EPOCH
        # Those who do not know that followers serve look for the leader.
        found = await asyncio.to_thread(client.fetch, TOPIC, 10)
        assert found.error_code == NOT_LEADER
        assert (await cluster.follow(follower, 0)).error_code == NOT_LEADER
        client.send("Fetch", 11, fetch_values(TOPIC, offset=3, wait_ms=LONG_MS, rack_id="a"))
        await until(lambda: len(cluster.broker.services.replica_manager.purgatory) == 1)
        (followed,) = cluster.broker.services.replica_manager.followed.values()
        followed.append_from_leader(b"", 5, 0)
        woken = (await asyncio.to_thread(client.answer, "Fetch", 11)).responses[0].partitions[0]
        assert (woken.error_code, woken.high_watermark, len(woken.records)) == (0, 5, 2 * one)
        client.send("Fetch", 11, fetch_values(TOPIC, offset=5, wait_ms=LONG_MS, place={"current_leader_epoch": 1}))
        await until(lambda: len(cluster.broker.services.replica_manager.purgatory) == 1)
        cluster.place(leader=OURS, leader_epoch=2, isr=(OURS,))
        await asyncio.to_thread(follower.produce, TOPIC, Batch(), acks=1)
        fenced = (await asyncio.to_thread(client.answer, "Fetch", 11)).responses[0].partitions[0]
        assert fenced.error_code == FENCED_LEADER_EPOCH
        client.close()
        follower.close()

    run(tmp_path, scenario)


def test_a_follower_learns_at_once_what_is_committed_where_consumers_read_from_it(tmp_path: Path) -> None:
    """A consumer of the follower would get each record half a second late, when the follower's next fetch ends."""

    async def scenario(cluster: Cluster) -> None:
        client, follower = await cluster.client(), await cluster.client()
        await asyncio.to_thread(client.produce, TOPIC, Batch(), acks=1)

        def ask(offset: int, session: int, epoch: int) -> dict[str, Any]:
            values = {"session_id": session, "session_epoch": epoch, "replica_id": THEIRS}
            return {**fetch_values(TOPIC, offset=offset, wait_ms=LONG_MS), **values}

        first = await asyncio.to_thread(follower.ask, "Fetch", 11, ask(0, 0, 0))
        assert first.responses[0].partitions[0].high_watermark == 0
        await with_racks(cluster)
        answer = await asyncio.to_thread(follower.ask, "Fetch", 11, ask(1, first.session_id, 1))
        row = answer.responses[0].partitions[0]
        assert (row.high_watermark, row.records) == (1, b"")
        # It knows by now, and waits for records.
        follower.send("Fetch", 11, ask(1, first.session_id, 2))
        await until(lambda: len(cluster.broker.services.replica_manager.purgatory) == 1)
        assert follower.silent()
        client.close()
        follower.close()

    run(tmp_path, scenario)
