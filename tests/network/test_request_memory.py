"""The budget of large requests (`queued.max.request.bytes`) under clients that wait, leave or send more than theirs."""

from __future__ import annotations

import asyncio
import os
import time

import pytest
import uvloop

from kbroker._fast.net.route import NO_RESPONSE
from kbroker.network.listener import STALLED_SECONDS
from tests.network.later import reset
from tests.network.served_connection import ECHO, HOLD, LATER, SILENT, Harness, answer, frame, running, until

LIMIT = 4 << 20

pytestmark = pytest.mark.usefixtures("every_kind")


async def begin(harness: Harness, size: int, sent: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, bytes]:
    """A client that has sent the first `sent` bytes of a frame; the rest."""
    reader, writer = await harness.connect()
    data = frame(ECHO, size, bytes(size))
    writer.write(data[:sent])
    await writer.drain()
    return reader, writer, data[sent:]


async def waiting(harness: Harness, count: int) -> None:
    await until(lambda: harness.pool.waiting_count == count)


def test_a_large_frame_behind_a_waiting_request_stays_within_the_budget() -> None:
    """Consumers that pipeline a few bytes of a large frame behind a long poll would get around the memory limit."""

    async def main() -> None:
        async with running() as harness:
            clients: list[tuple[asyncio.StreamReader, asyncio.StreamWriter, bytes]] = []
            for n in range(4):
                reader, writer = await harness.connect()
                data = frame(ECHO, 2, os.urandom(3_000_000))
                writer.write(frame(LATER, 1, b"poll") + data[:20_000])
                clients.append((reader, writer, data))
                await until(lambda n=n: len(harness.later) == n + 1)
            for _, writer, data in clients:
                writer.write(data[20_000:])
            for _ in range(50):
                await asyncio.sleep(0.001)
                assert harness.pool.used_bytes <= LIMIT
            for pending, body in harness.later:
                pending.answer(body)
            for reader, writer, data in clients:
                assert await answer(reader) == (1, b"poll")
                assert (await answer(reader))[1] == data[-3_000_000:]
                writer.close()

    uvloop.run(main())


def test_a_client_that_leaves_while_it_waits_for_memory_does_not_take_the_turn_of_the_next() -> None:
    """One producer that gives up would leave those behind it unread until they time out."""

    async def main() -> None:
        async with running() as harness:
            holder = await begin(harness, 3_900_000, 20_000)
            await until(lambda: harness.pool.used_bytes > 0)
            leaving = await begin(harness, 3_800_000, 20_000)
            await waiting(harness, 1)
            staying = await begin(harness, 3_700_000, 20_000)
            await waiting(harness, 2)
            port = leaving[1].get_extra_info("sockname")[1]
            next(each for each in harness.listener.endpoint.connections if each.peer_port == port).close("idle")
            holder[1].write(holder[2])
            assert (await answer(holder[0]))[0] == 3_900_000
            staying[1].write(staying[2])
            assert (await answer(staying[0]))[0] == 3_700_000
            for _, writer, _ in (holder, leaving, staying):
                writer.close()

    uvloop.run(main())


def test_all_that_fit_go_on_when_memory_comes_free() -> None:
    """A client that stalls in the middle of a request would hold up others for which there is room."""

    async def main() -> None:
        async with running() as harness:
            holder = await begin(harness, 3_900_000, 20_000)
            await until(lambda: harness.pool.used_bytes > 0)
            stalled = await begin(harness, 900_000, 20_000)
            await waiting(harness, 1)
            lively = [await begin(harness, 900_001, 20_000) for _ in range(2)]
            await waiting(harness, 3)
            holder[1].write(holder[2])
            assert (await answer(holder[0]))[0] == 3_900_000
            for reader, writer, rest in lively:
                writer.write(rest)
                assert (await answer(reader))[0] == 900_001
            for _, writer, _ in (holder, stalled, *lively):
                writer.close()

    uvloop.run(main())


def test_a_large_frame_is_not_passed_over_for_ever_by_smaller_ones() -> None:
    """Large batches would time out on a busy broker while small ones go through."""

    async def main() -> None:
        async with running() as harness:
            first = await begin(harness, 1_500_000, 20_000)
            second = await begin(harness, 1_500_000, 20_000)
            await until(lambda: harness.pool.used_bytes > 3_000_000)
            large = await begin(harness, 4_000_000, 20_000)
            await waiting(harness, 1)
            small = await begin(harness, 500_000, 20_000)
            await waiting(harness, 2)
            for reader, writer, rest in (first, second, large, small):
                writer.write(rest)
                await answer(reader)
                writer.close()
            await until(lambda: harness.pool.used_bytes == 0)

    uvloop.run(main())


