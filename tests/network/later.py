"""Requests and answers of connections under test: bodies as they are, and answers that a test gives when it wants."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from typing import Any

from kbroker._fast.net.pending import Pending


class PlainDecoding:
    """A request that is decoded in one piece."""

    def __init__(self, body: memoryview) -> None:
        self._bodies = [body]
        self.take = self._bodies.pop

    def run(self, items: int) -> bool:
        return True


class PlainProgram:
    """A codec that leaves the body as it is."""

    def decode(self, buffer: Any, pos: int, end: int) -> memoryview:
        return memoryview(buffer)[pos:end]

    def decoding(self, buffer: Any, pos: int, end: int) -> PlainDecoding:
        return PlainDecoding(self.decode(buffer, pos, end))

    def begin_response(self, body: Any, correlation_id: int, flexible: bool, items: int) -> bytes | list[Any]:
        parts = body if isinstance(body, list) else [bytes(body)]
        size = 4 + sum(len(part) for part in parts)
        head = struct.pack(">ii", size, correlation_id)
        return [head, *parts] if isinstance(body, list) else head + parts[0]


class Later(Pending):
    """An answer that a test gives; `told` says when no client waits for it any more."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def lost(self) -> None:
        self.told.append("gone")


def reset(writer: asyncio.StreamWriter) -> None:
    """End a connection as that of a client that has died: the broker is told at once."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def is_cold(fd: int) -> bool:
    try:
        os.preadv(fd, [bytearray(1)], 0, os.RWF_NOWAIT)
    except BlockingIOError:
        return True
    return False
