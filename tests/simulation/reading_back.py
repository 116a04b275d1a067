"""What is read when all clients are through: everything is where it was said to be."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.simulation.fetchers import read_all
from tests.simulation.transactions.ending import judge_transactions

if TYPE_CHECKING:
    from tests.simulation.judge import Partition
    from tests.simulation.world import World

CATCH_UP_SECONDS = 30.0


async def read_back(world: World) -> None:
    """Everything is where it was said to be."""
    for topic in world.topics.values():
        for number in range(topic.partitions):
            partition = (topic.name, number)
            world.judge.read_back(partition, *await read_whole(world, partition, partition))
    await world.administration.end()
    for life in world.lives:
        await life.read_back()
    await judge_transactions(world)
    for each in world.at_end:
        await each()


async def read_whole(world: World, partition: Partition, key: Partition) -> tuple[dict[int, bytes], int]:
    """All of a partition, once it has a leader and what was acknowledged by that alone is committed as well.  `key`:
    where its ledger is."""
    until = world.loop.time() + CATCH_UP_SECONDS
    while True:
        connection = await world.connect(await world.leader(partition), "reader", "reader")
        if connection is not None:
            found = await read_all(connection, world, partition)
            connection.finish(world.rng)
            is_late = world.loop.time() > until
            # A leader that was started again learns from its followers what is committed.
            ledger = world.judge.ledger(key)
            if found is not None and (is_late or found[1] >= max(ledger.acknowledged_end, ledger.high_watermark)):
                return found
            if is_late:
                world.judge.fail(f"{partition} cannot be read")
        world.forget_leader(partition)
        await asyncio.sleep(0.05)
