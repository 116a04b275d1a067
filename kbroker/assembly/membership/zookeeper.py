"""A broker of a cluster whose controller is a broker, elected in ZooKeeper, and sends its word in requests."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kbroker.assembly.membership.cluster_membership import BrokerParts, ClusterMembership, MetadataParts
from kbroker.assembly.membership.controlled_shutdown import move_leaders
from kbroker.assembly.membership.replication_parts import ReplicationParts
from kbroker.assembly.membership.settings import inter_broker_listener
from kbroker.assembly.replication_figures import member_figures
from kbroker.cluster.member import unless_stopping
from kbroker.handlers.endpoints import local_broker
from kbroker.metadata.features import FEATURES, Features
from kbroker.metadata.image import ClusterImage, Endpoint
from kbroker.periodic import PeriodicTask
from kbroker.replication.handover import Handover
from kbroker.replication.leader_and_isr import ControllerRequests
from kbroker.storage.manager.known_directories import claim_directories

if TYPE_CHECKING:
    from kbroker.cluster.member import Member
    from kbroker.cluster.node_clients import NodeClients
    from kbroker.cluster.requests import BrokerEpoch, ReplicaReport
    from kbroker.config import BrokerConfig
    from kbroker.metadata.image import BrokerImage
    from kbroker.metrics.maintenance import Values
    from kbroker.metrics.readiness import Problem
    from kbroker.network.listener import Listener
    from kbroker.periodic import Pieces
    from kbroker.replication.marker_sender import MarkerSender
    from kbroker.replication.transaction_markers import MarkerWriter
    from kbroker.storage.directories.log_dirs import OpenedDirs
    from kbroker.types import TopicPartition

HANDOVER_INTERVAL_MS = 1000


class ZooKeeperMembership(ClusterMembership):
    """See `ClusterMembership`."""

    keeps_metadata = False
    _parts: MetadataParts
    _replication: ReplicationParts
    _handover: Handover
    _is_connected = False

    def __init__(self, broker: BrokerParts, member: Member) -> None:
        self._broker = broker
        self._member = member

    async def join(self, dirs: OpenedDirs) -> ClusterImage:
        """Log directories say which broker this is, and settings where they are new."""
        broker = self._broker
        opening = self._member.open(dirs.cluster_id, self._known_node_id())
        cluster_id = await unless_stopping(broker.stopping, opening)
        claim_directories(broker.log_manager, cluster_id)
        # A ZooKeeper cluster has no features.
        levels = {feature.name: 0 for feature in FEATURES}
        features = Features(epoch=0, chosen=levels)
        return ClusterImage.of(
            cluster_id, brokers=(local_broker(broker.config, broker.config.node_id),), features=features
        )

    def _known_node_id(self) -> int | None:
        metas = (directory.meta for directory in self._broker.log_manager.online_directories())
        return next((meta.node_id for meta in metas if meta is not None and meta.node_id >= 0), None)

    def connect(self, parts: MetadataParts) -> None:
        self._parts = parts
        member, listener = self._member, inter_broker_listener(self._broker.config)
        replication = self._replication = ReplicationParts(self._broker, parts, listener, lambda: member.epoch)
        self.controller = member.controller(parts.cache, replication.channel, parts.settings, parts.hosts)
        self.zookeeper_offsets = member.zookeeper_offsets

    async def catch_up(self) -> None:
        """The settings that the cluster keeps; its topics are known once a controller has sent them."""
        await unless_stopping(self._broker.stopping, self._member.load(self._parts.cache))

    async def report_logs(self) -> None:
        """The controller asks for nothing: it sends what this broker leads and follows when that is registered."""
        parts, replication, member = self._parts, self._replication, self._member
        replication.attach(self.controller)
        parts.cache.subscribe(parts.replicas.note_topics)
        clients = replication.clients(str(replication.node_id), negotiates=True)
        self._handover = Handover(parts.replicas, self, clients, self._broker.clock.monotonic)
        self.controller_requests = ControllerRequests(
            replication.node_id,
            parts.cache,
            parts.replicas,
            replication.fetchers,
            lambda: member.epoch,
            member.topic_configs,
            member.prepare,
        )
        self._is_connected = True

    async def serve(self, listeners: Sequence[Listener]) -> None:
        """Register: the controller then has this broker lead and follow."""
        broker = local_broker(self._broker.config, self._replication.node_id)
        shown = with_ports(broker, {each.name: each.port for each in listeners})
        await unless_stopping(self._broker.stopping, self._member.register(shown))

    def broker(self) -> BrokerEpoch:
        return self._replication.broker()

    def markers(self, writer: MarkerWriter) -> MarkerSender:
        return self._replication.send_markers(writer)

    def coordinators_elsewhere(self) -> NodeClients:
        return self._replication.coordinators_elsewhere()

    def follow(self, config: BrokerConfig) -> None:
        self._replication.follow(config)

    def lost(self, names: Collection[TopicPartition]) -> None:
        self._replication.lost(names)

    def periodic_tasks(self) -> Sequence[PeriodicTask]:
        handing_over = PeriodicTask("hand leaders over", HANDOVER_INTERVAL_MS, self._handover.look)
        return (*self._replication.periodic_tasks(), handing_over)

    def problems(self) -> Iterable[Problem]:
        return (*self._member.problems(), *self._handover.problems())

    async def figures(self, pieces: Pieces) -> Values:
        return await member_figures(self._replication, self._member.controller_stats, pieces)

    @property
    def metrics_listener(self) -> str:
        return str(self._broker.config.get("metrics.listener"))

    # What a handover needs

    @property
    def node_id(self) -> int:
        """This broker's id."""
        return self._replication.node_id

    def is_alive(self, node_id: int) -> bool:
        """Whether a broker is there."""
        return self._replication.isr.is_eligible(node_id)

    async def report(self, report: ReplicaReport) -> None:
        """Report to the controller what became of replicas here.  KafkaError."""
        await self.controller.report_replicas(self.broker(), report)

    def renew(self) -> None:
        """Register anew."""
        self._member.renew()

    async def leave(self) -> None:
        await move_leaders(self._broker.config, self.controller, self.broker(), self._parts.cache)

    async def close(self) -> None:
        if self._is_connected:
            self._replication.close()
        await self._member.close()
        if self._is_connected:
            self._replication.channel.close()


def with_ports(broker: BrokerImage, ports: dict[str, int]) -> BrokerImage:
    """A broker as others are to know it: `ports` has, by listener, those that the system chose for a setting of 0."""
    endpoints = {
        name: endpoint if endpoint.port else Endpoint(endpoint.host, ports[name])
        for name, endpoint in broker.endpoints.items()
    }
    return replace(broker, endpoints=endpoints)
