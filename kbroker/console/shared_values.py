"""Values that all viewers share: gathered when the first of them asks, and again when they have become too old.

What took long to gather is kept longer, so that gathering takes at most a hundredth of the loop's time, however many
look.  Nothing is kept when viewers have gone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")

LEAST_SECONDS = 1.0
MOST_SECONDS = 10.0
KEPT_SECONDS = 30.0
SHARE = 100
"""How many times as long as it took a value is kept."""


class SharedValue(Generic[T]):
    """One value; `gather` makes it anew."""

    __slots__ = ("_due", "_forgetting", "_gather", "_monotonic", "_task", "_value")

    def __init__(self, gather: Callable[[], Awaitable[T]], monotonic: Callable[[], float] = time.monotonic) -> None:
        self._gather = gather
        self._monotonic = monotonic
        self._value: T | None = None
        self._due = 0.0
        self._task: asyncio.Task[T] | None = None
        self._forgetting: asyncio.TimerHandle | None = None

    async def get(self) -> T:
        """The value, of now or of a moment ago.  Raises what gathering raises."""
        if self._value is not None and self._monotonic() < self._due:
            return self._value
        if self._task is None:
            self._task = asyncio.ensure_future(self._make())
            self._task.add_done_callback(self._made)
        # One viewer who leaves does not end it for the others.
        return await asyncio.shield(self._task)

    async def _make(self) -> T:
        began = self._monotonic()
        value = await self._gather()
        took = self._monotonic() - began
        self._due = self._monotonic() + min(MOST_SECONDS, max(LEAST_SECONDS, SHARE * took))
        self._value = value
        if self._forgetting is not None:
            self._forgetting.cancel()
        self._forgetting = asyncio.get_running_loop().call_later(KEPT_SECONDS, self.forget)
        return value

    def forget(self) -> None:
        """Keep nothing; what is being gathered goes on."""
        self._value = self._forgetting = None

    def _made(self, task: asyncio.Task[Any]) -> None:
        self._task = None
        if not task.cancelled():
            task.exception()  # Those who wait get it; when they have gone, it is not complained about.
