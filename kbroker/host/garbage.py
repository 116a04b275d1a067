"""Keeps the cyclic garbage collector from holding the event loop.

A full collection walks every container that the process has: 100 ms and more where a request of 100,000 partitions is
in memory or there are thousands of topics, and Python starts one whenever enough objects were made.  Young objects are
still collected automatically, which takes a millisecond or two and finds nearly all cycles.  Full collections are a
periodic task, skipped while a large request is under way.  Long-lived objects are not walked: when many new ones remain
since the last collection, such as topics, they are frozen instead.  Frozen objects are never walked again, and still
freed by their reference counts.  Cycles among them that become garbage later are never freed; logs, connections and
requests leave none.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable

# Walking what so many blocks of memory hold takes a few milliseconds.
FROZEN_FROM_BLOCKS = 50_000
# How many collections of the middle generation come before a full one that Python starts by itself: never.  Python 3.14
# at first had a collector without any, which goes through the old objects piece by piece and ignores this.
NO_FULL_COLLECTION = 1_000_000_000


class GarbageCollection:
    """`busy()`: whether work is under way whose objects will be freed in a moment."""

    __slots__ = ("_blocks", "_busy")

    INTERVAL_MS = 10_000

    def __init__(self, busy: Callable[[], bool]) -> None:
        self._busy = busy
        self._blocks = 0

    def start(self) -> None:
        """Take over, once what start-up made is there: it lives as long as the process."""
        gc.collect()
        young, middle, _ = gc.get_threshold()
        gc.set_threshold(young, middle, NO_FULL_COLLECTION)
        self._freeze()

    def run(self) -> None:
        """Collect what has become garbage lately, or freeze what has come to stay; call it every `INTERVAL_MS`."""
        if self._busy():
            return
        if sys.getallocatedblocks() - self._blocks > FROZEN_FROM_BLOCKS:
            gc.collect(1)
            self._freeze()
        else:
            gc.collect()

    def _freeze(self) -> None:
        gc.freeze()
        self._blocks = sys.getallocatedblocks()
