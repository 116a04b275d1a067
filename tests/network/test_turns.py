"""What one turn of the loop does has bounds: others have theirs while a client's requests, or many answers, are served.

Also of `kbroker._fast.net.connection` and `kbroker._fast.net.flush_batch`.
"""

from __future__ import annotations

import asyncio
import struct
import time

import uvloop

from tests.network.served_connection import ECHO, FILE, WAKE, Harness, answer, frame, running

MB = 1 << 20
WITH_OTHERS_BYTES = 200 << 10
"""Larger answers are sent where they are asked for, each by itself."""
SLOW_SECONDS = 0.001
PIPELINED = 24
READERS = 36
ROUNDS = 6


class Turns:
    """Counts the turns of a loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.number = 0
        self._next()

    def _next(self) -> None:
        self.number += 1
        self._loop.call_soon(self._next)


def test_a_client_that_sends_very_much_at_once_leaves_turns_to_others() -> None:
    """One client could pipeline seconds of work in a few kilobytes, and all others would wait for its end."""

    async def main() -> None:
        async with running() as harness:
            turns = Turns(harness.loop)
            served: list[int] = []

            def wake() -> bytes:
                time.sleep(SLOW_SECONDS)
                served.append(turns.number)
                return b""

            harness.wake = wake
            reader, writer = await harness.connect()
            writer.write(b"".join(frame(WAKE, number, b"") for number in range(PIPELINED)))
            for number in range(PIPELINED):
                assert await answer(reader) == (number, b"")
            assert len(set(served)) >= PIPELINED / 6
            writer.close()

    uvloop.run(main())


def test_the_end_of_what_a_client_sends_is_behind_all_that_was_left_to_later_turns() -> None:
    """A client that has shut down its side would lose the requests that a turn did not come to."""

    async def main() -> None:
        async with running() as harness:

            def wake() -> bytes:
                time.sleep(SLOW_SECONDS)
                return b""

            harness.wake = wake
            reader, writer = await harness.connect()
            writer.write(b"".join(frame(WAKE, number, b"") for number in range(PIPELINED)))
            if writer.can_write_eof():
                writer.write_eof()
                for number in range(PIPELINED):
                    assert await answer(reader) == (number, b"")
                assert await reader.read(1) == b""
            writer.close()

    uvloop.run(main())


def test_requests_behind_such_a_pause_are_served_in_order_with_those_that_come_meanwhile() -> None:
    """What comes between two turns could be served before what lies in the buffer, or be lost with it."""

    async def main() -> None:
        async with running() as harness:
            count = 0

            def wake() -> bytes:
                time.sleep(SLOW_SECONDS)
                return b""

            harness.wake = wake
            reader, writer = await harness.connect()
            for _ in range(20):
                for _ in range(10):
                    key = WAKE if count % 3 else ECHO
                    writer.write(frame(key, count, b"%d" % count))
                    count += 1
                await asyncio.sleep(0.002)
            for number in range(count):
                assert await answer(reader) == (number, b"" if number % 3 else b"%d" % number)
            writer.close()

    uvloop.run(main())


async def _crowd(harness: Harness, size: int) -> list[int]:
    """What is sent in each turn where several clients ask for so much at once, again and again."""
    sent: list[int] = []
    before = 0

    def look() -> None:
        nonlocal before
        now = sum(each.traffic[2] - each.queued_bytes for each in harness.listener.endpoint.connections)
        sent.append(now - before)
        before = now
        harness.loop.call_soon(look)

    clients = [await harness.connect() for _ in range(READERS)]
    harness.loop.call_soon(look)
    for _ in range(ROUNDS):
        for _, writer in clients:
            writer.write(frame(FILE, 7, struct.pack(">qq", 0, size)))
        for correlation_id, body in await asyncio.gather(*(answer(reader) for reader, _ in clients)):
            assert correlation_id == 7 and len(body) == size + 2
    for _, writer in clients:
        writer.close()
    return sent


def test_answers_to_many_clients_leave_in_several_turns_where_they_are_large() -> None:
    """Tens of megabytes would be sent at the end of one turn, and all others wait for it."""

    async def main() -> None:
        async with running(buffer_bytes=4 * MB) as harness:
            harness.file.write(bytes(WITH_OTHERS_BYTES))
            harness.file.flush()
            sent = await _crowd(harness, WITH_OTHERS_BYTES)
            # In the first round nothing says yet that there are many: each has sent by itself.
            assert sum(each > 0 for each in sent) > 2 * ROUNDS
            assert max(sent) <= 2 * MB + 2 * WITH_OTHERS_BYTES

    uvloop.run(main())
