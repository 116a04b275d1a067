"""Answers that equal requests get again: which ones, and for how long."""

from __future__ import annotations

import uvloop

from kbroker._fast.net.answer_memo import Validity
from tests.network.kept_answers import LASTING, ONCE, OTHER, REPEATED, running
from tests.network.served_connection import frame


def test_an_equal_request_gets_the_same_answer_under_its_own_correlation_id() -> None:
    """A client would take the answer for another's, or the handler would work for nothing."""

    async def main() -> None:
        async with running() as asked:
            first = await asked.ask(frame(LASTING, 7, b"a"), frame(LASTING, -8, b"a", client_id=b"other"))
            again = await asked.ask(frame(LASTING, 9, b"a"), frame(OTHER, 10, b"a"), frame(LASTING, 11, b"a"))
        assert first == [(7, b"1 of a"), (-8, b"1 of a")]
        assert again == [(9, b"1 of a"), (10, b"2 of a"), (11, b"1 of a")]
        assert asked.bodies == [b"a", b"a"]

    uvloop.run(main())


def test_what_differs_is_asked_for() -> None:
    """A client would get the answer of another version, topic or address."""

    async def main() -> None:
        async with running() as asked:
            frames = [frame(LASTING, 1, b"a"), frame(LASTING, 2, b"b"), frame(LASTING, 3, b"a", version=1)]
            assert [body for _, body in await asked.ask(*frames)] == [b"1 of a", b"2 of b", b"3 of a"]
            assert await asked.ask(frames[0], host="127.0.0.2") == [(1, b"4 of a")]
            assert [body for _, body in await asked.ask(*frames)] == [b"1 of a", b"2 of b", b"3 of a"]

    uvloop.run(main())


def test_what_does_not_last_is_asked_for_each_time() -> None:
    """A topic that was made meanwhile would stay unknown."""

    async def main() -> None:
        async with running() as asked:
            found = await asked.ask(*(frame(LASTING, number, ONCE) for number in range(3)))
            assert [body for _, body in found] == [b"1 of once", b"2 of once", b"3 of once"]
            assert len(asked.known) == 0

    uvloop.run(main())


def test_after_a_change_everything_is_asked_for_anew() -> None:
    """Clients would go on with partitions and leaders that are no more."""

    async def main() -> None:
        async with running() as asked:
            assert await asked.ask(frame(LASTING, 1, b"a")) == [(1, b"1 of a")]
            asked.known.forget("old", "new", "delta")
            assert await asked.ask(frame(LASTING, 2, b"a"), frame(LASTING, 3, b"a")) == [(2, b"2 of a"), (3, b"2 of a")]

    uvloop.run(main())


def test_many_and_large_requests_hold_no_memory() -> None:
    """A client that asks for ever new topics could fill the broker's memory."""

    async def main() -> None:
        async with running() as asked:
            large = [frame(LASTING, number, b"x" * 1025) for number in range(2)]
            assert [body[:4] for _, body in await asked.ask(*large)] == [b"1 of", b"2 of"]
            assert len(asked.known) == 0
            await asked.ask(*(frame(LASTING, number, b"%d" % number) for number in range(5_000)))
            assert 0 < len(asked.known) <= 1024

    uvloop.run(main())


def test_a_repetition_does_its_work_and_lasts_as_long_as_what_it_tells() -> None:
    """A member's session would end although it lives, or it would be told for ever what was true once."""

    async def main() -> None:
        async with running() as asked:
            three = [frame(LASTING, number, REPEATED) for number in range(3)]
            first = b"1 of repeated"
            assert await asked.ask(*three) == [(number, first) for number in range(3)]
            assert asked.session.moves == [4.5, 4.5]
            asked.standing.end()
            assert not asked.standing.holds
            assert [body for _, body in await asked.ask(*three)] == [b"%d of repeated" % count for count in (2, 3, 4)]
            asked.standing, asked.session.moves = Validity(), []
            assert [body for _, body in await asked.ask(*three)] == [b"5 of repeated"] * 3
            asked.session.armed = False
            assert [body for _, body in await asked.ask(three[0])] == [b"6 of repeated"]
            assert asked.session.moves == [4.5, 4.5]

    uvloop.run(main())


def test_a_repetition_is_one_clients() -> None:
    """A group would go on to show a client's name or address that has changed."""

    async def main() -> None:
        async with running() as asked:
            own, other = frame(LASTING, 1, REPEATED), frame(LASTING, 2, REPEATED, client_id=b"other")
            found = await asked.ask(own, own, other, other, own)
            assert [body[:1] for _, body in found] == [b"1", b"1", b"2", b"2", b"3"]
            asked.known.forget()
            assert len(asked.known) == 0

    uvloop.run(main())
