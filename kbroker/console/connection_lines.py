"""What is known of each connection, as values that no longer change."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from kbroker._fast.wire.codec import DecodeError
from kbroker.periodic import Pieces
from kbroker.schemas import wire

if TYPE_CHECKING:
    from kbroker._fast.net.connection import Connection
    from kbroker.network.listener import Listener

SOFTWARE_FROM = 3
"""The version of ApiVersions that says what software a client is (KIP-511)."""


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


async def connection_lines(listeners: Sequence[Listener]) -> list[ConnectionLine]:
    """All connections of all listeners."""
    pieces = Pieces()
    lines = []
    for listener in listeners:
        for connection in list(listener.endpoint.connections):
            if pieces.due():
                await pieces.rest()
            if not connection.closed:
                lines.append(_line(connection, time.monotonic()))
    return lines


def _line(connection: Connection, now: float) -> ConnectionLine:
    request_count, bytes_in, bytes_out = connection.traffic
    address = f"{connection.peer_host}:{connection.peer_port}"
    return ConnectionLine(
        f"{address} {connection.local_port}",
        connection.client_id or "",
        _software(connection.introduction),
        address,
        connection.listener_name,
        request_count,
        bytes_in,
        bytes_out,
        max(0.0, now - connection.last_active),
        connection.queued_bytes,
        connection.throttled,
    )


def _software(introduction: tuple[int, bytes] | None) -> str:
    return "" if introduction is None else software_in(*introduction)


@lru_cache(maxsize=256)
def software_in(version: int, body: bytes) -> str:
    """Name and version of a client's software, as its ApiVersions request says; empty where it does not."""
    if version < SOFTWARE_FROM:
        return ""
    try:
        said = wire.ApiVersionsRequest.program(version).decode(body, 0)
    except (DecodeError, ValueError):
        return ""
    return f"{said.client_software_name} {said.client_software_version}"
