"""How many fsyncs of logs there were, and how long they took."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from kbroker._fast.base.counters import Histogram


class FlushTotals:
    """Sums since the start; added to by any thread has flushed."""

    __slots__ = ("_lock", "count", "max_seconds", "seconds", "times")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.count = 0
        self.seconds = 0.0
        self.max_seconds = 0.0
        self.times = Histogram()

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Count what happens inside, unless it raises."""
        started = time.monotonic()
        yield
        took = time.monotonic() - started
        with self._lock:
            self.count += 1
            self.seconds += took
            self.max_seconds = max(self.max_seconds, took)
            self.times.add(round(took * 1e9))
