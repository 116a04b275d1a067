"""Waiting with a time-out in code that may run outside of any task.

`asyncio.timeout` cancels the task that it is entered in.  A handler runs up to its first wait without a task
(`_fast/net/request_server`), where `asyncio.timeout` raises RuntimeError.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

CallLater = Callable[[float, Callable[[], None]], asyncio.TimerHandle]
"""As a loop's `call_later`: runs the callback in so many seconds."""


async def set_within(event: asyncio.Event, seconds: float) -> bool:
    """Wait until `event` is set, for `seconds` at most; whether it is."""
    if not event.is_set():
        waiting = asyncio.ensure_future(event.wait())
        try:
            await asyncio.wait((waiting,), timeout=seconds)
        finally:
            waiting.cancel()
    return event.is_set()


class Changes:
    """Wakes those that wait for a condition each time that what it looks at may have changed."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[None], None] = {}

    def announce(self) -> None:
        """There was a change: every condition is looked at again, each in its own turn, in the order of coming."""
        for each in self._waiting:
            if not each.done():
                each.set_result(None)

    async def wait_until(self, holds: Callable[[], bool], seconds: float | None = None) -> bool:
        """Wait until `holds()`, for `seconds` at most (None: for ever); whether it does."""
        loop = asyncio.get_running_loop()
        end = None if seconds is None else loop.time() + seconds
        while not holds():
            left = None if end is None else end - loop.time()
            if left is not None and left <= 0:
                return False
            change: asyncio.Future[None] = loop.create_future()
            self._waiting[change] = None
            try:
                await asyncio.wait((change,), timeout=left)
            finally:
                self._waiting.pop(change, None)
                change.cancel()
        return True
