from collections.abc import Callable
from typing import Any

from kbroker._fast.base.ready_queue import ReadyQueue
from kbroker.types import LeaderEpoch, Offset

class AppendRules:
    def __init__(
        self,
        max_message_bytes: int,
        before_max_ms: int,
        after_max_ms: int,
        segment_bytes: int,
        needs_keys: bool,
        long_bytes: int,
        expansion_bytes: int,
    ) -> None: ...

class FileFields:
    fd: int
    pwrite: Callable[[int, bytes | bytearray | memoryview, int], None] | None

class SpaceFields:
    closed: bool

class EpochFields:
    latest_epoch: LeaderEpoch

class ProducerFields:
    unreplicated: dict[Offset, Offset]
    verifications: dict[int, Any]
    first_unstable_offset: Offset | None
    producers: Any

class SegmentFields:
    base_offset: Offset
    allocated_bytes: int
    roll_after_timestamp: int
    tail: Any
    open_file: Any
    follow_ups: Any
    is_damaged: bool
    indexes_full: bool
    recently_used: bool

class SegmentsFields:
    active: Any

class LocalLogFields:
    log_end_offset: Offset
    segments: Any
    environment: Any

class LogFields:
    high_watermark: Offset
    log_start_offset: Offset
    local_log_start_offset: Offset
    append_rules: AppendRules | None
    committer: Any
    local: Any
    space_guard: Any
    leader_epoch_cache: Any
    producer_state: Any
    def counted(self) -> tuple[int, int, int, int, int, int, int, int, int]: ...
    def count_append(self, messages: int, size: int) -> None: ...
    def count_failed_append(self) -> None: ...
    def count_refused_append(self) -> None: ...
    def count_too_large(self, size: int) -> None: ...
    def count_failed_fetch(self) -> None: ...
    @property
    def last_stable_offset(self) -> Offset: ...
    def consumer_bound(self, committed: bool) -> Offset: ...
    def maybe_increment_high_watermark(self, offset: Offset) -> bool: ...

class PurgatoryFields:
    due: bool
    ready: ReadyQueue

class RecordSource:
    waiting: dict[Any, None]

class LateRead(RecordSource):
    is_met: bool
    @property
    def wait_ms(self) -> int: ...
    def __init__(self, wait_ms: int) -> None: ...

class PartitionFields(RecordSource):
    leader_epoch: LeaderEpoch
    min_in_sync: int
    isr: tuple[int, ...]
    log: Any
    followers: dict[int, Any]
    commits_alone: bool
    follower_throttled: bool
    purgatory: Any
    @property
    def has_min_isr(self) -> bool: ...
    def is_acknowledged(self, last_offset: Offset, *, by_all: bool) -> bool: ...
    def appended(self) -> None: ...
