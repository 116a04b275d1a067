"""A bound on how many bytes per second a group of threads reads and writes together."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

LONGEST_WAIT_SECONDS = 0.1


class Throttle:
    """Bytes are counted first and waited for afterwards: a large piece passes at once, and the next one waits longer.

    Unused time is kept for at most a second, so that a pause is not followed by a flood.  `waited_seconds` counts what
    all threads have waited.
    """

    __slots__ = ("_free_at", "_lock", "_monotonic", "_sleep", "bytes_per_second", "waited_seconds")

    def __init__(
        self,
        bytes_per_second: float,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.bytes_per_second = bytes_per_second
        self.waited_seconds = 0.0
        self._monotonic = monotonic
        self._sleep = sleep
        self._lock = threading.Lock()
        self._free_at = 0.0

    def spend(self, size_bytes: int, check: Callable[[], None]) -> None:
        """Accounts for bytes and waits until they are paid for; `check` is called while it waits and may raise."""
        with self._lock:
            now = self._monotonic()
            # A bound so high that a second of it is no time at all costs nothing here.
            self._free_at = max(self._free_at, now - 1.0) + size_bytes / max(self.bytes_per_second, 1.0)
            free_at = self._free_at
        while (wait := free_at - self._monotonic()) > 0:
            check()
            pause = min(wait, LONGEST_WAIT_SECONDS)
            self._sleep(pause)
            with self._lock:
                self.waited_seconds += pause
