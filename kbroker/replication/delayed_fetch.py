"""Fetches that wait for data (`fetch.min.bytes`, `fetch.max.wait.ms`).

States: waiting → done.  A `DelayedFetch` leaves when enough bytes have come, when its time is up, when a partition that
it names errs or goes, or when its connection is gone.  What moves a high watermark only marks the partition; the
fetches that wait for it are looked at once per turn of the loop, however many appends that turn brought.

Invariant: a waiting fetch stands in `Partition.waiting` of each partition that it names, a done one in none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker._fast.base.ready_queue import ReadyQueue
from kbroker._fast.log.fetch_target import enter, leave
from kbroker._fast.log.log_fields import PartitionFields, PurgatoryFields
from kbroker._fast.net.pending import DelayedFetch

if TYPE_CHECKING:
    import asyncio

# More waiting fetches, or one of more partitions, would keep a producer waiting for its answer.
FEW = 5
MANY = 100


class FetchPurgatory(PurgatoryFields):
    """The waiting fetches of a broker.

    `due`: a few are looked at in this turn of the loop, or at once after it; few enough for a producer's answer to wait
    for them.
    """

    __slots__ = ("_loop", "_marked", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.ready = ReadyQueue(loop)
        self._marked: dict[PartitionFields, None] = {}
        self._waiting: dict[DelayedFetch, None] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, fetch: DelayedFetch) -> None:
        """Keep a fetch until it is answered, `fetch.wait_ms` have passed or its client is gone."""
        enter(fetch, fetch.partitions)
        self._waiting[fetch] = None
        fetch.expire_after(self._loop, fetch.wait_ms)

    def mark(self, partition: PartitionFields) -> None:
        """Data came to `partition`: look at its waiting fetches in this turn of the loop, or at once after it."""
        if not self._marked:
            self._loop.call_soon(self.ready.turn, self._look)
            self.due = True
        self._marked[partition] = None
        waiting = partition.waiting
        if len(waiting) + len(self._marked) > FEW or any(len(fetch.partitions) > MANY for fetch in waiting):
            self.due = False

    def expire_partition(self, partition: PartitionFields) -> None:
        """The partition is going away: its waiting fetches answer now."""
        for fetch in list(partition.waiting):
            self.expire(fetch)

    def forget(self, fetch: DelayedFetch) -> None:
        """The fetch waits no more: it was answered, or its connection has ended."""
        if self._waiting.pop(fetch, self) is None:
            leave(fetch, fetch.partitions)

    def expire_all(self) -> None:
        """Let every waiting fetch answer now, with what there is: the broker is about to stop."""
        for fetch in list(self._waiting):
            self.expire(fetch)

    def expire(self, fetch: DelayedFetch) -> None:
        """Let a fetch answer now, with what there is."""
        self.forget(fetch)
        if not fetch.done:
            self._attempt(fetch, force=True)

    def _look(self) -> None:
        self.due = False
        marked, self._marked = self._marked, {}
        for partition in marked:
            for fetch in list(partition.waiting):
                if not fetch.done:
                    self._attempt(fetch, force=False)
                if fetch.done:
                    self.forget(fetch)

    def _attempt(self, fetch: DelayedFetch, *, force: bool) -> None:
        """A fault at one fetch is not that of the others."""
        try:
            fetch.attempt(force)
        except Exception as error:
            fetch.fail(error)
