"""Why a log is, or is not, compacted and shortened, and when that changes: in words, for people.

Each function gives sentences about one log as it is now.  What they say is taken from the same decisions that the
cleaner and retention act upon.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kbroker.storage.cleaner.cleaner_plan import ACTIVE_BOUND, NO_LAG_LIMIT, Candidate
from kbroker.storage.cleaner.cleaner_state import Phase
from kbroker.storage.log.damages import Damage, Kind
from kbroker.storage.manager.retention import decide, look_at

if TYPE_CHECKING:
    from kbroker.storage.cleaner.cleaner_manager import CleanerManager
    from kbroker.storage.log.unified_log import UnifiedLog

_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000))


def duration(milliseconds: int) -> str:
    """A time in its largest fitting unit, one decimal: `1.5 h`."""
    for unit, size in _UNITS:
        if milliseconds >= size:
            return f"{milliseconds / size:.1f}".removesuffix(".0") + f" {unit}"
    return f"{milliseconds} ms"


def explain_compaction(log: UnifiedLog, cleaner: CleanerManager, now_ms: int, monotonic: float) -> list[str]:
    """Whether the log is compacted, and if not, why not and until when."""
    config = log.config
    if not config.compact:
        return [f"Not compacted: cleanup.policy is {','.join(sorted(config.cleanup_policy)) or 'empty'}."]
    if not cleaner.settings.enabled:
        return ["Not compacted: log.cleaner.enable is false."]
    tp = log.topic_partition
    phase = cleaner.states.of(tp).phase
    candidate = cleaner.assess(log)
    sentences = [_share(candidate)]
    failure = cleaner.uncleanable.get(tp)
    if phase is not Phase.NONE:
        sentences.append(f"Now: {phase.value}.")
    elif failure is not None:
        wait_ms = max(0, int((failure.retry_at - monotonic) * 1000))
        sentences.append(
            f"Compaction fails since {duration(now_ms - failure.since_ms)} ({failure.attempts} attempts): "
            f"{failure.reason}. The next attempt is in {duration(wait_ms)}."
        )
    elif candidate.is_due(config):
        why = "max.compaction.lag.ms has passed" if candidate.overdue_ms else "enough of it is dirty"
        sentences.append(f"Due, as {why}: compacted {_when(cleaner)}, after filthier logs.")
    else:
        sentences.extend(_not_due(log, candidate, now_ms))
    last = cleaner.last_cleans.get(tp)
    if last is not None:
        sentences.append(
            f"Last compacted {duration(now_ms - last.at_ms)} ago: {last.summary.records_kept} of "
            f"{last.summary.records_read} records stayed."
        )
    return sentences


def explain_damage(log: UnifiedLog, damages: Sequence[Damage]) -> list[str]:
    """What cannot be read or is not there, and how to go on: with commands."""
    topic, partition = log.topic_partition
    if not damages:
        return []
    sentences = []
    for damage in damages:
        if damage.kind is Kind.DAMAGED:
            sentences.append(
                f"{damage.where}: {damage.reason}. "
                f"Fetches of {damage.offsets} answer CORRUPT_MESSAGE; the rest is served."
            )
        else:
            sentences.append(f"Missing: {damage.offsets}: {damage.reason}.")
    damaged = [damage for damage in damages if damage.kind is Kind.DAMAGED]
    for damage in damaged:
        if damage.end_offset is not None:
            sentences.append(
                f"Skip, one group: `kbroker groups reset-offsets GROUP --topic {topic}:{partition} --to-offset "
                f"{damage.end_offset} --execute`, while it has no members."
            )
    repair = f"kbroker logs repair {topic} {partition} --directory {log.parent}"
    if damaged:
        sentences.append(
            f"Skip, everybody: stop the broker, `{repair} --skip`: what cannot be read is taken out, a copy kept."
        )
        sentences.append(
            f"Truncate: stop the broker, `{repair} --truncate`: the log ends before the damage, a copy kept."
        )
    sentences.append(
        f"Restore: stop the broker, put the segment's .log from a backup into {log.directory}, remove the .index and "
        ".timeindex of that segment, start. " + (f"`{repair}` checks all bytes before." if damaged else "")
    )
    return [sentence.strip() for sentence in sentences]


def _share(candidate: Candidate) -> str:
    return (
        f"Clean: {candidate.clean_bytes} bytes below offset {candidate.offsets.first_dirty_offset}. "
        f"Dirty and cleanable: {candidate.cleanable_bytes} bytes up to offset "
        f"{candidate.offsets.first_uncleanable_offset}, {candidate.dirty_ratio:.0%} of both."
    )


def _when(cleaner: CleanerManager) -> str:
    settings = cleaner.settings
    if cleaner.busy_count >= settings.threads:
        return f"when one of {settings.threads} threads (log.cleaner.threads) is free"
    return f"within {duration(settings.interval_ms)}"


def _not_due(log: UnifiedLog, candidate: Candidate, now_ms: int) -> list[str]:
    config = log.config
    sentences = []
    bound = candidate.offsets.bound
    if candidate.cleanable_bytes:
        sentences.append(
            f"Not due: compaction begins when more than {config.min_cleanable_dirty_ratio:.0%} is dirty "
            "(min.cleanable.dirty.ratio)."
        )
        if candidate.oldest_dirty_timestamp >= 0 and config.max_compaction_lag_ms < NO_LAG_LIMIT:
            left = candidate.oldest_dirty_timestamp + config.max_compaction_lag_ms - now_ms
            sentences.append(f"max.compaction.lag.ms makes it due in {duration(max(0, left))} at the latest.")
        elif config.max_compaction_lag_ms >= NO_LAG_LIMIT:
            sentences.append("max.compaction.lag.ms is not set, so that a little dirt may stay for ever.")
    else:
        sentences.append("Nothing to compact.")
    active = log.local.segments.active
    if bound == ACTIVE_BOUND:
        if active.size:
            forced = ""
            if config.max_compaction_lag_ms < NO_LAG_LIMIT:
                left = active.first_timestamp() + config.max_compaction_lag_ms - now_ms
                forced = f", or without one in {duration(max(0, left))} (max.compaction.lag.ms)"
            sentences.append(
                f"The active segment ({active.size} bytes from offset {active.base_offset}) is not compacted before it "
                f"rolls: at {config.roll_bytes} bytes, or with the first record after {duration(config.segment_ms)}"
                f"{forced}."
            )
    else:
        sentences.append(f"Up to offset {candidate.offsets.first_uncleanable_offset} only, because {bound}.")
    return sentences


def explain_retention(log: UnifiedLog, now_ms: int) -> list[str]:
    """What retention takes next, and when."""
    config = log.config
    facts = look_at(log, now_ms)
    decision = decide(facts, config, now_ms)
    if decision.segment_count:
        reasons = " and ".join(dict.fromkeys(reason.value for reason in decision.reasons))
        return [
            f"{decision.segment_count} segments go at the next check, because {reasons} (it is made every "
            "log.retention.check.interval.ms).",
            f"Their files leave the disk {duration(config.file_delete_delay_ms)} later (file.delete.delay.ms).",
        ]
    if not config.delete:
        return ["Nothing is deleted by age or size: cleanup.policy has no delete."]
    if facts.local_log_start_offset == facts.log_end_offset:
        return ["The log is empty: there is nothing to delete."]
    sentences = []
    oldest = facts.segments[0]
    if decision.future is not None and decision.future.largest_timestamp is not None:
        ahead = decision.future.largest_timestamp - now_ms
        sentences.append(
            f"Segment {decision.future.base_offset} holds a record dated {duration(ahead)} in the future: retention.ms "
            "keeps it and every later segment until then."
        )
    if config.retention_ms < 0:
        sentences.append("retention.ms is -1: age deletes nothing.")
    elif oldest.largest_timestamp is not None and decision.future is None:
        left = oldest.largest_timestamp + config.retention_ms - now_ms
        sentences.append(
            f"The oldest segment ({oldest.size} bytes) goes by age in {duration(max(0, left))} at the earliest."
        )
    if config.retention_bytes < 0:
        sentences.append("retention.bytes is -1: size deletes nothing.")
    else:
        size = sum(segment.size for segment in facts.segments)
        room = config.retention_bytes + oldest.size - size
        sentences.append(f"The oldest segment goes by size after {max(0, room)} more bytes.")
    if len(facts.segments) > 1 and facts.high_watermark < facts.segments[1].base_offset:
        sentences.append(
            f"Nothing goes while the high watermark is {facts.high_watermark}: it lies in the oldest segment."
        )
    return sentences
