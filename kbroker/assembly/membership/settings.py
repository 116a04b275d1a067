"""What settings say of a broker's membership, for every kind and for `doctor`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.config import EVERY_HOST, check_message_format

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kbroker.cluster.zookeeper.settings import ZooKeeperSettings
    from kbroker.config import BrokerConfig
    from kbroker.security.client.client_security import ClientSecurity
    from kbroker.storage.directories.log_dirs import LogDir


def inter_broker_listener(config: BrokerConfig) -> str:
    """The inter-broker listener: the one named, else the first with `security.inter.broker.protocol`.

    ValueError where others could not reach it.
    """
    named = config.get("inter.broker.listener.name")
    if named:
        found = [each.name for each in config.advertised_listeners or config.listeners]
        if named.upper() not in found:
            raise ValueError(f"inter.broker.listener.name: {named} is not among the listeners, {', '.join(found)}")
        return str(named).upper()
    protocol = config.get("security.inter.broker.protocol")
    speaks = next((each.name for each in config.listeners if each.protocol == protocol), None)
    if speaks is None and protocol != "PLAINTEXT":
        raise ValueError(f"security.inter.broker.protocol: no listener speaks {protocol}")
    return speaks or config.listeners[0].name


def check_others_reach(config: BrokerConfig) -> None:
    """ValueError where the other brokers of a cluster could not reach this one."""
    for each in config.advertised_listeners or config.listeners:
        if each.host and each.host in EVERY_HOST:
            raise ValueError(
                f"listeners: {each} is every interface, and nothing that others could connect to: set "
                "advertised.listeners, or leave the host out for this machine's name"
            )
    inter_broker_listener(config)


def membership_settings(config: BrokerConfig) -> ZooKeeperSettings | None:
    """How the broker reaches its cluster; None where it is a cluster of its own.  ValueError where the other members
    could not reach the broker."""
    if not config.get("zookeeper.connect"):
        return None
    from kbroker.cluster.protocol_version import protocol_version
    from kbroker.cluster.zookeeper.settings import ZooKeeperSettings

    settings = ZooKeeperSettings.of(config)
    check_others_reach(config)
    protocol_version(config.get("inter.broker.protocol.version"))
    check_message_format(config)
    return settings


def to_controllers(config: BrokerConfig) -> ClientSecurity | None:
    """The security of connections to the controllers; None where they are plain.  ClientSecurityError."""
    assert config.controller_listener is not None
    if config.controller_listener[1] == "PLAINTEXT":
        return None
    from kbroker.security.client.between_brokers import to_controllers

    return to_controllers(config)


NOT_FORMATTED = (
    "the log directories do not say which cluster this broker belongs to; format them with the id of the controllers' "
    "cluster: kbroker format --cluster-id ID server.properties"
)


def metadata_directory(config: BrokerConfig, online: Sequence[LogDir]) -> LogDir:
    """Which of the directories that serve holds the metadata log: `metadata.log.dir`, else the first, else one that
    serves."""
    place = config.get("metadata.log.dir") or config.log_dirs[0]
    return next((each for each in online if each.path == place), online[0])
