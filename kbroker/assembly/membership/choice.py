"""Which kind of membership the settings ask for."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from kbroker.assembly.membership.settings import inter_broker_listener, membership_settings

if TYPE_CHECKING:
    import random

    from kbroker.assembly.membership.cluster_membership import BrokerParts, ClusterMembership
    from kbroker.cluster.client import Transport
    from kbroker.cluster.kraft.cluster_metadata import ClusterMetadata
    from kbroker.cluster.kraft.member import FollowedLog
    from kbroker.cluster.workers.worker_slot import WorkerSlot


def membership_of(broker: BrokerParts, slot: WorkerSlot | None = None) -> ClusterMembership:
    """The membership that a broker's settings ask for; `slot` makes it a worker of its host.  ValueError.

    Only the kind that is needed is imported: the others would cost a single broker memory and time at the start.
    """
    if slot is not None:
        from kbroker.assembly.membership.workers import WorkersMembership
        from kbroker.cluster.workers.member import worker

        return WorkersMembership(
            broker, worker(slot, broker.config, broker.loop, broker.slices, broker.stopping, broker.halt)
        )
    if broker.config.is_kraft_broker or broker.quorum is not None:
        return _kraft_membership(broker)
    settings = membership_settings(broker.config)
    if settings is None:
        from kbroker.assembly.membership.single_node import SingleNode

        return SingleNode(broker)
    from kbroker.assembly.membership.zookeeper import ZooKeeperMembership
    from kbroker.cluster.protocol_version import protocol_version
    from kbroker.cluster.zookeeper.member import MemberNetwork, MemberParts, ZooKeeperMember

    config = broker.config
    versions = protocol_version(config.get("inter.broker.protocol.version"))
    parts = MemberParts(config, broker.clock, broker.slices, versions, inter_broker_listener(config), broker.halt)
    network = MemberNetwork.over_network(settings, broker.loop, broker.outbound)
    return ZooKeeperMembership(broker, ZooKeeperMember(settings, parts, broker.loop, network))


def _kraft_membership(broker: BrokerParts) -> ClusterMembership:
    import random

    from kbroker.assembly.membership.kraft import KRaftMembership, directory_ids
    from kbroker.assembly.membership.settings import check_others_reach, to_controllers
    from kbroker.cluster.kraft.member import KRaftMember, KRaftParts
    from kbroker.cluster.outbound import Outbound

    config, loop, manager, quorum = broker.config, broker.loop, broker.log_manager, broker.quorum
    check_others_reach(config)
    rng = random.Random()
    transport = Outbound(loop, lambda: to_controllers(config)).transport() if quorum is None else quorum.transport
    is_offline = manager.failures.is_offline
    follow = _observer_maker(broker, transport, rng) if quorum is None else quorum.followed_log

    def cordoned() -> Collection[str]:
        return manager.plans.cordoned

    def make_member(cluster_id: str, previous_epoch: int) -> KRaftMember:
        metadata, log = follow(cluster_id)
        parts = KRaftParts(
            config,
            loop,
            transport,
            rng,
            lambda: directory_ids(manager.online_directories()),
            lambda: directory_ids([each for each in manager.online_directories() if each.path in cordoned()]),
            lambda: set(directory_ids([each for each in manager.directories if is_offline(each.path)])),
            broker.halt,
        )
        return KRaftMember(parts, cluster_id, previous_epoch, metadata, log)

    return KRaftMembership(broker, make_member, transport)


def _observer_maker(
    broker: BrokerParts, transport: Transport, rng: random.Random
) -> Callable[[str], tuple[ClusterMetadata, FollowedLog]]:
    """Makes the observer of a broker whose controllers are other nodes."""
    from kbroker.assembly.membership.kraft import directory_ids
    from kbroker.assembly.membership.settings import metadata_directory
    from kbroker.cluster.kraft.cluster_metadata import ClusterMetadata
    from kbroker.cluster.kraft.metadata_directory import MetadataDirectory
    from kbroker.cluster.kraft.observer import QuorumObserver
    from kbroker.cluster.kraft.settings import QuorumSettings

    config, manager = broker.config, broker.log_manager
    settings = QuorumSettings.of(config)

    def make(cluster_id: str) -> tuple[ClusterMetadata, FollowedLog]:
        keeper = metadata_directory(config, manager.online_directories())
        metadata = ClusterMetadata(cluster_id, broker.slices)
        observer = QuorumObserver(
            broker.loop,
            transport,
            settings,
            MetadataDirectory(manager.environment.files, keeper.path, settings.log, broker.clock),
            metadata,
            node_id=config.node_id,
            cluster_id=cluster_id,
            directory_id=directory_ids([keeper])[0],
            clock=broker.clock,
            rng=rng,
            failed=broker.halt,
        )
        return metadata, observer

    return make
