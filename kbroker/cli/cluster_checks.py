"""What `kbroker doctor` looks at where `zookeeper.connect` is set."""

from __future__ import annotations

import socket
from collections.abc import Iterator

from kbroker.assembly.membership.settings import membership_settings
from kbroker.cli.host_checks import Finding, Level
from kbroker.config import BrokerConfig

SECONDS = 2.0


def check_cluster(config: BrokerConfig) -> Iterator[Finding]:
    """Whether the broker could be a member, and whether the servers of ZooKeeper take connections."""
    try:
        settings = membership_settings(config)
    except ValueError as error:
        yield Finding(Level.PROBLEM, "cluster", str(error), "correct the setting; docs/cluster.md says what it is for")
        return
    if settings is None:
        return
    silent = [f"{host}:{port}" for host, port in settings.servers if not _takes_connections(host, port)]
    if not silent:
        yield Finding(Level.OK, "cluster", "all servers of zookeeper.connect take connections")
        return
    is_any_left = len(silent) < len(settings.servers)
    yield Finding(
        Level.WARNING if is_any_left else Level.PROBLEM,
        "cluster",
        f"{'some' if is_any_left else 'all'} servers of zookeeper.connect take no connections: {', '.join(silent)}",
        "start ZooKeeper there, or correct zookeeper.connect",
    )


def _takes_connections(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), SECONDS).close()
    except OSError:
        return False
    return True
