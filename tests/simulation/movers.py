"""A client that moves partitions between the directories of their brokers while others write and read them (KIP-113):
to another one, to a third one or back before that has ended, and so that a stop or a crash comes in between.

The rules: a partition lies in one directory, and its copy in another one that was asked for.  In the end there is no
copy, and a partition is where it was asked to be last, if the answer came and nothing was lost of its broker since.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbroker.error_codes import ErrorCode
from kbroker.schemas import wire
from tests.simulation.administration.moving import may_refuse
from tests.simulation.client import Client

if TYPE_CHECKING:
    from tests.simulation.connection import ModelConnection
    from tests.simulation.judge import Partition
    from tests.simulation.world import World

MOVING = 0.6
"""The share of the histories with several directories in which partitions move."""
MOVE_VERSIONS, DESCRIBE_VERSIONS = (1, 2), (1, 2, 4, 5)
SETTLE_SECONDS, LOOK_SECONDS = 60.0, 0.2
Replica = tuple[int, str, int]
"""Broker, topic and partition."""


@dataclass(slots=True)
class Asked:
    """What was asked for of a replica; directories are known by their place among those of the broker."""

    ever: set[int] = field(default_factory=set)
    last: int = -1
    """Where it is to be in the end; -1: nobody can say."""
    crashes: int = 0
    """How often the broker had crashed when that was answered."""


class Mover(Client):
    """One request at a time."""

    def __init__(self, world: World, name: str, requests: int) -> None:
        super().__init__(world, name, world.later)
        self.requests = requests
        self.asked: dict[Replica, Asked] = {}
        self._pauses = self.rng.choice(((0.0, 0.001), (0.0, 0.01, 0.1), (0.1, 1.0)))

    async def run(self) -> None:
        rng, world = self.rng, self.world
        while self.requests > 0:
            self.requests -= 1
            await asyncio.sleep(rng.choice(self._pauses) * rng.random())
            topic = rng.choice(list(world.topics.values()))
            node, partition = rng.choice(list(world.nodes)), (topic.name, rng.randrange(topic.partitions))
            await self.move(node, partition)
            for _ in range(rng.choice((0, 0, 1, 2))):
                # While that may be under way.
                await asyncio.sleep(rng.choice((0.0, 0.001, 0.01)) * rng.random())
                await self.move(node, partition)
            if rng.random() < 0.4:
                await self.look(node)

    async def move(self, node: int, partition: Partition) -> None:
        """Have a partition lie in some directory of a broker."""
        world = self.world
        folders = world.log_dirs(node)
        place, crashes = self.rng.randrange(len(folders)), world.crashes.get(node, 0)
        asked = self.asked.setdefault((node, *partition), Asked())
        asked.ever.add(place)
        asked.last = -1
        request = wire.AlterReplicaLogDirsRequest
        topic = request.AlterReplicaLogDirTopic(name=partition[0], partitions=[partition[1]])
        self.judge.note("%s: %s of broker %d is to lie in %s", self.name, partition, node, Path(folders[place]).name)
        answer = await self._ask(
            node, request(dirs=[request.AlterReplicaLogDir(path=folders[place], topics=[topic])]), MOVE_VERSIONS
        )
        if answer is None:
            return
        code = answer.results[0].partitions[0].error_code
        if not may_refuse(world, code, folders[place], partition):
            self.judge.fail(f"{self.name}: {partition} does not move to {folders[place]}: {ErrorCode(code).name}")
        if code == 0:
            asked.last, asked.crashes = place, crashes

    async def look(self, node: int) -> str | None:
        """Where the partitions of a broker are; None, or what is not yet as it is to be in the end."""
        topics = self.world.topics.values()
        request = wire.DescribeLogDirsRequest
        rows = [
            request.DescribableLogDirTopic(topic=each.name, partitions=list(range(each.partitions))) for each in topics
        ]
        folders = self.world.log_dirs(node)
        answer = await self._ask(node, request(topics=rows), DESCRIBE_VERSIONS)
        if answer is None:
            return f"broker {node} does not answer"
        here: dict[Partition, list[int]] = {}
        to_be: dict[Partition, list[int]] = {}
        for result in answer.results:
            for topic in result.topics:
                for row in topic.partitions:
                    found = to_be if row.is_future_key else here
                    found.setdefault((topic.name, row.partition_index), []).append(folders.index(result.log_dir))
        self.judge_places(node, here, to_be)
        return self.unsettled(node, here, to_be)

    def judge_places(self, node: int, here: dict[Partition, list[int]], to_be: dict[Partition, list[int]]) -> None:
        """What holds at any time."""
        for partition, places in here.items():
            if len(places) > 1:
                self.judge.fail(f"{self.name}: broker {node} has {partition} in directories {places}")
        for partition, places in to_be.items():
            asked = self.asked.get((node, *partition), Asked())
            if len(places) > 1 or not asked.ever.issuperset(places) or places == here.get(partition):
                self.judge.fail(
                    f"{self.name}: broker {node} copies {partition} to directories {places}, it is in "
                    f"{here.get(partition)}, and {asked} was asked for"
                )

    def unsettled(self, node: int, here: dict[Partition, list[int]], to_be: dict[Partition, list[int]]) -> str | None:
        """What is not as it has to be in the end."""
        if to_be:
            return f"broker {node} copies {to_be}"
        for (where, *name), asked in self.asked.items():
            partition = (name[0], name[1])
            is_certain = asked.last >= 0 and asked.crashes == self.world.crashes.get(node, 0)
            if where == node and is_certain and partition in here and here[partition] != [asked.last]:
                return f"broker {node} has {partition} in {here[partition]}, where {asked} was asked for"
        return None

    async def settle(self) -> None:
        """All moves end."""
        world = self.world
        until = world.loop.time() + SETTLE_SECONDS
        for node in world.nodes:
            while (wrong := await self.look(node)) is not None:
                if world.disks.take_part:
                    return  # A move that a disk has ended is over, and one amid a fault may begin again and again.
                if world.loop.time() > until:
                    self.judge.fail(f"{self.name}: {wrong}, {SETTLE_SECONDS} s after the last request")
                await asyncio.sleep(LOOK_SECONDS)

    async def _ask(self, node: int, request: Any, versions: tuple[int, ...]) -> Any:
        connection: ModelConnection | None = await self.connect(node)
        if connection is None:
            return None
        answer = await connection.answer(request, self.rng.choice(versions))
        if not connection.gone:
            connection.finish(self.rng)
        return answer


def draw_movers(world: World) -> list[Mover]:
    """The one of a history, where brokers have several directories."""
    if world.later.random() >= MOVING or len(world.log_dirs(1)) < 2:
        return []
    mover = Mover(world, "mover", world.later.choice((4, 10, 25)))
    world.at_end.append(mover.settle)
    return [mover]


__all__ = ["Asked", "Mover", "draw_movers"]
