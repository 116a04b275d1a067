"""Followers that fetch in the versions of Kafka 0.8.2 to 0.10.2.

Also of `kbroker.handlers.records.conversions`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import uvloop

from kbroker.handlers.records.old_fetch import handle_old_fetch
from kbroker.metadata.image import PartitionImage
from kbroker.replication.delayed_fetch import FetchPurgatory
from kbroker.replication.partition import Partition
from kbroker.schemas import wire
from tests.storage.batches import append, batch, open_log

OURS, FOLLOWER = 1, 2


class _NoPace:
    def __await__(self) -> Iterator[None]:
        return iter(())


@pytest.mark.parametrize("version", range(4))
def test_a_follower_gets_records_as_they_are_stored(version: int, tmp_path: Path) -> None:
    """Its copy would lack headers and producers, and another be stored when a producer sends again after a failover."""

    async def scenario() -> None:
        log = open_log(tmp_path)
        append(log, batch([b"one", b"two"], producer_id=7, epoch=0, sequence=0))
        image = PartitionImage(0, OURS, 0, (OURS, FOLLOWER), (OURS, FOLLOWER))
        partition = Partition("t", 0, b"1" * 16, log, OURS, image, FetchPurgatory(asyncio.get_running_loop()))
        manager = SimpleNamespace(
            partition=lambda *_: partition, purgatory=partition.purgatory, traffic=None, selector=None
        )
        # Nothing that could convert is there.
        services = SimpleNamespace(
            replica_manager=manager,
            slices=SimpleNamespace(pace=_NoPace),
            fetch_max_bytes=1 << 20,
            conversions=None,
        )
        ctx: Any = SimpleNamespace(services=services, api_version=version, gate=None, open=True)
        request = wire.FetchRequest
        row = request.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        topics = [request.FetchTopic(topic="t", partitions=[row])]
        answer: Any = await handle_old_fetch(ctx, request(replica_id=FOLLOWER, max_bytes=1 << 20, topics=topics))
        (found,) = answer.responses[0].partitions
        assert found.error_code == 0
        stored = (tmp_path / f"{0:020d}.log").read_bytes()
        assert (found.records.position, found.records.size) == (0, len(stored))

    uvloop.run(scenario())
