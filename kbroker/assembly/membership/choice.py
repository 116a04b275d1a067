"""Which kind of membership the settings ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.assembly.membership.settings import inter_broker_listener, membership_settings

if TYPE_CHECKING:
    from kbroker.assembly.membership.cluster_membership import BrokerParts, ClusterMembership
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
    if broker.config.is_kraft_broker:
        raise ValueError("process.roles: a broker of a KRaft cluster is not there yet")
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
