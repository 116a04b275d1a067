"""Fetches that a coroutine reads (`FetchWait`), and whose partition ends to be led here while they wait."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from kbroker.handlers.records.fetch import MANY_REFUSED
from tests.broker.client import Batch, Client
from tests.replication.led_partition import LONG_MS, NOT_LEADER, OURS, THEIRS, TOPIC, Cluster, run, until

# One partition is there; the others make the fetch one of those that are read in slices.
NAMED = MANY_REFUSED + 2


def values(partitions: int, wait_ms: int, **fields: Any) -> dict[str, Any]:
    rows = [{"partition": at, "fetch_offset": 0, "partition_max_bytes": 1000} for at in range(partitions)]
    topics = [{"topic": TOPIC, "partitions": rows}]
    return {"replica_id": -1, "max_wait_ms": wait_ms, "min_bytes": 1, "max_bytes": 1 << 20, "topics": topics} | fields


async def across(cluster: Cluster, client: Client, version: int, partitions: int, **fields: Any) -> Any:
    """The answer to a fetch whose broker ends to lead the partition, and leads it again before the next turn."""
    assert cluster.broker.services is not None
    manager = cluster.broker.services.replica_manager
    manager.exists = lambda _topic, index: index == 0  # As the metadata of a cluster say.
    client.send("Fetch", version, values(partitions, LONG_MS, **fields))
    await until(lambda: len(manager.purgatory) == 1)
    cluster.place(leader=THEIRS)
    cluster.place(leader=OURS)
    return await asyncio.to_thread(client.answer, "Fetch", version)


def test_a_fetch_hears_that_its_partition_was_led_elsewhere_meanwhile(tmp_path: Path) -> None:
    """It was answered with nothing before its time: its last attempt came when the broker led the partition again."""

    async def scenario(cluster: Cluster) -> None:
        client = await cluster.client()
        for version, partitions in ((0, 1), (3, 1), (10, 1), (10, NAMED)):
            answer = await across(cluster, client, version, partitions)
            row = answer.responses[0].partitions[0]
            assert (row.error_code, row.high_watermark) == (NOT_LEADER, -1), (version, partitions)
        client.close()

    run(tmp_path, scenario)


def test_a_session_forgets_that_its_partition_was_led_elsewhere(tmp_path: Path) -> None:
    """Its partition would be refused for as long as the session lives."""

    async def scenario(cluster: Cluster) -> None:
        client = await cluster.client()
        cluster.place(isr=(OURS,))
        session = (await across(cluster, client, 10, NAMED, session_epoch=0)).session_id
        assert session
        await asyncio.to_thread(client.write, TOPIC, Batch())
        again = {**values(0, LONG_MS, session_id=session, session_epoch=1), "topics": []}
        answer = await asyncio.to_thread(client.ask, "Fetch", 10, again)
        (found,) = (row for row in answer.responses[0].partitions if row.partition_index == 0)
        assert (found.error_code, found.records) == (0, Batch().encoded())
        client.close()

    run(tmp_path, scenario)
