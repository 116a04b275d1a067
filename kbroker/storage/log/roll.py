"""When a log starts a new segment, by Kafka's rules: the rule of time, and the words for the broker's log.

`_fast/log/batch_rules.roll_cause` decides.  It reads from the segment the largest timestamp of a batch that the segment
still takes (`roll_after_timestamp`), which this module computes.
"""

from __future__ import annotations

from enum import Enum

from kbroker._fast.log.batch_rules import RollCause, roll_cause
from kbroker.storage.log.log_segment import ASK_RULE, LogSegment
from kbroker.types import Offset

ANY_TIME = 2**63 - 1


class RollReason(Enum):
    SIZE = "the segment would exceed segment.bytes"
    TIME = "segment.ms has passed"
    INDEX_FULL = "an index is full"
    LARGE_BATCH = "a large batch was written to a file of its own"
    OFFSET_OVERFLOW = "the offset is too far from the segment's first"


_REASONS: dict[int, RollReason] = {
    RollCause.ROLL_SIZE: RollReason.SIZE,
    RollCause.ROLL_TIME: RollReason.TIME,
    RollCause.ROLL_INDEX_FULL: RollReason.INDEX_FULL,
    RollCause.ROLL_OFFSET: RollReason.OFFSET_OVERFLOW,
}


def time_limit(segment: LogSegment, segment_ms: int, now_ms: int) -> int:
    """The largest timestamp with which a batch does not roll the segment by time; ASK_RULE where each does.

    A segment's age counts from the timestamp of its first batch, or from the creation of its file if that batch has
    none.
    """
    if segment.size == 0:
        return ANY_TIME
    longest_ms = segment_ms - segment.roll_jitter_ms
    first = segment.first_timestamp()
    if first >= 0:
        return min(first + longest_ms, ANY_TIME)
    return ANY_TIME if now_ms - segment.created_ms <= longest_ms else ASK_RULE


def roll_reason(
    segment: LogSegment, limit: int, segment_ms: int, size: int, last_offset: Offset, max_timestamp: int, *, now_ms: int
) -> RollReason | None:
    """Why a batch must go into a new segment; None when it fits the active one.

    The time limit is stored in the segment once it is final, so that later batches within it need no call of this.
    """
    segment.roll_after_timestamp = time_limit(segment, segment_ms, now_ms)
    cause = roll_cause(segment, limit, segment.size, size, last_offset, max_timestamp)
    if segment.first_timestamp() < 0:
        segment.roll_after_timestamp = ASK_RULE
    return _REASONS.get(cause)
