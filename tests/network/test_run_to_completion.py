"""While a request is served no other begins and nothing else is answered, whatever it makes ready."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import uvloop

from kbroker._fast.base.ready_queue import ReadyQueue
from tests.network.served_connection import ECHO, LATER, TOGETHER, WAKE, Harness, answer, frame, running, until

# One answer in so many is held back to see whether the turn brings others.
ANSWERS_UNTIL_A_PROBE = 20
# So many requests of nearly 64 KB are more than one turn answers, and fewer than are held back.
MORE_THAN_A_TURN, LARGE = 39, 4_900
Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]

pytestmark = pytest.mark.usefixtures("every_kind")


def test_an_answer_that_a_request_gives_to_another_client_comes_behind_that_request() -> None:
    """The other client's next request would begin amid this one, and change what it still needs."""

    async def main() -> None:
        async with running() as harness:
            reader, writer = await harness.connect()
            other, other_writer = await harness.connect()
            other_writer.write(frame(LATER, 1, b"waits") + frame(LATER, 2, b"next"))
            await until(lambda: harness.later)
            begun: list[int] = []

            def wake() -> bytes:
                harness.later.pop()[0].answer(b"woken")
                begun.append(len(harness.later))
                return b"done"

            harness.wake = wake
            writer.write(frame(WAKE, 7, b""))
            assert await answer(reader) == (7, b"done")
            assert await answer(other) == (1, b"woken")
            await until(lambda: harness.later)
            assert begun == [0]
            harness.later.pop()[0].answer(b"last")
            assert await answer(other) == (2, b"last")
            writer.close()
            other_writer.close()

    uvloop.run(main())


async def crowd(harness: Harness, clients: list[Client]) -> None:
    """Turns with requests of all clients: from then on the loop takes the next one for crowded, too.  On a busy machine
    the last of these turns may have brought one request alone; whoever needs a crowd has to look whether it came."""
    for _ in range(ANSWERS_UNTIL_A_PROBE):
        for _, writer in clients:
            writer.write(frame(ECHO, 0, b""))
        for reader, _ in clients:
            await answer(reader)


def count_turns(harness: Harness) -> None:
    """`harness.turn` is another number in each turn of the loop."""
    harness.turn += 1
    harness.loop.call_soon(count_turns, harness)


@pytest.mark.parametrize("woken", [3, 34])
def test_requests_answered_together_keep_their_ids_when_they_wake_others(woken: int) -> None:
    """Answers would carry the correlation ids, the offsets and the versions of other clients' requests."""

    async def main() -> None:
        async with running() as harness:
            clients = [await harness.connect() for _ in range(5)]
            waiting = [await harness.connect() for _ in range(woken)]
            for number, (_, writer) in enumerate(waiting):
                writer.write(frame(LATER, 100 + number, b"") + frame(TOGETHER, 200 + number, b"behind-%d" % number))
            await until(lambda: len(harness.later) == woken)

            def wake() -> None:
                for pending, _ in harness.later:
                    pending.answer(b"woken")
                harness.later.clear()

            harness.amid.append(wake)
            while harness.later:
                await crowd(harness, clients)
                for number, (_, writer) in enumerate(clients):
                    writer.write(frame(TOGETHER, number, b"asked-%d" % number))
                for number, (reader, _) in enumerate(clients):
                    assert await answer(reader) == (number, b"asked-%d" % number)
            for number, (reader, _) in enumerate(waiting):
                assert await answer(reader) == (100 + number, b"woken")
                assert await answer(reader) == (200 + number, b"behind-%d" % number)
            for _, writer in clients + waiting:
                writer.close()

    uvloop.run(main())


def test_more_requests_than_are_answered_at_once_come_in_one_turn() -> None:
    """A crowd of clients would be answered from an array that is full."""

    async def main() -> None:
        async with running() as harness:
            clients = [await harness.connect() for _ in range(39)]
            together: list[int] = []
            harness.amid.append(lambda: together.append(1))
            turns = 0
            while turns < 3 or not together:
                turns += 1
                await crowd(harness, clients)
                for number, (_, writer) in enumerate(clients):
                    writer.write(frame(TOGETHER, turns * 100 + number, b"asked-%d" % number))
                for number, (reader, _) in enumerate(clients):
                    assert await answer(reader) == (turns * 100 + number, b"asked-%d" % number)
            for _, writer in clients:
                writer.close()

    uvloop.run(main())


def test_requests_that_a_turn_leaves_to_the_next_one_are_answered_each_as_its_own() -> None:
    """Where a turn has too many bytes to answer, clients would get the answers to each other's requests."""

    async def main() -> None:
        async with running(buffer_bytes=4 << 20) as harness:
            clients = [await harness.connect() for _ in range(MORE_THAN_A_TURN)]
            answered: list[int] = []
            harness.amid.append(lambda: answered.append(harness.turn))
            left_over = round_number = 0
            count_turns(harness)
            while left_over < 3:
                round_number += 1
                await crowd(harness, clients)
                answered.clear()
                bodies = [b"%3d of %5d " % (number, round_number) * LARGE for number in range(len(clients))]
                for (_, writer), body in zip(clients, bodies, strict=True):
                    writer.write(frame(TOGETHER, round_number, body))
                for (reader, _), body in zip(clients, bodies, strict=True):
                    assert await answer(reader) == (round_number, body)
                left_over += len(set(answered)) > 1
            for _, writer in clients:
                writer.close()

    uvloop.run(main())


class Loop:
    """What a queue needs of a loop; `turn` is the next one.  A queue that is held up leaves a part to another turn."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.failures: list[BaseException] = []

    def call_soon(self, call: Any) -> None:
        self.calls.append(call)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.failures.append(context["exception"])

    def turn(self) -> None:
        calls, self.calls = self.calls, []
        for call in calls:
            call()

    def turns(self, ready: ReadyQueue) -> None:
        """As many as the queue asks for until it is empty."""
        while len(ready):
            assert self.calls, "something is ready, and no turn is to come"
            self.turn()


def test_what_is_ready_runs_in_its_order_and_never_within_another() -> None:
    """A coordinator's next append would run amid the one that committed its last."""
    loop: Any = Loop()
    ready = ReadyQueue(loop)
    log: list[str] = []

    def first() -> None:
        ready.put(log.append, "third")
        log.append("first")

    ready.put(first)
    ready.put(log.append, "second")
    assert log == []
    loop.turns(ready)
    assert log == ["first", "second", "third"]
    assert loop.calls == [] and len(ready) == 0


def test_what_fails_does_not_keep_the_rest_from_running() -> None:
    """One faulty answer would leave all that waited behind it without theirs."""
    loop: Any = Loop()
    ready = ReadyQueue(loop)
    log: list[str] = []
    error = ValueError("faulty")

    def fail() -> None:
        raise error

    def turn() -> None:
        ready.put(fail)
        ready.put(log.append, "behind")
        log.append("turn")

    ready.turn(turn)
    loop.turns(ready)
    assert log == ["turn", "behind"]
    assert loop.failures == [error]
