"""The writes of a controller, each with a check of /controller_epoch: those of a deposed one change nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from kbroker.cluster.zookeeper import paths
from kbroker.cluster.zookeeper.context import topic_znode
from kbroker.cluster.zookeeper.session import (
    ANY_VERSION,
    BadVersionError,
    Check,
    Create,
    Delete,
    MultiError,
    NodeExistsError,
    NoNodeError,
    Operation,
    Set,
    Stat,
    ZooKeeper,
    ZooKeeperError,
)
from kbroker.cluster.zookeeper.znodes import StateZnode, encode_state, encode_topic
from kbroker.errors import NotControllerError

if TYPE_CHECKING:
    from kbroker.cluster.zookeeper.election import Fence
    from kbroker.metadata.image import PartitionImage, TopicImage
    from kbroker.types import TopicPartition

UNDER_WAY = 500
"""Writes that are under way at a time: kazoo pipelines them, and the loop goes on between."""


class ControllerMovedError(NotControllerError):
    """Another broker is the controller by now."""


class FencedWriter:
    """Writes of one term."""

    __slots__ = ("_room", "_zookeeper", "fence")

    def __init__(self, zookeeper: ZooKeeper, fence: Fence) -> None:
        self._zookeeper = zookeeper
        self.fence = fence
        self._room = asyncio.Semaphore(UNDER_WAY)

    async def write(self, operation: Operation) -> Stat | None:
        """One operation.  ControllerMovedError after another election; else the operation's own error."""
        async with self._room:
            try:
                results = await self._zookeeper.multi([Check(paths.CONTROLLER_EPOCH, self.fence.version), operation])
            except MultiError as error:
                if error.index == 0 and isinstance(error.cause, BadVersionError | NoNodeError):
                    raise ControllerMovedError("another broker has become the controller") from error
                raise error.cause from error
        return results[1]

    async def create(self, path: str, data: bytes = b"") -> bool:
        """A znode that may be there already; whether it was not."""
        try:
            await self.write(Create(path, data))
        except NodeExistsError:
            return False
        return True

    async def delete(self, path: str) -> None:
        """A znode that may be gone already."""
        try:
            await self.write(Delete(path))
        except NoNodeError:
            return

    async def set_topic(self, topic: TopicImage) -> None:
        """A topic's assignment."""
        await self.write(Set(paths.topic(topic.name), encode_topic(topic_znode(topic)), ANY_VERSION))

    async def make_parents(self, topics: Iterable[tuple[str, Iterable[int]]]) -> None:
        """What partitions' states lie under."""
        named = [(name, list(indexes)) for name, indexes in topics]
        await gathered(self.create(paths.partitions(name)) for name, _ in named)
        await gathered(self.create(paths.partition(name, index)) for name, indexes in named for index in indexes)

    async def write_states(
        self, states: Mapping[TopicPartition, tuple[PartitionImage, bool, bool]]
    ) -> dict[TopicPartition, int | ZooKeeperError]:
        """States as (partition, whether it is recovering, whether it is new): versions, or why one was not written.

        A state is written only over the version that the change was decided on, `partition_epoch` - 1.
        """

        async def one(name: TopicPartition, partition: PartitionImage, recovering: bool, new: bool) -> int:
            path = paths.state(name.topic, name.partition)
            content = encode_state(
                StateZnode(partition.leader, partition.leader_epoch, partition.isr, self.fence.epoch, recovering)
            )
            if new:
                await self.write(Create(path, content))
                return 0
            stat = await self.write(Set(path, content, partition.partition_epoch - 1))
            assert stat is not None
            return stat.version

        results = await asyncio.gather(*(one(name, *state) for name, state in states.items()), return_exceptions=True)
        found: dict[TopicPartition, int | ZooKeeperError] = {}
        for name, result in zip(states, results, strict=True):
            if isinstance(result, BadVersionError | NoNodeError | NodeExistsError | int):
                found[name] = result
            else:
                raise result
        return found


async def gathered(calls: Iterable[object]) -> None:
    """All of them at once; the first error after all are through."""
    results = await asyncio.gather(*calls, return_exceptions=True)  # type: ignore[call-overload]
    for result in results:
        if isinstance(result, BaseException):
            raise result
