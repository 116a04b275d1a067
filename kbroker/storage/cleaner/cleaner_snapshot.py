"""Snapshots of a log for the cleaner: its shape, to judge how dirty it is, and the plan of one clean.

Taken on the loop, in one go.
"""

from __future__ import annotations

from kbroker.config import LogConfig
from kbroker.storage.cleaner.cleaner_plan import CleanableRange, CleanableSegment, CleanPlan, LogShape, Source
from kbroker.storage.files.filesystem import FileSystem
from kbroker.storage.log.log_segment import INDEX_SUFFIX, TIME_INDEX_SUFFIX, LogSegment
from kbroker.storage.log.txn_index import AbortedTransaction
from kbroker.storage.log.unified_log import UnifiedLog
from kbroker.types import FIRST_OFFSET

# The most segments that one clean goes over and merges; the next clean continues there.  Each replaced segment costs
# the loop some renames, and all of a group are renamed in one go.
MOST_SEGMENTS = 200


def shape_of(log: UnifiedLog) -> LogShape:
    """The log as `cleaner_plan` judges it."""
    segments = list(log.local.segments)
    return LogShape(
        [CleanableSegment(segment.base_offset, segment.size) for segment in segments],
        log.local_log_start_offset,
        log.last_stable_offset,
        log.log_end_offset,
        lambda at: segments[at].largest_timestamp(),
        lambda at: segments[at].first_timestamp(),
    )


def plan_clean(log: UnifiedLog, offsets: CleanableRange, files: FileSystem, now_ms: int) -> CleanPlan:
    """Everything that a clean of these offsets needs to know."""
    config: LogConfig = log.config
    segments = list(log.local.segments.between(FIRST_OFFSET, offsets.first_uncleanable_offset))
    dirty = sum(segment.base_offset >= offsets.first_dirty_offset for segment in segments)
    keep = max(MOST_SEGMENTS, len(segments) - dirty + 1)
    following = log.local.segments.higher(segments[:keep][-1].base_offset)
    end_offset = min(offsets.first_uncleanable_offset, following.base_offset if following else log.log_end_offset)
    sources = _sources(log, segments[:keep], files)
    first = log.local.segments.floor(offsets.first_dirty_offset)
    producers = log.producer_state.producers.values()
    return CleanPlan(
        topic_partition=log.topic_partition,
        directory=log.directory,
        first_dirty_offset=offsets.first_dirty_offset,
        first_dirty_position=first.offset_index.position_for(offsets.first_dirty_offset) if first else 0,
        end_offset=end_offset,
        sources=sources,
        config=config,
        now_ms=now_ms,
        aborted=_aborted(log, end_offset),
        last_data_offsets=frozenset(entry.last_offset for entry in producers if entry.count),
        marker_epochs={entry.producer_id: entry.producer_epoch for entry in producers if not entry.count},
    )


def _sources(log: UnifiedLog, segments: list[LogSegment], files: FileSystem) -> tuple[Source, ...]:
    sizes = {entry.name: entry.size for entry in files.list_directory(log.directory)}
    sources = []
    for segment in segments:
        following = log.local.segments.higher(segment.base_offset)
        assert following is not None, "the active segment is never compacted"
        prefix = f"{segment.base_offset:020d}"
        sources.append(
            Source(
                segment.path,
                segment.base_offset,
                following.base_offset,
                segment.size,
                sizes.get(prefix + INDEX_SUFFIX, 0),
                sizes.get(prefix + TIME_INDEX_SUFFIX, 0),
                files.modified_ms(segment.path),
            )
        )
    return tuple(sources)


def _aborted(log: UnifiedLog, end_offset: int) -> tuple[AbortedTransaction, ...]:
    """The aborted transactions that begin below an offset; their entries may lie in any later segment."""
    return tuple(
        entry
        for segment in log.local.segments
        if segment.has_txn_index or segment.tail is not None
        for entry in segment.txn_index.entries
        if entry.first_offset < end_offset
    )
