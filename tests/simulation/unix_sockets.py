"""Unix sockets in memory: the processes of one machine, which no network is between.

A listening socket is the supervisor's, as in production: who connects waits in its backlog, with all that it sends,
until a process serves there, also while the one that has served is gone.  The system's sockets only hold the names.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Callable
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from tests.simulation.loop import PROCESS, Process
from tests.simulation.sockets import End, Server

if TYPE_CHECKING:
    from tests.simulation.sockets import Address, Network


class _Peer:
    """What a transport shows as its socket: who is at the other end."""

    inode = -1

    def __init__(self, process_id: int) -> None:
        self._process_id = process_id

    def getsockopt(self, _level: int, _option: int, _size: int) -> bytes:
        return struct.pack("=iii", self._process_id, os.geteuid(), os.getegid())

    def close(self) -> None:
        pass


class LocalEnd(End):
    """One end of a Unix socket, whose protocol is one of streams."""

    is_local = True

    def _give(self, protocol: Any) -> None:
        network = self.network
        size = network.piece(len(self.inbox))
        data = bytes(self.inbox[:size])
        network.loop.note(self.number, size)
        self._taken(size)
        protocol.data_received(data)

    def _lose_transit(self) -> None:
        """Nothing: what was sent on one machine is there."""


class UnixSockets:
    """Those of one history."""

    def __init__(self, network: Network, supervisor: Process) -> None:
        self._network = network
        self._supervisor = supervisor
        self._bound: dict[bytes, socket.socket] = {}
        self._backlog: dict[bytes, list[LocalEnd]] = {}

    def hold(self, sock: socket.socket) -> None:
        """A listening socket of the supervisor."""
        self._bound[sock.getsockname()] = sock

    def serve(self, factory: Callable[[], Any], sock: socket.socket) -> Server:
        """A process accepts what comes, and what waits."""
        name = sock.getsockname()
        server = self._network.serve(factory, _address(name), sock)
        for _ in self._backlog.get(name, ()):
            self._accept_soon(name, server)
        return server

    async def connect(self, factory: Callable[[], Any], sock: socket.socket) -> tuple[LocalEnd, Any]:
        """What a connected socket of the system stands for."""
        name = sock.getpeername()
        sock.close()
        self._bound[name].accept()[0].close()
        return self._pair(factory, name, PROCESS.get())

    def send(self, name: bytes, factory: Callable[[], Any], data: bytes) -> None:
        """The supervisor says something, and hangs up."""
        end = self._supervisor.call(self._pair, factory, name, self._supervisor)[0]
        end.write(data)
        end.close()

    def close(self) -> None:
        """The supervisor is gone."""
        for sock in self._bound.values():
            sock.close()
        for end in self._network.ends:
            # Writers of streams complain of what is open when they go.
            end.closed = end.closed or end.is_local

    def ends(self, one: Process, other: Process) -> list[LocalEnd]:
        """The connections between two processes, each by one end."""
        return [
            each
            for each in self._network.ends
            if isinstance(each, LocalEnd) and (each.process, each.peer.process) == (one, other)
        ]

    def _pair(self, factory: Callable[[], Any], name: bytes, process: Process) -> tuple[LocalEnd, Any]:
        network, address = self._network, _address(name)
        near = network._end(address, process, LocalEnd)
        far = self._supervisor.call(network._end, address, self._supervisor, LocalEnd)
        near.peer, far.peer = far, near
        far.descriptor = _Peer(process.number)
        protocol = near.protocol = factory()
        protocol.connection_made(near)
        self._backlog.setdefault(name, []).append(far)
        server = network.servers.get(address)
        if server is not None:
            self._accept_soon(name, server)
        return near, protocol

    def _accept_soon(self, name: bytes, server: Server) -> None:
        network = self._network
        when = network.loop.now_ns + network.latency()
        network.loop.at(when, lambda: server.context.run(self._accept, name, server), server.process)

    def _accept(self, name: bytes, server: Server) -> None:
        network, waiting = self._network, self._backlog[name]
        if not waiting or network.servers.get(server.address) is not server:
            return
        end = waiting.pop(0)
        end.process, end.context = server.process, copy_context()
        end.protocol = server.factory()
        end.protocol.connection_made(end)
        network.look_at(end)


def _address(name: bytes) -> Address:
    return name.decode(), 0


__all__ = ["LocalEnd", "UnixSockets"]
