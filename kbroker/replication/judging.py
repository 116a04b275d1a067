"""Threads that judge batches: a stop of the broker does not wait for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TypeVar

T = TypeVar("T")


class Judging:
    """Has the loop's threads work, and knows whether any of them does.

    A caller may be cancelled while it waits: its work then never begins, or goes on in the thread to its end.
    """

    def __init__(self) -> None:
        self._begun: set[object] = set()

    @property
    def is_under_way(self) -> bool:
        """Whether a thread works, whether or not its caller still waits."""
        return bool(self._begun)

    async def on_thread(self, work: Callable[[], T]) -> T:
        """What a thread finds."""
        return await asyncio.get_running_loop().run_in_executor(None, partial(self._do, work))

    def _do(self, work: Callable[[], T]) -> T:
        # A future cannot tell: one that is cancelled is done, and the thread is not.
        mark = object()
        self._begun.add(mark)
        try:
            return work()
        finally:
            self._begun.discard(mark)
