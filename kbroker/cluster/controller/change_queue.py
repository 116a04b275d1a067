"""The queue of a controller's changes: one is made at a time, in the order of coming.

    async with queue:
        ...

It counts them, and how long they wait and take, which is what Kafka's event queue says of its controller.
"""

from __future__ import annotations

import asyncio
from typing import Literal

from kbroker._fast.base.counters import Histogram
from kbroker._fast.base.monotonic import monotonic_ns


class ChangeQueue(asyncio.Lock):
    """See the module.  `waited` and `worked` have nanoseconds; `count` the changes that were begun."""

    def __init__(self) -> None:
        super().__init__()
        self._begun = 0
        self.count = 0
        self.longest_wait_ns = 0
        self.waited = Histogram()
        self.worked = Histogram()

    async def acquire(self) -> Literal[True]:
        """Wait for the turn of a change, and begin it."""
        came = monotonic_ns()
        await super().acquire()
        self._begun = monotonic_ns()
        wait = self._begun - came
        self.count += 1
        self.longest_wait_ns = max(self.longest_wait_ns, wait)
        self.waited.add(wait)
        return True

    def release(self) -> None:
        """End a change."""
        self.worked.add(monotonic_ns() - self._begun)
        super().release()
