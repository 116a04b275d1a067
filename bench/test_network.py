"""What receiving, dispatching and sending cost: `pytest bench/test_network.py`.

A whole connection over loopback in one loop: 50 clients that send one small request each and wait for all answers.
The reference beside it is the least that asyncio can do in Python: a protocol that cuts frames and echoes them.
`us` is per request, both ends of the socket included, so compare the rows.
"""

from __future__ import annotations

import asyncio
import os
import pathlib
import socket
import ssl
import struct
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
import uvloop

from bench.tls_speed import certificates
from kbroker._fast.base.counters import RequestStats
from kbroker._fast.files.file_region import FileRegion
from kbroker._fast.net.accepting import accept_all
from kbroker._fast.net.reactor import Reactor
from kbroker._fast.net.receive_buffer import BufferPool
from kbroker._fast.net.route import Route
from kbroker._fast.tls.tls_shared import TlsShared
from kbroker.network.limits import ConnectionLimits
from kbroker.network.listener import Listener
from kbroker.network.listener_security import ListenerSecurity
from kbroker.network.socket_options import SocketOptions
from kbroker.security.plaintext import Plaintext
from kbroker.security.tls.listener import TlsListener
from kbroker.security.tls.principal_mapping import PrincipalMapping
from kbroker.security.tls.settings import tls_settings

CLIENTS = 50
TURNS = 20
CROWD = 200
LARGE = 1 << 20
REQUEST = struct.pack(">ihhih", 14 + 200, 0, 0, 7, 4) + b"test" + bytes(200)


class Plain:
    """A codec that leaves the body as it is."""

    def decode(self, buffer: Any, pos: int, end: int) -> memoryview:
        return memoryview(buffer)[pos:end]

    def begin_response(self, body: Any, correlation_id: int, flexible: bool, items: int) -> Any:
        head = struct.pack(">ii", 4 + len(body), correlation_id)
        return [head, body] if isinstance(body, FileRegion) else head + body


class PythonEcho(asyncio.Protocol):
    """Frames cut and answered in Python."""

    def __init__(self) -> None:
        self._held = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._held += data
        while len(self._held) >= 4:
            (size,) = struct.unpack_from(">i", self._held)
            if len(self._held) < 4 + size:
                return
            frame = bytes(self._held[4 : 4 + size])
            del self._held[: 4 + size]
            (correlation_id,) = struct.unpack_from(">i", frame, 4)
            body = frame[14:]
            self._transport.write(struct.pack(">ii", 4 + len(body), correlation_id) + body)  # type: ignore[attr-defined]


def _listener(
    loop: asyncio.AbstractEventLoop,
    *,
    cacheable: bool = False,
    file: Any = None,
    send_threads: int = 0,
    security: ListenerSecurity | None = None,
) -> Listener:
    def program(version: int) -> Plain:
        return Plain()

    def echo(ctx: Any, body: memoryview) -> bytes:
        ctx.cacheable = cacheable
        return bytes(body)

    def region(ctx: Any, body: memoryview) -> FileRegion:
        return FileRegion(file.fileno(), 0, LARGE, file)

    return Listener(
        "PLAINTEXT",
        "127.0.0.1",
        0,
        SocketOptions(128),
        ConnectionLimits(1000, 1000, {}),
        reactor=Reactor(loop, BufferPool(131072, 64 << 20), RequestStats(), threads=send_threads),
        routes=[Route(0, 0, 1, region if file else echo, program, program, 9, 9, cacheable)],
        unsupported=lambda ctx: None,
        max_frame_bytes=1 << 20,
        max_idle_ms=600_000,
        security=security or Plaintext(),
    )


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = uvloop.new_event_loop()
    yield made
    made.close()


def _measure(
    benchmark: Any, loop: asyncio.AbstractEventLoop, port: int, count: int = CLIENTS, answer_bytes: int = 208
) -> None:
    room = bytearray(max(4096, min(answer_bytes, 1 << 18)))
    clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(count)]
    for client in clients:
        client.setblocking(False)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    async def turn() -> None:
        for _ in range(TURNS):
            for client in clients:
                client.send(REQUEST)
            for client in clients:
                got = 0
                while got < answer_bytes:
                    got += await loop.sock_recv_into(client, room)

    loop.run_until_complete(turn())
    benchmark.pedantic(lambda: loop.run_until_complete(turn()), rounds=20, iterations=1, warmup_rounds=2)
    benchmark.extra_info["us"] = round(benchmark.stats.stats.min / (count * TURNS) * 1e6, 2)
    for client in clients:
        client.close()


