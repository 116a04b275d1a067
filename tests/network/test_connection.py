"""The connection over real sockets and a real loop: frames, order, memory and sending, below any Kafka request.

Also of `kbroker._fast.net.answer_queue`, `kbroker._fast.net.answer_timer`, `kbroker._fast.net.connection_interface`,
`kbroker._fast.net.frame_reader`, `kbroker._fast.net.request_context`, `kbroker._fast.net.request_server`.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import struct

import pytest
import uvloop

from tests.network.later import is_cold
from tests.network.served_connection import (
    ECHO,
    FILE,
    KEEP,
    LATER,
    MAX_FRAME,
    SILENT,
    TASK,
    answer,
    frame,
    running,
    until,
)

pytestmark = pytest.mark.usefixtures("every_kind")


def test_pipelined_requests_are_answered_in_order() -> None:
    """A client that pipelines would match answers to the wrong requests."""

    async def main() -> None:
        async with running() as harness:
            reader, writer = await harness.connect()
            count = 500
            writer.write(b"".join(frame(ECHO if n % 3 else TASK, n, b"%d" % n * (n % 50)) for n in range(count)))
            for n in range(count):
                assert await answer(reader) == (n, b"%d" % n * (n % 50))
            writer.close()

    uvloop.run(main())


def test_a_waiting_request_holds_back_those_behind_it() -> None:
    """An answer that overtakes an earlier one breaks every client."""

    async def main() -> None:
        async with running() as harness:
            reader, writer = await harness.connect()
            writer.write(frame(LATER, 1, b"a") + frame(ECHO, 2, b"b") + frame(ECHO, 3, b"c"))
            await until(lambda: harness.later)
            assert len(harness.later) == 1
            pending, body = harness.later.pop()
            pending.answer(body)
            assert [await answer(reader) for _ in range(3)] == [(1, b"a"), (2, b"b"), (3, b"c")]
            writer.close()

    uvloop.run(main())


def test_a_slow_reader_is_hung_up_on_when_its_socket_cannot_be_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a descriptor left its answers would never leave, and it would wait for them until it is idle too long."""

    def none_left(fd: int) -> int:
        raise OSError(errno.EMFILE, "none left")

    async def main() -> None:
        async with running() as harness:
            _reader, writer = await harness.connect()
            writer.transport.pause_reading()
            with monkeypatch.context() as patched:
                patched.setattr(os, "dup", none_left)
                for number in range(64):
                    writer.write(frame(ECHO, number, bytes(1 << 20)))
                await until(lambda: not harness.listener.endpoint.connections)
            other, other_writer = await harness.connect()
            other_writer.write(frame(ECHO, 7, b"others go on"))
            assert await answer(other) == (7, b"others go on")
            writer.transport.abort()
            other_writer.close()

    uvloop.run(main())


def test_a_frame_that_arrives_byte_by_byte_is_put_together() -> None:
    """A slow network would turn requests into garbage."""

    async def main() -> None:
        async with running() as harness:
            reader, writer = await harness.connect()
            writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection_frames = frame(ECHO, 9, bytes(range(256)) * 3, version=1)
            for position in range(len(connection_frames)):
                writer.write(connection_frames[position : position + 1])
                await writer.drain()
                await asyncio.sleep(0)
            assert await answer(reader) == (9, bytes(range(256)) * 3)
            writer.close()

    uvloop.run(main())


def test_frames_larger_than_a_pooled_buffer_pass_whole() -> None:
    """A large batch would be cut or refused."""

    async def main() -> None:
        async with running() as harness:
            reader, writer = await harness.connect()
            for size in (16383, 16384, 16385, 100_000, 3_000_000, 10):
                body = os.urandom(size)
                writer.write(frame(ECHO, size, body) + frame(ECHO, 1, b"next"))
                assert await answer(reader) == (size, body)
                assert await answer(reader) == (1, b"next")
            await until(lambda: harness.pool.used_bytes == 0)
            assert harness.pool.held == 0
            writer.close()

    uvloop.run(main())


def test_frames_of_every_size_follow_each_other_in_one_stream() -> None:
    """A producer that sends without a pause would be cut off at some combination of sizes."""

    async def main() -> None:
        async with running() as harness:
            reader, writer = await harness.connect()
            sizes = [(n * 7919) % 150_000 for n in range(400)] + [16_384 * n - 20 for n in range(1, 9)] * 3
            random_bytes = os.urandom(150_000)

            async def send() -> None:
                for n, size in enumerate(sizes):
                    writer.write(frame(TASK if n % 5 == 0 else ECHO, n, random_bytes[:size]))
                    if n % 7 == 0:
                        await writer.drain()

            sending = asyncio.ensure_future(send())
            for n, size in enumerate(sizes):
                assert await answer(reader) == (n, random_bytes[:size])
            await sending
            await until(lambda: harness.pool.used_bytes == 0)
            writer.close()

    uvloop.run(main())


