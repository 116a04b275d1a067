"""Keeps the cyclic garbage collector from holding the event loop.

A full collection walks every container that the process has: 100 ms and more where a request of 100,000 partitions is
in memory or there are thousands of topics, and Python starts one whenever enough objects were made.  Here Python
collects the young objects alone, which takes a millisecond or two.  Those that have grown old are walked once, in
portions, and what a collection leaves of a portion is frozen: the next one does not walk it again.

A portion is due as soon as objects of `PORTION_BLOCKS` blocks of memory have come since the last one, be it in the
middle of a large request, and every `INTERVAL_MS` what is there by then is collected.  So the loop is held for one
portion at a time, some 5 ms, and a request that makes a million objects is walked once in all.

Nothing that is garbage is frozen, as each collection before covers all that is not frozen yet.  Frozen objects are
freed by their reference counts like any others.  Cycles among them that become garbage later are never freed; logs,
connections and requests leave none.  The debug build asserts that of all that it collects (`left_by_requests`); so does
the simulation, and `tests/garbage` asks every API.
"""

from __future__ import annotations

import gc
import sys
from asyncio import AbstractEventLoop
from collections.abc import Iterable
from types import TracebackType

import kbroker
from kbroker._fast.base.build_facts import CHECKED
from kbroker._fast.net.request_context import RequestContext

# Walking what so many blocks of memory hold takes a few milliseconds.
PORTION_BLOCKS = 50_000
# How many collections of the middle generation come before a full one that Python starts by itself: never.  Python 3.14
# at first had a collector without any, which goes through the old objects piece by piece and ignores this.
NO_FULL_COLLECTION = 1_000_000_000


OURS = kbroker.__path__[0]


def left_by_requests(garbage: Iterable[object]) -> list[str]:
    """What of this was made by requests: what they came with, and the places of errors that were kept with frames."""
    found = []
    for each in garbage:
        if isinstance(each, TracebackType) and each.tb_frame.f_code.co_filename.startswith(OURS):
            found.append(f"{each.tb_frame.f_code.co_qualname} at {each.tb_frame.f_code.co_filename}:{each.tb_lineno}")
        elif isinstance(each, RequestContext):
            found.append(f"a request of API {each.api_key} version {each.api_version}")
    return sorted(set(found))


class GarbageCollection:
    """Collects on `loop`, from `start` to `stop`."""

    __slots__ = ("_blocks", "_is_due", "_loop")

    INTERVAL_MS = 10_000

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._blocks = 0
        self._is_due = False

    def start(self) -> None:
        """Take over, once what start-up made is there: it lives as long as the process."""
        young, middle, _ = gc.get_threshold()
        gc.set_threshold(young, middle, NO_FULL_COLLECTION)
        self._take_portion()
        gc.callbacks.append(self._look)
        if CHECKED:
            gc.set_debug(gc.DEBUG_SAVEALL)

    def stop(self) -> None:
        """Leave it to Python again."""
        if self._look in gc.callbacks:
            gc.callbacks.remove(self._look)

    def run(self) -> None:
        """Collect what has become garbage lately; call it every `INTERVAL_MS`."""
        if self._has_grown():
            self._take_portion()
        else:
            gc.collect()
        if CHECKED:
            self.check_invariants()

    def check_invariants(self) -> None:
        """Raises AssertionError for garbage that requests have left, of all that was collected since the last time."""
        left = left_by_requests(gc.garbage)
        gc.garbage.clear()
        assert not left, f"garbage that only a collection finds: {left}"

    def _has_grown(self) -> bool:
        return sys.getallocatedblocks() - self._blocks > PORTION_BLOCKS

    def _look(self, phase: str, found: dict[str, int]) -> None:
        """Python has collected, in any thread and in the midst of any work: objects may have become old."""
        if phase == "stop" and found["generation"] >= 1 and not self._is_due and self._has_grown():
            self._is_due = True
            self._loop.call_soon_threadsafe(self._take_portion)

    def _take_portion(self) -> None:
        gc.collect()
        gc.freeze()
        self._blocks = sys.getallocatedblocks()
        self._is_due = False
