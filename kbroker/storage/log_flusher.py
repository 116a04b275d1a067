"""Flushes by time: `flush.ms` of each topic, and with `kbroker.fsync=interval` every log at each of its intervals.

A flush runs on the executor, one at a time for each log; the recovery point follows when it is seen done.  Looking at
many logs gives the loop back every few milliseconds.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator, Mapping

from kbroker.clock import Clock
from kbroker.errors import KafkaError
from kbroker.storage.unified_log import UnifiedLog
from kbroker.types import TopicPartition

logger = logging.getLogger("kbroker.storage")

SLICE_SECONDS = 0.005
NEVER = 1 << 62


class LogFlusher:
    """The periodic task.  `every_time`: flush whatever is dirty with each run, not only what `flush.ms` makes due."""

    __slots__ = ("_clock", "_every_time", "_logs", "_since")

    def __init__(self, logs: Mapping[TopicPartition, UnifiedLog], clock: Clock, *, every_time: bool = False) -> None:
        self._logs = logs
        self._clock = clock
        self._every_time = every_time
        # When the unflushed records of a log were first seen, and its recovery point of that time.
        self._since: dict[TopicPartition, tuple[float, int]] = {}

    async def run(self) -> None:
        """Looks at every log, giving the loop back in between."""
        slice_end = time.monotonic() + SLICE_SECONDS
        for _ in self._look_at_all():
            if time.monotonic() >= slice_end:
                await asyncio.sleep(0)
                slice_end = time.monotonic() + SLICE_SECONDS

    def run_now(self) -> None:
        """The same in one go."""
        for _ in self._look_at_all():
            pass

    def _look_at_all(self) -> Iterator[None]:
        now = self._clock.monotonic()
        for tp, log in list(self._logs.items()):
            try:
                self._look_at(tp, log, now)
            except KafkaError as error:
                logger.error("Flushing %s could not be started, trying again later: %s", tp, error)
            yield
        for tp in self._since.keys() - self._logs.keys():
            del self._since[tp]

    def _look_at(self, tp: TopicPartition, log: UnifiedLog, now: float) -> None:
        local = log.local
        limit_ms = 0 if self._every_time else log.config.flush_ms
        local.collect_flushes()
        point = local.recovery_point
        # After a failed fsync the recovery point stays until a restart: more of them would prove nothing.
        if limit_ms >= NEVER or local.log_end_offset <= point or local.flush_failed:
            self._since.pop(tp, None)
            return
        since, seen = self._since.get(tp, (now, point))
        if seen != point:
            since = now
        self._since[tp] = (since, point)
        if (now - since) * 1000 >= limit_ms and not local.is_flushing and tp in self._logs:
            self._since[tp] = (now, point)
            log.flush_later()
