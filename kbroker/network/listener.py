"""One listener: its socket, its connections and the log lines about them.

The listener owns policy on connections: limits, idle time, the log lines about clients that misbehave (rate-limited by
reason and kind), and an orderly end.  What arrives on a connection is the compiled `Connection`'s, which calls back
here.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Executor

from kbroker._fast.base.slices import Slices
from kbroker._fast.files.file_region import FileRegion
from kbroker._fast.net.connection import Connection
from kbroker._fast.net.reactor import Reactor
from kbroker._fast.net.request_context import RequestContext
from kbroker._fast.net.route import Endpoint, Route
from kbroker._fast.net.socket_part import SocketPart
from kbroker._fast.wire.decoding import Decoding
from kbroker._fast.wire.encoding import Encoding
from kbroker.log_output import RateLimitedLog
from kbroker.network import pieces
from kbroker.network.acceptor import CrowdAcceptor
from kbroker.network.admission import Admission, Verdict
from kbroker.network.cold_reads import ColdReads, FileRange
from kbroker.network.coroutine_answer import CoroutineAnswer
from kbroker.network.limits import ConnectionLimits
from kbroker.network.listener_security import ListenerSecurity
from kbroker.network.socket_options import MAPPED_IPV4, SocketOptions, is_same_host, leave_out_pacing

logger = logging.getLogger("kbroker.network")

# Others do not wait longer than this for the rest of a request that does not come.
STALLED_SECONDS = 30.0
TLS_HANDSHAKE = b"\x16\x03"
TLS, HTTP = OTHER_PROTOCOLS = ("TLS", "HTTP")
HTTP_METHODS = (b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI", b"CONN", b"PATC", b"PRI ")


class BindError(OSError):
    """A listener's address cannot be bound; the text says which and why."""


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
        reactor: Reactor,
        services: object = None,
        routes: Iterable[Route],
        unsupported: Callable[[RequestContext], bytes | None],
        max_frame_bytes: int,
        max_idle_ms: int,
        cold_reads: Executor | None = None,
        read_failed: Callable[[int, OSError], object] = lambda fd, error: None,
        file_shrunk: Callable[[int], object] = lambda fd: None,
        slices: Slices | None = None,
        admission: Callable[[str, str], Admission] | None = None,
        security: ListenerSecurity,
        max_connections: int | None = None,
    ) -> None:
        self.name = name
        self.host = host
        self.port = port
        self._options = options
        self._limits = limits
        self._paces_local = False
        loop = self._loop = reactor.loop
        self._cold_reads = ColdReads(loop, cold_reads, self._finish_cold)
        self._read_failed = read_failed
        self.file_shrunk = file_shrunk
        self._slices = slices or Slices(loop)
        self._admission = admission
        self._security = security
        self._max_connections = max_connections
        self.cold_reads_count = 0
        self._max_idle_seconds = max_idle_ms / 1000
        self._bound: socket.socket | None = None
        self._server: asyncio.AbstractServer | None = None
        self._crowd: CrowdAcceptor | None = None
        self._tasks: set[asyncio.Task[object]] = set()
        self._complaints = RateLimitedLog(logger)
        # In the order of their coming, in which they are closed as well.
        self._addresses: dict[Connection, str] = {}
        self._quiet = asyncio.Event()
        self.unsupported = unsupported
        self.accepted_count = 0
        self.refused: Counter[str] = Counter()
        self.closed: Counter[str] = Counter()
        self.paced: Counter[str] = Counter()
        first_frame_bytes = min(max_frame_bytes, security.first_frame_bytes or max_frame_bytes)
        self.endpoint = Endpoint(name, reactor, services, routes, self, max_frame_bytes, first_frame_bytes)

    async def start(self) -> None:
        """Bind and accept.  BindError when the address is taken or not ours."""
        self.bind()
        await self.accept()

    def bind(self) -> None:
        """Take the address; who connects is refused until `accept`.  BindError when it is taken or not ours."""
        self._bound = self._bound_socket()
        self.port = self._bound.getsockname()[1]

    async def accept(self) -> None:
        """Accept connections from here on; after `bind`, once."""
        sock, self._bound = self._bound, None
        assert sock is not None
        self._server = await self._loop.create_server(self._socket_part, sock=sock, backlog=self._options.backlog)
        self._crowd = CrowdAcceptor(self._loop, sock, self._connect, self._limits)

    async def _connect(self, sock: socket.socket) -> object:
        return await self.connect(sock, self._socket_part)

    async def connect(self, sock: socket.socket, make_socket: Callable[[], SocketPart]) -> object:
        """Serve a connection that is there."""
        return await self._loop.connect_accepted_socket(make_socket, sock)

    def _socket_part(self) -> SocketPart:
        """A new connection's face to the loop."""
        return self._security.make_socket(Connection(self.endpoint))

    def _bound_socket(self) -> socket.socket:
        try:
            sock = bound_socket(self.host, self.port, self._apply)
        except BindError:
            raise
        except OSError as error:
            raise BindError(
                error.errno, f"listener {self.name}: cannot bind {self.host or '*'}:{self.port}: {error.strerror}"
            ) from error
        sock.setblocking(False)
        return sock

    def _apply(self, sock: socket.socket) -> None:
        self._options.apply(sock)
        self._paces_local = self._options.paces_local(sock)

    # Called by connections

    def connection_opened(self, connection: Connection) -> bool:
        """Count a connection, give it its first session, and refuse it beyond the limits."""
        connection.session = self._security.first_session(connection)
        self.accepted_count += 1
        # An IPv4 client of a dual-stack socket counts as the address that it is set down with.
        address = connection.peer_host.removeprefix(MAPPED_IPV4)
        self._addresses[connection] = address
        setting = self._limits.admit(address)
        if setting is None and self._max_connections is not None and len(self._addresses) > self._max_connections:
            setting = "max.connections"
        if self._crowd is not None:
            self._crowd.look()
        if setting is None and not self.endpoint.draining:
            if self._paces_local and is_same_host(connection.peer_host, connection.local_host):
                leave_out_pacing(connection.socket.raw)
            if self._admission is not None:
                self._pace_creation(connection, self._admission(self.name, address))
            return True
        if setting is None:
            self.refused["shutting down"] += 1
            return False
        self.refused[setting] += 1
        self._complaints.warning(setting, "refused a connection from %s: %s is reached", address, setting)
        return False

    def _pace_creation(self, connection: Connection, admission: Admission) -> None:
        if admission.verdict is Verdict.SERVED:
            return
        self.paced[admission.verdict.value] += 1
        connection.mute()
        delay = admission.delay_ms / 1000
        if admission.verdict is Verdict.REFUSED:
            self._complaints.warning(
                "connection_creation_rate", "connections of %s come faster than its quota", connection.peer_host
            )
            self._loop.call_later(delay, connection.close, "connection_creation_rate")
        else:
            self._loop.call_later(delay, connection.unmute)

    def connection_closed(self, connection: Connection, reason: str) -> None:
        """Count a connection out."""
        address = self._addresses.pop(connection, None)
        if address is not None:
            self._limits.leave(address)
        self.closed[reason.partition(":")[0]] += 1
        self._quiet.set()

    def describe_bad_frame(self, head: bytes, size: int, is_trusted: bool) -> tuple[str, str]:
        """Classifies a frame whose length is impossible, by its length and first bytes: the kind, and a description."""
        if head.startswith(TLS_HANDSHAKE):
            return TLS, "this looks like a TLS handshake, but the listener speaks plaintext"
        if head.startswith(HTTP_METHODS):
            return HTTP, "this looks like an HTTP request, but the listener speaks Kafka's protocol"
        limit = self.endpoint.max_frame_bytes
        if size > limit:
            return "too large", f"a request of {size} bytes is over socket.request.max.bytes={limit}"
        if not is_trusted and size > self.endpoint.first_frame_bytes:
            most = self.endpoint.first_frame_bytes
            return "too large before authentication", f"a request of {size} bytes before authentication is over {most}"
        return "too small", f"a request cannot have {size} bytes"

    def bad_request(self, connection: Connection, reason: str, detail: str, kind: object) -> None:
        """Say why a connection is closed: one line per reason and kind (of an API: its key and version) at a time.

        A client that speaks another protocol is named by its address, as each is another one's mistake.
        """
        host = connection.peer_host if kind in OTHER_PROTOCOLS else None
        self._complaints.warning(
            (reason, kind, host),
            "closing the connection of %s:%d to listener %s: %s: %s",
            connection.peer_host,
            connection.peer_port,
            self.name,
            reason,
            detail,
        )

    def handler_failed(self, ctx: RequestContext | None, error: BaseException) -> None:
        """Count and log a failure that no handler expected."""
        if ctx is not None:
            self.endpoint.stats.add_error(ctx.api_key)
        logger.error(
            "API %s version %s failed; its connection is closed",
            None if ctx is None else ctx.api_key,
            None if ctx is None else ctx.api_version,
            exc_info=error,
        )

    def read_cold(self, connection: Connection, ranges: list[FileRange]) -> None:
        """Bring a range of a log into the page cache by a thread; the connection sends it afterwards.

        A connection waits for one range of at most 2 MB at a time, so consumers that catch up take turns, and consumers
        at the end of a log never wait for them.
        """
        self.cold_reads_count += 1
        self._cold_reads.read(connection, ranges)

    def _finish_cold(self, connection: Connection, region: FileRegion, error: Exception | None) -> None:
        if error is None:
            connection.helped()
            return
        if isinstance(error, OSError):
            self._read_failed(region.fd, error)
        self._complaints.error("cold read", "a segment could not be read: %s", error)
        connection.close("a segment could not be read")

    def serve_large(
        self, ctx: RequestContext, decoding: Decoding, handle: Callable[[RequestContext, object], object]
    ) -> Coroutine[object, None, object]:
        """What serves a large request in pieces."""
        return pieces.serve(ctx, decoding, handle, self._slices)

    def send_large(
        self, ctx: RequestContext, encoding: Encoding, answer: list[object]
    ) -> Coroutine[object, None, None]:
        """What encodes the rest of a large answer in pieces and sends it."""
        return pieces.respond(ctx, encoding, answer, self._slices)

    def spawn(self, ctx: RequestContext, coroutine: Coroutine[object, None, object], waits_for: object) -> None:
        """Go on with a handler that was begun and waits; its answer goes out when it is there."""
        CoroutineAnswer(pieces.go_on(coroutine, waits_for), self._loop, self._remember).begin(ctx)

    def _remember(self, task: asyncio.Task[object]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Called by the broker

    def close_idle(self, now: float) -> int:
        """Close connections without traffic for `connections.max.idle.ms`; how many.  `now`: monotonic seconds.

        One whose request is being served is not idle; one that does not take its answers is.  While others wait for
        memory, one that has stopped in the middle of a large request is given STALLED_SECONDS.
        """
        pool, stalled = self.endpoint.pool, now - STALLED_SECONDS
        if pool.waiting_count:
            for each in list(self._addresses):
                if pool.waiting_count and each.holds_budget and each.last_active < stalled:
                    each.close("stalled")
        if self._max_idle_seconds <= 0:
            return 0
        oldest = now - self._max_idle_seconds
        idle = [each for each in self._addresses if each.last_active < oldest and not each.serving]
        for connection in idle:
            connection.close("idle")
        return len(idle)

    def log_suppressed(self) -> None:
        """Log how many complaints of each kind were left out since the last one was logged."""
        self._complaints.flush()

    def stop_accepting(self) -> None:
        """Close the listening socket; connections live on."""
        self.endpoint.draining = True
        if self._crowd is not None:
            self._crowd.close()
        if self._server is not None:
            self._server.close()
        if self._bound is not None:
            self._bound.close()
            self._bound = None

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
        for connection in list(self._addresses):
            connection.close("shutting down")


def bound_socket(host: str, port: int, prepare: Callable[[socket.socket], object] | None = None) -> socket.socket:
    """A socket bound for a listener, which `prepare` may change before.  OSError; BindError for an unknown name."""
    family, address = _family(host)
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if host == "" else 1)
        if prepare is not None:
            prepare(sock)
        sock.bind((address, port))
    except OSError:
        sock.close()
        raise
    return sock


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