def _measure_listener(
    benchmark: Any, loop: asyncio.AbstractEventLoop, listener: Listener, count: int = CLIENTS, answer_bytes: int = 208
) -> None:
    loop.run_until_complete(listener.start())
    _measure(benchmark, loop, listener.port, count, answer_bytes)
    listener.stop_accepting()
    listener.close_connections()
    loop.run_until_complete(asyncio.sleep(0))


@pytest.mark.benchmark(group="a request over loopback (receiver, connection, route, sender)")
def test_connection(benchmark: Any, loop: asyncio.AbstractEventLoop) -> None:
    _measure_listener(benchmark, loop, _listener(loop))


@pytest.mark.benchmark(group="a request over loopback (receiver, connection, route, sender)")
def test_recalled_answer(benchmark: Any, loop: asyncio.AbstractEventLoop) -> None:
    _measure_listener(benchmark, loop, _listener(loop, cacheable=True))


@pytest.mark.benchmark(group="a request over loopback under TLS (socket part, stream; Python's client included)")
def test_connection_under_tls(benchmark: Any, loop: asyncio.AbstractEventLoop, tmp_path: pathlib.Path) -> None:
    settings = tls_settings(certificates(tmp_path).get)
    security = TlsListener("SSL", settings, PrincipalMapping(), TlsShared(loop, 1), names_clients=True)
    listener = _listener(loop, security=security)
    loop.run_until_complete(listener.start())
    context = ssl.create_default_context(cafile=str(tmp_path / "chain.pem"))

    async def connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", listener.port, ssl=context, server_hostname="localhost")

    reader, writer = loop.run_until_complete(connect())

    async def turn() -> None:
        for _ in range(TURNS * 10):
            writer.write(REQUEST)
            await reader.readexactly(208)

    benchmark.pedantic(lambda: loop.run_until_complete(turn()), rounds=20, iterations=1, warmup_rounds=2)
    benchmark.extra_info["us"] = round(benchmark.stats.stats.min / (TURNS * 10) * 1e6, 2)
    writer.close()
    listener.stop_accepting()
    listener.close_connections()
    loop.run_until_complete(asyncio.sleep(0))


@pytest.mark.parametrize("send_threads", [0, 1])
@pytest.mark.benchmark(group="1 MB of a file to each of 8 clients at once (sender, send_threads)")
def test_large_answers(benchmark: Any, loop: asyncio.AbstractEventLoop, send_threads: int) -> None:
    with tempfile.TemporaryFile() as file:
        file.write(bytes(LARGE))
        file.flush()
        _measure_listener(benchmark, loop, _listener(loop, file=file, send_threads=send_threads), 8, 8 + LARGE)


@pytest.mark.benchmark(group="a request over loopback (receiver, connection, route, sender)")
def test_connection_reference(benchmark: Any, loop: asyncio.AbstractEventLoop) -> None:
    start: Callable[..., Coroutine[Any, Any, asyncio.Server]] = loop.create_server
    server = loop.run_until_complete(start(PythonEcho, "127.0.0.1", 0))
    _measure(benchmark, loop, server.sockets[0].getsockname()[1])
    server.close()
    loop.run_until_complete(asyncio.sleep(0))


@pytest.mark.benchmark(group="accepting 200 connections that wait")
def test_accept_all(benchmark: Any) -> None:
    _measure_accepting(benchmark, lambda listening: accept_all(listening.fileno(), 2 * CROWD))


@pytest.mark.benchmark(group="accepting 200 connections that wait")
def test_accept_all_reference(benchmark: Any) -> None:
    _measure_accepting(benchmark, lambda listening: [listening.accept()[0].detach() for _ in range(CROWD)])


def _measure_accepting(benchmark: Any, accept: Callable[[socket.socket], list[int]]) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=2 * CROWD) as listening:
        listening.setblocking(False)
        clients: list[socket.socket] = []
        accepted: list[int] = []

        def crowd() -> None:
            while clients:
                clients.pop().close()
            while accepted:
                os.close(accepted.pop())
            clients.extend(socket.create_connection(listening.getsockname()) for _ in range(CROWD))

        benchmark.pedantic(lambda: accepted.extend(accept(listening)), setup=crowd, rounds=10)
        assert len(accepted) == CROWD
        crowd()
        accepted.extend(accept(listening))
        while accepted:
            os.close(accepted.pop())
        while clients:
            clients.pop().close()
