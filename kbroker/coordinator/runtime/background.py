"""Long work of a coordinator: runs on a thread, on immutable values, and returns its result to the loop.

`run(work, done)` calls `work()` on a thread and then `done(result, error)` on the loop, one of the two None.  Without a
loop (tests) `work` runs at its turn of the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Protocol, TypeVar

from kbroker.waiting import CallLater

T = TypeVar("T")
Done = Callable[[T | None, Exception | None], None]


class Background(Protocol):
    """See the module's docstring."""

    def run(self, work: Callable[[], T], done: Done[T]) -> None:
        """Run `work` elsewhere, then `done` on the loop."""

    def close(self) -> None:
        """Begin nothing any more."""


def _run(work: Callable[[], T], done: Done[T]) -> None:
    try:
        value = work()
    except Exception as error:
        _fail(done, error)
    else:
        done(value, None)


def _fail(done: Done[T], error: Exception) -> None:
    """The error goes to the log, frames and all: none of them keeps it."""
    done(None, error)


class Threads:
    """Threads of the loop's executor kind, started when first needed."""

    def __init__(self, loop: asyncio.AbstractEventLoop, thread_count: int) -> None:
        self._loop = loop
        self._closed = False
        self._executor = ThreadPoolExecutor(thread_count, thread_name_prefix="coordinator")

    def run(self, work: Callable[[], T], done: Done[T]) -> None:
        """See the module's docstring."""
        if not self._closed:
            self._executor.submit(self._work, work, done)

    def _work(self, work: Callable[[], T], done: Done[T]) -> None:
        def tell(value: T | None, error: Exception | None) -> None:
            if not self._closed:
                self._loop.call_soon_threadsafe(done, value, error)

        _run(work, tell)

    def close(self) -> None:
        """Begin nothing any more; what is under way is not waited for."""
        self._closed = True
        self._executor.shutdown(wait=False, cancel_futures=True)


class NextTurn:
    """Runs the work on the loop, in a turn of its own."""

    def __init__(self, call_later: CallLater) -> None:
        self._call_later = call_later

    def run(self, work: Callable[[], T], done: Done[T]) -> None:
        """See the module's docstring."""
        self._call_later(0.0, partial(_run, work, done))

    def close(self) -> None:
        """Nothing to end."""
