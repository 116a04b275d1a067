"""The small HTTP server behind `metrics.listener`: /metrics, /healthz, /readyz and JSON pages, on the broker's loop.

A page is a coroutine function that is given the parts of the path after its name; it answers with a status and a value,
which a thread turns into JSON.  Pages are there when the broker is ready.  A site answers everything under its name by
itself (`http_messages`); the first one is where `/` leads.

With an `access`, all but /healthz and /readyz is shown to those alone who prove who they are; /metrics and the pages
take that they may describe the cluster.

GET and HEAD, and POST for a site that takes bodies; HTTP/1.1 with keep-alive and pipelining.  States of a connection:
reading a head, answering it (reading is paused meanwhile, so answers keep the order of the requests), closed.

Limits, so that a stray client costs nothing: those of `http_requests`, 128 connections, 15 seconds for a request to
arrive, for an answer to be read, and for the next request of a kept connection.  If all 128 are taken, the longest idle
one is closed once it has been idle for a second.  As many extra connections may request only `/healthz` and `/readyz`,
within two seconds: so slow clients, however many, never block a probe.  An answer of more than 4 MiB is refused while
clients have not read 128 MiB.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import socket
from collections import deque
from collections.abc import Collection
from typing import TYPE_CHECKING, cast
from urllib.parse import unquote

from kbroker.metrics.http_guard import refusal
from kbroker.metrics.http_messages import (
    DESCRIBE_CLUSTER,
    JSON,
    KAFKA,
    KAFKA_NAMINGS,
    KBROKER,
    NOT_ALLOWED,
    REASONS,
    SCRAPED,
    VIEWER,
    Access,
    Answer,
    BodyLimits,
    Names,
    Page,
    Pages,
    Request,
    Sites,
    asked_names,
    not_found,
    unproved,
)
from kbroker.metrics.http_requests import Bodies, RefusedError, RequestReader
from kbroker.metrics.listener_address import is_own
from kbroker.metrics.readiness import Readiness
from kbroker.metrics.recent_rates import RecentRates
from kbroker.metrics.sources import Sources

if TYPE_CHECKING:
    import ssl

    from kbroker.metrics.kafka_snapshot import KafkaSnapshot
    from kbroker.metrics.snapshot import Snapshot

log = logging.getLogger("kbroker.metrics")

MAX_CONNECTIONS = 128
MAX_EXTRA = 128
IDLE_SECONDS = 15.0
PATIENCE_SECONDS = 1.0
"""How long a connection may keep its place without asking, or without reading its answer, while others want it."""
EXTRA_SECONDS = 2.0
PROBES = ("/healthz", "/readyz")
_COMPRESS_FROM_BYTES = 4096
LARGE_BYTES = 4 << 20
MOST_UNREAD_BYTES = 128 << 20
"""Of answers that clients have not read yet; a further large one is refused then."""


class MetricsServer:
    """What the connections share: the sources, the readiness and the listening socket."""

    def __init__(
        self,
        sources: Sources | None,
        readiness: Readiness,
        pages: Pages | None = None,
        sites: Sites | None = None,
        hosts: Collection[str] = (),
        access: Access | None = None,
        names: Names = KBROKER,
        bodies: BodyLimits | None = None,
    ) -> None:
        """`hosts`: the names under which it is asked for, besides those that `http_guard` allows anyway; `access`: who
        may look, None: everybody; `names`: those that /metrics has; `bodies`: how many bytes a body for a site may
        have."""
        self.body_limits = bodies or {}
        self.bodies = Bodies()
        self.access = access
        self.names = names
        self.sources = sources
        self.hosts = hosts
        self.is_guarded = True
        self._turn = asyncio.Lock()
        self._rates: RecentRates | None = None
        self._scrapes: dict[tuple[Names, str], asyncio.Task[tuple[bytes, str]]] = {}
        self.pages = pages or {}
        self.sites = sites or {}
        self.readiness = readiness
        self.connections: set[_Connection] = set()
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        """The port in use; 0 when not listening."""
        if self._server is None or not self._server.sockets or self._server.sockets[0].family == socket.AF_UNIX:
            return 0
        return int(self._server.sockets[0].getsockname()[1])

    async def listen(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> None:
        """Begin to accept.  OSError when the address can't be had.

        A host that begins with @ is a name in the abstract namespace of Unix sockets, without a port, for processes of
        this user alone.
        """
        loop = asyncio.get_running_loop()
        if host.startswith("@"):
            self.is_guarded = False  # A browser cannot ask there.
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            sock.bind("\0" + host[1:])
            self._server = await loop.create_unix_server(lambda: _Connection(self, loop), sock=sock)
        else:
            self._server = await loop.create_server(lambda: _Connection(self, loop), host, port, ssl=tls)

    async def look(self) -> tuple[bool, str]:
        """What `/readyz` answers; see `Readiness.look`."""
        return self.readiness.look()

    async def close(self) -> None:
        """Stop accepting and drop what is open."""
        if self._server is not None:
            self._server.close()
        for connection in tuple(self.connections):
            connection.drop()
        for task in self._scrapes.values():
            task.cancel()
        if self._server is not None:
            await self._server.wait_closed()
            self._server = None

    async def scrape(self, names: Names, accept: str) -> tuple[bytes, str]:
        """The text of all metrics: read on the loop, rendered off it."""
        assert self.sources is not None
        loop = asyncio.get_running_loop()
        if names != KBROKER:
            from kbroker.metrics.kafka_snapshot import take_kafka

            if self._rates is None:
                self._rates = RecentRates(self.sources.recent.started_at)
            found = await take_kafka(self.sources)
            naming = names.removeprefix(KAFKA).removeprefix("-")
            return await loop.run_in_executor(None, _render_kafka, found, accept, naming, self._rates)
        from kbroker.metrics.snapshot import take

        return await loop.run_in_executor(None, _render, await take(self.sources), accept)

    async def shared_scrape(self, names: Names, accept: str) -> tuple[bytes, str]:
        """`scrape`, one at a time: requests that arrive while one is under way share the next.

        So a crowd of scrapers costs the loop no more than one does.
        """
        task = self._scrapes.get((names, accept))
        if task is None:
            task = asyncio.get_running_loop().create_task(self._next_scrape(names, accept))
            self._scrapes[names, accept] = task
        try:
            return await asyncio.shield(task)
        finally:
            del task  # It keeps its error, and the error this frame.

    async def _next_scrape(self, names: Names, accept: str) -> tuple[bytes, str]:
        async with self._turn:
            # Later requests must not get values from before they arrived, so they start the next scrape.
            self._scrapes.pop((names, accept), None)
            return await self.scrape(names, accept)

    def body_limit(self, path: str) -> int:
        """How many bytes the body of a request for a path may have."""
        path = unquote(path).strip("/")
        limit = self.body_limits.get(path.partition("/")[0])
        return 0 if limit is None else limit(f"/{path}")

    def make_room(self) -> bool:
        """Ends the connection that has kept a place for longest without asking or reading; whether there was one."""
        since, idlest = min(
            ((each.idle_since, each) for each in self.connections if each.idle_since is not None and not each.is_extra),
            key=lambda pair: pair[0],
            default=(0.0, None),
        )
        if idlest is None or asyncio.get_running_loop().time() - since < PATIENCE_SECONDS:
            return False
        self.connections.discard(idlest)
        idlest.drop()
        return True

    def make_extra_room(self) -> None:
        """Ends the oldest of the extra connections when there are too many."""
        extra = [each for each in self.connections if each.is_extra]
        if len(extra) >= MAX_EXTRA:
            oldest = min(extra, key=lambda each: each.since)
            self.connections.discard(oldest)
            oldest.drop()

    @property
    def unread_bytes(self) -> int:
        """What all clients have not read yet."""
        return sum(each.unread_bytes for each in self.connections)

    async def page(self, page: Page, parts: list[str]) -> tuple[int, bytes]:
        """A page's answer as JSON."""
        if not self.readiness.ready:
            return 503, json.dumps({"error": f"the broker is {self.readiness.text}"}).encode()
        status, value = await page(parts)
        return status, await asyncio.get_running_loop().run_in_executor(None, _to_json, value)


