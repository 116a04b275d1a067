"""What `kbroker doctor` looks at where `zookeeper.connect` or a KRaft quorum is set."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

from kbroker.assembly.membership.settings import check_others_reach, membership_settings
from kbroker.cli.checks.host_checks import Finding, Level
from kbroker.cli.checks.quorum_checks import check_voter
from kbroker.config import BrokerConfig

SECONDS = 2.0


def check_cluster(config: BrokerConfig) -> Iterator[Finding]:
    """Whether the broker could be a member, and whether the servers of ZooKeeper, or the controllers, take
    connections."""
    if config.is_kraft_broker or config.is_voter:
        yield from _check_quorum(config)
        return
    try:
        settings = membership_settings(config)
    except ValueError as error:
        yield Finding(Level.PROBLEM, "cluster", str(error), "correct the setting; docs/cluster.md says what it is for")
        return
    if settings is None:
        return
    yield _reach(
        "servers of zookeeper.connect", settings.servers, "start ZooKeeper there, or correct zookeeper.connect"
    )


def _check_quorum(config: BrokerConfig) -> Iterator[Finding]:
    """Whether the broker could be one of a KRaft cluster."""
    from kbroker.cluster.kraft.settings import QuorumSettings
    from kbroker.storage.directories.log_dirs import META_PROPERTIES

    try:
        settings = QuorumSettings.of(config)
        if not config.is_controller_alone:
            check_others_reach(config)
    except ValueError as error:
        yield Finding(Level.PROBLEM, "cluster", str(error), "correct the setting; docs/cluster.md says what it is for")
        return
    if config.is_voter:
        yield from check_voter(config, settings)
        return
    if not any((Path(each) / META_PROPERTIES).exists() for each in config.log_dirs):
        yield Finding(
            Level.PROBLEM,
            "cluster",
            "no log directory is formatted: none says which cluster this node belongs to",
            "kbroker format --cluster-id ID server.properties, with the id of the controllers' cluster",
        )
    addresses = {(each.host, each.port) for each in settings.addresses}
    yield _reach(
        "controllers that the settings name",
        sorted(addresses),
        "start the controllers, or correct controller.quorum.bootstrap.servers",
    )


def _reach(what: str, addresses: Sequence[tuple[str, int]], remedy: str) -> Finding:
    silent = [f"{host}:{port}" for host, port in addresses if not _takes_connections(host, port)]
    if not silent:
        return Finding(Level.OK, "cluster", f"all {what} take connections")
    is_any_left = len(silent) < len(addresses)
    return Finding(
        Level.WARNING if is_any_left else Level.PROBLEM,
        "cluster",
        f"{'some' if is_any_left else 'all'} {what} take no connections: {', '.join(silent)}",
        remedy,
    )


def _takes_connections(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), SECONDS).close()
    except OSError:
        return False
    return True
