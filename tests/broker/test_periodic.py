"""Tasks that the loop runs at intervals, and long work that it does in pieces.

Also of `kbroker.clock`.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.clock import BEAT_SECONDS, until_beat
from kbroker.metrics.loop_delay import BUSY_INTERVAL_SECONDS, IDLE_ACTIVITY, LoopDelaySampler
from kbroker.periodic import PeriodicTasks

HOUR_MS = 3_600_000


class LoopAt:
    """A loop whose time a test moves; `due` has the times of its timers."""

    def __init__(self, now: float) -> None:
        self.now = now
        self.due: list[float] = []

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, *_call: object) -> Any:
        self.due.append(self.now + seconds)
        return SimpleNamespace(cancel=lambda: None)


@given(st.floats(0, 1e7), st.floats(0, 100))
def test_a_wait_ends_with_a_beat_and_not_much_later_than_it_should(now: float, seconds: float) -> None:
    """A task would run later and later, or a fetch wait for longer than its follower takes a leader for alive."""
    wait = until_beat(now, seconds)
    assert seconds - BEAT_SECONDS <= wait <= seconds + 0.0101
    if seconds < BEAT_SECONDS:
        assert wait == seconds
    else:
        assert (now + wait) / BEAT_SECONDS == pytest.approx(round((now + wait) / BEAT_SECONDS), abs=1e-6)


@pytest.mark.parametrize("late", [-0.009, -0.0005, 0.0, 0.0004, 0.05])
def test_a_timer_that_fires_a_little_early_or_late_waits_for_the_next_beat(late: float) -> None:
    """A task of each half second would run twice in a row, or miss every other run."""
    assert 700.0 + late + until_beat(700.0 + late, BEAT_SECONDS) == pytest.approx(700.0 + BEAT_SECONDS)


def test_tasks_that_begin_at_different_times_run_together() -> None:
    """An idle broker would be woken by each of them."""
    loop = LoopAt(100.0)
    tasks = PeriodicTasks(cast("asyncio.AbstractEventLoop", loop))
    for number, interval_ms in enumerate((500, 1000, 5000, 500, 100)):
        loop.now = 100.0 + number * 0.07
        tasks.add(str(number), interval_ms, lambda: None)
    assert loop.due == pytest.approx([100.5, 101.0, 105.0, 100.5, 100.38])


def test_a_few_requests_are_no_work_that_has_the_loop_looked_at_closely() -> None:
    """Followers' fetches would wake an idle broker twice as often; or stalls under load not be seen."""
    requests = 0
    loop = LoopAt(100.0)
    sampler = LoopDelaySampler(lambda: requests)
    sampler.start(cast("asyncio.AbstractEventLoop", loop))
    for more, wait in (
        (IDLE_ACTIVITY, 0.5),
        (IDLE_ACTIVITY + 1, BUSY_INTERVAL_SECONDS),
        (1, BUSY_INTERVAL_SECONDS),
        (0, 0.5),
    ):
        requests += more
        loop.now, began = 100.0, len(loop.due)
        sampler._fire()
        assert loop.due[began:] == pytest.approx([100.0 + wait])
    sampler.stop()


def test_another_interval_counts_at_once() -> None:
    """A setting such as log.cleaner.backoff.ms would take effect when the old interval has passed, an hour later."""

    async def main() -> None:
        ran = asyncio.Event()
        tasks = PeriodicTasks(asyncio.get_running_loop())
        tasks.add("work", HOUR_MS, ran.set)
        tasks.change_interval("work", 1)
        await asyncio.wait_for(ran.wait(), 10)
        ran.clear()
        await asyncio.wait_for(ran.wait(), 10)
        tasks.stop()

    asyncio.run(main())


def test_an_interval_that_changes_is_asked_for_before_each_wait() -> None:
    """The disks would be looked at as seldom as on a broker without clients once there was a moment without any."""

    async def main() -> None:
        asked: list[int] = []
        ran = asyncio.Event()

        def interval_ms() -> int:
            asked.append(0)
            return 1 if len(asked) < 4 else HOUR_MS

        async def work() -> None:
            if len(asked) == 3:
                ran.set()

        tasks = PeriodicTasks(asyncio.get_running_loop())
        tasks.add("work", interval_ms, work)
        await asyncio.wait_for(ran.wait(), 10)
        tasks.stop()

    asyncio.run(main())


def test_a_task_that_runs_is_not_run_twice_for_another_interval() -> None:
    """Two runs of the cleaner at once would take the same log."""

    async def main() -> None:
        started, go_on = asyncio.Event(), asyncio.Event()
        at_once = most = runs = 0

        async def work() -> None:
            nonlocal at_once, most, runs
            at_once, runs = at_once + 1, runs + 1
            most = max(most, at_once)
            started.set()
            await go_on.wait()
            at_once -= 1

        tasks = PeriodicTasks(asyncio.get_running_loop())
        tasks.add("work", HOUR_MS, work, 0)
        await asyncio.wait_for(started.wait(), 10)
        started.clear()
        tasks.change_interval("work", 1)
        # Long after the new interval: a timer of its own would have fired first.
        asyncio.get_running_loop().call_later(0.05, go_on.set)
        await asyncio.wait_for(started.wait(), 10)
        assert (most, runs >= 2) == (1, True)
        tasks.stop()

    asyncio.run(main())


def test_a_task_that_is_hastened_asks_for_its_interval_again() -> None:
    """A flush that has become due sooner would wait for the time that was set before."""

    async def main() -> None:
        interval_ms = HOUR_MS
        ran = asyncio.Event()
        tasks = PeriodicTasks(asyncio.get_running_loop())
        tasks.add("work", lambda: interval_ms, ran.set)
        interval_ms = 1
        tasks.hasten("work")
        await asyncio.wait_for(ran.wait(), 10)
        tasks.stop()

    asyncio.run(main())
