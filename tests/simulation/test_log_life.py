"""The judges of a log's life: what they have to see."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.simulation.judge import Judge, ViolationError
from tests.simulation.log_life import KeptLog, ShortLog, Written
from tests.simulation.records import ReadBatch

NOW = 10_000


class World(SimpleNamespace):
    """What a client's judge asks of its world."""

    def __init__(self) -> None:
        import random

        super().__init__(rng=random.Random(1), judge=Judge(lambda: 0.0), scale=SimpleNamespace(nodes=1))

    def now_ms(self) -> int:
        return NOW


def read(*records: tuple[int, bytes | None]) -> list[ReadBatch]:
    return [ReadBatch(at, at, 0, 0, -1, -1, -1, ((at, value),)) for at, value in records]


def kept(*records: tuple[int, bytes | None], tombstone_ms: int = 60_000) -> None:
    """A compacted log of which this is read: it was written a=1, b=2, a=3, and b's tombstone."""
    world: Any = World()
    life = KeptLog(world, 0)
    life.tombstone_ms = tombstone_ms
    rows = ((b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"b", None))
    life.written = [Written(key, value, NOW - 1000, at, 70) for at, (key, value) in enumerate(rows)]

    async def settled(_offset: int) -> tuple[list[ReadBatch], int]:
        return read(*records), 4

    life.settled = settled  # type: ignore[method-assign]
    with pytest.raises(StopIteration):
        life.read_back().send(None)


def test_the_last_value_of_a_key_may_not_go() -> None:
    """Compaction could lose what tables are made of."""
    kept((2, b"3"), (3, None))
    kept((0, b"1"), (1, b"2"), (2, b"3"), (3, None))
    with pytest.raises(ViolationError, match="the last of b'a' is gone"):
        kept((0, b"1"), (3, None))


def test_a_tombstone_may_go_when_its_time_is_up_and_its_value_is_gone() -> None:
    """Who reads a table from its beginning would see keys that were deleted."""
    kept((2, b"3"), tombstone_ms=100)
    with pytest.raises(ViolationError, match="the last of b'b' is gone"):
        kept((2, b"3"))
    with pytest.raises(ViolationError, match="before what it is for"):
        kept((1, b"2"), (2, b"3"), tombstone_ms=100)


def short(start: int, *, retention_ms: int = 600_000, retention_bytes: int = -1, deleted_to: int = 0) -> ShortLog:
    world: Any = World()
    life = ShortLog(world, 0)
    life.retention_ms, life.retention_bytes, life.deleted_to = retention_ms, retention_bytes, deleted_to
    life.written = [Written(b"k", b"%d" % at, NOW - 1000, at, 100) for at in range(10)]
    life.begins(start)
    return life


def test_nothing_goes_before_its_time() -> None:
    """Retention could take what it has to leave."""
    short(5, retention_ms=500)
    short(5, retention_bytes=400)
    short(5, deleted_to=5)
    for wrong in ({}, {"retention_bytes": 600}, {"deleted_to": 4}):
        with pytest.raises(ViolationError, match="is gone after 1000 ms"):
            short(5, **wrong)


def test_a_log_does_not_begin_earlier_again() -> None:
    """What was deleted could come back."""
    life = short(5, deleted_to=5)
    with pytest.raises(ViolationError, match="has begun at 5"):
        life.begins(4)
