"""When a log starts a new segment: Kafka's rules as a pure function."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from kbroker.storage.log.log_segment import MAX_RELATIVE_OFFSET, LogSegment


class RollReason(Enum):
    SIZE = "the segment would exceed segment.bytes"
    TIME = "segment.ms has passed"
    INDEX_FULL = "an index is full"
    LARGE_BATCH = "a large batch was written to a file of its own"
    OFFSET_OVERFLOW = "the offset is too far from the segment's first"


class RollState(NamedTuple):
    """The active segment and the batch that is about to be appended.

    `first_timestamp` is the max timestamp of the segment's first batch, -1 when it has none.
    """

    base_offset: int
    size: int
    created_ms: int
    first_timestamp: int
    jitter_ms: int
    indexes_full: bool
    batch_size: int
    batch_last_offset: int
    batch_max_timestamp: int
    now_ms: int


def state_before(segment: LogSegment, size: int, last_offset: int, max_timestamp: int, now_ms: int) -> RollState:
    """The state that decides whether a batch fits `segment`."""
    return RollState(
        segment.base_offset,
        segment.size,
        segment.created_ms,
        segment.first_timestamp(),
        segment.roll_jitter_ms,
        segment.indexes_full,
        size,
        last_offset,
        max_timestamp,
        now_ms,
    )


def waited_ms(state: RollState) -> int:
    """How long the segment has been filling: by its records' own time where they have one."""
    if state.first_timestamp >= 0:
        return state.batch_max_timestamp - state.first_timestamp
    return state.now_ms - state.created_ms


def roll_reason(state: RollState, segment_bytes: int, segment_ms: int) -> RollReason | None:
    """Why the batch must go into a new segment; None when it fits the active one."""
    if state.size > segment_bytes - state.batch_size:
        return RollReason.SIZE
    if state.size > 0 and waited_ms(state) > segment_ms - state.jitter_ms:
        return RollReason.TIME
    if state.indexes_full:
        return RollReason.INDEX_FULL
    if not 0 <= state.batch_last_offset - state.base_offset <= MAX_RELATIVE_OFFSET:
        return RollReason.OFFSET_OVERFLOW
    return None
