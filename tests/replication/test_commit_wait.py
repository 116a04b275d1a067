"""The one way to wait for a commit: each thing is settled once, and the end comes once, however it comes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.errors import KafkaStorageError, RequestTimedOutError
from kbroker.replication.commit_wait import CommitWait, WaitTally


class Timer:
    """A timer of the test's, and its `call_later`."""

    def __init__(self) -> None:
        self.run: Callable[[], None] | None = None

    def call_later(self, _delay: float, callback: Callable[[], None]) -> Timer:
        self.run = callback
        return self

    def cancel(self) -> None:
        self.run = None


def kind(error: object) -> str:
    return type(error).__name__


@given(st.lists(st.sampled_from(["commit", "refuse", "time"]), max_size=8), st.integers(0, 4))
def test_each_expectation_is_settled_once_and_the_end_comes_once(events: list[str], count: int) -> None:
    """An answer would be given twice or never, or say of a partition what came after the client had been answered."""
    tally = WaitTally()
    wait, timer = CommitWait(tally), Timer()
    settled: list[tuple[int, str]] = []
    ends: list[int] = []
    expected = [wait.expect(lambda error, at=at: settled.append((at, kind(error)))) for at in range(count)]
    wait.then(lambda: ends.append(len(settled)), 1_000, timer.call_later)
    model: dict[int, str] = {}
    for number, event in enumerate(events):
        at = number % max(1, count)
        if event == "time":
            if timer.run is not None:
                timer.run()
                model.update({each: "RequestTimedOutError" for each in range(count) if each not in model})
        elif at < count:
            error = None if event == "commit" else KafkaStorageError()
            expected[at](error)
            model.setdefault(at, kind(error))
        left = count - len(model)
        assert (tally.requests, tally.watched) == (left > 0, left), "what waits is counted, and nothing else"
    assert dict(settled) == model and len(settled) == len(model)
    assert ends == ([count] if len(model) == count else [])
    if ends:
        assert timer.run is None, "a timer is left behind"


def test_nothing_to_wait_for_is_over_at_once() -> None:
    """A request that wrote nothing would wait for its time-out."""
    ends: list[str] = []
    CommitWait().then(lambda: ends.append("over"))
    asyncio.run(CommitWait().within(10_000))
    assert ends == ["over"]


def test_a_coroutine_waits_until_all_is_settled_or_its_time_is_over() -> None:
    """A handler would answer before what it tells of is committed, or never."""

    async def main() -> None:
        wait = CommitWait()
        one, other = wait.expect(), wait.expect()
        task = asyncio.ensure_future(wait.within(None))
        await asyncio.sleep(0)
        one(None)
        await asyncio.sleep(0)
        assert not task.done()
        other(KafkaStorageError())
        await task
        assert isinstance(wait.error, KafkaStorageError)
        late = CommitWait()
        settled = late.expect()
        await late.within(0)
        assert isinstance(late.error, RequestTimedOutError)
        settled(None)
        assert isinstance(late.error, RequestTimedOutError)

    asyncio.run(main())


def test_a_coroutine_that_is_cancelled_leaves_nothing_behind() -> None:
    """A commit that comes after a client has gone would be told to a future that nobody awaits."""

    async def main() -> None:
        wait = CommitWait()
        told: list[object] = []
        settled = wait.expect(told.append)
        task = asyncio.ensure_future(wait.within(60_000))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        settled(None)
        assert told == []

    asyncio.run(main())


class Request:
    """A request that waits for its answer, on a loop whose time is the test's."""

    def __init__(self) -> None:
        self.answers: list[object] = []
        self.waiting: Any = None
        self.timer = Timer()
        self.services = self
        self.loop = self.timer

    def respond(self, answer: object) -> None:
        self.answers.append(answer)


@pytest.mark.parametrize("how", ["committed", "late", "lost", "before"])
def test_an_answer_is_given_once_when_it_is_over(how: str) -> None:
    """A client would be answered twice, or a client that is gone would be answered at all."""
    wait, request = CommitWait(), Request()
    settled = wait.expect()
    if how == "before":
        settled(None)
    answer: Any = wait.answer_within(1_000, lambda: kind(wait.error))  # type: ignore[arg-type,return-value]
    answer.begin(request)
    assert request.answers == (["NoneType"] if how == "before" else [])
    if how == "late":
        assert request.timer.run is not None
        request.timer.run()
    elif how == "lost":
        answer.lose()
    settled(None)
    expected = {"late": ["RequestTimedOutError"], "lost": []}
    assert request.answers == expected.get(how, ["NoneType"])
