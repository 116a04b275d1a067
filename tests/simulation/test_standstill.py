"""Histories that stand still fail with words."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from tests.simulation import runner, standstill
from tests.simulation.judge import Judge, ViolationError
from tests.simulation.scale import Scale
from tests.simulation.standstill import STILL_SECONDS, Standstill

SHORT_SECONDS = 0.3


class History:
    """One client that waits for something that nobody does; time by hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self.connections: list[Any] = []
        self.judge = Judge(lambda: self.now)
        self.standstill = Standstill(self)  # type: ignore[arg-type]

    def look(self, now: float) -> None:
        self.now = now
        self.standstill.look(now)


async def never() -> None:
    """Waits for nobody."""
    await asyncio.get_running_loop().create_future()


async def client() -> None:
    """Waits for that."""
    await never()


def test_a_client_that_does_nothing_is_named_with_where_it_waits() -> None:
    """A history would go on until its time is over, and say nothing of why."""

    async def scenario() -> None:
        history = History()
        task = asyncio.ensure_future(client())
        history.standstill.watch("hanging", task)
        await asyncio.sleep(0)
        history.now = 5.0
        history.judge.moved("hanging")
        history.judge.moved("another")
        history.look(5.0 + STILL_SECONDS)
        history.judge.moved("another")
        with pytest.raises(ViolationError, match=r"hanging stands still since 5\.000.*never:\d+ < client:\d+"):
            history.look(6.0 + STILL_SECONDS)
        task.cancel()

    asyncio.run(scenario())


def test_a_client_that_waits_for_an_answer_has_the_deadline_of_that() -> None:
    """A fetch may wait for longer than a client may do nothing."""

    async def scenario() -> None:
        history = History()
        history.connections.append(SimpleNamespace(client_id="waiting", outstanding=[1], gone=False))
        task = asyncio.ensure_future(client())
        history.standstill.watch("waiting", task)
        history.look(2 * STILL_SECONDS)
        task.cancel()

    asyncio.run(scenario())


def test_a_history_in_which_nothing_happens_is_over() -> None:
    """Not only clients stand still: so may what is judged at the end."""
    history = History()
    history.judge.moved("reader")
    history.standstill.sleeps_until(2 * STILL_SECONDS)
    history.look(3 * STILL_SECONDS)
    with pytest.raises(ViolationError, match="nothing happens since 0"):
        history.look(3 * STILL_SECONDS + 1)


def test_a_turn_without_an_end_ends_its_process_with_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal after five minutes would be all that is known of a loop that never ends."""

    def spins(*_: object) -> runner.Result:
        while True:
            pass

    monkeypatch.setattr(standstill, "STILL_SECONDS", SHORT_SECONDS)
    monkeypatch.setattr(runner, "_judged", spins)
    story = runner.play_apart(7, Scale()).story
    assert story is not None
    assert story.startswith("seed 7: virtual time stands still")
    assert "test_standstill.py" in story, story
    assert "spins" in story