def test_large_frames_wait_for_the_request_memory_and_all_are_served() -> None:
    """Many large requests at once would use up the machine's memory, or some would wait for ever."""

    async def main() -> None:
        async with running() as harness:

            async def one(n: int) -> None:
                reader, writer = await harness.connect()
                body = bytes([n]) * 1_500_000
                for _ in range(3):
                    writer.write(frame(ECHO, n, body))
                    assert await answer(reader) == (n, body)
                    assert harness.pool.used_bytes <= 4 << 20
                writer.close()

            await asyncio.gather(*(one(n) for n in range(12)))
            await until(lambda: harness.pool.used_bytes == 0)

    uvloop.run(main())


def test_bytes_that_a_handler_keeps_are_never_overwritten() -> None:
    """A record batch under way would be replaced by the next request's bytes: silent corruption."""

    async def main() -> None:
        async with running() as harness:
            reader, writer = await harness.connect()
            bodies = [bytes([n]) * (1000 * n) for n in range(1, 40)]
            for n, body in enumerate(bodies):
                writer.write(frame(KEEP, n, body))
                await answer(reader)
            assert [bytes(view) for view in harness.kept] == bodies
            harness.kept.clear()
            writer.close()

    uvloop.run(main())


def test_a_file_region_is_sent_between_the_bytes_around_it() -> None:
    """A consumer would get records in the wrong place of an answer."""

    async def main() -> None:
        async with running() as harness:
            content = os.urandom(5_000_000)
            harness.file.write(content)
            harness.file.flush()
            reader, writer = await harness.connect()
            requests = [(0, 10), (100, 0), (4096, 4_500_000), (4_999_999, 1)]
            for n, (position, size) in enumerate(requests):
                writer.write(frame(FILE, n, struct.pack(">qq", position, size)))
                writer.write(frame(ECHO, 100 + n, b"after"))
            for n, (position, size) in enumerate(requests):
                assert await answer(reader) == (n, b"<" + content[position : position + size] + b">")
                assert await answer(reader) == (100 + n, b"after")
            writer.close()

    uvloop.run(main())


def test_a_reader_that_stops_reading_costs_the_others_nothing() -> None:
    """One stuck consumer would stop the broker, or fill its memory with answers."""

    async def main() -> None:
        async with running() as harness:
            content = os.urandom(2_000_000)
            harness.file.write(content)
            harness.file.flush()
            slow_reader, slow_writer = await harness.connect()
            slow_writer.transport.pause_reading()
            request = frame(FILE, 1, struct.pack(">qq", 0, len(content)))
            for _ in range(20):
                slow_writer.write(request)
            await until(lambda: any(each.queued_bytes for each in harness.listener.endpoint.connections))
            reader, writer = await harness.connect()
            for n in range(100):
                writer.write(frame(ECHO, n, b"x" * n))
                assert await answer(reader) == (n, b"x" * n)
            # One answer at a time: what is queued for the stuck reader does not grow with its requests.
            assert max(each.queued_bytes for each in harness.listener.endpoint.connections) < 2 * len(content)
            slow_writer.transport.resume_reading()
            for _ in range(20):
                assert await answer(slow_reader) == (1, b"<" + content + b">")
            slow_writer.close()
            writer.close()

    uvloop.run(main())


def test_many_unfinished_requests_hold_only_their_own_bytes() -> None:
    """Clients that send one byte and wait would hold a buffer each: 10,000 of them more than a gigabyte."""

    async def main() -> None:
        async with running() as harness:
            sockets = [await harness.connect() for _ in range(39)]
            for _, writer in sockets:
                writer.write(frame(ECHO, 7, b"late")[:9])
            connections = harness.listener.endpoint.connections
            await until(lambda: len(connections) == 39 and harness.pool.held <= 33)
            for reader, writer in sockets:
                writer.write(frame(ECHO, 7, b"late")[9:])
                assert await answer(reader) == (7, b"late")
            assert harness.pool.held == 0
            for _, writer in sockets:
                writer.close()

    uvloop.run(main())


