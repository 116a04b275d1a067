"""Logs that are cut in slices, where others have their turn between two slices, and the world changes meanwhile.

A follower that leads by the time that a cut of its goes on has to leave its log as it is: `states.py` sees a leader
whose log becomes shorter.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING
from unittest import mock

from kbroker.replication import log_cut
from kbroker.storage.log.cut_snapshot import write_cut_snapshot
from tests.simulation.loop import OUTSIDE, PROCESS

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from kbroker._fast.base.slices import Pace
    from kbroker.storage.log.producer_state import ProducerState
    from kbroker.storage.log.unified_log import UnifiedLog
    from tests.simulation.quick_faults import Turmoil

HOLDING = 0.6
"""The share of cuts amid which a broker is held up."""
TURNS = (40, 400, 1000)
"""So many turns of the loop pass before such a cut goes on: others may have asked its broker for much at once."""


class LatePace:
    """As a pace whose slice is used up, in a queue of others: the first pause is a long one."""

    def __init__(self, pace: Pace, turns: int) -> None:
        self._pace = pace
        self._turns = turns

    def __await__(self) -> Generator[object, None, None]:
        turns, self._turns = self._turns, 0
        for _ in range(turns):
            yield
        yield from self._pace.__await__()


class HeldCuts:
    """Of one history."""

    def __init__(self, world: Turmoil) -> None:
        self._world = world

    def in_force(self) -> AbstractContextManager[object]:
        """As long as this lasts, cuts of its brokers may pause."""
        return mock.patch.object(log_cut, "write_cut_snapshot", self._write)

    async def _write(
        self, log: UnifiedLog, offset: int, pace: Pace, is_wanted: Callable[[], bool]
    ) -> ProducerState | None:
        world, process = self._world, PROCESS.get()
        if world.later.random() >= HOLDING:
            return await write_cut_snapshot(log, offset, pace, is_wanted)
        node = next((each for each, there in world.processes.items() if there is process), None)
        if node is not None:
            # Here the broker's own code runs; what happens to it comes from outside.
            topic, number = log.topic_partition
            world.loop.call_soon(self._hold_up, node, topic, number, context=OUTSIDE.context())
        late: Pace = LatePace(pace, world.later.choice(TURNS))  # type: ignore[assignment]
        return await write_cut_snapshot(log, offset, late, is_wanted)

    def _hold_up(self, node: int, topic: str, number: int) -> None:
        """The broker does nothing for a while, in which the leader that it follows loses its session."""
        world = self._world
        process = world.processes.get(node)
        if node not in world.brokers or process is None or not process.runs:
            return
        leader = world.in_force(topic, number).leader
        if leader in (node, -1) or not world.may_lose(leader) or not world.may_lose(node):
            return
        seconds = world.later.choice((0.05, 0.3))
        world.judge.note("broker %d is held up amid a cut, and the session of broker %d ends", node, leader)
        world.loop.hold(process)
        session = world.sessions[leader]
        session.lapse()
        world.loop.call_later(0.5 * world.later.random(), session.notice)
        world.loop.call_later(seconds, world.release, node, process)


__all__ = ["HeldCuts", "LatePace"]
