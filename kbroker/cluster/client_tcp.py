"""Connections of `NodeClient` over TCP, and over pairs of sockets within the process.

Small answers are cut out of a buffer of the connection's own; a large one gets a buffer of its size, into which the
rest of it is received, so that the records of a fetch are copied by the kernel alone.  The next large one gets the same
buffer where nothing of the last one is in use any more: to fill new memory with zeros costs a follower as much as to
receive what comes there.  A small answer lets it go.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    import ssl

    from typing_extensions import Buffer

    from kbroker.cluster.client import Channel

BUFFER_BYTES = 64 << 10
HEAD_BYTES = 4
MOST_SPARE_BYTES = 4 << 20


class FrameTooLargeError(OSError):
    """A frame that is larger than allowed, or has no length."""


class _FrameProtocol(asyncio.BufferedProtocol):
    """Cuts what comes into frames."""

    def __init__(
        self, received: Callable[[Buffer], None], lost: Callable[[Exception | None], None], max_frame_bytes: int
    ) -> None:
        self._received = received
        self._lost = lost
        self._max_frame_bytes = max_frame_bytes
        self._buffer = bytearray(BUFFER_BYTES)
        self._filled = 0
        self._frame: memoryview | None = None
        self._room = bytearray()
        self._in_frame = 0
        self.transport: asyncio.Transport | None = None
        self.closing = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods of asyncio's, not their base class.
        self.transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._frame is not None:
            return self._frame[self._in_frame :]
        return memoryview(self._buffer)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        if self._frame is not None:
            self._in_frame += nbytes
            if self._in_frame == len(self._frame):
                frame, self._frame = self._frame, None
                if len(self._room) > MOST_SPARE_BYTES:
                    self._room = bytearray()
                self._received(frame)
            return
        self._filled += nbytes
        self._cut()

    def _cut(self) -> None:
        view = memoryview(self._buffer)
        at = 0
        while self._filled - at >= HEAD_BYTES and not self.closing:
            size = int.from_bytes(view[at : at + HEAD_BYTES], "big", signed=True)
            if not HEAD_BYTES <= size <= self._max_frame_bytes:
                self._fail(FrameTooLargeError(f"a frame of {size} bytes"))
                return
            begin, end = at + HEAD_BYTES, at + HEAD_BYTES + size
            if end > self._filled:
                if size + HEAD_BYTES > BUFFER_BYTES:
                    self._frame = self._room_for(size)
                    self._in_frame = self._filled - begin
                    self._frame[: self._in_frame] = view[begin : self._filled]
                    self._filled = at = 0
                break
            at = end
            if self._room:
                self._room = bytearray()
            self._received(bytes(view[begin:end]))
        if at:
            left = self._filled - at
            view[:left] = bytes(view[at : self._filled])
            self._filled = left

    def _room_for(self, size: int) -> memoryview:
        if len(self._room) < size or _is_in_use(self._room):
            self._room = bytearray(size)
        return memoryview(self._room)[:size]

    def _fail(self, error: Exception) -> None:
        if not self.closing:
            lost = self._lost
            self.close()
            lost(error)

    def close(self) -> None:
        self.closing = True
        # They have the channel, which has this.
        self._received = self._lost = _nothing
        if self.transport is not None:
            self.transport.abort()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.closing:
            lost = self._lost
            self.close()
            lost(exc)


def _nothing(_: object) -> None:
    """The connection has ended."""


def _is_in_use(room: bytearray) -> bool:
    """Whether there are views of it: Python refuses to change its size then."""
    try:
        room.append(0)
    except BufferError:
        return True
    room.pop()
    return False


class _TcpChannel:
    """See `Channel`."""

    __slots__ = ("_protocol", "_transport")

    def __init__(self, transport: asyncio.Transport, protocol: _FrameProtocol) -> None:
        self._transport = transport
        self._protocol = protocol

    def send(self, parts: list[Buffer]) -> None:
        # Where it is closing, `lost` is about to be called.
        if not self._transport.is_closing():
            self._transport.writelines([memoryview(part) for part in parts])

    def close(self) -> None:
        self._protocol.close()


class TcpTransport:
    """The machine's network.  `receive_buffer_bytes`: `replica.socket.receive.buffer.bytes` and the like, -1: the
    system's choice.  `tls`: makes the context of each connection that is encrypted; None: none is."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        receive_buffer_bytes: int = -1,
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        self._loop = loop
        self._receive_buffer_bytes = receive_buffer_bytes
        self._tls = tls

    async def connect(
        self,
        host: str,
        port: int,
        received: Callable[[Buffer], None],
        lost: Callable[[Exception | None], None],
        max_frame_bytes: int,
    ) -> Channel:
        """See `Transport`.  The other side's certificate has to be for `host`, where the context says so."""
        transport, protocol = await self._loop.create_connection(
            lambda: _FrameProtocol(received, lost, max_frame_bytes),
            host,
            port,
            ssl=None if self._tls is None else self._tls(),
        )
        connection = transport.get_extra_info("socket")
        if connection is not None:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._receive_buffer_bytes > 0:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_buffer_bytes)
        return _TcpChannel(transport, protocol)


class PairTransport:
    """A connection within this process: `accept` is given the other end of a pair of sockets."""

    def __init__(self, loop: asyncio.AbstractEventLoop, accept: Callable[[socket.socket], Awaitable[object]]) -> None:
        self._loop = loop
        self._accept = accept

    async def connect(
        self,
        host: str,
        port: int,
        received: Callable[[Buffer], None],
        lost: Callable[[Exception | None], None],
        max_frame_bytes: int,
    ) -> Channel:
        """See `Transport`; host and port say nothing."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        try:
            await self._accept(theirs)
        except BaseException:
            theirs.close()
            ours.close()
            raise
        transport, protocol = await self._loop.create_connection(
            lambda: _FrameProtocol(received, lost, max_frame_bytes), sock=ours
        )
        return _TcpChannel(transport, protocol)
