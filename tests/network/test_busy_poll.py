"""Waiting awake for the next request: begun where it pays, given up where it does not."""

from __future__ import annotations

import asyncio
import os
import pathlib
import socket
import time
from collections.abc import Callable, Iterator

import pytest
import uvloop

from kbroker._fast.base import monotonic
from kbroker._fast.net.busy_poll import BusyPoll
from tests.network.kept_answers import LASTING, OTHER, running
from tests.network.served_connection import answer, frame, until

SECOND_US = 1_000_000
FIRST, NEXT = 16, 4


class Turns:
    """A loop's `call_soon`, each turn by hand."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.waiting.append(callback)

    def turn(self) -> None:
        waiting, self.waiting = self.waiting, []
        for callback in waiting:
            callback()


def request(poll: BusyPoll, later_ns: int = 0) -> None:
    poll.arrived(monotonic.monotonic_ns() + later_ns)
    poll.served()


def begin(poll: BusyPoll) -> None:
    """However slow this machine is just now."""
    deadline = time.monotonic() + 60
    while not poll.watching:
        assert time.monotonic() < deadline
        request(poll)


def until_it_ends(poll: BusyPoll, turns: Turns) -> None:
    deadline = time.monotonic() + 60
    while poll.watching:
        assert time.monotonic() < deadline
        turns.turn()
    assert turns.waiting == []


@pytest.fixture
def _time_stands_still() -> Iterator[None]:
    """However long this process gets no processor."""
    monotonic.set_virtual(time.monotonic_ns())
    yield
    monotonic.set_virtual(0)


@pytest.fixture
def idle(tmp_path: pathlib.Path) -> bytes:
    """Of a thread that never waited for a processor, whatever else this machine does."""
    path = tmp_path / "schedstat"
    path.write_text("1000 0 10\n")
    return os.fsencode(path)


@pytest.mark.usefixtures("_time_stands_still")
def test_requests_that_follow_each_other_closely_are_waited_for_awake(idle: bytes) -> None:
    """A producer that waits for each answer would pay for two sleeping processors with each request."""
    turns = Turns()
    poll = BusyPoll(turns, SECOND_US, idle)
    for _ in range(FIRST):
        request(poll)
    assert not poll.watching
    request(poll)
    assert poll.watching and len(turns.waiting) == 1
    for _ in range(100):
        turns.turn()
        assert len(turns.waiting) == 1
    request(poll)
    assert poll.found == 1 and len(turns.waiting) == 1


def test_requests_far_apart_are_slept_for() -> None:
    """A broker with one request in a while would use a processor up."""
    poll = BusyPoll(Turns(), 50)
    for _ in range(1000):
        request(poll, later_ns=1_000_000)
    assert not poll.watching


def test_none_is_waited_for_awake_when_it_is_turned_off() -> None:
    """Who wants every idle microsecond back would not get it."""
    poll = BusyPoll(Turns(), 0)
    for _ in range(1000):
        request(poll)
    assert not poll.watching


def test_it_is_tried_less_often_while_it_is_in_vain_and_at_once_when_it_was_worth_it(idle: bytes) -> None:
    """Bursts of requests would each cost a wait for nothing; a steady client's pause would cost it its gain."""
    turns = Turns()
    poll = BusyPoll(turns, 20_000, idle)
    for fails in range(1, 5):
        begin(poll)
        until_it_ends(poll, turns)
        assert poll.needed == FIRST << fails
    while poll.needed != NEXT:
        begin(poll)
        while poll.watching and poll.found < FIRST:
            turns.turn()
            request(poll)
        worth_it = poll.found >= FIRST
        until_it_ends(poll, turns)
        assert (poll.needed == NEXT) == worth_it


def test_the_processor_is_left_to_others_that_need_it(idle: bytes) -> None:
    """Waiting awake would take from the clients the time that they need for their next requests."""
    turns = Turns()
    poll = BusyPoll(turns, SECOND_US, idle)
    begin(poll)
    pathlib.Path(os.fsdecode(idle)).write_text(f"1000 {60 * 10**9} 20\n")
    until_it_ends(poll, turns)
    assert poll.needed == FIRST, "it ended because nothing came"
    left = time.monotonic()
    begin(poll)
    assert time.monotonic() - left > 0.05


