"""A broker of a cluster whose controller is a broker, elected in ZooKeeper, and sends its word in requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.assembly.membership.cluster_membership import BrokerParts, MetadataParts
from kbroker.assembly.membership.replicated_membership import ReplicatedMembership
from kbroker.assembly.membership.settings import inter_broker_listener
from kbroker.cluster.member import unless_stopping
from kbroker.handlers import dispatch
from kbroker.handlers.cluster.cluster_view import ElectedControllerView
from kbroker.handlers.cluster.endpoints import local_broker
from kbroker.metadata.features import FEATURES, Features
from kbroker.metadata.image import ClusterImage
from kbroker.replication.leader_and_isr import ControllerRequests
from kbroker.storage.manager.known_directories import claim_directories

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kbroker.cluster.member import Member
    from kbroker.cluster.requests import ReplicaReport
    from kbroker.handlers.cluster.cluster_view import ClusterView
    from kbroker.handlers.table import Handler
    from kbroker.storage.directories.log_dirs import OpenedDirs


class ZooKeeperMembership(ReplicatedMembership):
    """See `ClusterMembership`."""

    keeps_metadata = False
    watches_addresses = False

    def __init__(self, broker: BrokerParts, member: Member) -> None:
        super().__init__(broker, member)
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
        member = self._member
        replication = self._replicate(parts, inter_broker_listener(self._broker.config))
        controller = member.controller(parts.cache, replication.channel, parts.settings, parts.hosts)
        self.controller = self.administration = controller
        self.zookeeper_offsets = member.zookeeper_offsets

    async def catch_up(self) -> None:
        """The settings that the cluster keeps; its topics are known once a controller has sent them."""
        await unless_stopping(self._broker.stopping, self._member.load(self._parts.cache))

    def handlers(self, listener: str) -> Sequence[Handler]:
        return dispatch.member_rows()

    def view(self) -> ClusterView:
        return ElectedControllerView()

    async def report_logs(self) -> None:
        """Nothing is reported: once this broker is registered, the controller sends what it leads and follows."""
        parts, replication, member = self._parts, self._replication, self._member
        self._attach()
        parts.cache.subscribe(parts.replicas.roles.note_topics)
        self._hand_over(self)
        self.controller_requests = ControllerRequests(
            replication.node_id,
            parts.cache,
            parts.replicas.roles,
            replication.fetchers,
            lambda: member.epoch,
            member.topic_configs,
            member.prepare,
        )

    # What a handover needs

    async def report(self, report: ReplicaReport) -> None:
        """Report to the controller what became of replicas here.  KafkaError."""
        await self.controller.report_replicas(self.broker(), report)

    def renew(self) -> None:
        """Register anew."""
        self._member.renew()
