"""Flushes by time: `flush.ms` of each topic, and with `kbroker.fsync=interval` every log at each of its intervals.

As in Kafka, a log is due when it has unflushed records and its limit has passed since its last flush by time began.
The next look comes when the first limit is over, so that no record waits longer than its limit.  Kafka looks only every
`log.flush.scheduler.interval.ms`, which by default is never.  An empty round costs one look at each log: rounds are at
least MIN_LOOK_MS apart.

A flush runs on the executor, one at a time for each log; the recovery point follows when it is seen done.  Looking at
many logs gives the loop back every few milliseconds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping

from kbroker._fast.base.slices import Slices
from kbroker.clock import Clock
from kbroker.config import BrokerConfig
from kbroker.errors import KafkaError
from kbroker.outage import Outages
from kbroker.periodic import PeriodicTask
from kbroker.storage.log.group_commit import FsyncMode
from kbroker.storage.log.unified_log import UnifiedLog
from kbroker.types import TopicPartition

logger = logging.getLogger("kbroker.storage")

NO_LIMIT = 1 << 62
LONG_AGO = -1e18
MIN_LOOK_MS = 10
MAX_LOOK_MS = 10_000


def _nothing() -> None:
    """Without a timer there is none to shorten."""


class LogFlusher:
    """The periodic task.  `hasten` is called when the next look is due sooner than it was."""

    TASK = "flush logs"

    __slots__ = (
        "_clock",
        "_every_ms",
        "_flushed",
        "_logs",
        "_look_ms",
        "_next_due",
        "_outages",
        "_shortest_ms",
        "_slices",
        "hasten",
    )

    def __init__(
        self, logs: Mapping[TopicPartition, UnifiedLog], clock: Clock, config: BrokerConfig, slices: Slices
    ) -> None:
        self._slices = slices
        self._logs = logs
        self._clock = clock
        # The upper bound of every log's own `flush.ms`.
        by_interval = FsyncMode(config.get("kbroker.fsync")) is FsyncMode.INTERVAL
        self._every_ms: int = config.get("kbroker.fsync.interval.ms") if by_interval else NO_LIMIT
        self._look_ms: int = min(config.get("log.flush.scheduler.interval.ms"), MAX_LOOK_MS)
        self._shortest_ms = self._every_ms
        self._next_due = float(NO_LIMIT)
        # When the last flush by time began.
        self._flushed: dict[TopicPartition, float] = {}
        self.hasten: Callable[[], None] = _nothing
        self._outages = Outages(logger, logging.ERROR, clock.monotonic)

    def task(self, initial_delay_ms: int) -> PeriodicTask:
        """The periodic task; with `kbroker.fsync=interval` the first flush does not wait for the initial delay."""
        delay_ms = initial_delay_ms if self._every_ms == NO_LIMIT else self._every_ms
        return PeriodicTask(self.TASK, self.next_look_ms, self.run, delay_ms)

    def expect(self, flush_ms: int) -> None:
        """A log has this `flush.ms` from now on."""
        if flush_ms < self._shortest_ms:
            self._shortest_ms = flush_ms
            self.hasten()

    def next_look_ms(self) -> int:
        """How long from now until the next look."""
        due_ms = int((self._next_due - self._clock.monotonic()) * 1000) + 1
        return max(MIN_LOOK_MS, min(self._look_ms, self._shortest_ms, due_ms))

    async def run(self) -> None:
        """Looks at every log, giving the loop back in between."""
        pace = self._slices.pace()
        for _ in self._look_at_all():
            await pace

    def run_now(self) -> None:
        """The same in one go."""
        for _ in self._look_at_all():
            pass

    def _look_at_all(self) -> Iterator[None]:
        self._shortest_ms, self._next_due = self._every_ms, float(NO_LIMIT)
        now = self._clock.monotonic()
        for tp, log in list(self._logs.items()):
            try:
                self._look_at(tp, log, now)
            except KafkaError as error:
                self._outages.failed(tp, "Flushing %s could not be started, trying again later: %s", tp, error)
            yield
        for tp in self._flushed.keys() - self._logs.keys():
            del self._flushed[tp]
        self._outages.keep(self._logs.keys())

    def _look_at(self, tp: TopicPartition, log: UnifiedLog, now: float) -> None:
        local = log.local
        if local.is_flushing:
            local.collect_flushes()
        limit_ms = min(log.config.flush_ms, self._every_ms)
        self._shortest_ms = min(self._shortest_ms, limit_ms)
        # After a failed fsync the recovery point stays until a restart, because a later fsync may succeed without the
        # lost pages.
        if limit_ms >= NO_LIMIT or local.log_end_offset <= local.recovery_point or local.flush_failed:
            return
        due = self._flushed.get(tp, LONG_AGO) + limit_ms / 1000
        if now < due or local.is_flushing:
            self._next_due = min(self._next_due, due)
        elif tp in self._logs:
            self._flushed[tp] = now
            log.flush_later()
            self._outages.over(tp, "Flushing %s is started again", tp)
