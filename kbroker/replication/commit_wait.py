"""The one way to wait until an append is committed or refused, or until the time for that is over.

    wait = CommitWait()
    partition.wait(last_offset, True, wait.expect(note))   # for each thing that is waited for
    return wait.answer_within(timeout_ms, respond)         # as the answer of a handler,
    await wait.within(timeout_ms)                          # in a coroutine,
    wait.then(over, timeout_ms, loop.call_later)           # or with a call at the end

States: made -> complete (one of the three was called) -> over.  Each expectation is settled once: by the partition that
it waits for, with None or the KafkaError that says why not, or at the deadline, with RequestTimedOutError.  After a
time-out the records are still in the log, and may be committed later.  Later results are ignored.  `error` is the first
error of all expectations.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from kbroker._fast.net.pending import Pending
from kbroker.errors import RequestTimedOutError

if TYPE_CHECKING:
    from kbroker._fast.wire.codec import Struct
    from kbroker.errors import KafkaError
    from kbroker.waiting import CallLater

Settled = Callable[["KafkaError | None"], object]


class WaitTally:
    """How many requests of one kind wait now, and for how many partitions."""

    __slots__ = ("requests", "watched")

    def __init__(self) -> None:
        self.requests = 0
        self.watched = 0


class CommitWait(Pending):
    """See the module.  Used on one loop.  `tally`: where it is counted while it waits, if anywhere."""

    __slots__ = ("_count", "_counted", "_left", "_limit", "_over", "_tally", "_timeout_ms", "error")

    def __init__(self, tally: WaitTally | None = None) -> None:
        self._tally = tally
        self._counted = 0
        self.error: KafkaError | None = None
        self._limit: asyncio.TimerHandle | None = None
        self._left: dict[int, Settled | None] = {}
        self._count = 0
        self._over: Callable[[], object] | None = None

    def expect(self, settled: Settled | None = None) -> Callable[..., None]:
        """A new expectation, as a callback that is to be called once, with its result; `settled` is called with the
        same result."""
        self._count += 1
        self._left[self._count] = settled
        return partial(self._settle, self._count)

    def answer_within(self, timeout_ms: int, respond: Callable[[], Struct]) -> CommitWait:
        """This, as a handler's answer: what `respond` makes of it when it is over."""
        self._timeout_ms = max(0, timeout_ms)
        self.then(lambda: self.answer(respond()))
        return self

    async def within(self, timeout_ms: int | None) -> None:
        """Return when it is over.  None: every expectation has a deadline of its own."""
        if not self._left:
            return
        loop = asyncio.get_running_loop()
        over: asyncio.Future[None] = loop.create_future()
        self.then(partial(over.set_result, None), timeout_ms, loop.call_later)
        try:
            await over
        finally:
            self.lost()

    def then(
        self, over: Callable[[], object], timeout_ms: int | None = None, call_later: CallLater | None = None
    ) -> None:
        """Call `over` when it is over: before this returns, where nothing is left to wait for."""
        if not self._left:
            over()
            return
        assert self._over is None, "the end of a wait is asked for twice"
        self._over = over
        if self._tally is not None:
            self._counted = len(self._left)
            self._tally.requests += 1
            self._tally.watched += self._counted
        if timeout_ms is not None and call_later is not None:
            self._limit = call_later(max(0, timeout_ms) / 1000, self.expired)

    def started(self) -> None:
        self.expire_after(self.ctx.services.loop, self._timeout_ms)

    def expired(self) -> None:
        left, self._left = self._left, {}
        error = RequestTimedOutError()
        self.error = self.error or error
        for settled in left.values():
            if settled is not None:
                settled(error)
        self._end_wait()

    def lost(self) -> None:
        if self._tally is not None and self._counted:
            self._tally.requests -= 1
            self._tally.watched -= self._counted
            self._counted = 0
        self._left = {}
        self._over = None
        if self._limit is not None:
            self._limit.cancel()

    def _settle(self, number: int, error: KafkaError | None = None) -> None:
        if number not in self._left:
            return
        settled = self._left.pop(number)
        if self._tally is not None and self._counted > 1:
            self._tally.watched -= 1
            self._counted -= 1
        self.error = self.error or error
        if settled is not None:
            settled(error)
        if not self._left:
            self._end_wait()

    def _end_wait(self) -> None:
        over = self._over
        self.lost()
        if over is not None:
            over()
