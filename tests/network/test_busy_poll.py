"""Waiting awake for the next request: begun where it pays, given up where it does not."""

from __future__ import annotations

import asyncio
import os
import pathlib
import time
from collections.abc import Callable

import pytest
import uvloop

from kbroker._fast.busy_poll import BusyPoll
from tests.network.test_answer_memo import LASTING, answer, frame, running
from tests.network.test_connection import until

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
    poll.arrived(time.monotonic_ns() + later_ns)
    poll.served()


def begin(poll: BusyPoll) -> None:
    """However slow this machine is just now."""
    deadline = time.monotonic() + 30
    while not poll.watching:
        assert time.monotonic() < deadline
        request(poll)


def until_it_ends(poll: BusyPoll, turns: Turns) -> None:
    deadline = time.monotonic() + 30
    while poll.watching:
        assert time.monotonic() < deadline
        turns.turn()
    assert turns.waiting == []


@pytest.fixture
def idle(tmp_path: pathlib.Path) -> bytes:
    """Of a thread that never waited for a processor, whatever else this machine does."""
    path = tmp_path / "schedstat"
    path.write_text("1000 0 10\n")
    return os.fsencode(path)


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

    uvloop.run(asyncio.wait_for(main(), 30))
