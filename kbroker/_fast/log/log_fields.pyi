from collections.abc import Callable
from typing import Any

from kbroker._fast.base.ready_queue import ReadyQueue

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
    latest_epoch: int

class ProducerFields:
    unreplicated: dict[int, int]
    verifications: dict[int, Any]
    first_unstable_offset: int | None
    producers: Any

class SegmentFields:
    base_offset: int
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
    log_end_offset: int
    segments: Any
    environment: Any

class LogFields:
    high_watermark: int
    log_start_offset: int
    local_log_start_offset: int
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
    def last_stable_offset(self) -> int: ...
    def consumer_bound(self, committed: bool) -> int: ...
    def maybe_increment_high_watermark(self, offset: int) -> bool: ...

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
    leader_epoch: int
    min_in_sync: int
    isr: tuple[int, ...]
    log: Any
    followers: dict[int, Any]
    commits_alone: bool
    follower_throttled: bool
    purgatory: Any
    @property
    def has_min_isr(self) -> bool: ...
    def is_acknowledged(self, last_offset: int, *, by_all: bool) -> bool: ...
    def appended(self) -> None: ...
