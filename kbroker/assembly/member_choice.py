"""Which cluster a broker is a member of, if of any: what of it a broker that is none needs as well.

Everything else of a membership is imported when there is one: it is memory and time of a start that a single broker
does not pay for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.config import EVERY_HOST, check_message_format
from kbroker.metadata.features import FEATURES, Features
from kbroker.metadata.image import ClusterImage

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from kbroker._fast.base.slices import Slices
    from kbroker.clock import Clock
    from kbroker.cluster.member import Member
    from kbroker.cluster.workers.member import Worker
    from kbroker.cluster.workers.place import Place
    from kbroker.cluster.zookeeper.settings import ZooKeeperSettings
    from kbroker.config import BrokerConfig
    from kbroker.metadata.image import BrokerImage


def first_image(cluster_id: str, broker: BrokerImage) -> ClusterImage:
    """What a member knows before the controller has told it anything.  A ZooKeeper cluster has no features."""
    levels = {feature.name: 0 for feature in FEATURES}
    return ClusterImage.of(cluster_id, brokers=(broker,), features=Features(epoch=0, chosen=levels))


def inter_broker_listener(config: BrokerConfig) -> str:
    """The listener that brokers reach each other by: the one named, else the first of the protocol that is set.

    ValueError where others cannot be told of it.
    """
    named = config.get("inter.broker.listener.name")
    if named:
        found = [each.name for each in config.advertised_listeners or config.listeners]
        if named.upper() not in found:
            raise ValueError(f"inter.broker.listener.name: {named} is not among the listeners, {', '.join(found)}")
        return str(named).upper()
    protocol = config.get("security.inter.broker.protocol")
    return next((each.name for each in config.listeners if each.protocol == protocol), config.listeners[0].name)


def membership_settings(config: BrokerConfig) -> ZooKeeperSettings | None:
    """How the broker's cluster is reached; None where it is a cluster of its own.  ValueError where it could not be a
    member that others reach."""
    if not config.get("zookeeper.connect"):
        return None
    from kbroker.cluster.protocol_version import protocol_version
    from kbroker.cluster.zookeeper.settings import ZooKeeperSettings

    settings = ZooKeeperSettings.of(config)
    for each in config.advertised_listeners or config.listeners:
        if each.host and each.host in EVERY_HOST:
            raise ValueError(
                f"listeners: {each} is every interface, and nothing that others could connect to: set "
                "advertised.listeners, or leave the host out for this machine's name"
            )
    inter_broker_listener(config)
    protocol_version(config.get("inter.broker.protocol.version"))
    check_message_format(config)
    return settings


def member_of(
    config: BrokerConfig,
    loop: asyncio.AbstractEventLoop,
    clock: Clock,
    slices: Slices,
    failed: Callable[[str], None],
) -> Member | None:
    """The membership that settings ask for; None where the broker is a cluster of its own.  ValueError."""
    settings = membership_settings(config)
    if settings is None:
        return None
    from kbroker.cluster.protocol_version import protocol_version
    from kbroker.cluster.zookeeper.member import Parts, ZooKeeperMember

    versions = protocol_version(config.get("inter.broker.protocol.version"))
    parts = Parts(config, clock, slices, versions, inter_broker_listener(config), failed)
    return ZooKeeperMember(settings, parts, loop)


def worker_of(
    place: Place,
    config: BrokerConfig,
    loop: asyncio.AbstractEventLoop,
    slices: Slices,
    stopping: asyncio.Event,
    failed: Callable[[str], None],
) -> Worker:
    """The membership of a worker.  A broker that is none does not pay for it."""
    from kbroker.cluster.workers.member import worker

    return worker(place, config, loop, slices, stopping, failed)
