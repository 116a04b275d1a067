"""Images that come behind the answers to what a leader has proposed.  Of `kbroker.replication.partition`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import uvloop

from kbroker.clock import SYSTEM_CLOCK
from kbroker.cluster.requests import BrokerEpoch
from kbroker.metadata.cache import MetadataCache
from kbroker.metadata.image import BrokerImage, ClusterImage, PartitionImage
from kbroker.replication.delayed_fetch import FetchPurgatory
from kbroker.replication.isr_manager import IsrManager
from kbroker.replication.partition import Partition
from tests.storage.batches import batch, open_log

OURS, IN_SYNC = 1, 2
BOTH = (OURS, IN_SYNC)


def image(isr: tuple[int, ...], partition_epoch: int, leader_epoch: int = 0) -> PartitionImage:
    return PartitionImage(0, OURS, leader_epoch, BOTH, isr, partition_epoch)


def test_an_image_older_than_what_the_controller_has_granted_commits_nothing(tmp_path: Path) -> None:
    """What the follower lacks would be acknowledged as committed, and be gone when that follower leads: in a KRaft
    cluster the log may bring the ISR of before after the answer that has the new one."""

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        cache = MetadataCache(ClusterImage.of("c", brokers=[BrokerImage(OURS, {}), BrokerImage(IN_SYNC, {})]))
        controller: Any = SimpleNamespace()
        changes = IsrManager(loop, SYSTEM_CLOCK, cache, controller, lambda: BrokerEpoch(OURS, -1), lambda: 30.0)
        log = open_log(tmp_path)
        partition = Partition("t", 0, b"1" * 16, log, OURS, image(BOTH, 0), FetchPurgatory(loop), changes)
        partition.isr_granted((OURS,), 1)
        partition.isr_granted(BOTH, 2)
        log.append_as_leader(batch([b"one"]), 0)
        for older in (image(BOTH, 0), image((OURS,), 1)):
            partition.follow(older)
            assert (partition.isr, partition.partition_epoch, log.high_watermark) == (BOTH, 2, 0)
        partition.follow(image((OURS,), 3))
        assert (partition.isr, partition.partition_epoch) == ((OURS,), 3)
        partition.follow(image(BOTH, 1, leader_epoch=1))
        assert (partition.isr, partition.partition_epoch) == (BOTH, 1), "another leader epoch says what is in force"
        log.close()

    uvloop.run(scenario())
