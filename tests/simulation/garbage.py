"""What requests leave to the garbage collector, which freezes what has come to stay in time: nothing.

Brokers do not collect while a history is played.  What there is by then is looked at before the first of them ends, and
else when all clients are gone; what a broker was in the midst of when it ended is no more than that.
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any
from unittest import mock

from kbroker.host.garbage import GarbageCollection, left_by_requests

if TYPE_CHECKING:
    from tests.simulation.judge import Judge


def kept_for_the_look() -> Any:
    """In place of the brokers' own task."""
    return mock.patch.object(GarbageCollection, "run", lambda _collection: None)


class Garbage:
    """Of one history."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._has_ended = False

    def broker_goes(self) -> None:
        """Nothing is looked at from now on."""
        self._has_ended = True

    def look(self) -> None:
        """Collect all of it.  ViolationError where requests have left some."""
        if self._has_ended:
            return
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        gc.set_debug(0)
        left = left_by_requests(gc.garbage)
        gc.garbage.clear()
        if left:
            self._judge.fail(f"garbage that only a collection finds: {left}")


__all__ = ["Garbage", "kept_for_the_look"]
