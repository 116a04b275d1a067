"""Up to where the records of a partition are gone from all replicas."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import uvloop

from kbroker.clock import SYSTEM_CLOCK
from kbroker.cluster.requests import BrokerEpoch
from kbroker.errors import KafkaError
from kbroker.metadata.cache import MetadataCache
from kbroker.metadata.image import BrokerImage, ClusterImage, PartitionImage
from kbroker.replication.delayed_fetch import FetchPurgatory
from kbroker.replication.isr_manager import IsrManager
from kbroker.replication.partition import Partition
from tests.storage.batches import batch, open_log

OURS, IN_SYNC, BEHIND, GONE = 1, 2, 3, 4
REPLICAS = (OURS, IN_SYNC, BEHIND, GONE)


def test_records_are_deleted_once_all_replicas_that_are_alive_have_deleted_them(tmp_path: Path) -> None:
    """DeleteRecords would say that records are gone which a follower outside the ISR has, and serves when it is back in
    the ISR and leads."""

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        log = open_log(tmp_path)
        log.append_as_leader(batch([b"one", b"two", b"three"]), 0)
        brokers = [BrokerImage(OURS, {}), BrokerImage(IN_SYNC, {}), BrokerImage(BEHIND, {})]
        brokers.append(BrokerImage(GONE, {}, is_fenced=True))
        cache = MetadataCache(ClusterImage.of("c", brokers=brokers))
        controller: Any = SimpleNamespace()
        changes = IsrManager(loop, SYSTEM_CLOCK, cache, controller, lambda: BrokerEpoch(OURS, -1), lambda: 30.0)
        image = PartitionImage(0, OURS, 0, REPLICAS, (OURS, IN_SYNC))
        partition = Partition("t", 0, b"1" * 16, log, OURS, image, FetchPurgatory(loop), changes)
        partition.follower_fetched(IN_SYNC, 3, 0)
        log.delete_records_before(2)
        told: list[KafkaError | None] = []
        partition.wait_for_deletion(2, told.append)
        partition.follower_fetched(IN_SYNC, 3, 2)
        assert (partition.low_watermark, told) == (0, [])
        partition.follower_fetched(BEHIND, 2, 0)
        assert (partition.low_watermark, told) == (0, [])
        partition.follower_fetched(BEHIND, 2, 2)
        async with asyncio.timeout(10):
            while not told:
                await asyncio.sleep(0)
        assert (partition.low_watermark, told) == (2, [None])
        log.close()

    uvloop.run(scenario())