def test_a_request_without_an_answer_lets_the_next_one_pass() -> None:
    """A producer with acks=0 would hang."""

    async def main() -> None:
        async with running() as harness:
            reader, writer = await harness.connect()
            writer.write(frame(SILENT, 1, b"") + frame(ECHO, 2, b"x"))
            assert await answer(reader) == (2, b"x")
            writer.close()

    uvloop.run(main())


def test_bad_frames_close_the_connection_and_leave_the_others() -> None:
    """One broken client would take the broker's memory or its other clients with it."""

    async def main() -> None:
        async with running() as harness:
            good_reader, good_writer = await harness.connect()
            bad = [
                b"GET / HTTP/1.1\r\n\r\n",
                b"\x16\x03\x01\x02\x00\x01\x00",
                struct.pack(">i", -1) + b"xxxx",
                struct.pack(">i", MAX_FRAME + 1) + b"xxxx",
                struct.pack(">i", 3) + b"abc",
                struct.pack(">ihhih", 10, ECHO, 0, 1, 500),
                struct.pack(">ihhihb", 11, ECHO, 1, 1, -1, -1),
                frame(99, 1, b""),
                frame(-1, 1, b""),
                frame(ECHO, 1, b"", version=2),
            ]
            for data in bad:
                reader, writer = await harness.connect()
                writer.write(data)
                with contextlib.suppress(ConnectionResetError):
                    assert await reader.read() == b""
                writer.close()
            good_writer.write(frame(ECHO, 5, b"still here"))
            assert await answer(good_reader) == (5, b"still here")
            assert sum(harness.listener.closed.values()) == len(bad)
            good_writer.close()

    uvloop.run(main())


def test_connections_over_the_limit_are_refused_and_make_room_when_they_leave() -> None:
    """A client that leaks connections would lock everyone else out, or never get back in."""

    async def main() -> None:
        async with running() as harness:
            sockets = [await harness.connect() for _ in range(40)]
            await until(lambda: len(harness.listener.endpoint.connections) == 40)
            with contextlib.suppress(ConnectionResetError):
                reader, writer = await harness.connect()
                assert await reader.read() == b""
                writer.close()
            assert harness.listener.refused["max.connections.per.ip"] == 1
            sockets.pop()[1].close()
            await until(lambda: len(harness.listener.endpoint.connections) == 39)
            reader, writer = await harness.connect()
            writer.write(frame(ECHO, 1, b"in"))
            assert await answer(reader) == (1, b"in")
            writer.close()
            for _, each in sockets:
                each.close()

    uvloop.run(main())


def test_idle_connections_are_closed_and_busy_ones_are_not() -> None:
    """Dead peers would pile up, or a consumer that waits for data would be cut off."""

    async def main() -> None:
        async with running() as harness:
            idle_reader, idle_writer = await harness.connect()
            reader, writer = await harness.connect()
            idle_writer.write(frame(ECHO, 1, b""))
            await answer(idle_reader)
            writer.write(frame(LATER, 1, b"w"))
            await until(lambda: harness.later)
            newest = max(each.last_active for each in harness.listener.endpoint.connections)
            assert harness.listener.close_idle(newest + 59) == 0
            assert harness.listener.close_idle(newest + 61) == 1
            assert await idle_reader.read() == b""
            pending, body = harness.later.pop()
            pending.answer(body)
            assert await answer(reader) == (1, b"w")
            idle_writer.close()
            writer.close()

    uvloop.run(main())


def test_a_region_that_is_not_in_memory_is_read_by_a_thread_and_arrives_whole() -> None:
    """One consumer that reads old data would stop the broker for every other client while the disk turns."""

    async def main() -> None:
        async with running() as harness:
            content = os.urandom(9_000_000)
            harness.file.write(content)
            harness.file.flush()
            os.fsync(harness.file.fileno())
            os.posix_fadvise(harness.file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            cold = is_cold(harness.file.fileno())
            reader, writer = await harness.connect()
            for n in range(3):
                writer.write(frame(FILE, n, struct.pack(">qq", 5, len(content) - 10)) + frame(ECHO, 50 + n, b"after"))
            for n in range(3):
                assert await answer(reader) == (n, b"<" + content[5:-5] + b">")
                assert await answer(reader) == (50 + n, b"after")
            # Whether pages can be dropped is the file system's affair; where they were, a thread read 2 MB a time,
            # or was ahead.
            assert (1 <= harness.listener.cold_reads_count <= 5) if cold else (harness.listener.cold_reads_count == 0)
            writer.close()

    uvloop.run(main())
