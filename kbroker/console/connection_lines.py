"""What is known of each connection, as values that no longer change."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kbroker._fast.base.slices import Pace
from kbroker.handlers.client_software import client_software

if TYPE_CHECKING:
    from kbroker._fast.net.connection import Connection
    from kbroker.network.listener import Listener


@dataclass(frozen=True, slots=True)
class ConnectionLine:
    """One connection.  Counts are those since it was opened; `key` tells it from others."""

    key: str
    client_id: str
    software: str
    address: str
    listener: str
    request_count: int
    bytes_in: int
    bytes_out: int
    idle_seconds: float
    queued_bytes: int
    is_throttled: bool


async def connection_lines(listeners: Sequence[Listener], pace: Pace) -> list[ConnectionLine]:
    """All connections of all listeners."""
    lines = []
    for listener in listeners:
        for connection in list(listener.endpoint.connections):
            await pace
            if not connection.closed:
                lines.append(_line(connection, time.monotonic()))
    return lines


def _line(connection: Connection, now: float) -> ConnectionLine:
    request_count, bytes_in, bytes_out = connection.traffic
    address = f"{connection.peer_host}:{connection.peer_port}"
    return ConnectionLine(
        f"{address} {connection.local_port}",
        connection.client_id or "",
        " ".join(client_software(connection) or ()),
        address,
        connection.listener_name,
        request_count,
        bytes_in,
        bytes_out,
        max(0.0, now - connection.last_active),
        connection.queued_bytes,
        connection.throttled,
    )
