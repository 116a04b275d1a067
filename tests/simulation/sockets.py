"""Connections in memory: what one end sends comes at the other a drawn while later, in drawn pieces.

An end is its protocol's transport, as asyncio's: reading can be paused, what does not fit is not taken.  A client's end
takes all that it is given.  Of a connection that is aborted with bytes that nobody has read the other end may lose what
was on the way, as with a reset of TCP.
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import copy_context
from dataclasses import dataclass, replace
from typing import Any

from kbroker._fast.base import monotonic
from tests.simulation.loop import PROCESS, Process, SimulatedLoop

NO_ROOM = -2
LOOK_NS = 500
"""What the system takes to say that nothing has come."""
WIDE_ROOM, WIDE_LATENCY_NS = 4096, 1_000_000
HALF_CLOSED = None
LARGE_ROOM = 1 << 24
"""Of a reader that keeps up with whatever is sent, at times, where work is measured."""
Address = tuple[str, int]


class _Reset:
    """The connection was reset."""


RESET = _Reset()


@dataclass(frozen=True, slots=True)
class Weather:
    """How one history's network behaves; drawn once."""

    latencies_ns: tuple[int, ...]
    short_read: float
    partial_write: float
    no_room: float
    rooms: tuple[int, ...]

    @property
    def is_wide(self) -> bool:
        """Whether megabytes come through within a second or so."""
        return min(self.rooms) >= WIDE_ROOM and max(self.latencies_ns) <= WIDE_LATENCY_NS

    @staticmethod
    def drawn(rng: random.Random) -> Weather:
        return Weather(
            latencies_ns=rng.choice(((0,), (0, 0, 0, 100_000), (0, 20_000, 50_000, 1_000_000), (10_000, 10_000_000))),
            short_read=rng.choice((0.0, 0.05, 0.5)),
            partial_write=rng.choice((0.0, 0.05, 0.5)),
            no_room=rng.choice((0.0, 0.02, 0.2)),
            rooms=rng.choice(((1 << 20,), (4096, 65536, 1 << 20), (300, 4096))),
        )


