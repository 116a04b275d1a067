"""What look-ups, markers and replicated appends see of a log: `UnifiedLog` is one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kbroker.types import Offset

if TYPE_CHECKING:
    from kbroker.errors import KafkaStorageError
    from kbroker.storage.log.group_commit import LogCommitter
    from kbroker.storage.log.leader_epoch_cache import LeaderEpochCache
    from kbroker.storage.log.local_log import LocalLog
    from kbroker.storage.log.log_segment import LogSegment
    from kbroker.storage.log.producer_state import ProducerState
    from kbroker.types import TopicPartition


class Log(Protocol):
    """A partition's log: its parts, and the offsets that bound appends and reads."""

    topic_partition: TopicPartition
    directory: str
    local: LocalLog
    producer_state: ProducerState
    leader_epoch_cache: LeaderEpochCache
    committer: LogCommitter | None
    log_start_offset: Offset
    local_log_start_offset: Offset
    high_watermark: Offset

    @property
    def last_stable_offset(self) -> Offset:
        """No transaction is open below it."""

    @property
    def log_end_offset(self) -> Offset:
        """The offset of the next record."""

    @property
    def recovery_point(self) -> Offset:
        """Everything below it is durable, with indexes and snapshots."""

    def forget_epochs(self, magic: int) -> None:
        """Clears the epoch cache for an append in a message format without epochs."""

    def segment_for(self, size: int, last: Offset, max_timestamp: int, first: Offset) -> LogSegment:
        """The segment that takes a batch of `size` bytes and these offsets, after rolling where that is due.

        Raises RecordListTooLargeError, KafkaStorageError.
        """

    def storage_error(self, what: str, error: OSError) -> KafkaStorageError:
        """The client's error for a disk that failed while `what` was done."""
