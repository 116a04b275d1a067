"""What the memberships with replicas on other brokers have in common."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from kbroker.assembly.membership.cluster_membership import BrokerParts, ClusterMembership, MetadataParts
from kbroker.assembly.membership.controlled_shutdown import move_leaders
from kbroker.assembly.membership.replication_parts import ReplicationParts
from kbroker.assembly.replication_figures import member_figures
from kbroker.cluster.member import unless_stopping
from kbroker.handlers.cluster.endpoints import local_broker
from kbroker.metadata.image import Endpoint
from kbroker.periodic import PeriodicTask
from kbroker.replication.handover import Cluster, Handover

if TYPE_CHECKING:
    from kbroker._fast.base.slices import Pace
    from kbroker.assembly.membership.replication_parts import QuorumReach
    from kbroker.cluster.controller_stats import ControllerStats
    from kbroker.cluster.node_clients import NodeClients
    from kbroker.cluster.requests import BrokerEpoch
    from kbroker.config import BrokerConfig
    from kbroker.metadata.image import BrokerImage
    from kbroker.metrics.families import Values
    from kbroker.metrics.readiness import Problem
    from kbroker.metrics.recent import Counters
    from kbroker.network.listener import Listener
    from kbroker.replication.marker_sender import MarkerSender
    from kbroker.replication.transaction_markers import MarkerWriter
    from kbroker.types import TopicPartition

HANDOVER_INTERVAL_MS = 1000


class RegisteredBroker(Protocol):
    """This broker as its cluster has it: a member of ZooKeeper's, or a worker."""

    @property
    def epoch(self) -> int:
        """This broker's epoch by now; -1 while it is not registered."""

    @property
    def controller_stats(self) -> ControllerStats:
        """What its controller has done, while it was elected."""

    def is_heard(self) -> bool:
        """Whether the controllers still count this broker as alive, as far as it can know."""

    async def register(self, broker: BrokerImage) -> None:
        """Tell the cluster that this broker serves."""

    def problems(self) -> Iterable[Problem]:
        """What is wrong, for people."""

    async def close(self) -> None:
        """Leave the cluster."""


class ReplicatedMembership(ClusterMembership):
    """See `ClusterMembership`.  A kind makes the controller, and calls `_attach` when the logs are open."""

    has_other_brokers = True
    _parts: MetadataParts
    _replication: ReplicationParts
    _handover: Handover | None = None
    _is_attached = False
    _leaders: NodeClients | None = None

    def __init__(self, broker: BrokerParts, registered: RegisteredBroker) -> None:
        self._broker = broker
        self._registered = registered

    def _replicate(self, parts: MetadataParts, listener: str, quorum: QuorumReach | None = None) -> ReplicationParts:
        """What copies replicas and asks the controller; brokers reach each other by `listener`."""
        self._parts = parts
        registered = self._registered
        self._replication = ReplicationParts(self._broker, parts, listener, lambda: registered.epoch, quorum)
        return self._replication

    def _attach(self) -> None:
        self._replication.attach(self.controller)
        self._is_attached = True

    def _hand_over(self, cluster: Cluster) -> None:
        """From here on what is led in a directory without space is handed over to others that have room."""
        clients = self._replication.clients(str(self.node_id), negotiates=True)
        self._handover = Handover(self._parts.replicas, cluster, clients, self._broker.clock.monotonic)

    @property
    def node_id(self) -> int:
        """This broker's id."""
        return self._replication.node_id

    def is_alive(self, node_id: int) -> bool:
        """Whether a broker is there."""
        return self._replication.isr.is_eligible(node_id)

    def _shown(self, broker: BrokerImage, ports: Mapping[str, int]) -> BrokerImage:
        """This broker as the others are to know it; `ports` by listener."""
        return broker

    def _own(self, listeners: Sequence[Listener]) -> BrokerImage:
        """The same, with the ports that its listeners have."""
        config = self._broker.config
        ports = {each.name: each.port for each in listeners}
        return self._shown(with_ports(local_broker(config, config.node_id), ports), ports)

    async def serve(self, listeners: Sequence[Listener]) -> None:
        """Return once the others know that this broker serves."""
        await unless_stopping(self._broker.stopping, self._registered.register(self._own(listeners)))

    def broker(self) -> BrokerEpoch:
        return self._replication.broker()

    def may_be_superseded(self) -> bool:
        return not self._registered.is_heard()

    def markers(self, writer: MarkerWriter) -> MarkerSender:
        return self._replication.send_markers(writer)

    def coordinators_elsewhere(self) -> NodeClients:
        return self._replication.coordinators_elsewhere()

    def share_coordinators_elsewhere(self) -> NodeClients:
        return self._replication.share_coordinators_elsewhere()

    def leaders_elsewhere(self) -> NodeClients:
        if self._leaders is None:
            self._leaders = self._replication.clients(f"metrics-client-{self.broker().node_id}", negotiates=True)
        return self._leaders

    def follow(self, config: BrokerConfig) -> None:
        self._replication.follow(config)

    def lost(self, names: Collection[TopicPartition]) -> None:
        self._replication.lost(names)

    def periodic_tasks(self) -> Sequence[PeriodicTask]:
        tasks = self._replication.periodic_tasks()
        if self._handover is not None:
            tasks.append(PeriodicTask("hand leaders over", HANDOVER_INTERVAL_MS, self._handover.look))
        return tasks

    def problems(self) -> Iterable[Problem]:
        handed_over = () if self._handover is None else self._handover.problems()
        return (*self._registered.problems(), *handed_over)

    async def figures(self, pace: Pace) -> Values:
        return await member_figures(self._replication, self._registered.controller_stats, pace)

    def counters(self) -> Counters:
        if not self._is_attached:
            return {}
        counts = self._replication.fetchers.figures().request_counts
        return {("fetcher", name): (count,) for name, count in counts.items()}

    async def leave(self) -> None:
        if self.administration is not None:
            await move_leaders(self._broker.config, self.administration, self.broker(), self._parts.cache)

    async def close(self) -> None:
        if self._is_attached:
            self._replication.close()
        await self._registered.close()
        if self._is_attached:
            self._replication.channel.close()


def with_ports(broker: BrokerImage, ports: Mapping[str, int]) -> BrokerImage:
    """A broker as others are to know it: `ports` has, by listener, those that the system chose for a setting of 0."""
    endpoints = {
        name: endpoint if endpoint.port else Endpoint(endpoint.host, ports[name])
        for name, endpoint in broker.endpoints.items()
    }
    return replace(broker, endpoints=endpoints)
