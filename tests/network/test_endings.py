"""How a connection ends, and what is still said and told then."""

from __future__ import annotations

import contextlib
import struct

import pytest
import uvloop

from tests.network.later import reset
from tests.network.served_connection import ECHO, FILE, LATER, MAX_FRAME, SILENT, TASK, answer, frame, running, until

NO_API = 99

pytestmark = pytest.mark.usefixtures("every_kind")


def test_requests_before_a_bad_frame_get_their_answers() -> None:
    """A client's one mistake would cost it the answers to everything that it sent in the same moment."""

    async def main() -> None:
        async with running() as harness:
            reader, writer = await harness.connect()
            writer.write(frame(ECHO, 1, b"a") + frame(ECHO, 2, b"b") + b"\xff\xff\xff\xffgarbage")
            assert [await answer(reader) for _ in range(2)] == [(1, b"a"), (2, b"b")]
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
            writer.close()

    uvloop.run(main())


def test_a_late_answer_that_cannot_be_encoded_ends_its_connection() -> None:
    """A fault in one answer would leave its client waiting for ever."""

    async def main() -> None:
        async with running() as harness:
            reader, writer = await harness.connect()
            writer.write(frame(LATER, 1, b"") + frame(ECHO, 2, b"behind"))
            await until(lambda: harness.later)
            harness.later.pop()[0].answer(object())
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
            assert harness.listener.closed["a request failed"] == 1
            assert [row[2] for row in harness.listener.endpoint.stats.snapshot()].count(1) == 1
            writer.close()

    uvloop.run(main())


def test_a_handler_that_answers_later_is_told_when_nobody_waits_any_more() -> None:
    """What waits for clients that have left would fill the memory."""

    async def main() -> None:
        async with running() as harness:
            for leave in (True, False):
                reader, writer = await harness.connect()
                writer.write(frame(LATER, 1, b"x"))
                await until(lambda: harness.later)
                pending, body = harness.later.pop()
                if leave:
                    reset(writer)
                    await until(lambda: not harness.listener.endpoint.connections)
                    assert pending.told == ["gone"]
                else:
                    pending.answer(body)
                    assert await answer(reader) == (1, b"x")
                    writer.close()
                    assert pending.told == []

    uvloop.run(main())


def test_a_client_that_ends_its_own_direction_gets_the_answers_to_all_that_it_asked() -> None:
    """`printf … | nc` and clients that say that they are done would miss answers; Kafka gives each, in order."""

    async def main() -> None:
        async with running() as harness:
            for kind in (LATER, TASK, ECHO):
                reader, writer = await harness.connect()
                if not writer.can_write_eof():
                    writer.close()
                    return
                writer.write(frame(ECHO, 1, b"a") + frame(kind, 2, b"b") + frame(ECHO, 3, b"c"))
                writer.write_eof()
                if kind == LATER:
                    await until(lambda: harness.later)
                    await until(lambda: all(each.ended for each in harness.listener.endpoint.connections))
                    harness.later.pop()[0].answer(b"b")
                assert [await answer(reader) for _ in range(3)] == [(1, b"a"), (2, b"b"), (3, b"c")]
                assert await reader.read() == b""
                writer.close()
                await until(lambda: not harness.listener.endpoint.connections)

    uvloop.run(main())


def test_the_last_request_before_a_half_close_is_answered_when_it_waits() -> None:
    """A producer with acks=all that ends its direction would not learn whether its batch is stored."""

    async def main() -> None:
        async with running() as harness:
            reader, writer = await harness.connect()
            writer.write(frame(LATER, 1, b"only"))
            await until(lambda: harness.later)
            if not writer.can_write_eof():
                writer.close()
                return
            writer.write_eof()
            (connection,) = harness.listener.endpoint.connections
            await until(lambda: connection.ended)
            pending, _ = harness.later.pop()
            assert pending.told == []
            pending.answer(b"stored")
            assert await answer(reader) == (1, b"stored")
            assert await reader.read() == b""
            writer.close()

    uvloop.run(main())


def test_an_answer_that_is_being_sent_reaches_a_client_that_half_closes() -> None:
    """A slow reader that has said all would get the beginning of its last answer only."""

    async def main() -> None:
        async with running(buffer_bytes=16384) as harness:
            reader, writer = await harness.connect()
            if not writer.can_write_eof():
                writer.close()
                return
            size = 4 << 20
            harness.file.truncate(size)
            writer.write(frame(FILE, 1, struct.pack(">qq", 0, size)) + frame(SILENT, 2, b""))
            writer.write_eof()
            (connection,) = harness.listener.endpoint.connections
            await until(lambda: connection.ended)
            assert await answer(reader) == (1, b"<" + bytes(size) + b">")
            assert await reader.read() == b""
            writer.close()

    uvloop.run(main())


@pytest.mark.parametrize("size", [1, 30_000, 120_000])
@pytest.mark.parametrize(
    "refused",
    [
        b"\xff\xff\xff\xff",
        struct.pack(">i", MAX_FRAME + 1),
        frame(NO_API, 9, b""),
        struct.pack(">ihhih", 10, ECHO, 0, 9, 7),
    ],
    ids=["no length", "too long", "no such API", "no header"],
)
def test_what_was_asked_before_a_request_that_is_refused_is_answered(refused: bytes, size: int) -> None:
    """A producer whose socket is full would lose the acknowledgements of what is stored, for one request too new."""

    async def main() -> None:
        async with running(buffer_bytes=16384) as harness:
            reader, writer = await harness.connect()
            harness.file.truncate(size)
            asked = struct.pack(">qq", 0, size)
            writer.write(frame(FILE, 1, asked) + frame(FILE, 2, asked) + refused + frame(ECHO, 3, b"never"))
            body = b"<" + bytes(size) + b">"
            assert [await answer(reader) for _ in range(2)] == [(1, body), (2, body)]
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
            writer.close()
            await until(lambda: not harness.listener.endpoint.connections)

    uvloop.run(main())
