"""Partitions that move between directories: what their judge has to see, and what it may not invent."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.error_codes import ErrorCode
from tests.simulation.administration.told import MadeUp
from tests.simulation.judge import ViolationError
from tests.simulation.movers import Asked, Mover
from tests.unbroken import finished

TOPIC = SimpleNamespace(name="t", partitions=1)
PARTITION = ("t", 0)


class Moved:
    """A broker with two directories, which says where a partition is."""

    def __init__(self, code: int = 0) -> None:
        self.code = code
        self.crashes: dict[int, int] = {}
        self.world: Any = MadeUp(
            self.says,
            nodes=1,
            later=random.Random(1),
            topics={"t": TOPIC},
            log_dirs=lambda _: ["/d0", "/d1"],
            crashes=self.crashes,
        )
        self.mover = Mover(self.world, "mover", 1)

    def says(self, _node: int, _request: Any) -> Any:
        return SimpleNamespace(results=[SimpleNamespace(partitions=[SimpleNamespace(error_code=self.code)])])


def test_where_a_partition_is_to_be_is_known_when_that_was_answered() -> None:
    """What the end of a history looks at would be nothing."""
    moved = Moved()
    finished(moved.mover.move(1, PARTITION))
    (asked,) = moved.mover.asked.values()
    assert {asked.last} == asked.ever


def test_a_move_that_is_refused_is_seen() -> None:
    """A broker could move nothing, and nobody would see."""
    with pytest.raises(ViolationError, match="does not move"):
        finished(Moved(int(ErrorCode.LOG_DIR_NOT_FOUND)).mover.move(1, PARTITION))


@pytest.mark.parametrize(
    ("here", "to_be"),
    [({PARTITION: [0, 1]}, {}), ({PARTITION: [0]}, {PARTITION: [0]}), ({PARTITION: [1]}, {PARTITION: [0]})],
)
def test_a_place_that_cannot_be_is_seen(here: dict[Any, list[int]], to_be: dict[Any, list[int]]) -> None:
    """There could be two logs of a partition, or a copy where nobody asked for one."""
    moved = Moved()
    moved.mover.asked[1, *PARTITION] = Asked({1}, 1)
    with pytest.raises(ViolationError, match="mover"):
        moved.mover.judge_places(1, here, to_be)


def test_a_partition_moves_on_its_way_and_is_there_in_the_end() -> None:
    """Each move would be a violation, or none that came to nothing."""
    moved = Moved()
    moved.mover.asked[1, *PARTITION] = Asked({1}, 1)
    moved.mover.judge_places(1, {PARTITION: [0]}, {PARTITION: [1]})
    assert moved.mover.unsettled(1, {PARTITION: [0]}, {PARTITION: [1]}) is not None
    assert moved.mover.unsettled(1, {PARTITION: [0]}, {}) is not None
    assert moved.mover.unsettled(1, {PARTITION: [1]}, {}) is None
    moved.crashes[1] = 1
    assert moved.mover.unsettled(1, {PARTITION: [0]}, {}) is None
