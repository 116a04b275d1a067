"""One partition's log as `kbroker logs` tells of it: plain values, ready to become JSON.

Offsets, bytes and milliseconds since the epoch; None where something does not apply.  Call it on the loop: nothing
here reads records, at most the indexes of segments.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from kbroker.errors import KafkaError
from kbroker.storage.cleaner.cleaner_state import Phase
from kbroker.storage.reports.log_explanation import explain_compaction, explain_damage, explain_retention
from kbroker.types import ZERO_UUID, uuid_to_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from kbroker.clock import Clock
    from kbroker.storage.cleaner.cleaner_plan import Candidate
    from kbroker.storage.log.damages import Damage
    from kbroker.storage.log.log_segment import LogSegment
    from kbroker.storage.log.unified_log import UnifiedLog
    from kbroker.storage.manager.log_manager import LogManager

Description = dict[str, object]
MOST_PRODUCERS = 100
"""Producers that are described one by one; their number is always given."""


def summary(manager: LogManager, log: UnifiedLog) -> Description:
    """One line of `kbroker logs list`."""
    candidate = dirt(manager, log)
    return {
        "topic": log.topic_partition.topic,
        "partition": log.topic_partition.partition,
        "size_bytes": log.size_bytes,
        "segment_count": log.segment_count,
        "log_start_offset": log.log_start_offset,
        "high_watermark": log.high_watermark,
        "last_stable_offset": log.last_stable_offset,
        "log_end_offset": log.log_end_offset,
        "cleanup_policy": ",".join(sorted(log.config.cleanup_policy)),
        "dirty_ratio": round(candidate.dirty_ratio, 4) if candidate is not None else None,
        "dirty_bytes": candidate.cleanable_bytes if candidate is not None else None,
        "state": state_of(manager, log),
        "directory": log.parent,
    }


def dirt(manager: LogManager, log: UnifiedLog) -> Candidate | None:
    """How dirty a compacted log is; None for one that is not compacted, or cannot be judged."""
    if not log.config.compact:
        return None
    try:
        return manager.cleaner.assess(log)
    except (OSError, KafkaError, ValueError):
        return None


def state_of(manager: LogManager, log: UnifiedLog) -> str:
    """What is special about a log just now; `ok` when nothing is."""
    tp = log.topic_partition
    notes = sorted({damage.kind.value for damage in _damages(manager, log)})
    phase = manager.cleaner.states.of(tp).phase
    if phase is not Phase.NONE:
        notes.append(phase.value)
    if tp in manager.cleaner.uncleanable:
        notes.append("compaction fails")
    if tp in manager.retention.future:
        notes.append("kept by a record from the future")
    if log.local.flush_failed:
        notes.append("an fsync failed")
    guard = manager.environment.space_guards.get(log.parent)
    if guard is not None and guard.is_refusing:
        notes.append("no space left")
    future = manager.plans.futures.get(tp)
    if future is not None:
        notes.append(f"moving to {future.parent}")
    return ", ".join(notes) or "ok"


def _damages(manager: LogManager, log: UnifiedLog) -> list[Damage]:
    return manager.environment.damages.known({log.topic_partition: log})


def description(manager: LogManager, log: UnifiedLog, clock: Clock, most_segments: int | None = None) -> Description:
    """Everything about one log: `kbroker logs describe`, and `explain` in `explanation`.  `most_segments`: how many of
    the newest segments are in it; all unless given."""
    return {
        **summary(manager, log),
        "topic_id": uuid_to_text(log.topic_id) if log.topic_id != ZERO_UUID else None,
        "path": log.directory,
        "segments": segments(manager, log, most_segments),
        "checkpoints": {
            "recovery_point": log.recovery_point,
            "log_start_offset": log.log_start_offset,
            "high_watermark": log.high_watermark,
            "cleaner_offset": manager.cleaner.first_dirty_offset(log),
        },
        "leader_epochs": [{"epoch": epoch, "start_offset": start} for epoch, start in log.leader_epoch_cache.entries],
        "producers": _producers(log),
        "compaction": _compaction(manager, log, clock),
        "damages": [
            {
                "kind": damage.kind.value,
                "path": damage.path,
                "position": damage.position if damage.position >= 0 else None,
                "offset": damage.offset,
                "end_offset": damage.end_offset,
                "reason": damage.reason,
            }
            for damage in _damages(manager, log)
        ],
        "explanation": explanation(manager, log, clock),
    }


def explanation(manager: LogManager, log: UnifiedLog, clock: Clock) -> Description:
    """In words, why the log is (not) compacted and shortened, and when that changes."""
    described: Description = {}
    explanations: dict[str, Callable[[], list[str]]] = {
        "damage": lambda: explain_damage(log, _damages(manager, log)),
        "compaction": lambda: explain_compaction(log, manager.cleaner, clock.now_ms(), clock.monotonic()),
        "retention": lambda: explain_retention(log, clock.now_ms()),
    }
    for name, explain in explanations.items():
        try:
            described[name] = explain()
        except (OSError, KafkaError, ValueError) as error:
            described[name] = [f"This cannot be said: {error}."]
    return described


def segments(manager: LogManager, log: UnifiedLog, most: int | None = None) -> list[Description]:
    """All segments, or the newest `most`, oldest first.  `state`: active, clean (compacted before), dirty, or waiting
    (not cleanable yet)."""
    candidate = dirt(manager, log)
    active = log.local.segments.active
    skipped = 0 if most is None else max(0, log.segment_count - most)
    return [
        _segment(segment, _segment_state(segment, active, candidate))
        for segment in islice(log.local.segments, skipped, None)
    ]


def _segment(segment: LogSegment, state: str) -> Description:
    try:
        largest: int | None = segment.largest_timestamp()
    except (OSError, KafkaError):
        largest = None
    return {
        "base_offset": segment.base_offset,
        "size_bytes": segment.size,
        "largest_timestamp": largest,
        "state": state,
        "aborted_transactions": segment.has_txn_index,
    }


def _segment_state(segment: LogSegment, active: LogSegment, candidate: Candidate | None) -> str:
    if segment is active:
        return "active"
    if candidate is None:
        return "closed"
    offsets = candidate.offsets
    if segment.base_offset < offsets.first_dirty_offset:
        return "clean"
    return "dirty" if segment.base_offset < offsets.first_uncleanable_offset else "waiting"


def _producers(log: UnifiedLog) -> Description:
    producers = log.producer_state.producers
    shown = [
        {
            "producer_id": entry.producer_id,
            "producer_epoch": entry.producer_epoch,
            "last_sequence": entry.last_sequence,
            "last_timestamp": entry.last_timestamp,
            "transaction_start_offset": entry.current_txn_first_offset if entry.current_txn_first_offset >= 0 else None,
        }
        for entry in islice(producers.values(), MOST_PRODUCERS)
    ]
    return {"count": len(producers), "shown": shown}


def _compaction(manager: LogManager, log: UnifiedLog, clock: Clock) -> Description | None:
    if not log.config.compact:
        return None
    tp = log.topic_partition
    failure, last = manager.cleaner.uncleanable.get(tp), manager.cleaner.last_cleans.get(tp)
    candidate = dirt(manager, log)
    return {
        "first_dirty_offset": candidate.offsets.first_dirty_offset if candidate is not None else None,
        "first_uncleanable_offset": candidate.offsets.first_uncleanable_offset if candidate is not None else None,
        "oldest_dirty_timestamp": (
            candidate.oldest_dirty_timestamp
            if candidate is not None and candidate.oldest_dirty_timestamp >= 0
            else None
        ),
        "failure": failure
        and {
            "attempts": failure.attempts,
            "reason": failure.reason,
            "since": failure.since_ms,
            "retry_in_ms": max(0, int((failure.retry_at - clock.monotonic()) * 1000)),
        },
        "last_clean": last
        and {
            "at": last.at_ms,
            "seconds": round(last.seconds, 3),
            "end_offset": last.summary.end_offset,
            "records_read": last.summary.records_read,
            "records_kept": last.summary.records_kept,
            "bytes_read": last.summary.bytes_read,
            "bytes_written": last.summary.bytes_written,
        },
    }
