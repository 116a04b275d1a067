"""Tasks that the loop runs at an interval, such as checkpoints, flushes and the sweep of idle connections.

A task that fails is logged and runs again at its next turn; a coroutine function's run is awaited before the next
interval begins, so that a task never runs twice at once.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from typing import Any, NamedTuple

logger = logging.getLogger("kbroker.periodic")


class PeriodicTask(NamedTuple):
    """Something that the loop runs every so often: a function, or a coroutine function.

    `initial_delay_ms` is the time before the first run; None: the interval.
    """

    name: str
    interval_ms: int
    run: Callable[[], Any]
    initial_delay_ms: int | None = None


class PeriodicTasks:
    """The periodic tasks of one broker."""

    __slots__ = ("_loop", "_running", "_timers")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._running: dict[str, asyncio.Task[None]] = {}

    def add(self, name: str, interval_ms: int, run: Callable[[], Any], initial_delay_ms: int | None = None) -> None:
        """Run `run` every `interval_ms`, the first time after `initial_delay_ms` (the interval, unless said)."""
        delay = interval_ms if initial_delay_ms is None else initial_delay_ms
        self._timers[name] = self._loop.call_later(delay / 1000, self._fire, name, interval_ms, run)

    def _fire(self, name: str, interval_ms: int, run: Callable[[], Any]) -> None:
        try:
            outcome = run()
        except Exception:
            logger.exception("the task %s failed; it runs again in %d ms", name, interval_ms)
            outcome = None
        if inspect.isawaitable(outcome):
            task = self._loop.create_task(self._watch(name, interval_ms, run, outcome))
            self._running[name] = task
        else:
            self.add(name, interval_ms, run)

    async def _watch(self, name: str, interval_ms: int, run: Callable[[], Any], outcome: Any) -> None:
        try:
            await outcome
        except Exception:
            logger.exception("the task %s failed; it runs again in %d ms", name, interval_ms)
        self._running.pop(name, None)
        self.add(name, interval_ms, run)

    def stop(self) -> None:
        """Cancel all; a run under way in an executor goes on to its end there."""
        for timer in self._timers.values():
            timer.cancel()
        for task in self._running.values():
            task.cancel()
        self._timers.clear()
        self._running.clear()
