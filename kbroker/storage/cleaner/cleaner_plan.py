"""What of a log may be compacted, whether that is due, and in which portions: pure functions over snapshots.

    0 … first dirty offset        clean: compacted before (the cleaner checkpoint)
    … first uncleanable offset    cleanable
    … log end                     not cleanable

The first uncleanable offset is the least of: the last stable offset (nothing undecided is compacted), the active
segment's base, and the base of the first segment with a record younger than `min.compaction.lag.ms`; rounded down to
a segment, because segments are replaced whole.

A log is due when its cleanable part is a larger share of clean and cleanable bytes than `min.cleanable.dirty.ratio`, or
when the oldest dirty record is older than `max.compaction.lag.ms`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kbroker._fast.log.batch_rules import MAX_RELATIVE_OFFSET
from kbroker.config import LogConfig
from kbroker.storage.log.txn_index import AbortedTransaction
from kbroker.types import Offset, TopicPartition

NO_LAG_LIMIT = (1 << 63) - 1


class CleanableSegment(NamedTuple):
    """A segment as planning sees it."""

    base_offset: Offset
    size: int


class LogShape(NamedTuple):
    """A log at one moment; the last segment is the active one.

    `largest_timestamp` and `first_timestamp` look up a segment's by its place; they are asked for few of them.
    """

    segments: Sequence[CleanableSegment]
    local_log_start_offset: Offset
    last_stable_offset: Offset
    log_end_offset: Offset
    largest_timestamp: Callable[[int], int]
    first_timestamp: Callable[[int], int]


class CleanableRange(NamedTuple):
    """The offsets that a clean would go over.  `healed` says why the checkpoint was not believed."""

    first_dirty_offset: Offset
    first_uncleanable_offset: Offset
    bound: str
    healed: str | None = None


class Candidate(NamedTuple):
    """How dirty a log is."""

    offsets: CleanableRange
    clean_bytes: int
    cleanable_bytes: int
    overdue_ms: int
    oldest_dirty_timestamp: int

    @property
    def dirty_ratio(self) -> float:
        """Dirty bytes among those that a cleaning reads, 0 to 1."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    def is_due(self, config: LogConfig) -> bool:
        """Whether the log's settings ask for a cleaning now."""
        return self.cleanable_bytes > 0 and (self.overdue_ms > 0 or self.dirty_ratio > config.min_cleanable_dirty_ratio)


ACTIVE_BOUND = "the active segment is not compacted"
STABLE_BOUND = "a transaction is open, or records wait to be replicated"
LAG_BOUND = "min.compaction.lag.ms has not passed"


def first_dirty(shape: LogShape, checkpoint: Offset | None, *, quiet: bool) -> tuple[Offset, str | None]:
    """The checkpoint, unless it cannot be true: then the log start."""
    start = shape.local_log_start_offset
    if checkpoint is None:
        return start, None
    if checkpoint < start:
        return start, None if quiet else f"the checkpoint {checkpoint} is below the log start offset {start}"
    if checkpoint > shape.log_end_offset:
        return start, f"the checkpoint {checkpoint} is past the log end offset {shape.log_end_offset}"
    return checkpoint, None


def cleanable_range(shape: LogShape, config: LogConfig, checkpoint: Offset | None, now_ms: int) -> CleanableRange:
    """The three bounds."""
    dirty, healed = first_dirty(shape, checkpoint, quiet=config.delete)
    segments = shape.segments
    bases = [segment.base_offset for segment in segments]
    uncleanable, bound = bases[-1], ACTIVE_BOUND
    if shape.last_stable_offset < uncleanable:
        at = max(bisect_right(bases, shape.last_stable_offset) - 1, 0)
        uncleanable, bound = bases[at], STABLE_BOUND
    lag_ms = config.min_compaction_lag_ms
    if lag_ms > 0:
        for at in range(max(bisect_right(bases, dirty) - 1, 0), len(segments) - 1):
            if bases[at] >= uncleanable:
                break
            if shape.largest_timestamp(at) > now_ms - lag_ms:
                uncleanable, bound = bases[at], LAG_BOUND
                break
    return CleanableRange(dirty, max(dirty, uncleanable), bound, healed)


def assess(shape: LogShape, config: LogConfig, checkpoint: Offset | None, now_ms: int) -> Candidate:
    """How dirty the log is, and since when."""
    offsets = cleanable_range(shape, config, checkpoint, now_ms)
    clean = cleanable = 0
    oldest = NO_LAG_LIMIT
    segments = shape.segments
    ends = [segment.base_offset for segment in segments[1:]]
    for at, segment in enumerate(segments[:-1]):
        if ends[at] <= offsets.first_dirty_offset:
            clean += segment.size
            continue
        if segment.base_offset < offsets.first_uncleanable_offset:
            cleanable += segment.size
        # Without `max.compaction.lag.ms` only the first timestamp of the first dirty segment is looked up.
        if segment.size and (config.max_compaction_lag_ms < NO_LAG_LIMIT or oldest == NO_LAG_LIMIT):
            timestamp = shape.first_timestamp(at)
            if timestamp > 0:
                oldest = min(oldest, timestamp)
    until = now_ms - config.max_compaction_lag_ms
    return Candidate(offsets, clean, cleanable, max(0, until - oldest), oldest if oldest < NO_LAG_LIMIT else -1)


@dataclass(frozen=True, slots=True)
class Source:
    """A segment to read: everything a thread needs, and nothing that changes.

    `end_offset` is where the next segment begins.
    """

    path: str
    base_offset: Offset
    end_offset: Offset
    size: int
    index_bytes: int
    time_index_bytes: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class CleanPlan:
    """One clean: `sources` are all segments from the first to the first uncleanable offset."""

    topic_partition: TopicPartition
    directory: str
    first_dirty_offset: Offset
    first_dirty_position: int
    end_offset: Offset
    sources: tuple[Source, ...]
    config: LogConfig
    now_ms: int
    aborted: tuple[AbortedTransaction, ...]
    last_data_offsets: frozenset[int]
    marker_epochs: dict[int, int]


def group_segments(sources: Sequence[Source], max_bytes: int, max_index_bytes: int) -> list[tuple[Source, ...]]:
    """Groups neighbouring segments that become one, so that repeated cleans do not leave ever smaller segments."""
    groups: list[tuple[Source, ...]] = []
    group: list[Source] = []
    size = index = times = 0
    for source in sources:
        if group and (
            size + source.size > max_bytes
            or index + source.index_bytes > max_index_bytes
            or times + source.time_index_bytes > max_index_bytes
            # An empty segment adds no offset to an index, so it merges at any distance from the base.
            or (source.size > 0 and source.end_offset - 1 - group[0].base_offset > MAX_RELATIVE_OFFSET)
        ):
            groups.append(tuple(group))
            group = []
            size = index = times = 0
        group.append(source)
        size += source.size
        index += source.index_bytes
        times += source.time_index_bytes
    if group:
        groups.append(tuple(group))
    return groups
