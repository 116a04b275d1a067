"""The membership in a cluster whose controller sends each broker the partitions that it leads and follows, such as one
with ZooKeeper.

Start: `open` finds the cluster and returns its id, before anything is read.  `register` comes last, when the broker
serves; from then on the controller sends its requests.  Stop: a controlled shutdown over the controller, then `close`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from kbroker.cluster.controller.interface import Controller
    from kbroker.cluster.controller_channel import ControllerChannel
    from kbroker.cluster.controller_stats import ControllerStats
    from kbroker.metadata.broker_settings import BrokerSettings
    from kbroker.metadata.cache import MetadataCache
    from kbroker.metadata.image import BrokerImage
    from kbroker.metrics.readiness import Problem
    from kbroker.quotas.host_names import HostNames
    from kbroker.types import TopicPartition

T = TypeVar("T")


class ZooKeeperOffsets(Protocol):
    """Offsets that the oldest clients keep in ZooKeeper."""

    async def commit(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Write the next offsets.  InvalidGroupIdError; CoordinatorNotAvailableError while ZooKeeper is away."""

    async def committed(self, group_id: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The next offsets of those that have one.  Errors as in `commit`."""


class StartInterruptedError(Exception):
    """The broker is to stop before the cluster has taken it in."""


async def unless_stopping(stopping: asyncio.Event, work: Coroutine[object, object, T]) -> T:
    """What `work` gives.  StartInterruptedError as soon as the broker is to stop: `work` is cancelled then."""
    task, stop = asyncio.ensure_future(work), asyncio.ensure_future(stopping.wait())
    try:
        await asyncio.wait((task, stop), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise StartInterruptedError
        return task.result()
    finally:
        task.cancel()
        stop.cancel()
        del task  # It keeps its error, and the error this frame.


class Member(Protocol):
    """The membership of this broker, such as a ZooKeeper session."""

    @property
    def epoch(self) -> int:
        """This broker's epoch by now; -1 while it is not registered."""

    @property
    def controller_stats(self) -> ControllerStats:
        """What its controller has done, while it was elected."""

    async def open(self, known_cluster_id: str | None, known_node_id: int | None) -> str:
        """The id of the cluster.  `known_cluster_id` and `known_node_id` are those in the log directories; ValueError
        where they differ.  StartInterruptedError.

        By then the broker's settings have its own id.
        """

    async def load(self, cache: MetadataCache) -> None:
        """Let `cache` have the settings that the cluster keeps for topics, brokers and clients."""

    def controller(
        self, cache: MetadataCache, channel: ControllerChannel, settings: BrokerSettings, hosts: HostNames
    ) -> Controller:
        """The controller as this broker reaches it."""

    async def prepare(self, topics: Mapping[str, bytes]) -> None:
        """Get to know the settings of topics, before their partitions are made."""

    def topic_configs(self, topic: str) -> Mapping[str, str]:
        """What is set on a topic, as far as that is known."""

    async def register(self, broker: BrokerImage) -> None:
        """Tell the cluster that this broker is there."""

    def renew(self) -> None:
        """Have the controller take this broker for one that has just come."""

    @property
    def zookeeper_offsets(self) -> ZooKeeperOffsets | None:
        """Where clients of OffsetCommit and OffsetFetch v0 keep their offsets; None: where all others do."""

    def is_heard(self) -> bool:
        """Whether this broker is known to be in the cluster now."""

    def problems(self) -> Iterable[Problem]:
        """What is wrong with the membership, for people."""

    async def close(self) -> None:
        """Leave the cluster."""
