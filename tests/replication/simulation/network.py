"""A network on virtual time: frames take a while, connections break, pairs of nodes cannot reach each other, and nodes
hang for a while, as with a slow disk or a process that is stopped.

What goes over it are the same bytes as over TCP.  On one connection frames stay in order and requests are served one
after the other, as a broker does; between connections nothing is in order.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from kbroker._fast.files.file_region import FileRegion
from kbroker.protocol.api import ApiKey, response_header_version
from kbroker.protocol.frames import decode_request_header
from kbroker.schemas import request_message

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from tests.replication.simulation.virtual_loop import VirtualLoop

LATER = 1e-6
Server = Callable[[Any, Any], Awaitable[Any]]


class Network:
    """`servers` answer requests, by node; `cut` are pairs that cannot reach each other."""

    def __init__(self, loop: VirtualLoop, rng: random.Random, breaks: float = 0.0) -> None:
        self.loop = loop
        self.rng = rng
        self.breaks = breaks
        self.slowness = 1.0
        self.servers: dict[int, Server] = {}
        self.cut: set[frozenset[int]] = set()
        self._hangs: dict[int, float] = {}
        # In their order, or a seed would not say which of them breaks first.
        self.connections: dict[_Connection, None] = {}

    def delay(self) -> float:
        """Mostly a fraction of a millisecond, at times much more."""
        rng = self.rng
        return self.slowness * (rng.uniform(0.0002, 0.002) if rng.random() < 0.95 else rng.uniform(0.01, 0.2))

    def reaches(self, source: int, target: int) -> bool:
        return target in self.servers and frozenset((source, target)) not in self.cut

    def separate(self, one: int, other: int) -> None:
        """Nothing gets through any more; both sides find that out later."""
        self.cut.add(frozenset((one, other)))

    def hang(self, node: int, seconds: float) -> None:
        """The node takes in nothing for so long; what comes meanwhile waits."""
        self._hangs[node] = self.loop.time() + seconds

    def wait_of(self, node: int) -> float:
        """Seconds until the node takes something in."""
        return max(0.0, self._hangs.get(node, 0.0) - self.loop.time())

    def heal(self) -> None:
        self.cut.clear()

    def drop(self, node: int) -> None:
        """The node's process is gone, and its connections with it."""
        self.servers.pop(node, None)
        for each in [each for each in self.connections if node in (each.source, each.target)]:
            each.end(self.delay())

    def transport(self, source: int) -> Transport:
        return Transport(self, source)


class Transport:
    """See `kbroker.cluster.client.Transport`; a host is the number of its node."""

    def __init__(self, network: Network, source: int) -> None:
        self._network = network
        self._source = source

    async def connect(
        self,
        host: str,
        port: int,
        received: Callable[[Buffer], None],
        lost: Callable[[Exception | None], None],
        max_frame_bytes: int,
    ) -> _Connection:
        network = self._network
        await asyncio.sleep(network.delay())
        if not network.reaches(self._source, int(host)):
            raise ConnectionRefusedError(f"{self._source} cannot reach {host}")
        connection = _Connection(network, self._source, int(host), received, lost)
        network.connections[connection] = None
        return connection


class _Connection:
    """One connection: both of its directions, and the server's end of it."""

    def __init__(
        self,
        network: Network,
        source: int,
        target: int,
        received: Callable[[Buffer], None],
        lost: Callable[[Exception | None], None],
    ) -> None:
        self.source = source
        self.target = target
        self._network = network
        self._received = received
        self._lost = lost
        self._open = True
        self._there = 0.0
        self._back = 0.0
        self._requests: asyncio.Queue[bytes] = asyncio.Queue()
        self._server = network.servers[target]
        self._task = network.loop.create_task(self._serve())

    def send(self, parts: list[Buffer]) -> None:
        frame = b"".join(bytes(part) for part in parts)[4:]
        self._there = max(self._there, self._network.loop.time() + self._network.delay())
        self._network.loop.call_at(self._there, self._arrived, frame)

    def _is_broken(self) -> bool:
        network = self._network
        if network.reaches(self.source, self.target) and network.rng.random() >= network.breaks:
            return False
        self.end(network.delay())
        return True

    def _arrived(self, frame: bytes) -> None:
        if self._open and not self._is_broken():
            self._requests.put_nowait(frame)

    async def _serve(self) -> None:
        while True:
            frame = await self._requests.get()
            while wait := self._network.wait_of(self.target):
                await asyncio.sleep(wait)
            header = decode_request_header(frame)
            request = request_message(header.api_key).program(header.api_version).decode(frame, header.size)
            answer = await self._server(header, request)
            if answer is None:
                self.end(0.0)
                return
            flexible = response_header_version(ApiKey(header.api_key), header.api_version) > 0
            parts: Any = (
                type(answer).program(header.api_version).encode_response(answer, header.correlation_id, flexible)
            )
            encoded = parts if isinstance(parts, bytes) else b"".join(_bytes_of(part) for part in parts)
            self._back = max(self._back, self._network.loop.time() + self._network.delay())
            self._network.loop.call_at(self._back, self._answered, encoded[4:])

    def _answered(self, frame: bytes) -> None:
        if self._open and (wait := self._network.wait_of(self.source)):
            # Those behind it come later than this.
            self._back = max(self._back, self._network.loop.time() + wait + LATER)
            self._network.loop.call_at(self._back, self._answered, frame)
        elif self._open and not self._is_broken():
            self._received(frame)

    def end(self, after: float) -> None:
        """Break: the client finds out after a while."""
        if self._open:
            self.close()
            self._network.loop.call_later(after, self._lost, None)

    def close(self) -> None:
        self._open = False
        self._network.connections.pop(self, None)
        self._task.cancel()


def _bytes_of(part: Any) -> bytes:
    if isinstance(part, FileRegion):
        return os.pread(part.fd, part.size, part.position)
    return bytes(part)
