"""What a leader asks the controller for, and as whom it names the replicas."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from kbroker.clock import SYSTEM_CLOCK
from kbroker.cluster.requests import BrokerEpoch, IsrChange, PartitionOutcome
from kbroker.errors import IneligibleReplicaError, NotControllerError
from kbroker.metadata.cache import MetadataCache
from kbroker.metadata.image import BrokerImage, ClusterImage, PartitionImage
from kbroker.replication.isr_manager import IsrManager
from kbroker.replication.partition import Role
from kbroker.types import TopicPartition
from tests.storage.batches import HandClock

NAME = TopicPartition("t", 0)


class Asked:
    """A controller that refuses, and keeps what it was asked."""

    def __init__(self) -> None:
        self.changes: list[IsrChange] = []

    async def alter_partitions(self, _broker: BrokerEpoch, changes: Sequence[IsrChange]) -> list[PartitionOutcome]:
        self.changes += changes
        return [PartitionOutcome(each.partition, error=IneligibleReplicaError()) for each in changes]


def led(**fields: Any) -> Any:
    """A partition that broker 1 leads, alone in its ISR."""
    known = {"topic_partition": NAME, "topic_id": bytes(16), "leader_epoch": 4, "partition_epoch": 5, "isr": (1,)}
    return SimpleNamespace(role=Role.LEADER, **known, **fields)


def test_a_replica_is_named_in_the_epoch_of_its_last_fetch() -> None:
    """The metadata may have a newer one by then, or, where ZooKeeper is, none (KIP-903)."""

    async def main() -> None:
        brokers = [BrokerImage(each, {}, epoch=epoch) for each, epoch in ((1, 11), (2, 22), (3, -1))]
        controller = Asked()
        cache = MetadataCache(ClusterImage.of("c", brokers=brokers))
        loop = asyncio.get_running_loop()
        manager: Any = IsrManager(loop, SYSTEM_CLOCK, cache, controller, lambda: BrokerEpoch(1, 11), lambda: 30.0)  # type: ignore[arg-type]
        refused = asyncio.Event()
        partition = led(isr_refused=refused.set)

        async def propose(isr: tuple[int, ...]) -> list[tuple[int, int]]:
            partition.proposed_isr = isr
            refused.clear()
            manager.propose(partition, isr)
            await refused.wait()
            return list(controller.changes[-1].isr)

        assert await propose((1, 2, 3)) == [(1, 11), (2, 22), (3, -1)]
        manager.fetches(2, 21)
        manager.fetches(3, 33)
        assert await propose((1, 2, 3)) == [(1, 11), (2, 21), (3, 33)]
        manager.fetches(2, -1)
        manager.fetches(3, 34)
        assert await propose((1, 2, 3)) == [(1, 11), (2, 21), (3, 34)]
        manager.close()

    asyncio.run(main())


def test_a_leader_that_was_held_up_takes_nobody_out_of_the_isr_for_that() -> None:
    """After a pause of a machine its leaders would drop all followers, whose fetches wait to be read, and acks=all be
    refused until they are back."""

    async def main() -> None:
        clock: Any = HandClock(100_000)
        loop, cache = asyncio.get_running_loop(), MetadataCache(ClusterImage.of("c"))
        manager: Any = IsrManager(loop, clock, cache, Asked(), lambda: BrokerEpoch(1, 11), lambda: 30.0)  # type: ignore[arg-type]
        looks: list[float] = []
        partition: Any = SimpleNamespace(drop_lagging=lambda: looks.append(clock.monotonic()))
        for seconds in (115, 130, 500, 515, 530):
            clock.now = seconds * 1000
            manager.drop_lagging([partition])
        assert looks == [115.0, 130.0, 515.0, 530.0]

    asyncio.run(main())


def test_a_proposal_that_is_refused_at_once_does_not_keep_the_loop() -> None:
    """A broker whose own controller has lost its office would ask it for ever, and never hear from ZooKeeper that it
    has: nothing else would be served by it any more."""

    async def main() -> None:
        asked: list[int] = []
        loop, cache = asyncio.get_running_loop(), MetadataCache(ClusterImage.of("c"))
        turns, granted = 0, asyncio.Event()

        class Former:
            async def alter_partitions(self, _: BrokerEpoch, changes: Sequence[IsrChange]) -> list[PartitionOutcome]:
                asked.append(turns)
                assert asked.count(turns) < 10, "the loop is not let in"
                if turns == asked[0]:
                    return [PartitionOutcome(each.partition, error=NotControllerError()) for each in changes]
                image = PartitionImage(0, 1, 4, (1, 2), (1, 2), partition_epoch=6)
                return [PartitionOutcome(each.partition, image) for each in changes]

        def turn() -> None:
            nonlocal turns
            turns += 1
            loop.call_soon(turn)

        turn()
        manager: Any = IsrManager(loop, SYSTEM_CLOCK, cache, Former(), lambda: BrokerEpoch(1, 11), lambda: 30.0)  # type: ignore[arg-type]
        partition = led(proposed_isr=(1, 2), isr_granted=lambda *_: granted.set())
        manager.propose(partition, (1, 2))
        async with asyncio.timeout(60):
            await granted.wait()
        assert len(asked) == 2
        manager.close()

    asyncio.run(main())
