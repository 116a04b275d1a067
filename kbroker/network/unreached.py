"""Notices clients that ask for the broker's address and then do not connect to it: the advertised address does not lead
to this broker from where they are.

The usual cause is an address translation between client and broker that the settings do not reflect: the published port
of a container, a load balancer, a tunnel.  The client has reached the broker once, reports only that it cannot connect,
and its user looks for the fault elsewhere.

A connection indicates such a client when, between two checks, it has asked for addresses and nothing else, is still
open, and no other connection from its host has asked for more.  A connection from this host whose client dialled the
advertised address itself does not count.  Idle clients of librdkafka look the same, so the warning says what was seen.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from kbroker.network.socket_options import MAPPED_IPV4, is_same_host

logger = logging.getLogger("kbroker.network")

FOR_ADDRESSES = 1
"""Metadata and DescribeCluster: their answers have addresses."""
FOR_WORK = 2
"""Everything else that a client asks, at the address that it was given."""


class Address(NamedTuple):
    """Where a client is sent."""

    host: str
    port: int


class Asking(Protocol):
    """What is seen of a connection."""

    @property
    def asked(self) -> int:
        """The bits of what it has asked for."""

    @property
    def peer_host(self) -> str:
        """Where the client is."""

    @property
    def local_host(self) -> str:
        """The address that it dialled, as it arrives here."""

    @property
    def local_port(self) -> int:
        """The port of that."""


class UnreachedAddress:
    """Looks at the connections of one listener; warns once.

    `advertised`: the address that all clients are given; None where each is given the one that it dialled.
    """

    __slots__ = ("_advertised", "_listener", "_seen", "_warned")

    def __init__(self, listener: str, advertised: Address | None) -> None:
        self._listener = listener
        self._advertised = advertised
        self._seen: set[Asking] = set()
        self._warned = False

    def look(self, connections: Iterable[Asking], warn: Callable[..., None] = logger.warning) -> None:
        """To be called now and then, far enough apart that a client would have come meanwhile."""
        if self._warned:
            return
        every = list(connections)
        asking = {each for each in every if each.asked == FOR_ADDRESSES}
        waiting, self._seen = asking & self._seen, asking
        if not waiting:
            return
        at_work = {each.peer_host for each in every if each.asked & FOR_WORK}
        for each in waiting:
            if each.peer_host not in at_work and self._is_translated(each):
                self._warn(each, warn)
                return

    def _given(self, connection: Asking) -> Address:
        return self._advertised or Address(connection.local_host.removeprefix(MAPPED_IPV4), connection.local_port)

    def _is_translated(self, connection: Asking) -> bool:
        dialled = (connection.local_host.removeprefix(MAPPED_IPV4), connection.local_port)
        return self._given(connection) != dialled or not is_same_host(connection.peer_host, connection.local_host)

    def _warn(self, connection: Asking, warn: Callable[..., None]) -> None:
        self._warned = True
        self._seen.clear()
        given = self._given(connection)
        warn(
            "a client at %s asked listener %s where the broker is, was told %s:%d, and has not come there: is there an "
            "address translation between (the published port of a container, a load balancer)? Name the address that "
            "clients dial: advertised.listeners=%s://HOST:PORT, for a container in KBROKER_ADVERTISED_LISTENERS",
            connection.peer_host.removeprefix(MAPPED_IPV4),
            self._listener,
            given.host,
            given.port,
            self._listener,
        )
