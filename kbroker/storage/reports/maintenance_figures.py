"""What metrics tell of the upkeep of logs (`kbroker.metrics.maintenance` names it all), gathered at scrape time.

While the broker runs only sums are counted.  Values that depend on every log are read in one pass over the logs, in
slices, from what compaction and retention remember of their last look.  There are series per partition only up to a
number of partitions; partitions that cannot be compacted are always listed one by one, up to the same number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker._fast.base.slices import Pace
from kbroker.metrics.families import Values
from kbroker.storage.log.damages import Kind
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.clock import Clock
    from kbroker.storage.cleaner.cleaner_manager import CleanerManager
    from kbroker.storage.manager.log_manager import LogManager

Label = tuple[str, ...]


def _label(tp: TopicPartition) -> Label:
    return tp.topic, str(tp.partition)


async def maintenance_figures(manager: LogManager, clock: Clock, max_partitions: int, pace: Pace) -> Values:
    """Values by family."""
    return {
        **recovery_figures(manager),
        **_damages(manager),
        **_moves(manager),
        **await _dirt(manager, clock, max_partitions, pace),
        **await _last_cleans(manager.cleaner, pace),
        **_failing(manager.cleaner, clock, max_partitions),
        **_cleaner_totals(manager.cleaner),
        **await _retention(manager, clock, pace),
        **_flushes(manager),
    }


def _damages(manager: LogManager) -> Values:
    """What is known to be damaged or missing."""
    kinds = [damage.kind for damage in manager.environment.damages.known(manager.logs)]
    return {"kbroker_log_damages": {(kind.value,): kinds.count(kind) for kind in Kind}}


def _moves(manager: LogManager) -> Values:
    """Partitions on their way into each directory, and what moves have come to."""
    counts: dict[Label, float] = {(directory.path,): 0 for directory in manager.directories}
    left = dict(counts)
    for future in list(manager.plans.futures.values()):
        key = (future.parent,)
        counts[key] = counts.get(key, 0) + 1
        left[key] = left.get(key, 0) + future.bytes_left
    totals = manager.plans.totals
    return {
        "kbroker_log_dir_cordoned": {
            (directory.path,): float(directory.path in manager.plans.cordoned) for directory in manager.directories
        },
        "kbroker_log_dir_moves_in_progress": counts,
        "kbroker_log_dir_moves_left_bytes": left,
        "kbroker_log_dir_moves": {
            ("done",): totals.done,
            ("failed",): totals.failed,
            ("called_off",): totals.called_off,
        },
        "kbroker_log_dir_moves_copied_bytes": totals.bytes_copied,
    }


def recovery_figures(manager: LogManager) -> Values:
    """What a start after an unclean stop has still to read; all that is known before the logs are loaded."""
    directories = manager.progress.directories()
    return {
        "kbroker_recovery_logs_left": {(each.path,): each.logs_left for each in directories},
        "kbroker_recovery_segments_left": {(each.path,): each.segments_left for each in directories},
        "kbroker_recovery_thread_segments_left": {
            (name,): segments for name, segments in manager.progress.threads().items()
        },
        "kbroker_recovery_left_bytes": {(each.path,): each.bytes_left for each in directories},
        "kbroker_recovery_left_seconds": {
            (each.path,): each.seconds_left for each in directories if each.seconds_left is not None
        },
    }


async def _dirt(manager: LogManager, clock: Clock, max_partitions: int, pace: Pace) -> Values:
    """How dirty the compacted logs are, as they were last looked at."""
    cleaner = manager.cleaner
    found = list(cleaner.found.items())
    detailed = len(manager.logs) <= max_partitions
    ratios: dict[Label, float] = {}
    sizes: dict[Label, float] = {}
    ages: dict[Label, float] = {}
    dirty = count = 0
    failing: dict[Label, float] = {(directory.path,): 0 for directory in manager.online_directories()}
    uncleanable = dict(failing)
    for tp in list(cleaner.uncleanable):
        log = manager.logs.get(tp)
        if log is not None:
            failing[(log.parent,)] = failing.get((log.parent,), 0) + 1
    filthiest = 0.0
    now_ms = clock.now_ms()
    oldest = now_ms
    for tp, candidate in found:
        await pace
        log = manager.logs.get(tp)
        if log is None or not log.config.compact:
            continue
        count += 1
        dirty += candidate.cleanable_bytes
        ratio = candidate.dirty_ratio
        filthiest = max(filthiest, ratio)
        since = candidate.oldest_dirty_timestamp
        if since >= 0:
            oldest = min(oldest, since)
        if tp in cleaner.uncleanable:
            uncleanable[(log.parent,)] = uncleanable.get((log.parent,), 0) + candidate.cleanable_bytes
        if detailed:
            label = _label(tp)
            ratios[label], sizes[label] = ratio, candidate.cleanable_bytes
            ages[label] = max(0, now_ms - since) / 1000 if since >= 0 else 0
    return {
        "kbroker_cleaner_compacted_partitions": count,
        "kbroker_cleaner_dirty_bytes": dirty,
        "kbroker_cleaner_max_dirty_ratio": filthiest,
        "kbroker_cleaner_oldest_dirty_seconds": (now_ms - oldest) / 1000,
        "kbroker_cleaner_uncleanable_partitions": failing,
        "kbroker_cleaner_uncleanable_bytes": uncleanable,
        "kbroker_partition_dirty_ratio": ratios,
        "kbroker_partition_dirty_bytes": sizes,
        "kbroker_partition_oldest_dirty_seconds": ages,
    }


async def _last_cleans(cleaner: CleanerManager, pace: Pace) -> Values:
    read = written = 0
    fullest = longest = 0.0
    latest = 0
    for last in list(cleaner.last_cleans.values()):
        await pace
        read += last.summary.bytes_read
        written += last.summary.bytes_written
        fullest = max(fullest, last.map_use)
        longest = max(longest, last.seconds)
        latest = max(latest, last.at_ms)
    return {
        "kbroker_cleaner_recopy_ratio": written / read if read else 0,
        "kbroker_cleaner_max_buffer_use_ratio": fullest,
        "kbroker_cleaner_max_clean_seconds": longest,
        "kbroker_cleaner_last_clean_timestamp_seconds": latest / 1000,
    }


def _failing(cleaner: CleanerManager, clock: Clock, max_partitions: int) -> Values:
    failing = list(cleaner.uncleanable.items())[:max_partitions]
    now_ms, monotonic = clock.now_ms(), clock.monotonic()
    return {
        "kbroker_partition_clean_failures": {_label(tp): failure.attempts for tp, failure in failing},
        "kbroker_partition_clean_failing_seconds": {
            _label(tp): max(0, now_ms - failure.since_ms) / 1000 for tp, failure in failing
        },
        "kbroker_partition_clean_retry_seconds": {
            _label(tp): max(0.0, failure.retry_at - monotonic) for tp, failure in failing
        },
    }


def _cleaner_totals(cleaner: CleanerManager) -> Values:
    totals = cleaner.totals
    settings = cleaner.settings
    return {
        "kbroker_cleaner_threads": settings.threads if settings.enabled else 0,
        "kbroker_cleaner_busy_threads": cleaner.busy_count,
        "kbroker_cleaner_dead_threads": cleaner.dead_count,
        "kbroker_cleaner_runs": {
            ("done",): totals.cleans,
            ("failed",): totals.failures,
            ("aborted",): totals.aborts,
        },
        "kbroker_cleaner_read_bytes": totals.bytes_read,
        "kbroker_cleaner_written_bytes": totals.bytes_written,
        "kbroker_cleaner_records": {
            ("kept",): totals.records_kept,
            ("dropped",): totals.records_read - totals.records_kept,
        },
        "kbroker_cleaner_keyless_records": totals.keyless_count,
        "kbroker_cleaner_seconds": totals.seconds,
        "kbroker_cleaner_throttled_seconds": cleaner.throttle.waited_seconds,
    }


async def _retention(manager: LogManager, clock: Clock, pace: Pace) -> Values:
    retention = manager.retention
    totals = retention.totals
    oldest = now_ms = clock.now_ms()
    for tp in retention.overdue_partitions(now_ms):
        await pace
        timestamp = retention.overdue_timestamp(tp, now_ms)
        if timestamp is not None:
            oldest = min(oldest, timestamp)
    return {
        "kbroker_retention_runs": totals.runs,
        "kbroker_retention_last_run_seconds": totals.last_run_seconds,
        "kbroker_retention_deleted_segments": {
            (reason.name.lower(),): deleted.segments for reason, deleted in totals.by_reason.items()
        },
        "kbroker_retention_deleted_bytes": {
            (reason.name.lower(),): deleted.bytes for reason, deleted in totals.by_reason.items()
        },
        "kbroker_retention_failures": totals.failures,
        "kbroker_retention_oldest_deletable_seconds": (now_ms - oldest) / 1000,
        "kbroker_retention_future_partitions": len(retention.future),
    }


def _flushes(manager: LogManager) -> Values:
    flushes = manager.environment.flushes
    return {
        "kbroker_log_flushes": flushes.count,
        "kbroker_log_flush_seconds": flushes.seconds,
        "kbroker_log_flush_max_seconds": flushes.max_seconds,
    }
