"""Tasks that the loop runs at an interval, such as checkpoints, flushes and the sweep of idle connections.

Intervals of half a second and more end with the beats of the clock (`until_beat`): the tasks of an idle broker wake it
together.  A task that fails is logged (`Outages`) and runs again at its next turn; a coroutine function's run is
awaited before the next interval begins, so that a task never runs twice at once.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from kbroker.clock import until_beat
from kbroker.outage import Outages

logger = logging.getLogger("kbroker.periodic")

#: Milliseconds, or what tells them before each wait.
Interval = int | Callable[[], int]


class PeriodicTask(NamedTuple):
    """Something that the loop runs every so often: a function, or a coroutine function.

    `interval_ms` may be a function, which is asked after each run.  `initial_delay_ms` is the time before the first
    run; None: the interval.
    """

    name: str
    interval_ms: Interval
    run: Callable[[], object]
    initial_delay_ms: int | None = None


class PeriodicTasks:
    """The periodic tasks of one broker."""

    __slots__ = ("_intervals", "_loop", "_outages", "_running", "_tasks", "_timers")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._tasks: dict[str, Callable[[], object]] = {}
        self._intervals: dict[str, Interval] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._outages = Outages(logger, logging.ERROR, loop.time)

    def add(
        self, name: str, interval_ms: Interval, run: Callable[[], object], initial_delay_ms: int | None = None
    ) -> None:
        """Run `run` every `interval_ms`, the first time after `initial_delay_ms` (the interval, unless said)."""
        self._tasks[name] = run
        self._intervals[name] = interval_ms
        self._wait(name, self._interval_ms(name) if initial_delay_ms is None else initial_delay_ms)

    def change_interval(self, name: str, interval_ms: int) -> None:
        """Run a task at another interval, counted from now unless it is running."""
        if self._intervals[name] == interval_ms:
            return
        self._intervals[name] = interval_ms
        if name not in self._running:
            self._timers[name].cancel()
            self._wait(name, interval_ms)

    def hasten(self, name: str) -> None:
        """A task whose interval is a function: ask it now for the time that is left, not after the next run."""
        if name not in self._running:
            self._timers[name].cancel()
            self._wait(name, self._interval_ms(name))

    def _interval_ms(self, name: str) -> int:
        interval = self._intervals[name]
        return interval() if callable(interval) else interval

    def _wait(self, name: str, delay_ms: int) -> None:
        seconds = until_beat(self._loop.time(), delay_ms / 1000)
        self._timers[name] = self._loop.call_later(seconds, self._fire, name)

    def _fire(self, name: str) -> None:
        try:
            outcome = self._tasks[name]()
        except Exception as error:
            self._failed(name, error)
        else:
            if inspect.isawaitable(outcome):
                self._running[name] = self._loop.create_task(self._watch(name, outcome))
                return
            self._done(name)
        self._wait(name, self._interval_ms(name))

    async def _watch(self, name: str, outcome: Awaitable[object]) -> None:
        try:
            await outcome
        except Exception as error:
            self._failed(name, error)
        else:
            self._done(name)
        self._running.pop(name, None)
        self._wait(name, self._interval_ms(name))

    def _failed(self, name: str, error: Exception) -> None:
        self._outages.failed(name, "the task %s failed; it runs again", name, error=error)

    def _done(self, name: str) -> None:
        self._outages.over(name, "the task %s works again", name)

    def stop(self) -> None:
        """Cancel all; a run under way in an executor goes on to its end there."""
        for timer in self._timers.values():
            timer.cancel()
        for task in self._running.values():
            task.cancel()
        self._timers.clear()
        self._running.clear()