def test_a_client_on_the_same_processor_is_nobody_to_leave_it_to(idle: bytes) -> None:
    """Broker and client that share a processor would be sent to sleep, and their requests take four times as long."""
    turns = Turns()
    poll = BusyPoll(turns, 20_000, idle)
    begin(poll)
    pathlib.Path(os.fsdecode(idle)).write_text(f"1000 {60 * 10**9} {6 * 10**6}\n")
    until_it_ends(poll, turns)
    assert poll.needed == 2 * FIRST, "it ended before it was in vain"


def test_a_system_that_does_not_tell_of_waiting_is_no_reason_to_stop(tmp_path: pathlib.Path) -> None:
    """Kernels without these figures would lose what it gains."""
    turns = Turns()
    poll = BusyPoll(turns, 50_000, os.fsencode(tmp_path / "none"))
    begin(poll)
    until_it_ends(poll, turns)
    assert poll.needed == 2 * FIRST


def test_a_listener_waits_awake_for_a_client_in_step_and_sleeps_when_it_is_gone() -> None:
    """The broker would not wait awake at all, or never sleep again."""

    async def main() -> None:
        async with running(busy_poll_us=SECOND_US // 10) as asked:
            poll = asked.listener.endpoint.busy_poll
            reader, writer = await asyncio.open_connection("127.0.0.1", asked.listener.port)
            number = 0
            while not poll.watching:
                number += 1
                writer.write(frame(LASTING, number, b"a"))
                await answer(reader)
            assert number > FIRST
            writer.close()
            await until(lambda: not poll.watching)

    uvloop.run(asyncio.wait_for(main(), 90))


class InStep:
    """A client with a thread of its own: the loop must be the one that waits."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.number = 0

    def take(self, count: int = 1) -> None:
        """The answers, in order."""
        for number in range(self.number - count + 1, self.number + 1):
            head = self.socket.recv(8, socket.MSG_WAITALL)
            assert int.from_bytes(head[4:], "big") == number
            left = int.from_bytes(head[:4], "big") - 4
            while left > 0:
                left -= len(self.socket.recv(left))

    def frame(self, body: bytes) -> bytes:
        self.number += 1
        return frame(OTHER, self.number, body)

    def until_looked_at(self, poll: BusyPoll) -> None:
        """Requests in step until one of them was found by looking at the socket."""
        before, deadline = poll.seen, time.monotonic() + 60
        while poll.seen == before:
            assert time.monotonic() < deadline
            self.socket.sendall(self.frame(b"in step"))
            self.take()


def send_all_ways(client: InStep, poll: BusyPoll, way: str) -> None:
    body = os.urandom(300_000 if way == "large" else 100)
    client.until_looked_at(poll)
    for _ in range(40):
        sent = client.frame(body)
        if way == "in pieces":
            for at in range(0, len(sent), 37):
                client.socket.sendall(sent[at : at + 37])
        elif way == "several at once":
            client.socket.sendall(sent + client.frame(body))
            client.take(2)
            continue
        else:
            client.socket.sendall(sent)
        client.take()


@pytest.mark.parametrize("way", ["whole", "in pieces", "several at once", "large"])
def test_whatever_one_client_sends_is_served_while_its_socket_is_looked_at(way: str) -> None:
    """Bytes taken past the loop would be lost, or served twice."""

    async def main() -> None:
        async with running(busy_poll_us=SECOND_US // 10) as asked:
            poll = asked.listener.endpoint.busy_poll
            client = InStep(asked.listener.port)
            await asyncio.to_thread(send_all_ways, client, poll, way)
            assert len(asked.bodies) == client.number
            client.socket.close()
            await until(lambda: not asked.listener.endpoint.connections and not poll.watching)

    uvloop.run(asyncio.wait_for(main(), 90))


def test_a_second_client_is_served_while_the_first_ones_socket_is_looked_at() -> None:
    """Somebody in step would keep all others waiting."""

    def both(clients: list[InStep], poll: BusyPoll) -> None:
        clients[0].until_looked_at(poll)
        for _ in range(50):
            for client in clients:
                client.socket.sendall(client.frame(b"both"))
            for client in clients:
                client.take()
        clients[1].until_looked_at(poll)
        for client in clients:
            client.socket.close()

    async def main() -> None:
        async with running(busy_poll_us=SECOND_US // 10) as asked:
            clients = [InStep(asked.listener.port) for _ in range(2)]
            await asyncio.to_thread(both, clients, asked.listener.endpoint.busy_poll)
            await until(lambda: not asked.listener.endpoint.connections)

    uvloop.run(asyncio.wait_for(main(), 90))
