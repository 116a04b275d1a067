"""Questions to one broker of a cluster, whichever its kind."""

from __future__ import annotations

import contextlib
from typing import Any

from tests.cluster.zookeeper.processes import Cluster
from tests.scenarios.wire import Wire


def ask(cluster: Cluster, number: int, api: str, version: int, source: str = "127.0.0.1", **values: Any) -> Any:
    wire = Wire(cluster.nodes[number].port, seconds=30, source=source)
    try:
        return wire.ask(api, version, values)
    finally:
        wire.close()


def is_open(cluster: Cluster, number: int) -> bool:
    with contextlib.suppress(OSError):
        Wire(cluster.nodes[number].port).close()
        return True
    return False
