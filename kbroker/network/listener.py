"""One listener: its socket, its connections and what is said of them.

The listener owns policy on connections: limits, idle time, the log lines about clients that misbehave (rate-limited by
reason), and an orderly end.  What arrives on a connection is the compiled `Connection`'s, which calls back here.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

from kbroker._fast.connection import Connection
from kbroker._fast.counters import RequestStats
from kbroker._fast.file_region import FileRegion
from kbroker._fast.log_fields import PurgatoryFields
from kbroker._fast.receive_buffer import BufferPool
from kbroker._fast.request_context import RequestContext
from kbroker._fast.route import Endpoint, Route
from kbroker.log_output import RateLimitedLog
from kbroker.network.acceptor import CrowdAcceptor
from kbroker.network.cold_reads import ColdReads, Stretch
from kbroker.network.limits import ConnectionLimits

logger = logging.getLogger("kbroker.network")

# Others do not wait longer than this for the rest of a request that does not come.
STALLED_SECONDS = 30.0
MAPPED_IPV4 = "::ffff:"
TLS_HANDSHAKE = b"\x16\x03"
HTTP_METHODS = (b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI", b"CONN", b"PATC", b"PRI ")


class BindError(OSError):
    """A listener's address cannot be bound; the text says which and why."""


@dataclass(frozen=True, slots=True)
class SocketOptions:
    """How sockets are set up.  Buffer sizes of -1 and an empty congestion control leave the system's choice."""

    backlog: int
    send_buffer_bytes: int = -1
    receive_buffer_bytes: int = -1
    tcp_congestion: str = ""
    busy_poll_us: int = 0
    threads: int = 0