def _to_json(value: object) -> bytes:
    return json.dumps(value).encode() + b"\n"


def _render_kafka(snapshot: KafkaSnapshot, accept: str, naming: str, rates: RecentRates) -> tuple[bytes, str]:
    from kbroker.metrics.kafka_exposition import render, render_named

    return render_named(snapshot, accept, naming, rates) if naming else render(snapshot, accept)


def _render(snapshot: Snapshot, accept: str) -> tuple[bytes, str]:
    from kbroker.metrics.exposition import render

    return render(snapshot, accept)


class _Connection(asyncio.Protocol):
    """One HTTP connection."""

    def __init__(self, server: MetricsServer, loop: asyncio.AbstractEventLoop) -> None:
        self._server = server
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._reader: RequestReader | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._waiting: deque[Request] = deque()
        self._answering: Request | None = None
        self._is_unread = False
        self._unread_before = 0
        self.since = self._loop.time()
        self.idle_since: float | None = self.since
        """Since when it is the client's turn, to ask or to read; None while it is answered."""
        self.is_extra = False
        """Whether it may ask for probes alone."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if not self._server.is_guarded and not is_own(self._transport.get_extra_info("socket")):
            self._transport.abort()
            return
        # Logged for an answer that the client does not read.
        self._transport.set_write_buffer_limits(high=0)
        server = self._server
        if sum(not each.is_extra for each in server.connections) >= MAX_CONNECTIONS and not server.make_room():
            self.is_extra = True
            server.make_extra_room()
        server.connections.add(self)
        self._reader = RequestReader(self._take, server.body_limit, server.bodies)
        self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.connections.discard(self)
        self._disarm()
        self._end_reading()
        self._forget_waiting()
        self._transport = None
        if self._task is not None:
            self._task.cancel()

    @property
    def _host(self) -> str:
        """The client's address."""
        peer = None if self._transport is None else self._transport.get_extra_info("peername")
        return str(peer[0]) if isinstance(peer, tuple) else ""

    @property
    def unread_bytes(self) -> int:
        """What the client has not read yet of its answer."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def drop(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    def pause_writing(self) -> None:
        """The client reads more slowly than it is sent an answer."""
        self._is_unread = True

    def resume_writing(self) -> None:
        """It has read all of it."""
        self._is_unread = False
        if self._task is None and self._reader is not None:
            self._listen_again()

    def data_received(self, data: bytes) -> None:
        if self._reader is None:
            return
        try:
            self._reader.feed(data)
        except RefusedError as error:
            self._refuse(error.status)
            return
        self._answer_next()

    def _end_reading(self) -> None:
        if self._reader is not None:
            self._reader.drop()
            self._reader = None

    def _take(self, request: Request) -> None:
        self._waiting.append(request)

    def _forget(self, request: Request | None) -> None:
        """The body of a request that has its answer, or gets none, counts no more."""
        if request is not None:
            self._server.bodies.held_bytes -= len(request.body)

    def _forget_waiting(self) -> None:
        while self._waiting:
            self._forget(self._waiting.popleft())

    def _answer_next(self) -> None:
        """Take the next complete request, when none is being answered."""
        if self._task is not None or not self._waiting or self._transport is None or self._is_unread:
            return
        self._disarm()
        self.idle_since = None
        self._transport.pause_reading()
        self._answering = self._waiting.popleft()
        self._task = self._loop.create_task(self._answer(self._answering))
        self._task.add_done_callback(self._answered)

    def _answered(self, task: asyncio.Task[None]) -> None:
        self._task = None
        self._forget(self._answering)
        self._answering = None
        if task.cancelled() or self._transport is None:
            return
        if task.exception() is not None:
            log.error("an HTTP request failed", exc_info=task.exception())
            self._refuse(500)
            return
        if self._is_unread:
            self._arm()
        else:
            self._listen_again()

    def _listen_again(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if self._waiting:
            self._answer_next()
        else:
            self._transport.resume_reading()
            self._arm()

    async def _answer(self, request: Request) -> None:
        answer = await self._route(request)
        body, headers = answer.body, dict(answer.headers)
        if request.gzip and len(body) >= _COMPRESS_FROM_BYTES:
            if answer.gzipped is None:
                body = await self._loop.run_in_executor(None, gzip.compress, body, 1)
            else:
                body = answer.gzipped
            headers["Content-Encoding"] = "gzip"
        if answer.status == 405:
            headers["Allow"] = "GET, HEAD, POST" if self._server.body_limit(request.path) else "GET, HEAD"
        answer = answer._replace(body=body, headers=headers)
        self._write(answer, keep_alive=request.keep_alive and not self.is_extra, head=request.method == "HEAD")

    async def _route(self, request: Request) -> Answer:
        server = self._server
        if self.is_extra and request.path not in PROBES:
            return Answer(503, b"too many connections\n")
        name, *parts = unquote(request.path).strip("/").split("/")
        if server.is_guarded and request.host and name not in server.sites:
            # A site says it in its own way.  A request without a Host comes from no browser.
            refused = refusal(request.host, server.hosts)
            if refused is not None:
                return Answer(421, f"{refused}\n".encode())
        if request.path == "/" and server.sites:
            return Answer(302, b"", headers={"Location": f"/{next(iter(server.sites))}/"})
        if request.path == VIEWER and not server.is_guarded:
            return await self._look_at_viewer(request)
        page, site = server.pages.get(name), server.sites.get(name)
        if page is None and site is None and request.path not in (*SCRAPED, *PROBES):
            return not_found((*server.pages, *server.sites))
        if not request.is_read and not (request.method == "POST" and name in server.body_limits):
            return Answer(405, b"GET or HEAD only\n")
        # By a Unix socket a supervisor asks, which says where its own client is.
        request = request._replace(peer=self._host if server.is_guarded else request.peer)
        if server.access is not None and request.path not in PROBES and (server.is_guarded or site is not None):
            viewer = await server.access.viewer(request.authorization, request.peer)
            if viewer is None:
                return unproved(server.access)
            if site is None and not viewer.may(*DESCRIBE_CLUSTER):
                return NOT_ALLOWED
            request = request._replace(viewer=viewer)
        if site is not None:
            return await site(request)
        return await self._show(request, page, parts)

    async def _show(self, request: Request, page: Page | None, parts: list[str]) -> Answer:
        server = self._server
        if page is not None:
            status, body = await server.page(page, parts)
            return Answer(status, body, JSON)
        if request.path == "/healthz":
            return Answer(200, b"ok\n")
        if request.path == "/readyz":
            is_serving, text = await server.look()
            return Answer(200 if is_serving else 503, f"{text}\n".encode())
        names = asked_names(SCRAPED[request.path] or server.names, request.query)
        if names is None:
            return Answer(404, f"no such names; there are strimzi, {', '.join(KAFKA_NAMINGS)}\n".encode())
        body, content_type = await server.shared_scrape(names, request.accept)
        return Answer(200, body, content_type)

    async def _look_at_viewer(self, request: Request) -> Answer:
        """What a supervisor asks of its worker: whether a viewer may look, whose address is the query."""
        access = self._server.access
        if access is None:
            return Answer(200, b"everybody may look\n")
        viewer = await access.viewer(request.authorization, unquote(request.query))
        if viewer is None:
            return unproved(access)
        return Answer(200, b"ok\n") if viewer.may(*DESCRIBE_CLUSTER) else NOT_ALLOWED

    def _write(self, answer: Answer, *, keep_alive: bool, head: bool = False) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if len(answer.body) > LARGE_BYTES and self._server.unread_bytes + len(answer.body) > MOST_UNREAD_BYTES:
            answer = Answer(503, b"too much is not read yet by clients; try again\n")
        headers = {
            "Content-Type": answer.content_type,
            "Content-Length": str(len(answer.body)),
            "Connection": "keep-alive" if keep_alive else "close",
            "Cache-Control": "no-store",
            **answer.headers,
        }
        if answer.status == 304:  # It is the length of what is left out.
            del headers["Content-Length"]
        lines = [f"HTTP/1.1 {answer.status} {REASONS[answer.status]}", *map(": ".join, headers.items())]
        start = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
        self._transport.write(start if head else start + answer.body)
        if not keep_alive:
            self._transport.close()

    def _refuse(self, status: int) -> None:
        self._end_reading()
        self._forget_waiting()
        self._write(Answer(status, f"{REASONS[status]}\n".encode()), keep_alive=False)

    def _arm(self) -> None:
        self._disarm()
        self.idle_since = self._loop.time()
        self._wait()

    def _wait(self) -> None:
        self._unread_before = self.unread_bytes
        self._deadline = self._loop.call_later(EXTRA_SECONDS if self.is_extra else IDLE_SECONDS, self.time_is_up)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def time_is_up(self) -> None:
        """End it, unless its client has read something of its answer in that time."""
        if self.is_extra and self._reader is not None:
            self._refuse(503)
        elif not self.is_extra and 0 < self.unread_bytes < self._unread_before:
            self._wait()
        else:
            self.drop()
