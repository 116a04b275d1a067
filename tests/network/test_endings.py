"""How a connection ends, and what is still said and told then."""

from __future__ import annotations

import contextlib

import uvloop

from tests.network.test_connection import ECHO, LATER, answer, frame, running, until


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
                    writer.close()
                    await until(lambda: not harness.listener.endpoint.connections)
                    assert pending.told == ["gone"]
                else:
                    pending.answer(body)
                    assert await answer(reader) == (1, b"x")
                    writer.close()
                    assert pending.told == []

    uvloop.run(main())
