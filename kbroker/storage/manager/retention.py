"""Retention: which old segments of a log go, and taking them away.

`decide` is a pure function over a snapshot of the segments.  For `cleanup.policy` with `delete` three rules are
applied, each to what the one before it left, each oldest first and up to the first segment that it keeps:

    log start   the segment lies wholly below the first offset on this disk (also without `delete`)
    size        the log without it still holds `retention.bytes`
    time        its largest timestamp (the file's age when its records have none) is over `retention.ms` ago

Two guards hold for all of them: nothing at or above the high watermark goes, and the log never becomes empty of
segments: when the active one goes too, a fresh one is rolled first, and an empty active one stays.

The log start offset moves before a segment leaves.  A record from the future keeps its segment, and with it all
later ones: that is reported, at most once an hour for a partition.

`Retention.run` looks at every log in slices, so that the loop is never held for long.  For each log it remembers until
when time keeps the oldest segment, because each run looks at up to 10,000 partitions of which few have changed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple

from kbroker._fast.base.slices import Slices
from kbroker.clock import Clock
from kbroker.config import LogConfig
from kbroker.errors import KafkaError
from kbroker.outage import Outages
from kbroker.storage.log.time_search import latest_time
from kbroker.storage.log.unified_log import UnifiedLog
from kbroker.types import Offset, TopicPartition

logger = logging.getLogger("kbroker.retention")

MOST_AT_ONCE = 40
FUTURE_REPORT_MS = 3_600_000
NOT_REPORTED = -1 << 63


class Reason(Enum):
    """Why a segment goes."""

    LOG_START = "it lies below the log start offset"
    SIZE = "retention.bytes is exceeded"
    TIME = "retention.ms has passed"


class SegmentFacts(NamedTuple):
    """One segment as retention sees it.  `largest_timestamp` is None where no rule will ask for it."""

    base_offset: Offset
    size: int
    largest_timestamp: int | None


class LogFacts(NamedTuple):
    """A log at one moment; the last segment is the active one, unless `later_bytes` lie in segments after these."""

    segments: tuple[SegmentFacts, ...]
    local_log_start_offset: Offset
    high_watermark: Offset
    log_end_offset: Offset
    later_bytes: int = 0


class Decision(NamedTuple):
    """How many of the oldest segments go, for each its reason, and what was noticed on the way.

    `new_start` is the offset after the last of them.  `future` is the segment that a record from the future keeps.
    """

    reasons: tuple[Reason, ...]
    new_start: Offset
    roll_first: bool
    future: SegmentFacts | None

    @property
    def segment_count(self) -> int:
        """How many segments go."""
        return len(self.reasons)


def decide(facts: LogFacts, config: LogConfig, now_ms: int) -> Decision:
    """What goes now."""
    segments = facts.segments
    reasons: list[Reason] = []
    _below_log_start(facts, reasons)
    future = None
    if config.delete:
        _beyond_size(facts, config.retention_bytes, reasons)
        future = _beyond_time(facts, config.retention_ms, now_ms, reasons)
    gone = len(reasons)
    new_start = segments[gone].base_offset if gone < len(segments) else facts.log_end_offset
    return Decision(tuple(reasons), new_start, gone == len(segments), future)


def _may_go(facts: LogFacts, at: int) -> bool:
    """The guards: below the high watermark as a whole, and not an empty active segment."""
    segments = facts.segments
    if at + 1 < len(segments):
        return segments[at + 1].base_offset <= facts.high_watermark
    return segments[at].size > 0 and facts.log_end_offset <= facts.high_watermark


def _below_log_start(facts: LogFacts, reasons: list[Reason]) -> None:
    segments = facts.segments
    for at in range(len(reasons), len(segments) - 1):
        if not _may_go(facts, at) or segments[at + 1].base_offset > facts.local_log_start_offset:
            return
        reasons.append(Reason.LOG_START)


def _beyond_size(facts: LogFacts, retention_bytes: int, reasons: list[Reason]) -> None:
    if retention_bytes < 0:
        return
    segments = facts.segments
    excess = sum(segment.size for segment in segments[len(reasons) :]) + facts.later_bytes - retention_bytes
    for at in range(len(reasons), len(segments)):
        if excess < segments[at].size or not _may_go(facts, at):
            return
        excess -= segments[at].size
        reasons.append(Reason.SIZE)


def _beyond_time(facts: LogFacts, retention_ms: int, now_ms: int, reasons: list[Reason]) -> SegmentFacts | None:
    """Returns the segment that a timestamp after now keeps."""
    if retention_ms < 0:
        return None
    segments = facts.segments
    for at in range(len(reasons), len(segments)):
        segment = segments[at]
        timestamp = segment.largest_timestamp
        if not _may_go(facts, at) or timestamp is None:
            return None
        if now_ms - timestamp <= retention_ms:
            return segment if timestamp > now_ms else None
        reasons.append(Reason.TIME)
    return None


def look_at(log: UnifiedLog, now_ms: int, most: int | None = None, wanted: LogConfig | None = None) -> LogFacts:
    """A snapshot for `decide`, by the log's settings or those that are `wanted` instead.  Timestamps are looked up,
    oldest first, up to the first segment that time keeps.

    `most` limits the snapshot to that many segments and the next non-empty one, which is enough for a `portion` of a
    decision: a log with thousands of segments is looked at many times while it is shortened.
    """
    config = log.config if wanted is None else wanted
    asking = config.delete and config.retention_ms >= 0
    facts = []
    segments = log.local.segments
    for segment in segments:
        timestamp = segment.largest_timestamp() if asking and segment.size else None
        if timestamp is not None and now_ms - timestamp > config.retention_ms:
            # A damaged time index, or one without its last entry, would make retention delete young records.
            latest_time(segment, log.local.environment.files)
            timestamp = segment.largest_timestamp()
        facts.append(SegmentFacts(segment.base_offset, segment.size, timestamp))
        if timestamp is None or now_ms - timestamp <= config.retention_ms:
            # An empty segment in the middle, which compaction may leave, has no timestamp: the next segment's counts.
            asking = asking and segment.size == 0
        if most is not None and len(facts) > most and segment.size:
            break
    later = log.size_bytes - sum(each.size for each in facts) if len(facts) < len(segments) else 0
    return LogFacts(_with_ages(facts), log.local_log_start_offset, log.high_watermark, log.log_end_offset, later)


def _with_ages(facts: Sequence[SegmentFacts]) -> tuple[SegmentFacts, ...]:
    """Gives empty segments the timestamp of the next one that has one."""
    aged: list[SegmentFacts] = []
    following: int | None = None
    for segment in reversed(facts):
        if segment.size == 0:
            aged.append(segment._replace(largest_timestamp=following))
        else:
            following = segment.largest_timestamp
            aged.append(segment)
    return tuple(reversed(aged))


def portion(facts: LogFacts, decision: Decision, most: int) -> Decision:
    """The first `most` segments of a decision."""
    if decision.segment_count <= most:
        return decision
    return Decision(decision.reasons[:most], facts.segments[most].base_offset, False, decision.future)


def carry_out(log: UnifiedLog, decision: Decision) -> int:
    """Takes the segments away, the log start offset first.  Returns how many bytes they held."""
    gone = list(log.local.segments)[: decision.segment_count]
    freed = sum(segment.size for segment in gone)
    left = log.size_bytes - freed
    if decision.roll_first:
        log.roll()
    log.maybe_increment_log_start_offset(decision.new_start)
    log.delete_segments_below(decision.new_start)
    assert log.size_bytes == left, f"{log} has {log.size_bytes} bytes, {left} were to stay"
    assert decision.new_start <= log.log_start_offset, f"{log}: segments of records that can be read are gone"
    return freed


class Deleted(NamedTuple):
    """Segments, and their bytes, that went for one reason."""

    segments: int = 0
    bytes: int = 0


class RetentionTotals(NamedTuple):
    """What retention has done since the start."""

    by_reason: Mapping[Reason, Deleted] = MappingProxyType(dict.fromkeys(Reason, Deleted()))
    failures: int = 0
    runs: int = 0
    last_run_seconds: float = 0.0


class _Remembered(NamedTuple):
    """Until when `retention.ms` keeps a log's oldest segment; valid while that segment and the settings stay the
    same."""

    base_offset: Offset
    segment_count: int
    config: LogConfig
    until_ms: int


class Retention:
    """The periodic task.

    `busy` tells whether a cleaner works on a partition, which is then skipped until the next run.
    """

    def __init__(
        self,
        logs: Mapping[TopicPartition, UnifiedLog],
        clock: Clock,
        busy: Callable[[TopicPartition], bool] = lambda _: False,
        slices: Slices | None = None,
    ) -> None:
        self._slices = slices or Slices()
        self._logs = logs
        self._clock = clock
        self._busy = busy
        self._remembered: dict[TopicPartition, _Remembered] = {}
        self._reported: dict[TopicPartition, int] = {}
        self._outages = Outages(logger, logging.ERROR, clock.monotonic)
        self.future: set[TopicPartition] = set()
        """Partitions that a record from the future keeps from being shortened."""
        self.totals = RetentionTotals()

    async def run(self) -> None:
        """Looks at every log, giving the loop back in between."""
        started = time.monotonic()
        pace = self._slices.pace()
        for tp in list(self._logs):
            await pace
            log = self._logs.get(tp)
            if log is None:
                continue
            try:
                # Segments are renamed on the loop, so many of them are renamed in portions.
                while self.apply(log) == MOST_AT_ONCE and self._logs.get(tp) is log:
                    await pace
                self._outages.over(tp, "Retention of %s works again", tp)
            except (OSError, KafkaError) as error:
                if isinstance(error, OSError):
                    log.storage_error("retention", error)
                self.totals = self.totals._replace(failures=self.totals.failures + 1)
                text = "Retention of %s failed and is tried again at its next turn: %s"
                self._outages.failed(tp, text, tp, error)
        for tp in self._remembered.keys() - self._logs.keys():
            del self._remembered[tp]
            self._reported.pop(tp, None)
        self._outages.keep(self._logs.keys())
        self.future &= self._logs.keys()
        seconds = time.monotonic() - started
        self.totals = self.totals._replace(runs=self.totals.runs + 1, last_run_seconds=seconds)

    def apply(self, log: UnifiedLog) -> int:
        """Applies retention to one log at once, to at most MOST_AT_ONCE segments; returns how many were deleted."""
        tp = log.topic_partition
        if self._busy(tp):
            return 0
        if self._surely_keeps(log):
            self.future.discard(tp)
            return 0
        now_ms = self._clock.now_ms()
        facts = look_at(log, now_ms, MOST_AT_ONCE)
        decision = portion(facts, decide(facts, log.config, now_ms), MOST_AT_ONCE)
        if decision.future is not None:
            self.future.add(tp)
            self._report_future(tp, decision.future, now_ms)
        else:
            self.future.discard(tp)
        if decision.segment_count:
            freed = carry_out(log, decision)
            self._count(tp, facts, decision, freed)
        else:
            self._remember(log, facts, now_ms)
        return decision.segment_count

    def _surely_keeps(self, log: UnifiedLog) -> bool:
        segments = log.local.segments
        first = segments.first
        config = log.config
        if len(segments) == 1:
            # The active segment can only be deleted by size or time, and only when it is not empty.
            if first.size == 0 or not config.delete:
                return True
        elif log.local_log_start_offset > first.base_offset:
            return False
        if config.delete and 0 <= config.retention_bytes < log.size_bytes:
            return False
        if not config.delete or config.retention_ms < 0:
            return True
        known = self._remembered.get(log.topic_partition)
        return (
            known is not None
            and known.base_offset == first.base_offset
            and known.segment_count == len(segments)
            and known.config is config
            and self._clock.now_ms() < known.until_ms
        )

    def _remember(self, log: UnifiedLog, facts: LogFacts, now_ms: int) -> None:
        config = log.config
        timestamp = facts.segments[0].largest_timestamp
        if timestamp is None or config.retention_ms < 0 or timestamp > now_ms:
            return
        self._remembered[log.topic_partition] = _Remembered(
            facts.segments[0].base_offset, len(facts.segments), config, timestamp + config.retention_ms + 1
        )

    def _report_future(self, tp: TopicPartition, segment: SegmentFacts, now_ms: int) -> None:
        if now_ms < self._reported.get(tp, NOT_REPORTED) + FUTURE_REPORT_MS:
            return
        self._reported[tp] = now_ms
        timestamp = segment.largest_timestamp or 0
        logger.warning(
            "%s: segment %d holds a record dated %d s in the future, so retention.ms keeps it and every later segment "
            "until then; a producer's clock is wrong, or its timestamps are not milliseconds",
            tp,
            segment.base_offset,
            (timestamp - now_ms) // 1000,
        )

    # -- what metrics ask ---------------------------------------------------------------------------------------------

    def overdue_partitions(self, now_ms: int) -> list[TopicPartition]:
        """The partitions whose oldest segment `retention.ms` has passed since it was last looked at."""
        return [tp for tp, known in self._remembered.items() if known.until_ms <= now_ms]

    def overdue_timestamp(self, tp: TopicPartition, now_ms: int) -> int | None:
        """The largest timestamp of a partition's oldest segment, when `retention.ms` has passed it and it is there."""
        log, known = self._logs.get(tp), self._remembered.get(tp)
        if log is None or known is None or now_ms < known.until_ms:
            return None
        if log.config is not known.config or log.local.segments.first.base_offset != known.base_offset:
            return None
        return known.until_ms - 1 - known.config.retention_ms

    def _count(self, tp: TopicPartition, facts: LogFacts, decision: Decision, freed: int) -> None:
        by_reason = dict(self.totals.by_reason)
        for segment, reason in zip(facts.segments, decision.reasons, strict=False):
            deleted = by_reason[reason]
            by_reason[reason] = Deleted(deleted.segments + 1, deleted.bytes + segment.size)
        self.totals = self.totals._replace(by_reason=by_reason)
        for reason in Reason:
            count = decision.reasons.count(reason)
            if count:
                logger.info("%s: deleted %d segments because %s", tp, count, reason.value)
        logger.info("%s: the log starts at offset %d now, %d bytes were freed", tp, decision.new_start, freed)
