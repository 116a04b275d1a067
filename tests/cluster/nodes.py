"""Brokers that answer a client of the cluster."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

from kbroker.protocol.frames import decode_request_header
from kbroker.schemas import request_message


class Peer:
    """A server that keeps what it receives and answers when told to."""

    def __init__(self) -> None:
        self.frames: asyncio.Queue[bytes] = asyncio.Queue()
        self.writers: list[asyncio.StreamWriter] = []
        self.hung_up = asyncio.Event()

    async def start(self) -> None:
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                self.frames.put_nowait(await reader.readexactly(size))
        except (asyncio.IncompleteReadError, ConnectionError):
            self.hung_up.set()

    async def request(self) -> tuple[Any, Any]:
        frame = await self.frames.get()
        header = decode_request_header(frame)
        return header, request_message(header.api_key).program(header.api_version).decode(frame, header.size)

    def answer(self, correlation_id: int, body: Any, version: int, flexible: bool = True) -> None:
        frame = type(body).program(version).encode_response(body, correlation_id, flexible)
        self.writers[-1].write(frame if isinstance(frame, bytes) else b"".join(bytes(part) for part in frame))

    async def stop(self) -> None:
        for writer in self.writers:
            writer.close()
        self.server.close()