def test_a_request_under_way_counts_until_it_is_answered() -> None:
    """Producers of large compressed batches, judged by threads, would fill the memory whatever the limit says."""

    async def main() -> None:
        async with running() as harness:
            clients = [await harness.connect() for _ in range(6)]
            for _, writer in clients:
                writer.write(frame(HOLD, 1, bytes(1_500_000)))
            await until(lambda: len(harness.held) == 2)
            await waiting(harness, 4)
            assert 3_000_000 < harness.pool.used_bytes <= LIMIT
            for served in range(1, 7):
                await until(lambda: harness.held)
                pending, body = harness.held.pop(0)
                assert bytes(body) == bytes(1_500_000)
                pending.answer(b"done")
                del pending, body
                assert harness.pool.used_bytes <= LIMIT
                await waiting(harness, max(0, 4 - served))
            for reader, writer in clients:
                assert await answer(reader) == (1, b"done")
                writer.close()
            await until(lambda: harness.pool.used_bytes == 0)

    uvloop.run(main())


def test_requests_sent_before_a_client_leaves_are_served() -> None:
    """A producer with acks=0 that ends after its last send would lose what is behind a batch being decompressed."""

    async def main() -> None:
        async with running() as harness:
            _, writer = await harness.connect()
            writer.write(frame(LATER, 1, b"first") + frame(SILENT, 2, b"") + frame(LATER, 3, b"last"))
            writer.close()
            await until(lambda: harness.later)
            connection = next(iter(harness.listener.endpoint.connections))
            await until(lambda: connection.ended)
            harness.later.pop()[0].answer(NO_RESPONSE)
            await until(lambda: [body for _, body in harness.later] == [b"last"])
            harness.later.pop()[0].answer(NO_RESPONSE)
            await until(lambda: not harness.listener.endpoint.connections)
            assert harness.pool.held == 0

    uvloop.run(main())


def test_what_a_client_waited_for_does_not_outlive_its_connection() -> None:
    """Consumers that die in the middle of a long poll would be waited for as long as they had asked to wait."""

    async def main() -> None:
        async with running() as harness:
            _, writer = await harness.connect()
            writer.write(frame(LATER, 1, b"poll") + frame(LATER, 2, b"next"))
            await until(lambda: harness.later)
            given_up = harness.later.pop()[0].told
            reset(writer)
            await until(lambda: given_up == ["gone"])
            assert not harness.later
            assert not harness.listener.endpoint.connections

    uvloop.run(main())


def test_a_client_whose_own_request_fills_the_budget_gets_its_next_one_served() -> None:
    """A producer that sends one large request after the other would hang until it times out."""

    async def main() -> None:
        async with running() as harness:
            reader, writer = await harness.connect()
            for n, size in enumerate((2_500_000, 3_000_000, 3_500_000, 4_000_000)):
                writer.write(frame(ECHO, n, bytes(size)))
            for n in range(4):
                assert (await answer(reader))[0] == n
            writer.close()
            await until(lambda: harness.pool.used_bytes == 0)

    uvloop.run(main())


def test_a_client_that_stops_in_the_middle_of_a_request_does_not_hold_up_others_for_long() -> None:
    """One producer whose machine died would keep all large requests out until its connection counts as idle."""

    async def main() -> None:
        async with running() as harness:
            stopped = await begin(harness, 3_900_000, 20_000)
            await until(lambda: harness.pool.used_bytes > 0)
            later = time.monotonic() + STALLED_SECONDS + 1
            harness.listener.close_idle(later)
            assert len(harness.listener.endpoint.connections) == 1
            lively = await begin(harness, 3_800_000, 20_000)
            await waiting(harness, 1)
            harness.listener.close_idle(time.monotonic())
            assert len(harness.listener.endpoint.connections) == 2
            harness.listener.close_idle(later)
            assert len(harness.listener.endpoint.connections) == 1
            lively[1].write(lively[2])
            assert (await answer(lively[0]))[0] == 3_800_000
            for _, writer, _ in (stopped, lively):
                writer.close()

    uvloop.run(main())


def test_a_batch_counts_until_nobody_reads_it_though_its_client_has_left() -> None:
    """Producers that reconnect while their large batches are judged would take memory beyond the limit."""

    async def main() -> None:
        async with running() as harness:
            _, writer = await harness.connect()
            writer.write(frame(HOLD, 1, bytes(3_000_000)))
            await until(lambda: len(harness.held) == 1)
            taken = harness.pool.used_bytes
            pending, body = harness.held.pop()
            next(iter(harness.listener.endpoint.connections)).close("lost")
            assert harness.pool.used_bytes == taken > 3_000_000
            follower = await begin(harness, 3_900_000, 20_000)
            await waiting(harness, 1)
            body.release()
            pending.answer(b"")
            await until(lambda: harness.pool.waiting_count == 0)
            follower[1].write(follower[2])
            assert (await answer(follower[0]))[0] == 3_900_000
            follower[1].close()
            writer.close()
            await until(lambda: harness.pool.used_bytes == 0)

    uvloop.run(main())
