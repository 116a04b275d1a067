"""What is read when all clients are through: everything is where it was said to be."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.simulation.fetchers import READ_COMMITTED, read_all
from tests.simulation.transactions.transactors import judge_transactions

if TYPE_CHECKING:
    from tests.simulation.judge import Partition
    from tests.simulation.world import World

CATCH_UP_SECONDS = 30.0


async def read_back(world: World) -> None:
    """Everything is where it was said to be."""
    for topic in world.topics.values():
        for number in range(topic.partitions):
            partition = (topic.name, number)
            world.judge.read_back(partition, *await _read_all(world, partition))
    if world.transactions:
        await _judge_transactions(world)


async def _judge_transactions(world: World) -> None:
    """None is under way any more: what who reads committed records gets to see is whole transactions."""
    visible: dict[Partition, set[bytes]] = {}
    connection = await world.connect(1, "committed", "reader")
    assert connection is not None
    for partition in sorted({partition for each in world.transactions for partition in each.values}):
        until = world.loop.time() + CATCH_UP_SECONDS
        while (found := await read_all(connection, world, partition, isolation=READ_COMMITTED)) is None:
            if world.loop.time() > until:
                world.judge.fail(f"a transaction in {partition} does not come to its end")
            await asyncio.sleep(0.05)
        visible[partition] = set(found[0].values())
    judge_transactions(world, visible)
    connection.finish(world.rng)


async def _read_all(world: World, partition: Partition) -> tuple[dict[int, bytes], int]:
    """All of a partition, once it has a leader and what was acknowledged by that alone is committed as well."""
    until = world.loop.time() + CATCH_UP_SECONDS
    while True:
        connection = await world.connect(await world.leader(partition), "reader", "reader")
        if connection is not None:
            found = await read_all(connection, world, partition)
            connection.finish(world.rng)
            is_late = world.loop.time() > until
            if found is not None and (is_late or found[1] >= world.judge.ledger(partition).acknowledged_end):
                return found
            if is_late:
                world.judge.fail(f"{partition} cannot be read")
        world.forget_leader(partition)
        await asyncio.sleep(0.05)
