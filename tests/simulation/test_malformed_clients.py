"""The judge of what becomes of a client that sends nonsense: what it has to see, and what it may not invent."""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.error_codes import ErrorCode
from tests.simulation import malformed_clients
from tests.simulation.judge import Judge, ViolationError
from tests.simulation.malformed_clients import HANGS_UP_WITHIN_SECONDS, Rude


class Connection(SimpleNamespace):
    """One whose broker goes when so many answers have come."""

    def __init__(self, asked: int, answered: int, *, goes: bool) -> None:
        super().__init__(name="rude.1", node=1, outstanding=[None] * asked, gone=False, may_be_closed=False)
        self.answered, self.goes = answered, goes

    async def change(self) -> None:
        if self.answered:
            self.answered -= 1
            self.outstanding.pop()
        else:
            self.gone = True

    async def answer(self, _request: Any, _version: int, *, said: int) -> Any:
        return SimpleNamespace(error_code=said - malformed_clients.LATER_VERSION + self.answered)


class World(SimpleNamespace):
    """Time goes on by a second with each look."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(
            judge=Judge(lambda: 0.0), rng=random.Random(1), processes={}, loop=SimpleNamespace(time=self._time)
        )

    def _time(self) -> float:
        self.now += 1.0
        return self.now


def client_of(world: Any) -> Rude:
    """The client in a `World`, which has the part of a simulated one that this client asks."""
    return Rude(world, "malformed_clients", 1)


@pytest.fixture
def judge_end(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(malformed_clients, "LOOK_SECONDS", 0.0)

    def judge(connection: Connection) -> World:
        world = World()
        connection.gone = connection.goes and not connection.outstanding
        asyncio.run(client_of(world).judge_end(connection))
        return world

    return judge


def test_a_client_that_is_hung_up_on_behind_its_answers_is_no_violation(judge_end: Any) -> None:
    """Nobody would look at what is reported."""
    judge_end(Connection(0, 0, goes=True))
    asked = Connection(2, 2, goes=False)
    asked.may_be_closed = False
    with pytest.raises(ViolationError, match="is still there"):
        judge_end(asked)
    assert not asked.outstanding


def test_a_client_that_nobody_hangs_up_on_is_seen(judge_end: Any) -> None:
    """A broker could keep what it will never serve, and wait in the middle of a frame."""
    with pytest.raises(ViolationError, match="is still there"):
        world = judge_end(Connection(0, 0, goes=False))
        assert world.now <= HANGS_UP_WITHIN_SECONDS + 2


def test_an_answer_that_nonsense_takes_along_is_seen(judge_end: Any) -> None:
    """What was asked before would be answered by chance."""
    with pytest.raises(ViolationError, match="before it has its answers"):
        judge_end(Connection(2, 1, goes=True))


def test_a_later_version_is_answered_as_unsupported() -> None:
    """Clients of later releases could not find out what there is."""
    client = client_of(World())
    asyncio.run(client._ask_for_later_version(Connection(0, int(ErrorCode.UNSUPPORTED_VERSION), goes=False)))  # type: ignore[arg-type]
    with pytest.raises(ViolationError, match="version 99 is answered"):
        asyncio.run(client._ask_for_later_version(Connection(0, 0, goes=False)))  # type: ignore[arg-type]
