"""Connections and their clients: addresses, client ids, software, requests."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from kbroker.console.connection_lines import ConnectionLine
from kbroker.console.parameters import PageOf, keys_of, page_of, view_of
from kbroker.metrics.families import by_label
from kbroker.security.authorizer import Operation

if TYPE_CHECKING:
    from kbroker.console.parameters import Key, Parameters, View
    from kbroker.console.parts import ConsoleParts, Value

MOST_KINDS = 12


@dataclass(frozen=True, slots=True)
class Software:
    """How many connections one kind of client has."""

    name: str
    connection_count: int


@dataclass(frozen=True, slots=True)
class Clients:
    """A page of connections, and the kinds of clients that have the most."""

    now_ms: int
    software: Sequence[Software]
    refused: Mapping[str, float]
    closed: Mapping[str, float]
    page: PageOf[ConnectionLine]


_KEYS: Mapping[str, Key[ConnectionLine]] = keys_of(
    "client_id",
    "software",
    "address",
    "listener",
    "request_count",
    "bytes_in",
    "bytes_out",
    "idle_seconds",
    "queued_bytes",
)


async def clients(parts: ConsoleParts, parameters: Parameters) -> Value:
    """GET /console/api/clients?q=&sort=&start=&count="""
    view = view_of(parameters, _KEYS)
    parts.require_cluster(Operation.DESCRIBE)
    lines = await parts.connections.get()
    totals = parts.sources.connections()
    now_ms = int(time.time() * 1000)
    refused, closed = (by_label(totals, f"kbroker_connections_{name}") for name in ("refused", "closed"))
    return partial(_value, now_ms, refused, closed, lines, view)


def _value(
    now_ms: int,
    refused: Mapping[str, float],
    closed: Mapping[str, float],
    lines: Sequence[ConnectionLine],
    view: View,
) -> Clients:
    kinds = Counter(line.software or "says nothing" for line in lines).most_common(MOST_KINDS)
    page = page_of(lines, view, _KEYS, lambda line: f"{line.client_id} {line.software} {line.address} {line.listener}")
    return Clients(now_ms, [Software(*kind) for kind in kinds], refused, closed, page)
