"""Fetches that wait for data (`fetch.min.bytes`, `fetch.max.wait.ms`): the one way to wait for records.

States: waiting → done.  A `DelayedFetch` leaves when enough bytes have come (`is_enough`), when its time is up, when a
partition that it names errs or goes, or when its connection is gone.  Moving a high watermark only marks the partition,
and making records of a share-partition available only marks the share-partition.  The fetches that wait there are
looked at once per turn of the loop, however many appends that turn brought.

A read may be late (`LateRead`: its records are in remote storage): the fetch waits there, too, for as long as it says.

A fetch whose attempts need threads, or more than a slice of the loop's time, is read by a coroutine, which waits in the
same purgatory between its attempts (`FetchWait`).

Invariant: a waiting fetch stands in `waiting` of each of its sources, a done one in none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

from kbroker._fast.base.build_facts import CHECKED
from kbroker._fast.base.ready_queue import ReadyQueue
from kbroker._fast.log.fetch_target import enter, leave
from kbroker._fast.log.log_fields import LateRead, PurgatoryFields, RecordSource
from kbroker._fast.net.pending import DelayedFetch
from kbroker.clock import until_beat
from kbroker.replication.commit_wait import WaitTally

if TYPE_CHECKING:
    from kbroker._fast.net.pending import Request

# More waiting fetches, or one of more partitions, would keep a producer waiting for its answer.
FEW = 5
MANY = 100
# The shortest time between two attempts of a fetch that rests, and the least multiple of an attempt's own time.
LEAST_REST_SECONDS = 0.02
RESTS_PER_LOOK = 4


class FetchPurgatory(PurgatoryFields):
    """The waiting fetches of a broker; `produces`, `deletions`: how many requests of those kinds wait besides.

    `due`: a few are looked at in this turn of the loop, or at once after it; few enough for a producer's answer to wait
    for them.
    """

    __slots__ = ("_loop", "_marked", "_waiting", "deletions", "produces")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.ready = ReadyQueue(loop)
        self._marked: dict[RecordSource, None] = {}
        self._waiting: dict[DelayedFetch, None] = {}
        self.produces = WaitTally()
        self.deletions = WaitTally()

    @property
    def delayed(self) -> list[DelayedFetch]:
        """The fetches that wait now."""
        return list(self._waiting)

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, fetch: DelayedFetch) -> None:
        """Keep a fetch until it is answered, `fetch.wait_ms` have passed (see `on_beat`) or its client is gone."""
        enter(fetch, fetch.sources)
        self._waiting[fetch] = None
        wait_ms: float = fetch.wait_ms
        if fetch.on_beat:
            wait_ms = until_beat(self._loop.time(), wait_ms / 1000) * 1000
        fetch.expire_after(self._loop, wait_ms)
        if CHECKED:
            self.check_invariants()

    def check_invariants(self) -> None:
        """Raises AssertionError unless a fetch waits at each partition that it names, or is done."""
        for fetch in self._waiting:
            assert all(fetch in source.waiting for source in fetch.sources), fetch
        for source in self._marked:
            assert all(fetch in self._waiting or fetch.done for fetch in source.waiting), source

    def mark(self, source: RecordSource) -> None:
        """Data came to `source`: look at its waiting fetches in this turn of the loop, or at once after it."""
        if not self._marked:
            self._loop.call_soon(self.ready.turn, self._look)
            self.due = True
        self._marked[source] = None
        waiting = source.waiting
        if len(waiting) + len(self._marked) > FEW or any(len(fetch.sources) > MANY for fetch in waiting):
            self.due = False

    def meet(self, late: LateRead) -> None:
        """What was read late is there, or never will be: read its waiting fetches again."""
        late.is_met = True
        self.mark(late)

    def expire_partition(self, partition: RecordSource) -> None:
        """The partition is not served any more: its waiting fetches answer now."""
        for fetch in list(partition.waiting):
            if isinstance(fetch, FetchWait):
                fetch.ended(partition)
            self.expire(fetch)
            assert fetch not in partition.waiting, f"{fetch} waits on for what is not served any more"

    def forget(self, fetch: DelayedFetch) -> None:
        """The fetch waits no more: it was answered, or its connection has ended."""
        if self._waiting.pop(fetch, self) is None:
            leave(fetch, fetch.sources)

    def expire_all(self) -> None:
        """Let every waiting fetch answer now, with what there is: the broker is about to stop."""
        for fetch in list(self._waiting):
            self.expire(fetch)

    def expire(self, fetch: DelayedFetch) -> None:
        """Let a fetch answer now, with what there is."""
        self.forget(fetch)
        if not fetch.done:
            self._attempt(fetch, force=True)

    def time_is_up(self, fetch: DelayedFetch) -> None:
        """Let a fetch answer now that it has waited for so long as it may."""
        self.forget(fetch)
        if not fetch.done:
            self._attempt(fetch, force=True, is_unmarked=not self._marked)

    def _look(self) -> None:
        self.due = False
        marked, self._marked = self._marked, {}
        for source in marked:
            for fetch in list(source.waiting):
                if not fetch.done:
                    self._attempt(fetch, force=False)
                if fetch.done:
                    self.forget(fetch)

    def _attempt(self, fetch: DelayedFetch, *, force: bool, is_unmarked: bool = False) -> None:
        """A failure of one fetch does not affect the others."""
        try:
            if is_unmarked:
                fetch.attempt_unmarked()
            else:
                fetch.attempt(force)
        except Exception as error:
            fetch.fail(error)


class FetchWait(DelayedFetch):
    """The wait of a fetch that a coroutine reads.

        await FetchWait(purgatory, sources, wait_ms, ended).until(ctx, attempt)

    The wait begins before the first attempt, so that data that comes during an attempt is not missed.  `ended(source)`
    is called at the moment at which a source is not served any more: the attempt that follows comes in a later turn,
    when the source may be served again.  `rests`: an attempt takes so long that it is not repeated for each batch that
    comes.
    """

    __slots__ = ("_force", "_is_news", "_is_resting", "_late", "_purgatory", "_rests", "_turn", "ended")

    def __init__(
        self,
        purgatory: FetchPurgatory,
        sources: tuple[RecordSource, ...],
        wait_ms: int,
        ended: Callable[[RecordSource], None],
        *,
        rests: bool = False,
    ) -> None:
        super().__init__(purgatory, sources, wait_ms)
        self.ended = ended
        self._purgatory = purgatory
        self._rests = rests
        self._force = wait_ms <= 0 or not sources
        self._late: set[LateRead] = set()
        self._is_news = self._is_resting = False
        self._turn: asyncio.Future[None] | None = None

    async def until(self, ctx: Request, attempt: Callable[[bool], Awaitable[bool]]) -> None:
        """Have `attempt(force)` read the fetch until it says that this was enough, or the client is gone."""
        loop = asyncio.get_running_loop()
        if not self._force:
            self._purgatory.add(self)
        try:
            while True:
                self._is_news = False
                began = loop.time()
                if await attempt(self._force or not ctx.open):
                    return
                took = loop.time() - began
                await self._next(ctx, loop, max(LEAST_REST_SECONDS, RESTS_PER_LOOK * took) if self._rests else 0.0)
                if not ctx.open:
                    return
        finally:
            self.lose()

    def watch(self, reads: Iterable[LateRead], force: bool) -> bool:
        """The attempt under way has met these: wait there, too, and for their time from the first on.

        Whether the fetch is answered with what there is: `force`, but for one that had no time of its own."""
        fresh = {read for read in reads if read not in self._late}
        if not fresh or self.done or (force and self.wait_ms > 0):
            return force
        if not self._late:
            if self.wait_ms <= 0:
                self._force = force = False
            self._purgatory.forget(self)
            self.wait_ms = max(read.wait_ms for read in fresh)
            self._purgatory.add(self)
        self._late |= fresh
        self.wait_at((*self.sources, *fresh))
        self._is_news = self._is_news or any(read.is_met for read in fresh)
        return force

    def attempt(self, force: bool) -> bool:
        """The coroutine makes it, and answers."""
        self._is_news = True
        self._force = self._force or force
        self._wake()
        return False

    async def _next(self, ctx: Request, loop: asyncio.AbstractEventLoop, rest_seconds: float) -> None:
        """Wait until it is time for another attempt."""
        self._turn = loop.create_future()
        self._is_resting = rest_seconds > 0
        rest = loop.call_later(rest_seconds, self._rested) if self._is_resting else None
        self._force = self._force or not ctx.open
        self._wake()
        ctx.left = self._leave
        try:
            await self._turn
        finally:
            ctx.left = self._turn = None
            if rest is not None:
                rest.cancel()

    def _rested(self) -> None:
        self._is_resting = False
        self._wake()

    def _leave(self) -> None:
        self._force = True
        self._wake()

    def _wake(self) -> None:
        is_due = self._force or (self._is_news and not self._is_resting)
        if is_due and self._turn is not None and not self._turn.done():
            self._turn.set_result(None)
