"""Tasks that the loop runs at intervals, and long work that it does in pieces."""

from __future__ import annotations

import asyncio

from kbroker.periodic import PeriodicTasks

HOUR_MS = 3_600_000


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
