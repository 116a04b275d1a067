"""The one way to wait for records: by a `Pending`, and in a coroutine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import uvloop

from kbroker._fast.log.fetch_target import is_enough
from kbroker._fast.log.log_fields import RecordSource
from kbroker.replication.delayed_fetch import FetchPurgatory, FetchWait

WAIT_MS = 600_000


class Reading:
    """A coroutine that reads a fetch at two sources; it has enough once `there` says so."""

    def __init__(
        self, wait_ms: int = WAIT_MS, *, rests: bool = False, during: Callable[[], None] | None = None
    ) -> None:
        self.purgatory = FetchPurgatory(asyncio.get_running_loop())
        self.sources = (RecordSource(), RecordSource())
        self.ctx: Any = SimpleNamespace(open=True, left=None)
        self.there = False
        self.forced: list[bool] = []
        self.times: list[float] = []
        self.looked = asyncio.Event()
        self._during = during
        self.ended: list[RecordSource] = []
        self.wait = FetchWait(self.purgatory, self.sources, wait_ms, self.ended.append, rests=rests)
        self.task = asyncio.ensure_future(self.wait.until(self.ctx, self._attempt))

    async def _attempt(self, force: bool) -> bool:
        self.forced.append(force)
        self.times.append(asyncio.get_running_loop().time())
        if self._during is not None and len(self.forced) == 1:
            self._during()
        self.looked.set()
        is_there = self.there
        await asyncio.sleep(0)
        return is_there or force

    async def looks(self, count: int) -> None:
        while len(self.forced) < count:
            self.looked.clear()
            await self.looked.wait()

    def has_left(self) -> bool:
        return len(self.purgatory) == 0 and not any(source.waiting for source in self.sources)


def test_news_at_any_source_have_a_coroutine_read_again() -> None:
    """A consumer of an old version would get each record only when its wait is over."""

    async def main() -> None:
        reading = Reading()
        await reading.looks(1)
        assert len(reading.purgatory) == 1
        for count, source in enumerate(reading.sources, 2):
            reading.there = count == 3
            reading.purgatory.mark(source)
            await reading.looks(count)
        await reading.task
        assert reading.forced == [False, False, False]
        assert reading.has_left()

    uvloop.run(main())


def test_what_comes_while_it_is_read_is_not_missed() -> None:
    """A record appended behind the reader's back would wait for the next one."""

    async def main() -> None:
        reading = Reading(during=lambda: reading.purgatory.mark(reading.sources[0]))
        await reading.looks(2)
        reading.there = True
        reading.purgatory.mark(reading.sources[1])
        await reading.task
        assert not any(reading.forced)

    uvloop.run(main())


def test_a_fetch_that_rests_is_not_read_for_each_batch_that_comes() -> None:
    """A consumer of thousands of partitions would keep the loop at work for as long as anything is written."""

    async def main() -> None:
        reading = Reading(rests=True)
        await reading.looks(1)
        for _ in range(100):
            reading.purgatory.mark(reading.sources[0])
            await asyncio.sleep(0)
        assert len(reading.forced) <= 2
        reading.there = True
        reading.purgatory.mark(reading.sources[0])
        await reading.task

    uvloop.run(main())


@pytest.mark.parametrize("rests", [False, True])
def test_the_end_of_its_time_of_a_partition_or_of_the_broker_has_it_answer(rests: bool) -> None:
    """A consumer would wait for ever for topics in which nothing is written, or for a partition that has moved."""

    async def main() -> None:
        ends: list[tuple[Callable[[Reading], None], int]] = [
            (lambda reading: reading.purgatory.expire_all(), 2),
            (lambda reading: reading.purgatory.expire_partition(reading.sources[1]), 1),
        ]
        for end, first in ends:
            reading = Reading(rests=rests)
            await reading.looks(1)
            end(reading)
            # It is told at that moment, not when it is read again.
            assert reading.ended == list(reading.sources[first:2])
            await reading.task
            assert reading.forced == [False, True]
            assert reading.has_left()
        reading = Reading(1, rests=rests)
        await reading.task
        assert reading.forced[-1]

    uvloop.run(main())


def test_a_client_that_leaves_ends_the_wait_and_what_waits_for_nothing_reads_once() -> None:
    """A fetch of a client that is gone would be read again and again."""

    async def main() -> None:
        reading = Reading()
        await reading.looks(1)
        while reading.ctx.left is None:
            await asyncio.sleep(0)
        reading.ctx.open = False
        reading.ctx.left()
        await reading.task
        assert (reading.forced, reading.has_left()) == ([False], True)
        gone = Reading()
        await gone.looks(1)
        gone.ctx.open = False  # While it reads: nothing is to be called yet.
        await gone.task
        assert gone.forced == [False]
        at_once = Reading(0)
        await at_once.task
        assert (at_once.forced, at_once.has_left()) == ([True], True)

    uvloop.run(main())


@pytest.mark.parametrize(
    "size, least, wait_ms, may_wait, urgent, force, enough",
    [
        (10, 10, 500, True, False, False, True),
        (9, 10, 500, True, False, False, False),
        (0, 0, 500, True, False, False, True),
        (0, 1, 0, True, False, False, True),
        (0, 1, -1, True, False, False, True),
        (0, 1, 500, False, False, False, True),
        (0, 1, 500, True, True, False, True),
        (0, 1, 500, True, False, True, True),
    ],
)
def test_when_a_fetch_is_answered(
    size: int, least: int, wait_ms: int, may_wait: bool, urgent: bool, force: bool, enough: bool
) -> None:
    """Fetches of one kind would be answered with less than they asked for, or wait for what cannot come."""
    assert is_enough(size, least, wait_ms, may_wait, urgent, force) is enough
