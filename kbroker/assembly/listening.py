"""The listeners of a broker and what they share: the limits of connections, receive buffers, the reactor."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from kbroker._fast.net.reactor import Reactor
from kbroker._fast.net.receive_buffer import BufferPool
from kbroker.handlers import dispatch
from kbroker.log_output import log_suppressed
from kbroker.network.cold_reads import COLD_READ_THREADS
from kbroker.network.limits import ConnectionLimits, beside_the_loop, connection_limits
from kbroker.network.listener import Listener
from kbroker.network.socket_options import SocketOptions
from kbroker.network.unreached import Address, UnreachedAddress
from kbroker.storage.manager.shrunk_files import note_shrunk

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kbroker._fast.base.counters import RequestStats
    from kbroker.config import BrokerConfig
    from kbroker.gate.enforcement import QuotaEnforcement
    from kbroker.handlers.services import Services
    from kbroker.handlers.table import Handler
    from kbroker.metrics.families import Labelled, Labels, Values
    from kbroker.network.listener_security import ListenerSecurity
    from kbroker.storage.manager.log_manager import LogManager

DRAIN_SECONDS = 1.0


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
        self._unreached: list[tuple[Listener, UnreachedAddress]] = []

    def bind(
        self,
        services: Services,
        handlers: Mapping[str, Sequence[Handler]],
        logs: LogManager,
        quotas: QuotaEnforcement,
        *,
        watches_addresses: bool,
    ) -> None:
        """Take the addresses; BindError when one is taken or not this machine's.

        `handlers`: what each listener serves, by its name.  `watches_addresses`: notice clients that ask for this
        broker's address and do not come there.
        """
        config = self._config
        self._routes = {name: dispatch.routes(rows) for name, rows in handlers.items()}
        left = self._descriptors - logs.open_files.least_budget
        limits = self._limits = ConnectionLimits(*connection_limits(services.config), left, logs.open_files.leave_room)
        self._reactor = Reactor(
            self._loop,
            services,
            self.pool,
            self._stats,
            config.get("socket.busy.poll.us"),
            beside_the_loop(config.get("num.network.threads")),
            services.replica_manager.purgatory,
        )
        security = {each.name: self._security[each.name] for each in config.listeners}
        quotas.guard(self._reactor, authenticates=any(each.authenticates for each in security.values()))
        self._make = partial(
            Listener,
            options=_socket_options(config),
            limits=limits,
            reactor=self._reactor,
            unsupported=dispatch.unsupported,
            max_frame_bytes=config.get("socket.request.max.bytes"),
            max_idle_ms=config.get("connections.max.idle.ms"),
            cold_reads=self.cold_reads,
            read_failed=logs.failures.report_read,
            file_shrunk=partial(note_shrunk, logs),
            slices=services.slices,
        )
        self._forgets = services.metadata_cache.subscribe
        for each in config.listeners:
            listener = self._make(
                each.name,
                each.host,
                each.port,
                routes=self._routes[each.name],
                admission=quotas.admit,
                security=security[each.name],
                max_connections=config.own_of_listener(each.name, "max.connections"),
            )
            listener.bind()
            self.all.append(listener)
            if watches_addresses:
                advertised = next((a for a in config.advertised_listeners or () if a.name == each.name), None)
                address = None if advertised is None else Address(advertised.host, advertised.port)
                self._unreached.append((listener, UnreachedAddress(each.name, address)))
            services.metadata_cache.subscribe(listener.endpoint.answers.forget)

    async def accept(self) -> None:
        """Open the listeners."""
        for listener in self.all:
            await listener.accept()

    def inside(self, name: str, security: ListenerSecurity) -> Listener:
        """A listener without a port, whose connections this process makes to itself; after `bind`."""
        listener = self._make(name, "", 0, routes=self._routes[name], security=security)
        self._inside.append(listener)
        self._forgets(listener.endpoint.answers.forget)
        return listener

    def follow(self, config: BrokerConfig) -> None:
        """Broker settings were changed at run time."""
        self._limits.change(*connection_limits(config))
        self._reactor.change_threads(beside_the_loop(config.get("num.network.threads")))

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
        self._reactor.close()

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
