"""Connections under TLS of which a test sends the bytes itself."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import struct
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.network import socket_kinds
from tests.network.served_connection import Harness, running

OPEN: list[asyncio.StreamWriter] = []


def chosen_kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket_kinds.SocketKind]:
    """What a fixture yields whose parameters are kinds of sockets under TLS; it refused nobody yet."""
    chosen: socket_kinds.SocketKind = request.getfixturevalue(request.param)
    monkeypatch.setattr(socket_kinds, "current", chosen)
    assert chosen.listener is not None
    chosen.listener.refusals.clear()
    chosen.listener.verdict = None
    yield chosen
    chosen.listener.verdict = None


@contextlib.asynccontextmanager
async def served(send_threads: int = 0, buffer_bytes: int = 65536) -> AsyncIterator[Harness]:
    """As `running`; closes what wires are open at the end."""
    async with running(send_threads, buffer_bytes) as harness:
        try:
            yield harness
        finally:
            for writer in OPEN:
                writer.close()
            OPEN.clear()


class Wire:
    """A client whose bytes of TLS the test sends itself."""

    def __init__(self, context: ssl.SSLContext, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")

    @classmethod
    async def connect(cls, harness: Harness) -> Wire:
        assert socket_kinds.current.context is not None
        streams = await asyncio.open_connection("127.0.0.1", harness.listener.port)
        OPEN.append(streams[1])
        return cls(socket_kinds.current.context, *streams)

    async def rest(self) -> bytes:
        """What the broker says until it hangs up, in whichever way."""
        said = b""
        try:
            while data := await self.reader.read(65536):
                said += data
        except ConnectionResetError:
            pass
        return said

    def hello(self) -> bytes:
        """The first flight."""
        with pytest.raises(ssl.SSLWantReadError):
            self.tls.do_handshake()
        return self.outgoing.read()

    async def finish(self) -> bytes:
        """The last flight, which is not sent yet."""
        while True:
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                self.writer.write(self.outgoing.read())
                data = await self.reader.read(65536)
                assert data, "the broker hung up"
                self.incoming.write(data)
            else:
                return self.outgoing.read()

    async def ask(self, request: bytes) -> bytes:
        """Send a request, and read as many bytes as it has."""
        self.tls.write(request)
        self.writer.write(self.outgoing.read())
        (size,) = struct.unpack(">i", await self.read(4))
        return await self.read(size)

    async def read(self, size: int) -> bytes:
        got = b""
        while len(got) < size:
            try:
                got += self.tls.read(size - len(got))
            except ssl.SSLWantReadError:
                data = await self.reader.read(65536)
                assert data, "the broker hung up"
                self.incoming.write(data)
        return got
