"""The writes of a controller, each with a check of /controller_epoch: those of a deposed one change nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
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
from kbroker.errors import NotControllerError, again

if TYPE_CHECKING:
    from kbroker.cluster.zookeeper.election import Fence
    from kbroker.metadata.image import PartitionImage, TopicImage
    from kbroker.types import TopicPartition

UNDER_WAY = 500
"""Writes that are under way at a time: kazoo pipelines them, and the loop goes on between."""
IN_A_TRANSACTION = 100
"""Writes that go together.  Each costs kazoo and ZooKeeper less than by itself; a request takes 1 MB at most."""


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
        try:
            (stat,) = await self._together([operation])
        except MultiError as error:
            raise again(error.cause) from error
        return stat

    async def write_each(self, operations: Sequence[Operation]) -> list[Stat | ZooKeeperError | None]:
        """Operations that do not need each other: what came of each.  Raises ControllerMovedError, and the error of a
        connection that is lost.

        Many go in one transaction; one that fails is done again, each of its operations by itself."""
        parts = [operations[at : at + IN_A_TRANSACTION] for at in range(0, len(operations), IN_A_TRANSACTION)]
        results = await asyncio.gather(*map(self._apart, parts), return_exceptions=True)
        found: list[Stat | ZooKeeperError | None] = []
        for part in results:
            if isinstance(part, BaseException):
                raise again(part)
            found += part
        return found

    async def _apart(self, operations: Sequence[Operation]) -> Sequence[Stat | ZooKeeperError | None]:
        try:
            return await self._together(operations)
        except MultiError as error:
            if len(operations) == 1:
                return [_expected(error.cause)]
        parts = [await self._apart([each]) for each in operations]
        return [each for part in parts for each in part]

    async def _together(self, operations: Sequence[Operation]) -> list[Stat | None]:
        async with self._room:
            try:
                results = await self._zookeeper.multi([Check(paths.CONTROLLER_EPOCH, self.fence.version), *operations])
            except MultiError as error:
                if error.index == 0 and isinstance(error.cause, BadVersionError | NoNodeError):
                    raise ControllerMovedError("another broker has become the controller") from error
                raise
        return results[1:]

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
        await self._create_each(paths.partitions(name) for name, _ in named)
        await self._create_each(paths.partition(name, index) for name, indexes in named for index in indexes)

    async def delete_each(self, names: Iterable[str]) -> None:
        """Znodes that may be gone already."""
        for result in await self.write_each([Delete(name) for name in names]):
            if isinstance(result, ZooKeeperError) and not isinstance(result, NoNodeError):
                raise again(result)

    async def _create_each(self, names: Iterable[str]) -> None:
        """Znodes that may be there already."""
        for result in await self.write_each([Create(name, b"") for name in names]):
            if isinstance(result, ZooKeeperError) and not isinstance(result, NodeExistsError):
                raise again(result)

    async def write_states(
        self, states: Mapping[TopicPartition, tuple[PartitionImage, bool, bool]]
    ) -> dict[TopicPartition, int | ZooKeeperError]:
        """States as (partition, whether it is recovering, whether it is new): versions, or why one was not written.

        A state is written only if its znode still has the version that the change was decided on (`partition_epoch`
        less one).
        """

        operations: list[Operation] = []
        for name, (partition, recovering, new) in states.items():
            path = paths.state(name.topic, name.partition)
            content = encode_state(
                StateZnode(partition.leader, partition.leader_epoch, partition.isr, self.fence.epoch, recovering)
            )
            operations.append(Create(path, content) if new else Set(path, content, partition.partition_epoch - 1))
        results = await self.write_each(operations)
        found: dict[TopicPartition, int | ZooKeeperError] = {}
        for name, result in zip(states, results, strict=True):
            # The answer to a creation has no znode state; the version of a new znode is 0.
            found[name] = result if isinstance(result, ZooKeeperError) else 0 if result is None else result.version
        return found


def _expected(error: ZooKeeperError) -> ZooKeeperError:
    """What one operation may come to; other errors are those of the connection, or a defect."""
    if isinstance(error, BadVersionError | NoNodeError | NodeExistsError):
        return error
    raise again(error)