class Descriptor:
    """What a transport shows as its socket: a descriptor to duplicate, and no options."""

    def __init__(self) -> None:
        self._fd = os.memfd_create("simulated")
        self.inode = os.fstat(self._fd).st_ino

    def fileno(self) -> int:
        return self._fd

    def setsockopt(self, *_: object) -> None:
        pass

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class End:
    """One end of a connection, a transport."""

    is_local = False
    """Whether both ends are on one machine by their nature, so that no network is between them."""

    def __init__(self, network: Network, number: int, address: Address, process: Process, room: int) -> None:
        self.network = network
        self.number = number
        self.address = address
        self.process = process
        self.context = copy_context()
        self.room = room
        """How much the other end may have sent that was not read here."""
        self.peer: End
        self.protocol: Any = None
        self.descriptor: Descriptor | None = None
        self.inbox = bytearray()
        self.transit: deque[tuple[int, bytes | _Reset | None]] = deque()
        self.transit_bytes = 0
        self.last_arrival = 0
        self.over: _Reset | str | None = None
        """What comes behind the inbox: the end of what the other end sends."""
        self.paused = False
        self.closed = False
        self.sent_end = False
        self.told_end = False

    def __repr__(self) -> str:
        return f"<end {self.number} of {self.process.name}>"

    # asyncio's transport

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "socket":
            return self.descriptor
        if name == "peername":
            return self.peer.address
        return self.address if name == "sockname" else default

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        self.paused = True
        self.network.readable.pop(self, None)

    def resume_reading(self) -> None:
        self.paused = False
        self.network.look_at(self)

    def write(self, data: bytes) -> None:
        assert not self.sent_end, "as a real socket's transport refuses it"
        if not self.closed:
            self._send(bytes(data))

    def writelines(self, parts: Iterable[bytes]) -> None:
        self.write(b"".join(parts))

    def write_eof(self) -> None:
        if not self.closed and not self.sent_end:
            self.sent_end = True
            self._send(HALF_CLOSED)

    def abort(self) -> None:
        self._close(None)

    close = abort

    def reset(self) -> None:
        """Hang up, and let what is on the way be lost."""
        self._close(RESET)

    # For the calls of C (`tests/extensions/simulated_sockets.pyx`)

    def look(self, size: int) -> bytes | None:
        """Up to `size` bytes that have come; None at the end."""
        network, now = self.network, monotonic.virtual_ns() + LOOK_NS
        monotonic.move_virtual(now)
        network.arrive(self, now)
        if not self.inbox:
            return None if self.over is not None else b""
        data = bytes(self.inbox[: network.piece(min(size, len(self.inbox)))])
        self._taken(len(data))
        return data

    def take(self, data: bytes) -> int:
        """How much of `data` is on its way now; NO_ROOM."""
        size = self.takes(len(data))
        if size > 0:
            self.put(data if size == len(data) else data[:size])
        return size

    def takes(self, size: int) -> int:
        """How much of so many bytes would be taken now; NO_ROOM."""
        network, peer = self.network, self.peer
        rng, weather = network.rng, network.weather
        if self.closed or peer.closed:
            raise ConnectionResetError(104, "the other end is gone")
        room = peer.room - len(peer.inbox) - peer.transit_bytes
        if room <= 0 or rng.random() < weather.no_room:
            return NO_ROOM
        size = min(size, room)
        if size > 1 and rng.random() < weather.partial_write:
            size = rng.randint(1, size)
        return size

    def put(self, data: bytes) -> None:
        """Send what was said to be taken."""
        self._send(data)

    # Inside

    def _send(self, what: bytes | _Reset | None) -> None:
        network, peer = self.network, self.peer
        if peer.closed:
            return
        if network.cut and network.is_cut(self, peer):
            if type(what) is bytes:
                # It stays in the sender's buffer, for which there is no word from the other end.
                peer.transit_bytes += len(what)
            return
        delay = network.latency()
        if network.delays_ns and not self.is_local:
            delay += network.delays_ns.get((self.process.name, peer.process.name), 0)
        when = max(peer.last_arrival, monotonic.virtual_ns() + delay)
        peer.last_arrival = when
        peer.transit.append((when, what))
        if type(what) is bytes:
            peer.transit_bytes += len(what)
        network.loop.at(when, peer.arrive)

    def arrive(self) -> None:
        """Something that was sent to this end may be there by now."""
        self.network.arrive(self, monotonic.virtual_ns())

    def _close(self, how: _Reset | None) -> None:
        if self.closed:
            return
        self.closed = True
        unread = bool(self.inbox) or self.transit_bytes > 0
        network = self.network
        network.readable.pop(self, None)
        network.ends.pop(self, None)
        if how is RESET or unread:
            if network.rng.random() < 0.5:
                self.peer._lose_transit()
            self._send(RESET)
        else:
            self._send(HALF_CLOSED)
        self.inbox.clear()
        self.transit.clear()
        self.transit_bytes = 0
        if self.process.alive:
            network.loop.call_soon(self._lost, None, context=self.context)
        elif self.descriptor is not None:
            self.descriptor.close()

    def _lose_transit(self) -> None:
        self.transit.clear()
        self.transit_bytes = 0

    def _lost(self, error: Exception | None) -> None:
        protocol, self.protocol = self.protocol, None
        if protocol is not None:
            protocol.connection_lost(error)
        if self.descriptor is not None:
            self.network.gone(self.descriptor)
            self.descriptor.close()

    def _give(self, protocol: Any) -> None:
        network = self.network
        buffer = memoryview(protocol.get_buffer(-1))
        size = network.piece(min(len(self.inbox), len(buffer)))
        buffer[:size] = self.inbox[:size]
        buffer.release()
        network.loop.note(self.number, size)
        self._taken(size)
        protocol.buffer_updated(size)

    def _taken(self, size: int) -> None:
        del self.inbox[:size]
        if not self.inbox and (self.over is None or self.told_end):
            self.network.readable.pop(self, None)

    def read(self) -> None:
        """Give the protocol what has come."""
        protocol, network = self.protocol, self.network
        if self.closed or protocol is None or self.paused:
            return
        try:
            if self.over is RESET:
                self.closed = True
                network.forget(self)
                self._lost(ConnectionResetError(104, "Connection reset by peer"))
            elif self.inbox:
                self._give(protocol)
            elif self.over is not None:
                network.readable.pop(self, None)
                network.loop.note(self.number, "end")
                self.told_end = True
                if not protocol.eof_received():
                    self.abort()
        except Exception as error:
            network.loop.call_exception_handler({"message": "a connection failed", "exception": error})
            self.abort()


