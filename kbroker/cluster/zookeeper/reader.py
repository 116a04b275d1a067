"""Reads the cluster's znodes for a controller.  Znodes that cannot be decoded are left out, logged with their path, and
counted."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from kbroker.cluster.zookeeper import paths
from kbroker.cluster.zookeeper.session import NoNodeError, Stat, Watch, Znode, ZooKeeper
from kbroker.cluster.zookeeper.znode_json import ZnodeError
from kbroker.cluster.zookeeper.znodes import (
    BrokerZnode,
    StateZnode,
    TopicZnode,
    decode_broker,
    decode_state,
    decode_topic,
)
from kbroker.types import TopicPartition

logger = logging.getLogger("kbroker.cluster")

_Value = TypeVar("_Value")
UNDER_WAY = 1000
"""Reads that are under way at a time, each by itself or TOGETHER in one request."""
TOGETHER = 250


class ZnodeReader:
    """`nonsense` are the znodes that were left out, by path, with the reason."""

    __slots__ = ("_parts", "_room", "_zookeeper", "nonsense")

    def __init__(self, zookeeper: ZooKeeper) -> None:
        self._zookeeper = zookeeper
        self._room = asyncio.Semaphore(UNDER_WAY)
        self._parts = asyncio.Semaphore(UNDER_WAY // TOGETHER)
        self.nonsense: dict[str, str] = {}

    async def read(
        self, path: str, decode: Callable[[bytes | None], _Value], watch: Watch | None = None
    ) -> tuple[_Value, Stat] | None:
        """A znode's content and state; None where there is none, or no sense in it."""
        async with self._room:
            try:
                znode = await self._zookeeper.get(path, watch)
            except NoNodeError:
                znode = None
        return self._sense(path, znode, decode)

    async def read_each(
        self, names: Sequence[str], decode: Callable[[bytes | None], _Value]
    ) -> list[tuple[_Value, Stat] | None]:
        """Many znodes, in order, each as `read` has it."""
        parts = [names[at : at + TOGETHER] for at in range(0, len(names), TOGETHER)]
        read = await asyncio.gather(*(self._read_together(part, decode) for part in parts))
        return [each for part in read for each in part]

    async def _read_together(
        self, names: Sequence[str], decode: Callable[[bytes | None], _Value]
    ) -> list[tuple[_Value, Stat] | None]:
        async with self._parts:
            read = await self._zookeeper.get_each(names)
        return [self._sense(path, znode, decode) for path, znode in zip(names, read, strict=True)]

    def _sense(
        self, path: str, znode: Znode | None, decode: Callable[[bytes | None], _Value]
    ) -> tuple[_Value, Stat] | None:
        if znode is None:
            self.nonsense.pop(path, None)
            return None
        try:
            value = decode(znode.data)
        except ZnodeError as error:
            if self.nonsense.get(path) != str(error):
                logger.error("%s is left out, as its content makes no sense: %s", path, error)
            self.nonsense[path] = str(error)
            return None
        self.nonsense.pop(path, None)
        return value, znode.stat

    async def version(self, path: str) -> int | None:
        """The version of a znode, its content unread; None where there is none."""
        stat = await self._zookeeper.exists(path)
        return None if stat is None else stat.version

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """The names of a znode's children; none where it does not exist."""
        try:
            return await self._zookeeper.children(path, watch)
        except NoNodeError:
            return []

    async def brokers(self, watch: Watch, listener: str) -> dict[int, tuple[BrokerZnode, int]]:
        """The registered brokers with their epochs.  `watch`: when one comes, goes or changes.

        A broker that cannot be reached by the brokers' own `listener` is left out.
        """

        def decode(data: bytes | None) -> BrokerZnode:
            found = decode_broker(data)
            if found.endpoint(listener) is None:
                raise ZnodeError(f"there is no endpoint of the brokers' listener {listener}")
            return found

        names = [name for name in await self.children(paths.BROKER_IDS, watch) if name.isdigit()]
        read = await asyncio.gather(*(self.read(f"{paths.BROKER_IDS}/{name}", decode, watch) for name in names))
        return {
            int(name): (found[0], found[1].czxid) for name, found in zip(names, read, strict=True) if found is not None
        }

    async def topics(self, names: Sequence[str], watch: Callable[[str], Watch]) -> dict[str, TopicZnode]:
        """Topics' assignments."""
        read = await asyncio.gather(*(self.read(paths.topic(name), decode_topic, watch(name)) for name in names))
        return {name: found[0] for name, found in zip(names, read, strict=True) if found is not None}

    async def states(self, names: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[StateZnode, int]]:
        """Partitions' states with their versions; without those that have none."""
        wanted = list(names)
        read = await self.read_each([paths.state(name.topic, name.partition) for name in wanted], decode_state)
        return {
            name: (found[0], found[1].version) for name, found in zip(wanted, read, strict=True) if found is not None
        }
