"""An answer that a coroutine works out: for handlers that wait for threads or for other parts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

from kbroker._fast.net.pending import Pending


class CoroutineAnswer(Pending):
    """Runs `coroutine` when the request is known, and answers with its result; None: it has closed the connection.

    A coroutine goes on when its client leaves: what was begun is finished.  A coroutine that waits on behalf of its
    client alone sets a callback for the client's leaving (`ctx.left`).  `started_task` gets the task, so that a stop of
    the broker can cancel it; a cancelled one closes its connection.
    """

    def __init__(
        self,
        coroutine: Coroutine[object, None, object],
        loop: asyncio.AbstractEventLoop,
        started_task: Callable[[asyncio.Task[object]], object] = lambda task: None,
    ) -> None:
        self._coroutine = coroutine
        self._loop = loop
        self._started_task = started_task

    def started(self) -> None:
        task = self._loop.create_task(self._coroutine)
        self._started_task(task)
        task.add_done_callback(self._finish)

    def lost(self) -> None:
        if self.ctx.left is not None:
            self.ctx.left()

    def _finish(self, task: asyncio.Task[object]) -> None:
        if task.cancelled():
            self.ctx.connection.close("shutting down")
            return
        error = task.exception()
        if error is not None:
            self.fail(error)
            return
        result = task.result()
        if isinstance(result, Pending):
            self.give_way(result)
        elif result is not None:
            self.answer(result)
        else:
            # It has answered, or closed the connection: neither the request nor this must keep the other.
            self.lose()
