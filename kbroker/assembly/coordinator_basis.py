"""The parts of a broker that its coordinators need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kbroker.replication.state_log import PartitionStateLog

if TYPE_CHECKING:
    import asyncio

    from kbroker._fast.base.slices import Slices
    from kbroker.clock import Clock
    from kbroker.cluster.controller.interface import BrokerRequests
    from kbroker.cluster.node_clients import NodeClients
    from kbroker.config import BrokerConfig
    from kbroker.coordinator.transactions.completion import Markers
    from kbroker.metadata.broker_settings import BrokerSettings
    from kbroker.metadata.cache import MetadataCache
    from kbroker.metadata.image import TopicImage
    from kbroker.metadata.producer_id_manager import ProducerIdManager
    from kbroker.replication.replica_manager import ReplicaManager
    from kbroker.replication.transaction_markers import MarkerWriter


@dataclass(frozen=True, slots=True)
class CoordinatorBasis:
    """The parts of the broker that its coordinators need.

    `max_batch_bytes`: the largest batch of a topic.  `make_markers`: makes the writer of transaction markers into
    partitions of any broker.  `may_be_superseded()`: see `ClusterMembership`.  `elsewhere`: the clients for transaction
    coordinators on other brokers, `share_elsewhere` for share coordinators, None where there are no other brokers.
    """

    config: BrokerConfig
    settings: BrokerSettings
    loop: asyncio.AbstractEventLoop
    clock: Clock
    slices: Slices
    cache: MetadataCache
    replicas: ReplicaManager
    controller: BrokerRequests
    producer_ids: ProducerIdManager
    max_batch_bytes: Callable[[TopicImage | None], int]
    make_markers: Callable[[MarkerWriter], Markers]
    may_be_superseded: Callable[[], bool]
    elsewhere: NodeClients | None = None
    share_elsewhere: NodeClients | None = None

    def state_log(self, topic: str) -> PartitionStateLog:
        """The log of a coordinator's state topic."""
        return PartitionStateLog(
            topic, self.replicas, lambda: self.max_batch_bytes(self.cache.topic(topic)), self.loop.call_soon
        )