class Listener:
    """Accepts and looks after the connections of one `listeners` entry."""

    def __init__(
        self,
        name: str,
        host: str,
        port: int,
        options: SocketOptions,
        limits: ConnectionLimits,
        *,
        services: Any,
        pool: BufferPool,
        stats: RequestStats,
        routes: Iterable[Route],
        unsupported: Callable[[RequestContext], bytes | None],
        max_frame_bytes: int,
        max_idle_ms: int,
        loop: asyncio.AbstractEventLoop,
        purgatory: PurgatoryFields | None = None,
        cold_reads: Executor | None = None,
        read_failed: Callable[[int, OSError], object] = lambda fd, error: None,
    ) -> None:
        self.name = name
        self.host = host
        self.port = port
        self._options = options
        self._limits = limits
        self._loop = loop
        pool.loop = loop
        self._cold_reads = ColdReads(loop, cold_reads, self._finish_cold)
        self._read_failed = read_failed
        self.cold_reads_count = 0
        self._max_idle_seconds = max_idle_ms / 1000
        self._server: asyncio.AbstractServer | None = None
        self._crowd: CrowdAcceptor | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._complaints = RateLimitedLog(logger)
        self._addresses: dict[Connection, str] = {}
        self._quiet = asyncio.Event()
        self.unsupported = unsupported
        self.accepted_count = 0
        self.refused: Counter[str] = Counter()
        self.closed: Counter[str] = Counter()
        self.endpoint = Endpoint(
            name,
            services,
            pool,
            stats,
            routes,
            loop,
            self,
            max_frame_bytes,
            options.busy_poll_us,
            options.threads,
            purgatory,
        )

    async def start(self) -> None:
        """Bind and accept.  BindError when the address is taken or not ours."""
        sock = self._bind()
        self.port = sock.getsockname()[1]
        self._server = await self._loop.create_server(
            lambda: Connection(self.endpoint),  # type: ignore[arg-type, return-value]
            sock=sock,
            backlog=self._options.backlog,
        )
        self._crowd = CrowdAcceptor(self._loop, sock, self._connect, self._limits)

    async def _connect(self, sock: socket.socket) -> object:
        return await self._loop.connect_accepted_socket(lambda: Connection(self.endpoint), sock)  # type: ignore[type-var]

    def _bind(self) -> socket.socket:
        family, host = _family(self.host)
        try:
            sock = socket.socket(family, socket.SOCK_STREAM)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            # As Kafka does: a client whose machine died while its request waits is noticed in the end.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if self.host == "" else 1)
            # Accepted sockets inherit these from the listening one.
            if self._options.send_buffer_bytes > 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._options.send_buffer_bytes)
            if self._options.receive_buffer_bytes > 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._options.receive_buffer_bytes)
            self._set_congestion(sock)
            sock.bind((host, self.port))
        except OSError as error:
            sock.close()
            raise BindError(
                error.errno, f"listener {self.name}: cannot bind {self.host or '*'}:{self.port}: {error.strerror}"
            ) from error
        sock.setblocking(False)
        return sock

    def _set_congestion(self, sock: socket.socket) -> None:
        name = self._options.tcp_congestion
        if not name:
            return
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
        except OSError as error:
            logger.warning("socket.tcp.congestion=%s is not to be had here (%s); the system's is used", name, error)

    # Called by connections

    def connection_opened(self, connection: Connection) -> bool:
        self.accepted_count += 1
        # An IPv4 client of a dual-stack socket counts as the address that it is set down with.
        address = connection.peer_host.removeprefix(MAPPED_IPV4)
        self._addresses[connection] = address
        setting = self._limits.admit(address)
        if self._crowd is not None:
            self._crowd.look()
        if setting is None and not self.endpoint.draining:
            return True
        if setting is None:
            self.refused["shutting down"] += 1
            return False
        self.refused[setting] += 1
        self._complaints.warning(setting, "refused a connection from %s: %s is reached", address, setting)
        return False

    def connection_closed(self, connection: Connection, reason: str) -> None:
        address = self._addresses.pop(connection, None)
        if address is not None:
            self._limits.leave(address)
        self.closed[reason.partition(":")[0]] += 1
        self._quiet.set()

    def describe_bad_frame(self, head: bytes, size: int) -> str:
        """What the first bytes of a frame look like when their length cannot be one."""
        if head.startswith(TLS_HANDSHAKE):
            return "this looks like a TLS handshake, but the listener speaks plaintext"
        if head.startswith(HTTP_METHODS):
            return "this looks like an HTTP request, but the listener speaks Kafka's protocol"
        limit = self.endpoint.max_frame_bytes
        if size > limit:
            return f"a request of {size} bytes is over socket.request.max.bytes={limit}"
        return f"a request cannot have {size} bytes"

    def bad_request(self, connection: Connection, reason: str, detail: str) -> None:
        self._complaints.warning(
            reason,
            "closing the connection of %s:%d to listener %s: %s: %s",
            connection.peer_host,
            connection.peer_port,
            self.name,
            reason,
            detail,
        )

    def handler_failed(self, ctx: RequestContext | None, error: BaseException) -> None:
        logger.error(
            "API %s version %s failed; its connection is closed",
            None if ctx is None else ctx.api_key,
            None if ctx is None else ctx.api_version,
            exc_info=error,
        )

    def read_cold(self, connection: Connection, stretches: list[Stretch]) -> None:
        """Bring a stretch of a log into the page cache by a thread; the connection sends it afterwards.

        A connection waits for one stretch of at most 2 MB at a time, so a consumer that catches up takes turns with
        the others that do, and tail readers never wait for it.
        """
        self.cold_reads_count += 1
        self._cold_reads.read(connection, stretches)

    def _finish_cold(self, connection: Connection, region: FileRegion, error: Exception | None) -> None:
        if error is None:
            connection.helped()
            return
        if isinstance(error, OSError):
            self._read_failed(region.fd, error)
        self._complaints.error("cold read", "a segment could not be read: %s", error)
        connection.close("a segment could not be read")

    def spawn(self, ctx: RequestContext, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Run a handler that waits; its answer goes out when it is there."""
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._finish(ctx, done))

    def _finish(self, ctx: RequestContext, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            ctx.connection.close("shutting down")
            return
        error = task.exception()
        if error is not None:
            self.handler_failed(ctx, error)
            ctx.connection.close("a request failed")
            return
        response = task.result()
        if response is not None:
            ctx.respond(response)

    # Called by the broker

    def close_idle(self, now: float) -> int:
        """Close connections without traffic for `connections.max.idle.ms`; how many.  `now`: monotonic seconds.

        One whose request is being served is not idle; one that does not take its answers is.  While others wait for
        memory, one that has stopped in the middle of a large request is given STALLED_SECONDS.
        """
        pool, stalled = self.endpoint.pool, now - STALLED_SECONDS
        if pool.waiting_count:
            for each in list(self.endpoint.connections):
                if pool.waiting_count and each.holds_budget and each.last_active < stalled:
                    each.close("stalled")
        if self._max_idle_seconds <= 0:
            return 0
        oldest = now - self._max_idle_seconds
        idle = [each for each in self.endpoint.connections if each.last_active < oldest and not each.serving]
        for connection in idle:
            connection.close("idle")
        return len(idle)

    def tell_suppressed(self) -> None:
        """Log how many complaints of each kind were left out since the last one was told."""
        self._complaints.flush()

    def stop_accepting(self) -> None:
        """Close the listening socket; connections live on."""
        self.endpoint.draining = True
        if self._crowd is not None:
            self._crowd.close()
        if self._server is not None:
            self._server.close()

    async def drained(self) -> None:
        """Return once no connection has a request under way or an answer not yet sent; call `stop_accepting` first."""
        while any(connection.busy for connection in self.endpoint.connections):
            self._quiet.clear()
            await self._quiet.wait()

    def went_quiet(self) -> None:
        """A connection has nothing under way; called while the listener drains."""
        self._quiet.set()

    def close_connections(self) -> None:
        """Close them all and cancel the handlers that still wait."""
        for task in list(self._tasks):
            task.cancel()
        for connection in list(self.endpoint.connections):
            connection.close("shutting down")
        self.endpoint.end_threads()


def _family(host: str) -> tuple[socket.AddressFamily, str]:
    """Address family and bind address: both families where no host is given, IPv4 where a name has both, as in Java."""
    if host == "":
        return (socket.AF_INET6, "::") if socket.has_dualstack_ipv6() else (socket.AF_INET, "0.0.0.0")
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        raise BindError(error.errno, f"cannot resolve the listener host {host!r}: {error.strerror}") from error
    family, _, _, _, address = min(found, key=lambda each: each[0] != socket.AF_INET)
    return family, str(address[0])
