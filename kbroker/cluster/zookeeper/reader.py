"""Reads the cluster's znodes for a controller.  What makes no sense is left out, logged with its path and counted."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from kbroker.cluster.zookeeper import paths
from kbroker.cluster.zookeeper.session import NoNodeError, Stat, Watch, ZooKeeper
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


class ZnodeReader:
    """`nonsense` are the znodes that were left out, by path, with the reason."""

    __slots__ = ("_room", "_zookeeper", "nonsense")

    def __init__(self, zookeeper: ZooKeeper) -> None:
        self._zookeeper = zookeeper
        self._room = asyncio.Semaphore(UNDER_WAY)
        self.nonsense: dict[str, str] = {}

    async def read(
        self, path: str, decode: Callable[[bytes | None], _Value], watch: Watch | None = None
    ) -> tuple[_Value, Stat] | None:
        """A znode's content and state; None where there is none, or no sense in it."""
        async with self._room:
            try:
                data, stat = await self._zookeeper.get(path, watch)
            except NoNodeError:
                self.nonsense.pop(path, None)
                return None
        try:
            value = decode(data)
        except ZnodeError as error:
            if self.nonsense.get(path) != str(error):
                logger.error("%s is left out, as its content makes no sense: %s", path, error)
            self.nonsense[path] = str(error)
            return None
        self.nonsense.pop(path, None)
        return value, stat

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
        read = await asyncio.gather(
            *(self.read(paths.state(name.topic, name.partition), decode_state) for name in wanted)
        )
        return {
            name: (found[0], found[1].version) for name, found in zip(wanted, read, strict=True) if found is not None
        }