class Server:
    """A listening socket; `bound` is the system's, which only holds the address."""

    def __init__(
        self, network: Network, factory: Callable[[], Any], address: Address, bound: socket.socket | None
    ) -> None:
        self.network = network
        self.bound = bound
        self.factory = factory
        self.address = address
        self.process = PROCESS.get()
        self.context = copy_context()

    def close(self) -> None:
        if self.network.servers.get(self.address) is self:
            del self.network.servers[self.address]
        if self.bound is not None:
            self.bound.close()

    async def wait_closed(self) -> None:
        """It is, at once."""


class Network:
    """All connections of a history."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self.loop = loop
        self.rng = loop.rng
        self.weather = Weather.drawn(self.rng)
        if loop.budget is not None:
            self.weather = replace(self.weather, rooms=(*self.weather.rooms, LARGE_ROOM))
        self.servers: dict[Address, Server] = {}
        self.ends: dict[End, None] = {}
        self.readable: dict[End, None] = {}
        self.cut: set[tuple[str, str]] = set()
        """Names of processes of which the first cannot reach the second."""
        self.delays_ns: dict[tuple[str, str], int] = {}
        """How much longer than others what the first sends takes to the second."""
        self._writers: dict[int, tuple[int, asyncio.Handle]] = {}
        self.with_inode: dict[int, End] = {}
        """The ends that have a descriptor, by its inode."""
        self._fd_inodes: dict[int, int] = {}
        self._number = 0
        self.local: Any = None
        """Unix sockets, where there are some (`unix_sockets.py`)."""
        loop.network = self

    # For the loop

    def has_work(self) -> bool:
        for end in self.readable:
            if end.process.runs:
                return True
        return bool(self._writers) and any(self._has_room(end) for end in self._waiting_ends())

    def came(self, rng: random.Random, chance: float) -> list[Any]:
        """The ends that are read in this turn, and the writers that are told of room."""
        found: list[Any] = [end for end in self.readable if end.process.runs] if self.readable else []
        if self._writers:
            found += [handle for end, handle in self._waiting() if self._has_room(end)]
        if chance < 1.0 and len(found) > 1:
            found = [each for each in found if rng.random() < chance] or [rng.choice(found)]
        return found

    def read(self, end: End) -> None:
        if end.process.runs:
            end.context.run(end.read)

    def add_writer(self, fd: int, handle: asyncio.Handle) -> None:
        self._fd_inodes[fd] = inode = os.fstat(fd).st_ino
        self._writers[fd] = (inode, handle)

    def remove_writer(self, fd: int) -> bool:
        self._fd_inodes.pop(fd, None)
        return self._writers.pop(fd, None) is not None

    def writers_of(self, process: Process) -> int:
        """How many of a process's connections wait for room."""
        return sum(end.process is process for end in self._waiting_ends())

    def _waiting(self) -> list[tuple[End, asyncio.Handle]]:
        return [(end, handle) for inode, handle in self._writers.values() if (end := self.with_inode.get(inode))]

    def _waiting_ends(self) -> list[End]:
        return [end for end, _ in self._waiting()]

    @staticmethod
    def _has_room(end: End) -> bool:
        peer = end.peer
        return end.process.runs and (peer.closed or peer.room > len(peer.inbox) + peer.transit_bytes)

    # What the weather says

    def latency(self) -> int:
        return self.rng.choice(self.weather.latencies_ns)

    def piece(self, size: int) -> int:
        """How much of what is there comes at once."""
        return self.rng.randint(1, size) if size > 1 and self.rng.random() < self.weather.short_read else size

    def is_cut(self, one: End, other: End) -> bool:
        return bool(self.cut) and not one.is_local and (one.process.name, other.process.name) in self.cut

    def separate(self, one: str, other: str, *, both_ways: bool = True) -> None:
        """Nothing that `one` sends gets through to `other` any more; they find out when they wait for it in vain."""
        self.cut.add((one, other))
        if both_ways:
            self.cut.add((other, one))

    def slow_down(self, one: str, other: str, delay_ns: int) -> None:
        """All that one process sends takes so much longer to the other."""
        self.delays_ns[one, other] = delay_ns

    def heal(self) -> None:
        """All reach each other; connections of which something was lost are at their end."""
        pairs, self.cut = self.cut, set()
        self.delays_ns.clear()
        for end in list(self.ends):
            here, there = end.process.name, end.peer.process.name
            if not end.is_local and ((here, there) in pairs or (there, here) in pairs):
                end.reset()

    # Connections

    def serve(self, factory: Callable[[], Any], address: Address, bound: socket.socket | None = None) -> Server:
        if address in self.servers:
            raise OSError(98, f"address {address} in use")
        server = self.servers[address] = Server(self, factory, address, bound)
        return server

    async def connect(self, factory: Callable[[], Any], host: str, port: int) -> tuple[End, Any]:
        """A connection of this process to a server."""
        await asyncio.sleep(self.latency() / 1e9)
        process = PROCESS.get()
        server = self.servers.get((host, port))
        names = (process.name, "" if server is None else server.process.name)
        if server is None or not server.process.alive or names in self.cut or names[::-1] in self.cut:
            raise ConnectionRefusedError(111, f"cannot connect to {host}:{port}")
        self._number += 1
        near = self._end((process.name, 30_000 + self._number), process)
        far = server.context.run(self._end, server.address, server.process)
        near.address = ("127.83.0.1", 30_000 + self._number)
        near.peer, far.peer = far, near
        far.descriptor = Descriptor()
        self.with_inode[far.descriptor.inode] = far
        near.protocol = factory()
        near.protocol.connection_made(near)
        self.loop.at(self.loop.now_ns + self.latency(), lambda: far.context.run(self._accept, server, far), far.process)
        return near, near.protocol

    def _end(self, address: Address, process: Process, kind: type[End] = End) -> End:
        self._number += 1
        end = kind(self, self._number, address, process, self.rng.choice(self.weather.rooms))
        self.ends[end] = None
        return end

    def _accept(self, server: Server, end: End) -> None:
        if self.servers.get(server.address) is not server or end.closed:
            end._close(RESET)
            return
        end.protocol = server.factory()
        end.protocol.connection_made(end)
        self.look_at(end)

    def arrive(self, end: End, now: int) -> None:
        """Put what has come by now into an end's inbox."""
        transit = end.transit
        while transit and transit[0][0] <= now:
            what = transit.popleft()[1]
            if type(what) is bytes:
                end.inbox += what
                end.transit_bytes -= len(what)
            elif what is RESET:
                end.inbox.clear()
                end.over = RESET
            elif end.over is None:
                end.over = "half-closed"
        self.look_at(end)

    def look_at(self, end: End) -> None:
        comes = end.inbox or end.over is RESET or (end.over is not None and not end.told_end)
        if comes and not (end.paused or end.closed or end.protocol is None):
            self.readable[end] = None

    def forget(self, end: End) -> None:
        self.readable.pop(end, None)
        self.ends.pop(end, None)

    def gone(self, descriptor: Descriptor) -> None:
        self.with_inode.pop(descriptor.inode, None)

    def end_process(self, process: Process) -> None:
        """Its connections end, as the system ends them."""
        process.alive, process.backlog = False, None
        for server in [server for server in self.servers.values() if server.process is process]:
            server.close()
        for end in [end for end in self.ends if end.process is process]:
            end._close(None)
            if end.descriptor is not None:
                self.gone(end.descriptor)
        for fd, (inode, _) in list(self._writers.items()):
            if inode not in self.with_inode:
                del self._writers[fd]
