"""Deletes files on the executor, one action at a time, so that flushes keep the other threads.

Renaming and unlinking thousands of files, and giving the blocks of large ones back, takes a file system longer than the
loop may wait.  `later` has a delay; `soon` is for what should be done at once, before all that has waited.
"""

from __future__ import annotations

import heapq
import logging
import math
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from itertools import count

from kbroker.clock import Clock
from kbroker.storage.files.log_dir_failure import LogDirFailureChannel

logger = logging.getLogger("kbroker.storage")

Action = Callable[[], None]


class DelayedDeletions:
    """`later`, `soon`, `run_due` and `stop` belong to the loop, the actions to a thread of the executor."""

    __slots__ = ("_clock", "_executor", "_failures", "_lock", "_ready", "_sequence", "_urgent", "_waiting", "_working")

    def __init__(self, clock: Clock, executor: Executor, failures: LogDirFailureChannel) -> None:
        self._clock = clock
        self._executor = executor
        self._failures = failures
        self._waiting: list[tuple[float, int, Action]] = []
        self._sequence = count()
        self._urgent: deque[Action] = deque()
        self._ready: deque[Action] = deque()
        self._lock = threading.Lock()
        self._working = False

    def later(self, delay_ms: int, action: Action) -> None:
        """Carries `action` out after a delay, in the order of the times."""
        due = self._clock.monotonic() + delay_ms / 1000
        heapq.heappush(self._waiting, (due, next(self._sequence), action))

    def soon(self, action: Action) -> None:
        """Carries `action` out as soon as the thread comes to it, in the order of the calls."""
        with self._lock:
            self._urgent.append(action)
        self._start()

    def run_due(self, *, everything: bool = False) -> None:
        """Gives the thread what has waited long enough, or all of it."""
        now = self._clock.monotonic()
        waiting = self._waiting
        due = []
        while waiting and (everything or waiting[0][0] <= now):
            due.append(heapq.heappop(waiting)[2])
        if due:
            with self._lock:
                self._ready.extend(due)
            self._start()

    def next_due_ms(self, most_ms: int) -> int:
        """In how many milliseconds `run_due` has something to do, as far as is known now; at most `most_ms`."""
        if not self._waiting:
            return most_ms
        left_ms = math.ceil((self._waiting[0][0] - self._clock.monotonic()) * 1000)
        return min(max(left_ms, 1), most_ms)

    def stop(self) -> None:
        """Leaves what is not under way to the next start, which removes it."""
        with self._lock:
            self._ready.clear()

    def _start(self) -> None:
        with self._lock:
            if self._working:
                return
            self._working = True
        self._executor.submit(self._work)

    def _work(self) -> None:
        while (action := self._next()) is not None:
            try:
                action()
            except OSError as error:
                logger.warning("A deletion failed: %s", error)
                self._failures.report(str(error.filename), "deleting files", error)
            except Exception:
                logger.exception("A deletion failed")

    def _next(self) -> Action | None:
        with self._lock:
            for queue in (self._urgent, self._ready):
                if queue:
                    return queue.popleft()
            self._working = False
            return None
