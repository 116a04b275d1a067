"""A kbroker that is a member of a test's cluster, as a process: `python -m tests.replication.cluster.member NODE EPOCH
setting=value …`.  Its controller is the test's; the membership is no more than the epoch that the test has chosen."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import uvloop

from kbroker import log_output
from kbroker.assembly.membership.zookeeper import ZooKeeperMembership
from kbroker.broker import Broker
from kbroker.cluster.controller.interface import Controller
from kbroker.cluster.controller_channel import ControllerChannel
from kbroker.cluster.controller_stats import ControllerStats
from kbroker.cluster.requests import BrokerEpoch, IsrChange, PartitionOutcome
from kbroker.config import BrokerConfig
from kbroker.errors import CoordinatorNotAvailableError, NotControllerError
from kbroker.host.stop_signals import StopSignals
from kbroker.metadata.broker_settings import BrokerSettings
from kbroker.metadata.cache import MetadataCache
from kbroker.metadata.image import BrokerImage, TopicImage
from kbroker.metadata.store import ProducerIdBlock
from kbroker.metrics.readiness import Problem
from kbroker.quotas.host_names import HostNames
from kbroker.types import TopicPartition

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"


class _Refused:
    """A method of the controller that only the controller serves."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        async def refuse(*_args: Any, **_values: Any) -> Any:
            raise NotControllerError()

        return refuse


class MemberController(Controller):
    """What a broker asks of the controller over the wire; all else is refused."""

    def __init__(self, cache: MetadataCache, channel: ControllerChannel) -> None:
        self._cache = cache
        self._channel = channel

    create_topics = _Refused()
    auto_create_topics = _Refused()
    create_partitions = _Refused()
    delete_topics = _Refused()
    alter_configs = _Refused()
    alter_client_quotas = _Refused()
    alter_security = _Refused()
    elect_leaders = _Refused()
    alter_reassignments = _Refused()
    report_replicas = _Refused()
    unregister_broker = _Refused()
    update_features = _Refused()
    image = _Refused()

    async def ensure_internal_topic(self, name: str) -> TopicImage:
        topic = self._cache.topic(name)
        if topic is None:
            raise CoordinatorNotAvailableError()
        return topic

    async def alter_partitions(self, broker: BrokerEpoch, changes: Sequence[IsrChange]) -> list[PartitionOutcome]:
        return await self._channel.alter_partitions(broker, changes)

    async def allocate_producer_ids(self, broker: BrokerEpoch) -> ProducerIdBlock:
        return await self._channel.allocate_producer_ids(broker)

    async def controlled_shutdown(self, broker: BrokerEpoch) -> list[TopicPartition]:
        return await self._channel.controlled_shutdown(broker)


class FixedMember:
    """A membership without anything behind it."""

    def __init__(self, epoch: int, cluster_id: str = CLUSTER_ID) -> None:
        self.epoch = epoch
        self.controller_stats = ControllerStats()
        self._cluster_id = cluster_id

    async def open(self, known_cluster_id: str | None, known_node_id: int | None) -> str:
        return known_cluster_id or self._cluster_id

    async def load(self, cache: MetadataCache) -> None:
        pass

    def controller(
        self, cache: MetadataCache, channel: ControllerChannel, settings: BrokerSettings, hosts: HostNames
    ) -> Controller:
        return MemberController(cache, channel)

    async def prepare(self, topics: Mapping[str, bytes]) -> None:
        pass

    def topic_configs(self, topic: str) -> Mapping[str, str]:
        return {}

    async def register(self, broker: BrokerImage) -> None:
        pass

    def renew(self) -> None:
        pass

    zookeeper_offsets = None

    def problems(self) -> Iterable[Problem]:
        return ()

    async def close(self) -> None:
        pass


async def serve(values: dict[str, str], epoch: int) -> None:
    stopping = asyncio.Event()
    signals = StopSignals()
    signals.attach(asyncio.get_running_loop(), stopping.set)
    broker = Broker(
        BrokerConfig.from_mapping(values),
        asyncio.get_running_loop(),
        stopping,
        make_membership=lambda parts: ZooKeeperMembership(parts, FixedMember(epoch)),
    )
    await broker.start()
    await stopping.wait()
    await broker.stop()


def main() -> None:
    log_output.setup("text", "info")
    epoch = int(sys.argv[1])
    uvloop.run(serve(dict(each.split("=", 1) for each in sys.argv[2:]), epoch))


if __name__ == "__main__":
    main()
