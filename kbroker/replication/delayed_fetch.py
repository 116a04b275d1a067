"""Fetches that wait for data (`fetch.min.bytes`, `fetch.max.wait.ms`).

States: waiting → done.  A delayed fetch leaves when enough bytes have come, when its time is up, when a partition that
it names errs or goes, or when its connection is gone.  An append only marks the partition; the fetches that wait for
it are looked at once per turn of the loop, however many appends that turn brought.

Invariant: a waiting fetch stands in `Partition.waiting` of each partition that it names, a done one in none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from kbroker._fast.fetch_target import enter, leave
from kbroker._fast.log_fields import PurgatoryFields

if TYPE_CHECKING:
    import asyncio

    from kbroker.replication.partition import Partition


# More waiting fetches, or one of more partitions, would keep a producer waiting for its answer.
FEW = 5
MANY = 100


class Asker(Protocol):
    """The request that waits, as far as waiting needs it (`_fast.request_context`)."""

    abandoned: Callable[[], object] | None

    @property
    def open(self) -> bool:
        """Whether an answer would still reach the client."""

    def fail(self, error: Exception) -> None:
        """End the connection of a request that cannot be answered."""


class DelayedFetch:
    """One waiting fetch, of `ctx`.

    `attempt(force)` reads again and answers when there is enough, or in any case when `force`; it says whether it did.
    """

    __slots__ = ("ctx", "attempt", "partitions", "timer", "done")

    def __init__(self, ctx: Asker, attempt: Callable[[bool], bool], partitions: tuple[Partition, ...]) -> None:
        self.ctx = ctx
        self.attempt = attempt
        self.partitions = partitions
        self.timer: asyncio.TimerHandle | None = None
        self.done = False


class FetchPurgatory(PurgatoryFields):
    """The waiting fetches of a broker.

    `due`: a few are looked at in this turn of the loop, or at once after it; few enough for a producer's answer to wait
    for them.
    """

    __slots__ = ("_loop", "_marked", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._marked: dict[Partition, None] = {}
        self._waiting: dict[DelayedFetch, None] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def wait(self, ctx: Asker, attempt: Callable[[bool], bool], partitions: Iterable[Partition], wait_ms: int) -> None:
        """Keep a fetch until `attempt` succeeds, `wait_ms` have passed or its client is gone."""
        fetch = DelayedFetch(ctx, attempt, tuple(partitions))
        enter(fetch, fetch.partitions)
        fetch.timer = self._loop.call_later(wait_ms / 1000, self._expire, fetch)
        self._waiting[fetch] = None
        ctx.abandoned = partial(self.forget, fetch)

    def mark(self, partition: Partition) -> None:
        """Data came to `partition`: look at its waiting fetches in this turn of the loop, or at once after it."""
        if not self._marked:
            self._loop.call_soon(self._look)
            self.due = True
        self._marked[partition] = None
        waiting = partition.waiting
        if len(waiting) + len(self._marked) > FEW or any(len(fetch.partitions) > MANY for fetch in waiting):
            self.due = False

    def expire_partition(self, partition: Partition) -> None:
        """The partition is going away: its waiting fetches answer now."""
        for fetch in list(partition.waiting):
            self._expire(fetch)

    def forget(self, fetch: DelayedFetch) -> None:
        """Nobody waits for this fetch any more: its connection has ended."""
        if not fetch.done:
            self._finish(fetch)

    def expire_all(self) -> None:
        """Let every waiting fetch answer now, with what there is: the broker is about to stop."""
        for fetch in list(self._waiting):
            self._expire(fetch)

    def _look(self) -> None:
        self.due = False
        marked, self._marked = self._marked, {}
        for partition in marked:
            for fetch in list(partition.waiting):
                if not fetch.done and self._attempt(fetch, force=False):
                    # The answer lets the connection go on: its next request may have ended this fetch already.
                    self.forget(fetch)

    def _expire(self, fetch: DelayedFetch) -> None:
        if not fetch.done:
            self._finish(fetch)
            self._attempt(fetch, force=True)

    def _attempt(self, fetch: DelayedFetch, *, force: bool) -> bool:
        """Whether nobody has to look at it any more.  A fault at one fetch is not that of the others."""
        if not fetch.ctx.open:
            return True
        try:
            return fetch.attempt(force)
        except Exception as error:
            fetch.ctx.fail(error)
            return True

    def _finish(self, fetch: DelayedFetch) -> None:
        fetch.done = True
        del self._waiting[fetch]
        if fetch.timer is not None:
            fetch.timer.cancel()
        leave(fetch, fetch.partitions)
