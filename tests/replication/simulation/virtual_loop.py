"""An event loop on virtual time: it never waits, it goes to the moment of its next timer."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from tests.storage.batches import START_MS


class NothingToDoError(Exception):
    """The loop would wait for ever."""


class _Timers:
    """What the loop takes for its selector."""

    def __init__(self) -> None:
        self.now = 0.0

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise NothingToDoError("no timer is set and nothing is ready")
        self.now += max(timeout, 0.0)
        return []

    def close(self) -> None:
        pass


class VirtualLoop(asyncio.BaseEventLoop):
    """All that is not a timer or a callback is missing; threads have no place here."""

    def __init__(self) -> None:
        super().__init__()
        self._selector = _Timers()
        self._clock_resolution = 1e-9

    def time(self) -> float:
        return self._selector.now

    def _process_events(self, event_list: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass


class VirtualClock:
    """`Clock` by the loop's time; the wall clock may be wrong."""

    def __init__(self, loop: VirtualLoop, ahead_ms: int = 0) -> None:
        self._loop = loop
        self._ahead_ms = ahead_ms

    def monotonic(self) -> float:
        return self._loop.time()

    def now_ms(self) -> int:
        return START_MS + self._ahead_ms + int(self._loop.time() * 1000)


def run_virtually(main: Coroutine[Any, Any, Any], loop: VirtualLoop) -> Any:
    """The result of `main`; what it has left running is cancelled."""
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(main)
    finally:
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        if tasks:
            loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        asyncio.set_event_loop(None)
        loop.close()
