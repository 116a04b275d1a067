"""The listeners of a broker and what they share: the limits of connections, receive buffers, the reactor."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kbroker._fast.net.reactor import Reactor
from kbroker._fast.net.receive_buffer import BufferPool
from kbroker.log_output import log_suppressed
from kbroker.network.cold_reads import COLD_READ_THREADS
from kbroker.network.limits import ConnectionLimits, beside_the_loop, connection_limits
from kbroker.network.listener import Listener
from kbroker.network.socket_options import SocketOptions
from kbroker.network.unreached import Address, UnreachedAddress

if TYPE_CHECKING:
    from kbroker._fast.base.counters import RequestStats
    from kbroker._fast.base.slices import Slices
    from kbroker._fast.log.log_fields import PurgatoryFields
    from kbroker._fast.net.request_context import RequestContext
    from kbroker._fast.net.route import Endpoint, Route
    from kbroker.config import BrokerConfig
    from kbroker.metadata.cache import Subscriber
    from kbroker.metrics.families import Labelled, Labels, Values
    from kbroker.network.admission import Admission
    from kbroker.network.listener_security import ListenerSecurity

DRAIN_SECONDS = 1.0


class Guard(Protocol):
    """Puts a gate in front of the answers of a listener."""

    def __call__(self, endpoint: Endpoint, *, authenticates: bool) -> None:
        """`authenticates`: its clients have to prove who they are."""


@dataclass(frozen=True, slots=True)
class Role:
    """What the listeners of one role of a node serve, a broker's or a controller's.

    `routes` are those of each listener, by its name, and `services` what their handlers work with.  `unsupported`
    answers versions out of range.  `guard` puts the gate in front of a listener's answers, `admit` counts its
    connections.  `on_metadata` calls back at each new image.
    `watches_addresses`: notice clients that ask for this node's address and do not come there.
    """

    services: object
    routes: Mapping[str, Sequence[Route]]
    unsupported: Callable[[RequestContext], bytes | None]
    guard: Guard
    admit: Callable[[str, str], Admission] | None
    on_metadata: Callable[[Subscriber], None]
    watches_addresses: bool = False


class SentFiles(NamedTuple):
    """The files that answers are sent from: what happens when one fails or is too short, and room for descriptors."""

    read_failed: Callable[[int, OSError], object] = lambda fd, error: None
    shrunk: Callable[[int], object] = lambda fd: None
    least_descriptors: int = 0
    leave_room: Callable[[int], None] | None = None


class Listeners:
    """Opened after all else; see `bind` and `accept`.

    `descriptors`: how many files the process may open; `security`: of each listener, by name.
    `cold_reads` are the threads for reads that wait for a disk.
    """

    def __init__(
        self,
        config: BrokerConfig,
        loop: asyncio.AbstractEventLoop,
        stats: RequestStats,
        descriptors: int,
        security: Mapping[str, ListenerSecurity],
        slices: Slices,
    ) -> None:
        self.all: list[Listener] = []
        self._inside: list[Listener] = []
        self.pool = BufferPool(limit_bytes=max(0, config.get("queued.max.request.bytes")))
        self.cold_reads = ThreadPoolExecutor(COLD_READ_THREADS, thread_name_prefix="cold-read")
        self._config = config
        self._loop = loop
        self._stats = stats
        self._descriptors = descriptors
        self._security = security
        self._slices = slices
        self._roles: dict[str, Role] = {}
        self._unreached: list[tuple[Listener, UnreachedAddress]] = []
        self._reactors: list[Reactor] = []
        self._limits: list[ConnectionLimits] = []

    def bind(
        self,
        roles: Sequence[Role],
        files: SentFiles,
        settings: BrokerConfig,
        purgatory: PurgatoryFields | None = None,
    ) -> list[Listener]:
        """Take the addresses; BindError when one is taken or not this machine's.  The listeners of these roles.

        `roles`: what the listeners serve, each of them one role.  `settings`: those of now.  `purgatory`: the fields of
        fetches that wait, where there are any.  Roles that begin at different times are bound one after the other, each
        with a reactor of its own.
        """
        config = self._config
        left = self._descriptors - files.least_descriptors
        limits = ConnectionLimits(*connection_limits(settings), left, files.leave_room)
        self._limits.append(limits)
        reactor = Reactor(
            self._loop,
            self.pool,
            self._stats,
            config.get("socket.busy.poll.us"),
            beside_the_loop(config.get("num.network.threads")),
            purgatory,
        )
        self._reactors.append(reactor)
        self._make = partial(
            Listener,
            options=_socket_options(config),
            limits=limits,
            reactor=reactor,
            max_frame_bytes=config.get("socket.request.max.bytes"),
            max_idle_ms=config.get("connections.max.idle.ms"),
            cold_reads=self.cold_reads,
            read_failed=files.read_failed,
            file_shrunk=files.shrunk,
            slices=self._slices,
        )
        bound = []
        for role in roles:
            for each in (each for each in config.every_listener if each.name in role.routes):
                self._roles[each.name] = role
                limit = config.own_of_listener(each.name, "max.connections")
                security = self._security[each.name]
                listener = self._made(each.name, each.host, each.port, security, role.admit, limit)
                listener.bind()
                self.all.append(listener)
                bound.append(listener)
                if role.watches_addresses:
                    advertised = next((a for a in config.advertised_listeners or () if a.name == each.name), None)
                    address = None if advertised is None else Address(advertised.host, advertised.port)
                    self._unreached.append((listener, UnreachedAddress(each.name, address)))
        return bound

    def _made(
        self,
        name: str,
        host: str,
        port: int,
        security: ListenerSecurity,
        admit: Callable[[str, str], Admission] | None = None,
        max_connections: int | None = None,
    ) -> Listener:
        """One that serves what the listener of that name does, behind its role's gate."""
        role = self._roles[name]
        listener = self._make(
            name,
            host,
            port,
            services=role.services,
            routes=role.routes[name],
            unsupported=role.unsupported,
            admission=admit,
            security=security,
            max_connections=max_connections,
        )
        role.guard(listener.endpoint, authenticates=security.authenticates)
        role.on_metadata(listener.endpoint.answers.forget)
        return listener

    async def accept(self, listeners: Iterable[Listener]) -> None:
        """Open listeners that are bound."""
        for listener in listeners:
            await listener.accept()

    def inside(self, name: str, security: ListenerSecurity) -> Listener:
        """A listener without a port, whose connections this process makes to itself; after `bind`."""
        listener = self._made(name, "", 0, security)
        self._inside.append(listener)
        return listener

    def follow(self, config: BrokerConfig) -> None:
        """Broker settings were changed at run time."""
        for limits in self._limits:
            limits.change(*connection_limits(config))
        for reactor in self._reactors:
            reactor.change_threads(beside_the_loop(config.get("num.network.threads")))

    def stop_accepting(self) -> None:
        """Take no more connections; those that are open go on."""
        for listener in (*self.all, *self._inside):
            listener.stop_accepting()

    async def close(self) -> None:
        """Let requests under way finish, for DRAIN_SECONDS at most, and close the connections."""
        _, busy = await asyncio.wait(
            [self._loop.create_task(listener.drained()) for listener in (*self.all, *self._inside)],
            timeout=DRAIN_SECONDS,
        )
        for drained in busy:
            drained.cancel()
        for listener in (*self.all, *self._inside):
            listener.close_connections()
        for reactor in self._reactors:
            reactor.close()

    def close_idle(self) -> None:
        """Close connections on which nothing came for `connections.max.idle.ms`."""
        now = time.monotonic()
        for listener in self.all:
            listener.close_idle(now)

    def look_for_unreached(self) -> None:
        """Warn where clients do not connect to the address that Metadata answers contain."""
        for listener, unreached in self._unreached:
            unreached.look(listener.endpoint.connections)

    def log_suppressed(self) -> None:
        """Log how often each rate-limited warning was suppressed."""
        log_suppressed()
        for listener in self.all:
            listener.log_suppressed()

    @property
    def accepted_count(self) -> int:
        """Connections accepted since the start."""
        return sum(listener.accepted_count for listener in self.all)

    def figures(self) -> Values:
        """What the metrics say of connections: now, and totals since start."""
        return {
            "kbroker_connections": {(listener.name,): len(listener.endpoint.connections) for listener in self.all},
            "kbroker_connections_accepted": {(listener.name,): listener.accepted_count for listener in self.all},
            "kbroker_connections_refused": _summed(listener.refused for listener in self.all),
            "kbroker_connections_closed": _summed(listener.closed for listener in self.all),
            "kbroker_connections_paced": _summed(listener.paced for listener in self.all),
        }


def _summed(counters: Iterable[Mapping[str, int]]) -> Labelled:
    sums: dict[Labels, int] = {}
    for counter in counters:
        for name, count in counter.items():
            sums[name,] = sums.get((name,), 0) + count
    return sums


def _socket_options(config: BrokerConfig) -> SocketOptions:
    return SocketOptions(
        backlog=config.get("socket.listen.backlog.size"),
        send_buffer_bytes=config.get("socket.send.buffer.bytes"),
        receive_buffer_bytes=config.get("socket.receive.buffer.bytes"),
        tcp_congestion=config.get("socket.tcp.congestion") or "",
        notsent_lowat=config.get("socket.tcp.notsent.lowat"),
    )
