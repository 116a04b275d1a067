"""Connections to a served listener: frames that go in, answers that come out."""

from __future__ import annotations

import asyncio
import contextlib
import struct
import tempfile
from collections.abc import AsyncIterator
from typing import Any

from kbroker._fast.base.counters import RequestStats
from kbroker._fast.files.file_region import FileRegion
from kbroker._fast.net.reactor import Reactor
from kbroker._fast.net.receive_buffer import BufferPool
from kbroker._fast.net.route import NO_RESPONSE, Route
from kbroker.network.limits import ConnectionLimits
from kbroker.network.listener import Listener
from kbroker.network.socket_options import SocketOptions
from kbroker.replication.delayed_fetch import FetchPurgatory
from kbroker.security.plaintext import Plaintext
from tests.extensions.direct_requests import EchoesTogether
from tests.network import socket_kinds
from tests.network.later import Later, PlainProgram

ECHO, LATER, FILE, SILENT, TASK, KEEP, HOLD, CONTROLLED_SHUTDOWN, WAKE, BARE, TOGETHER = range(11)
MAX_FRAME = 8 << 20


class Harness:
    def __init__(self, options: SocketOptions, send_threads: int = 0) -> None:
        self.loop = asyncio.get_running_loop()
        self.later: list[Any] = []
        self.kept: list[memoryview] = []
        self.held: list[tuple[Any, memoryview]] = []
        self.file = tempfile.TemporaryFile()  # noqa: SIM115, closed by running()
        self.pool = BufferPool(16384, 4 << 20)
        self.purgatory = FetchPurgatory(self.loop)
        self.wake: Any = None
        self.turn = 0
        self.amid: list[Any] = []
        """What to call amid requests that are answered together."""
        self.complaints: list[str] = []
        program, together = PlainProgram(), EchoesTogether(self._amid)
        handlers = {
            ECHO: lambda ctx, body: bytes(body),
            LATER: self.answer_later,
            FILE: lambda ctx, body: self.region(bytes(body)),
            BARE: lambda ctx, body: self.region(bytes(body))[1:2],
            CONTROLLED_SHUTDOWN: lambda ctx, body: f"{ctx.client_id} ".encode() + bytes(body),
            SILENT: lambda ctx, body: NO_RESPONSE,
            TASK: self.task,
            KEEP: self.keep,
            WAKE: lambda ctx, body: self.wake(),
            HOLD: self.hold,
        }
        self.listener = Listener(
            "PLAINTEXT",
            "127.0.0.1",
            0,
            options,
            ConnectionLimits(50, 40, {}),
            reactor=Reactor(self.loop, self.pool, RequestStats(), threads=send_threads, purgatory=self.purgatory),
            routes=[
                *(Route(key, 0, 1, made, lambda v: program, lambda v: program, 1, 1) for key, made in handlers.items()),
                Route(TOGETHER, 0, 1, None, lambda v: program, lambda v: program, 1, 1, direct=together),
            ],
            unsupported=lambda ctx: None,
            max_frame_bytes=MAX_FRAME,
            max_idle_ms=60_000,
            security=Plaintext(socket_kinds.current.make),
        )

    def _amid(self) -> None:
        for call in self.amid:
            call()

    def answer_later(self, ctx: Any, body: memoryview) -> Later:
        pending = Later()
        self.later.append((pending, bytes(body)))
        return pending

    def hold(self, ctx: Any, body: memoryview) -> Later:
        pending = Later()
        self.held.append((pending, body))
        return pending

    async def task(self, ctx: Any, body: memoryview) -> bytes:
        payload = bytes(body)
        body.release()
        await asyncio.sleep(0)
        return payload

    def keep(self, ctx: Any, body: memoryview) -> bytes:
        self.kept.append(body)
        return b""

    def region(self, body: bytes) -> list[Any]:
        position, size = struct.unpack(">qq", body)
        return [b"<", FileRegion(self.file.fileno(), position, size, self.file), b">"]

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(
            "127.0.0.1", self.listener.port, limit=64 << 20, ssl=socket_kinds.current.context
        )


@contextlib.asynccontextmanager
async def serving(listener: Listener) -> AsyncIterator[None]:
    await listener.start()
    try:
        yield
    finally:
        listener.stop_accepting()
        listener.close_connections()
        listener.endpoint.reactor.close()
        await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def running(
    send_threads: int = 0, buffer_bytes: int = 65536, options: SocketOptions | None = None
) -> AsyncIterator[Harness]:
    harness = Harness(options or SocketOptions(128, buffer_bytes, buffer_bytes), send_threads)
    with harness.file:
        async with serving(harness.listener):
            yield harness


def frame(api_key: int, correlation_id: int, body: bytes, client_id: bytes = b"test", version: int = 0) -> bytes:
    head = struct.pack(">hhih", api_key, version, correlation_id, len(client_id)) + client_id
    head += b"\x00" if version >= 1 else b""
    return struct.pack(">i", len(head) + len(body)) + head + body


async def answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    data = await reader.readexactly(size)
    return struct.unpack(">i", data[:4])[0], data[4:]


async def until(condition: Any) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.001)
