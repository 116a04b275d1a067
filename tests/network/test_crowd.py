"""Clients that all come at the same moment: accepted at once, counted, limited, and let go in order."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
import uvloop

from kbroker._fast.net.accepting import accept_all
from kbroker.network.acceptor import TURN, CrowdAcceptor
from kbroker.network.limits import KEPT_DESCRIPTORS, ConnectionLimits
from tests.network.served_connection import ECHO, frame, running, until


@contextmanager
def crowd(count: int, port: int) -> Iterator[list[socket.socket]]:
    """So many clients, as far as the kernel's queue: nobody has accepted them yet."""
    with ExitStack() as stack:
        yield [stack.enter_context(socket.create_connection(("127.0.0.1", port), 60)) for _ in range(count)]


@contextmanager
def listening() -> Iterator[socket.socket]:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen(512)
        sock.setblocking(False)
        yield sock


def ended(client: socket.socket) -> bool:
    client.setblocking(False)
    try:
        return client.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def test_all_that_wait_are_accepted_in_one_call() -> None:
    """The queue would stay full, and each client that finds it full tries again after seconds."""
    with listening() as sock, crowd(100, sock.getsockname()[1]):
        found = [*accept_all(sock.fileno(), 60), *accept_all(sock.fileno(), 60)]
        assert len(found) == 100 and accept_all(sock.fileno(), 60) == []
        assert {(os.get_blocking(fd), os.get_inheritable(fd)) for fd in found} == {(False, False)}
        for fd in found:
            os.close(fd)
    assert accept_all(sock.fileno(), 60) == []


def test_a_crowd_is_connected_within_a_few_turns_of_the_loop() -> None:
    """Thousands of clients that come back after a restart would wait for retries of the handshake."""

    async def main() -> None:
        async with running() as harness:
            with crowd(40, harness.listener.port) as clients:
                for _ in range(10):
                    await asyncio.sleep(0)
                assert len(harness.listener.endpoint.connections) == 40
                for number, client in enumerate(clients):
                    client.sendall(frame(ECHO, number, b"%d" % number))
                    client.setblocking(False)
                loop = asyncio.get_running_loop()
                for number, client in enumerate(clients):
                    data = await asyncio.wait_for(loop.sock_recv(client, 100), 60)
                    assert data[4:] == number.to_bytes(4, "big") + b"%d" % number
            await until(lambda: not harness.listener.endpoint.connections)

    uvloop.run(main())


def test_limits_hold_for_a_crowd() -> None:
    """A crowd could take the connections of everybody else, or all descriptors."""

    async def main() -> None:
        async with running() as harness:
            with crowd(60, harness.listener.port) as clients:
                await until(lambda: harness.listener.accepted_count == 60)
                # 40 of an address
                assert len(harness.listener.endpoint.connections) == 40
                assert harness.listener.refused == {"max.connections.per.ip": 20}
                # Which ones these are is left open: the server and the crowd's acceptor take turns.
                await until(lambda: sum(map(ended, clients)) == 20)
            await until(lambda: not harness.listener.endpoint.connections)

    uvloop.run(main())


def test_who_else_uses_descriptors_is_told_while_a_crowd_is_accepted() -> None:
    """Logs could not be opened, because their descriptors went to clients that nobody has counted yet."""

    async def main() -> None:
        told: list[int] = []
        held: list[socket.socket] = []
        limits = ConnectionLimits(1000, 1000, {}, KEPT_DESCRIPTORS + 150, told.append)

        async def connect(sock: socket.socket) -> object:
            held.append(sock)
            return limits.admit("somebody")

        with listening() as sock, crowd(200, sock.getsockname()[1]):
            acceptor = CrowdAcceptor(asyncio.get_running_loop(), sock, connect, limits)
            acceptor.look()
            assert told == [64, 128, 150] and limits.left == 0
            await until(lambda: len(held) == 150)
            assert (
                limits.count == 150
                and limits.left == 0
                and max(told) <= 150
                and len(accept_all(sock.fileno(), 99)) == 50
            )
            for each in held:
                each.close()

    uvloop.run(main())


def test_those_who_wait_are_let_go_at_a_stop() -> None:
    """Clients would wait for a broker that will never answer, and a stop would leave their descriptors open."""

    async def main() -> None:
        limits = ConnectionLimits(1000, 1000, {})
        taken: list[socket.socket] = []

        async def connect(sock: socket.socket) -> object:
            taken.append(sock)
            return limits.admit("somebody")

        with listening() as sock, crowd(100, sock.getsockname()[1]) as clients:
            acceptor = CrowdAcceptor(asyncio.get_running_loop(), sock, connect, limits)
            acceptor.look()
            await asyncio.sleep(0)
            acceptor.close()
            for _ in range(4):
                await asyncio.sleep(0)
            count = len(taken)
            assert 0 < count <= 2 * TURN
            assert sum(map(ended, clients[count:])) == 100 - count
            with crowd(1, sock.getsockname()[1]):
                acceptor.look()
                await asyncio.sleep(0)
                assert len(taken) == count and len(accept_all(sock.fileno(), 9)) == 1
            assert limits.count == count
            for each in taken:
                each.close()

    uvloop.run(main())


def test_a_connection_that_is_lost_on_the_way_is_told_and_costs_no_other(caplog: pytest.LogCaptureFixture) -> None:
    """One broken connection would take those accepted with it along."""

    async def main() -> None:
        limits = ConnectionLimits(1000, 1000, {})
        taken: list[socket.socket] = []

        async def connect(sock: socket.socket) -> object:
            taken.append(sock)
            if len(taken) == 1:
                raise OSError("no such luck")
            return limits.admit("somebody")

        with listening() as sock, crowd(10, sock.getsockname()[1]):
            CrowdAcceptor(asyncio.get_running_loop(), sock, connect, limits).look()
            await until(lambda: limits.count == 9)
            for each in taken:
                each.close()

    with caplog.at_level(logging.WARNING, "kbroker.network"):
        uvloop.run(main())
    assert "no such luck" in caplog.text
