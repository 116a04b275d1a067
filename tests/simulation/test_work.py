"""The budget of a turn: what the simulation has to see of a broker that keeps all others waiting."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kbroker._fast.base.slices import Slices
from tests.extensions import work_meter
from tests.simulation.bulk import KINDS, Bulk
from tests.simulation.judge import Judge, ViolationError
from tests.simulation.loop import Process, SimulatedLoop
from tests.simulation.playing import play
from tests.simulation.sockets import Network
from tests.simulation.surroundings import surroundings
from tests.simulation.work import BYTES, CALLS, is_measured, measured
from tests.simulation.workers import Workers
from tests.simulation.world import World

MEASURED = next(seed for seed in range(1, 1000) if is_measured(seed))
STEPS = 2 * CALLS
MANY = 1500


def run(work: Any, *, serves: bool = True) -> list[str]:
    """What is said of a process that runs a coroutine function on a measured loop."""
    loop = SimulatedLoop(MEASURED)
    Network(loop)
    process = Process("broker-1")
    process.serves = serves
    with surroundings(loop), measured(loop):
        task = process.call(loop.create_task, work(loop))
        try:
            loop.run_until_complete(task)
        except RuntimeError:
            task.cancel()  # The loop was stopped by the failure.
    loop.close()
    return loop.failures


async def _hog(_: SimulatedLoop) -> None:
    for _ in range(STEPS):
        abs(1)


async def _give_way(loop: SimulatedLoop) -> None:
    pace = Slices(loop).pace()
    for _ in range(STEPS):
        await pace
        abs(1)


def test_work_that_does_not_give_way_is_seen() -> None:
    """A request could keep all other clients waiting for as long as it is large."""
    assert "calls more than 20000 functions in one turn" in run(_hog)[0]


def test_work_that_gives_way_and_starts_are_no_violation() -> None:
    """Nobody would look at what is reported."""
    assert not run(_give_way)
    assert not run(_hog, serves=False)


def test_files_that_are_read_whole_in_one_turn_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log could be read on the loop, which waits for the disk then."""
    monkeypatch.setattr(work_meter, "transferred", lambda: BYTES + 1)

    async def nothing(_: SimulatedLoop) -> None:
        await asyncio.sleep(0)

    assert "bytes of files in one turn" in run(nothing)[0]


class Asking(World):
    """A broker, and one client that asks for much at once, all kinds after one another."""

    async def run(self) -> None:
        await self.start_all()
        for kind in KINDS:
            client = Bulk(self, "bulk", 1)
            client.kinds, client.sizes = (kind,), (MANY,)
            await client.run()
            await self.all_gone()
        await self.stop(1)


class AskingWorkers(Workers):
    """Workers, and one client that asks the second for much at once, all kinds after one another."""

    async def run(self) -> None:
        await self.start_all()
        for kind in KINDS:
            connection = await self.connect(2, "bulk", "bulk")
            assert connection is not None
            keys = [f"t{number}" if kind.by_name else ("t", number) for number in range(MANY)]
            await connection.answer(kind.make(keys), kind.version)
            connection.finish(self.rng)
        await self.all_gone()


@pytest.mark.parametrize("world", [Asking, AskingWorkers])
def test_requests_for_much_give_way(world: type[World]) -> None:
    """One client that asks for hundreds of things, there or not, could hold up all others."""
    assert play(MEASURED, kind=world).answers == len(KINDS)


def test_an_answer_that_lacks_what_was_asked_for_is_seen() -> None:
    """What is left out of a large answer, or is said twice, would go unnoticed."""
    client = object.__new__(Bulk)
    client.judge, client.name = Judge(lambda: 0.0), "bulk"
    client.judge_rows("Metadata", ["a", "b"], [("b", 3), ("a", 0)])
    for told in ([("a", 3)], [("a", 3), ("a", 3)], [("a", 3), ("c", 3)]):
        with pytest.raises(ViolationError, match="were asked for"):
            client.judge_rows("Metadata", ["a", "b"], told)
    with pytest.raises(ViolationError, match="says UNKNOWN_SERVER_ERROR"):
        client.judge_rows("Metadata", ["a"], [("a", -1)])
