"""Recovery, compaction and flushes under the names of Kafka's LogManager, LogCleaner, LogCleanerManager, LogFlushStats.

Values are those of `maintenance`, in Kafka's units.  `max-compaction-delay-secs` has no source here: the cleaner does
not keep how late the last look found each log.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from kbroker.metrics.maintenance import Labelled, Values


class Same(NamedTuple):
    """A family of Kafka's, the one of ours with the same figure, and what to multiply that by."""

    name: str
    own: str
    factor: float = 1.0


SAME = (
    Same("kafka_log_logmanager_remaininglogstorecover", "kbroker_recovery_logs_left"),
    Same("kafka_log_logmanager_remainingsegmentstorecover", "kbroker_recovery_thread_segments_left"),
    Same("kafka_log_logcleaner_deadthreadcount", "kbroker_cleaner_dead_threads"),
    Same("kafka_log_logcleaner_cleaner_recopy_percent", "kbroker_cleaner_recopy_ratio", 100),
    Same("kafka_log_logcleaner_max_buffer_utilization_percent", "kbroker_cleaner_max_buffer_use_ratio", 100),
    Same("kafka_log_logcleaner_max_clean_time_secs", "kbroker_cleaner_max_clean_seconds"),
    Same("kafka_log_logcleanermanager_max_dirty_percent", "kbroker_cleaner_max_dirty_ratio", 100),
    Same("kafka_log_logcleanermanager_uncleanable_partitions_count", "kbroker_cleaner_uncleanable_partitions"),
    Same("kafka_log_logcleanermanager_uncleanable_bytes", "kbroker_cleaner_uncleanable_bytes"),
)
_LAST_CLEAN = "kbroker_cleaner_last_clean_timestamp_seconds"


def upkeep(values: Values, now_seconds: float) -> Iterator[tuple[str, tuple[str, ...], float]]:
    """By family, labels and value; a figure without a source is left out."""
    for same in SAME:
        found = values.get(same.own)
        if found is not None:
            for labels, value in _rows(found):
                yield same.name, labels, value * same.factor
    last = values.get(_LAST_CLEAN)
    if isinstance(last, (int, float)) and last:
        # Kafka counts from the start where nothing was cleaned yet; there is no such figure here.
        yield "kafka_log_logcleanermanager_time_since_last_run_ms", (), max(0.0, now_seconds - last) * 1000


def _rows(found: float | Labelled) -> Iterator[tuple[tuple[str, ...], float]]:
    if isinstance(found, Mapping):
        yield from found.items()
    else:
        yield (), found
