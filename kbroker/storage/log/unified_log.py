"""A partition's log: what may be appended, what may be read, and the offsets that bound both.

    log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset
    log_start_offset <= local_log_start_offset <= high_watermark

- `log_start_offset`, the first offset of the partition, moves up by retention and DeleteRecords, never past the high
  watermark; `local_log_start_offset` is the first on this disk (KIP-405): the same one without remote storage;
- `last_stable_offset` is the first unstable offset (an open transaction's first) if it lies below the high watermark,
  else the high watermark;
- `high_watermark` is moved up by the partition alone (`replication.partition`), and falls only with a truncation;
- `log_end_offset` is moved by appends and truncation alone.

Append, in Kafka's order: analysis, offset assignment, epoch cache, size check, roll, producer state (a duplicate is
answered with its first offsets), write, then the steps of `_fast/log/append_steps`.  A failure before the write changes
nothing; a write that fails leaves the log at its last whole batch.

All state belongs to the event loop: no locks, no await.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise, takewhile
from typing import TYPE_CHECKING

from kbroker._fast.base.build_facts import CHECKED
from kbroker._fast.files.file_region import FileRegion
from kbroker._fast.log.append_steps import count_in, request_fsync
from kbroker._fast.log.batch_rules import roll_cause
from kbroker._fast.log.fast_append import append_sound
from kbroker._fast.log.log_fields import LogFields
from kbroker._fast.records.record_batch import MAGIC_V2
from kbroker.config import LogConfig
from kbroker.errors import (
    CorruptMessageError,
    ErrorCode,
    KafkaError,
    KafkaStorageError,
    OffsetOutOfRangeError,
    RecordListTooLargeError,
)
from kbroker.storage.files.log_dir_failure import NO_SPACE
from kbroker.storage.log import log_lookup, markers, replicated_append
from kbroker.storage.log.detached_batch import DetachedBatch, write_detached
from kbroker.storage.log.group_commit import GroupCommit
from kbroker.storage.log.leader_epoch_cache import EpochEndOffset, LeaderEpochCache
from kbroker.storage.log.local_log import LocalLog, LogEnvironment, storage_error
from kbroker.storage.log.log_segment import ASK_RULE, DurableJob, LogSegment, SyncJob
from kbroker.storage.log.log_validator import AnalyzedBatch, append_rules, assign_offsets, validate_and_analyze
from kbroker.storage.log.log_values import AppendOrigin, AppendResult, FetchData, FetchIsolation, TimestampOffset
from kbroker.storage.log.producer_state import ControlMarker, ProducerState
from kbroker.storage.log.roll import RollReason, roll_reason
from kbroker.storage.log.space_guard import SpaceGuard
from kbroker.storage.log.verification import NO_GUARD, VerificationGuard
from kbroker.types import FIRST_OFFSET, NO_POSITION, NO_TIMESTAMP, LeaderEpoch, Offset, TopicPartition

if TYPE_CHECKING:
    from kbroker._fast.records.batch_info import BatchInfo
    from kbroker.storage.log.group_commit import LogCommitter
    from kbroker.storage.log.partition_metadata import PartitionMetadata

logger = logging.getLogger("kbroker.storage")


class UnifiedLog(LogFields):
    """The log of one partition on this broker.  Who may move which offset: see the module."""

    __slots__ = (
        "_clock",
        "_commits",
        "_config",
        "_environment",
        "directory",
        "partition_metadata",
        "topic_partition",
    )

    local: LocalLog
    space_guard: SpaceGuard
    leader_epoch_cache: LeaderEpochCache
    producer_state: ProducerState
    committer: LogCommitter | None

    def __init__(
        self,
        topic_partition: TopicPartition,
        local: LocalLog,
        log_start_offset: Offset,
        high_watermark: Offset,
        leader_epoch_cache: LeaderEpochCache,
        producer_state: ProducerState,
        environment: LogEnvironment,
        partition_metadata: PartitionMetadata,
    ) -> None:
        self.topic_partition = topic_partition
        self.local = local
        self.directory = local.directory
        self.log_start_offset = log_start_offset
        self.local_log_start_offset = max(log_start_offset, local.segments.first.base_offset)
        self.high_watermark = max(self.local_log_start_offset, min(high_watermark, local.log_end_offset))
        assert self.high_watermark <= local.log_end_offset, (topic_partition, log_start_offset, local.log_end_offset)
        assert local.recovery_point <= local.log_end_offset, (topic_partition, local.recovery_point)
        self.leader_epoch_cache = leader_epoch_cache
        self.producer_state = producer_state
        self._environment = environment
        self._clock = environment.clock
        self._config = local.config
        self.partition_metadata = partition_metadata
        self.space_guard = environment.space_guards.get(self.parent) or SpaceGuard()
        self._commits = environment.commits or GroupCommit(environment.files)
        self.committer = self._commits.committer(self)
        self.append_rules = append_rules(self._config)

    def __repr__(self) -> str:
        bounds = f"{self.log_start_offset}..{self.log_end_offset}, high_watermark={self.high_watermark}"
        return f"UnifiedLog({self.topic_partition}, {bounds})"

    # -- what it is ---------------------------------------------------------------------------------------------------

    @property
    def dir(self) -> str:
        """The directory with the log's files."""
        return self.directory

    @property
    def parent(self) -> str:
        """The log directory (of `log.dirs`) that it lies in."""
        return self.directory.rpartition("/")[0]

    @property
    def topic_id(self) -> bytes:
        """The topic's 16-byte id; zeros while the directory has none."""
        return self.partition_metadata.topic_id

    def assign_topic_id(self, topic_id: bytes) -> None:
        """Binds the directory to a topic.  InconsistentTopicIdError when it belongs to another."""
        try:
            self.partition_metadata.assign(topic_id, self.topic_partition)
        except OSError as error:
            raise self.storage_error("writing partition.metadata", error) from error

    def assign_leader_epoch(self, epoch: LeaderEpoch) -> None:
        """Notes that `epoch` begins at the log end, unless the log is of an older format, which has no epochs."""
        if self._config.message_magic >= MAGIC_V2:
            self.leader_epoch_cache.assign(epoch, self.local.log_end_offset)

    @property
    def config(self) -> LogConfig:
        """The log's settings."""
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        """Takes effect with the next append; index sizes with the next segment."""
        if config is self._config:
            return
        self._config = self.local.config = config
        self.append_rules = append_rules(self._config)
        self.committer = self._commits.committer(self, self.committer)
        active = self.local.segments.active
        active.config = active.config._replace(index_interval_bytes=config.index_interval_bytes)
        if active.tail is not None:
            active.tail.index_interval_bytes = config.index_interval_bytes
        active.roll_after_timestamp = ASK_RULE

    @property
    def log_end_offset(self) -> Offset:
        """The offset of the next record."""
        return self.local.log_end_offset

    @property
    def recovery_point(self) -> Offset:
        """Below it everything is on the disk."""
        return self.local.recovery_point

    @property
    def size_bytes(self) -> int:
        """The bytes of all segments."""
        return self.local.segments.size_bytes

    @property
    def segment_count(self) -> int:
        """How many segments there are."""
        return len(self.local.segments)

    @property
    def latest_epoch(self) -> LeaderEpoch:
        """The newest leader epoch with records; -1 without one."""
        return self.leader_epoch_cache.latest_epoch

    def check_invariants(self) -> None:
        """Raises AssertionError unless the four offsets are in order and the state ends where the log does."""
        log_lookup.check_invariants(self)

    # -- append -------------------------------------------------------------------------------------------------------

    def append_as_leader(
        self,
        records: memoryview | bytearray,
        leader_epoch: LeaderEpoch,
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        analyzed: AnalyzedBatch | None = None,
        guard: VerificationGuard = NO_GUARD,
    ) -> AppendResult:
        """Appends one batch, giving it the next offsets in place.  Raises KafkaError subclasses."""
        if analyzed is None and guard is NO_GUARD and type(records) is bytearray:
            first = append_sound(self, records, leader_epoch, self._clock.now_ms())
            if first >= 0:
                last = self.local.log_end_offset - 1
                return AppendResult(first, last, NO_TIMESTAMP, self.log_start_offset, False, len(records))
        if self.space_guard.closed:
            self.space_guard.check(origin)
        if analyzed is None:
            analyzed = self._analyze(records, origin)
        info = analyzed.info
        local = self.local
        first = local.log_end_offset
        last = first + info.last_offset_delta
        data = assign_offsets(analyzed, first, leader_epoch)
        if info.magic < MAGIC_V2:
            self.forget_epochs(info.magic)
        elif leader_epoch != self.leader_epoch_cache.latest_epoch:
            self.leader_epoch_cache.assign(leader_epoch, first)
        size = analyzed.size_in_bytes
        max_timestamp = info.max_timestamp
        detached = analyzed.detached
        if detached is not None and detached.directory != self.directory:
            detached = None  # The log has moved to another directory since.
        segment = self.segment_for(size, last, max_timestamp, first)
        marker: ControlMarker | None = None
        if info.producer_id >= 0:
            duplicate = self.producer_state.validate(info, origin, first, guard)
            if duplicate is not None:
                return markers.duplicate_result(duplicate, self.log_start_offset, size)
            if info.is_control:
                marker = markers.validated_marker(self.producer_state, info, data, first)
        try:
            if detached is None:
                segment.write(data, size, last)
            else:
                segment = self.segment_for(size, last, max_timestamp, first, alone=True)
                detached.move_into(segment, data)
        except OSError as error:
            raise self.storage_error("appending records", error) from error
        count_in(self, segment, info, first, size, marker, analyzed.is_one)
        self.count_append(last - first + 1, size)
        if detached is not None and self.committer is not None:
            self.committer.renamed()
        request_fsync(self)
        return AppendResult(
            first, last, max_timestamp if info.timestamp_type else NO_TIMESTAMP, self.log_start_offset, False, size
        )

    def note_producer(
        self, info: BatchInfo, first: Offset, last: Offset, marker: ControlMarker | None, segment: LogSegment
    ) -> None:
        """Of `append_steps.count_in`: a marker was written, or a batch while transactions are being verified."""
        markers.update_producer(self, info, first, last, marker, segment)

    def _analyze(self, records: memoryview | bytearray, origin: AppendOrigin) -> AnalyzedBatch:
        return validate_and_analyze(
            records,
            self._config,
            self._clock.now_ms(),
            origin=origin,
            topic_partition=self.topic_partition,
            rules=self.append_rules,
        )

    def forget_epochs(self, magic: int) -> None:
        """Clears the epoch cache, as messages of the older formats have no epochs.  A replica must then truncate to the
        high watermark, not by epochs that do not cover all records."""
        if self.leader_epoch_cache.latest_epoch >= 0:
            logger.warning(
                "%s: leader epochs are forgotten after an append in message format %d", self.topic_partition, magic
            )
            self.leader_epoch_cache.clear()

    def write_detached(self, batch: memoryview | bytearray) -> DetachedBatch | None:
        """Writes a judged batch that is large to a file of its own, on a thread (`storage.log.detached_batch`)."""
        return write_detached(self._environment.files, self.directory, self._config, batch)

    def maybe_start_transaction_verification(
        self, producer_id: int, sequence: int, epoch: int, *, supports_epoch_bump: bool
    ) -> VerificationGuard:
        """See ProducerState.start_verification."""
        now_ms = self._clock.now_ms()
        return self.producer_state.start_verification(producer_id, sequence, epoch, supports_epoch_bump, now_ms)

    def append_as_follower(self, records: memoryview | bytearray | bytes) -> AppendResult | None:
        """Appends whole batches as the leader stored them; None when there is not a whole one.

        Bytes after the last whole batch are left out.  Offsets must ascend from the log end on.
        """
        return replicated_append.append_batches(self, records)

    def storage_error(self, what: str, error: OSError) -> KafkaStorageError:
        """The client's error for a disk that failed.  A directory that failed is reported, its space looked at."""
        is_known = False
        if error.errno in NO_SPACE:
            is_known = self.space_guard.is_refusing
            self.space_guard.ran_out(self)
        failures = self._environment.failures
        return storage_error(what, self.topic_partition, self.directory, error, failures, is_known=is_known)

    @contextmanager
    def _storage_errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self.storage_error(what, error) from error

    # -- roll ---------------------------------------------------------------------------------------------------------

    def segment_for(
        self, size: int, last: Offset, max_timestamp: int, first: Offset, *, alone: bool = False
    ) -> LogSegment:
        """The segment that takes a batch, after rolling where that is due; with `alone` an empty one.

        Raises RecordListTooLargeError."""
        config = self._config
        segment = self.local.segments.active
        tail = segment.tail
        if tail is None:
            tail = segment.prepare_append()
        limit = config.roll_bytes
        due = roll_cause(segment, limit, tail.size, size, last, max_timestamp)
        if not due and not (alone and tail.size):
            return segment
        if size > limit:
            raise RecordListTooLargeError(
                f"Message batch size is {size} bytes in append to partition {self.topic_partition}, "
                f"which exceeds the maximum configured segment size of {limit}."
            )
        reason: RollReason | None = RollReason.LARGE_BATCH
        if not (alone and tail.size):
            reason = roll_reason(
                segment, limit, config.segment_ms, size, last, max_timestamp, now_ms=self._clock.now_ms()
            )
        if reason is None:
            return segment
        self.roll(first, reason=reason)
        return self.local.segments.active

    def roll(self, expected_next_offset: Offset | None = None, *, reason: RollReason | None = None) -> None:
        """Starts a new active segment at the log end (or a later expected offset) and flushes the old one aside."""
        base = max(expected_next_offset or FIRST_OFFSET, self.local.log_end_offset)
        state = self.producer_state
        assert state.map_end_offset <= base, (self, state.map_end_offset, base)
        with self._storage_errors("rolling a segment"):
            old = self.local.roll(base, reason)
            assert base == self.local.segments.active.base_offset >= self.local.log_end_offset, (self, base)
            state.map_end_offset = base
            jobs = self._small_files(with_snapshot=True)
            if old.size:
                self.local.flush_later(base, jobs)
        if CHECKED:
            self.check_invariants()

    # -- read ---------------------------------------------------------------------------------------------------------

    def read(self, start_offset: Offset, max_bytes: int, isolation: FetchIsolation, min_one_message: bool) -> FetchData:
        """The bytes from the batch that holds `start_offset`, up to the isolation's bound and `max_bytes`.

        The first batch comes whole with `min_one_message`, at any size.  What has left this disk the tier reads.
        Raises OffsetOutOfRangeError, and OFFSET_MOVED_TO_TIERED_STORAGE for a follower.
        """
        local = self.local
        end = local.log_end_offset
        high_watermark, stable = self.high_watermark, self.last_stable_offset
        is_committed = isolation is FetchIsolation.TXN_COMMITTED
        bound = end if isolation is FetchIsolation.LOG_END else self.consumer_bound(is_committed)
        if start_offset > end or start_offset < self.local_log_start_offset:
            tier = local.environment.tier
            if self.log_start_offset <= start_offset <= end and tier is not None:
                if isolation is FetchIsolation.LOG_END:
                    raise KafkaError.of(ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE)
                data = FetchData(None, NO_POSITION, False, None, high_watermark, self.log_start_offset, stable, 0)
                tier.read_into(data, self.topic_partition, start_offset, max_bytes, isolation, min_one_message)
                return data
            raise OffsetOutOfRangeError(
                f"Received request for offset {start_offset} for partition {self.topic_partition}, but we only have "
                f"log segments from offset {self.log_start_offset} up to {end}."
            )
        if start_offset >= bound:
            return FetchData(None, NO_POSITION, False, None, high_watermark, self.log_start_offset, stable, 0)
        try:
            found = log_lookup.region(local, start_offset, bound, max_bytes, min_one_message)
            if found is None:
                return FetchData(None, NO_POSITION, False, None, high_watermark, self.log_start_offset, stable, 0)
            segment, position, length, incomplete = found
            aborted = None
            if is_committed:
                aborted = log_lookup.aborted_transactions(local, segment, start_offset, position, length)
            if length <= 0:
                return FetchData(None, position, incomplete, aborted, high_watermark, self.log_start_offset, stable, 0)
            file = segment.file()
        except OSError as error:
            raise self.storage_error("reading records", error) from error
        except ValueError as error:
            local.note_damage(error)
            raise CorruptMessageError(f"Record batch is corrupt in {self.topic_partition}: {error}") from error
        records = FileRegion(file.fd, position, length, file)
        return FetchData(records, position, incomplete, aborted, high_watermark, self.log_start_offset, stable, length)

    def read_bytes(self, start_offset: Offset, max_bytes: int) -> bytes:
        """Whole batches from the one that holds `start_offset` to the log end, at least one when there is one."""
        return log_lookup.read_bytes(self.local, start_offset, self.local.log_end_offset, max_bytes)

    def batch_headers(self, region: FileRegion, most: int) -> list[BatchInfo]:
        """The headers of the whole batches in a region that `read` gave, the first `most` of them."""
        files, end = self._environment.files, region.position + region.size
        try:
            return files.scan_segment(region.fd, region.position, end, check_crc=False, max_batches=most).batches
        except OSError as error:
            raise self.storage_error("reading records", error) from error

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """The first record at or after a timestamp, or what a negative special timestamp asks for.

        -2 the log start, -1 the log end, -3 the record with the largest timestamp, -4 the local log start; None when
        there is none (-5, the end of tiered storage, which this log never has, is offset -1).
        """
        found = log_lookup.offset_for_timestamp(self, timestamp, defers=False)
        assert not isinstance(found, log_lookup.DeferredSearch)
        return found

    def end_offset_for_epoch(self, epoch: LeaderEpoch) -> EpochEndOffset:
        """Where an epoch ends (KIP-101)."""
        return self.leader_epoch_cache.end_offset_for(epoch, self.local.log_end_offset)

    # -- offsets ------------------------------------------------------------------------------------------------------

    def maybe_increment_log_start_offset(self, offset: Offset) -> bool:
        """Moves the first offset of the partition up; its segments stay.  True when it moved.

        OffsetOutOfRangeError past the high watermark.
        """
        if offset > self.high_watermark:
            raise OffsetOutOfRangeError(
                f"Cannot increment the log start offset to {offset} of partition {self.topic_partition} since it is "
                f"larger than the high watermark {self.high_watermark}"
            )
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        self.local_log_start_offset = max(self.local_log_start_offset, offset)
        self.leader_epoch_cache.truncate_from_start(offset)
        earliest = self.leader_epoch_cache.earliest
        assert earliest is None or earliest[1] >= offset, (self, earliest)
        return True

    def delete_records_before(self, offset: Offset) -> bool:
        """Moves the first offset up, and removes the segments that lie wholly below it.  See both."""
        has_moved = self.maybe_increment_log_start_offset(offset)
        if has_moved:
            self.delete_segments_below(offset)
        if CHECKED:
            self.check_invariants()
        return has_moved

    def maybe_increment_local_log_start_offset(self, offset: Offset) -> None:
        """Moves the first offset on this disk up alone: what lies below it is in remote storage."""
        self.local_log_start_offset = max(self.local_log_start_offset, min(offset, self.high_watermark))

    def delete_segments_below(self, offset: Offset) -> int:
        """Removes the segments that hold nothing at or after `offset`, at most the first on this disk.  The active one
        stays.  Returns how many."""
        assert offset <= self.local_log_start_offset, "segments go before the log's start on this disk has moved"
        ends = takewhile(lambda pair: pair[1].base_offset <= offset, pairwise(self.local.segments))
        gone = [segment for segment, _ in ends]
        assert not gone or offset <= self.high_watermark, (self, offset)
        if gone:
            with self._storage_errors("deleting segments"):
                self.local.remove(gone)
                self.producer_state.remove_snapshots_before(self.local.segments.first.base_offset)
            assert self.local.segments.first.base_offset <= offset, (self, offset, self.local.segments.first)
        return len(gone)

    def truncate_to(self, offset: Offset, producers: ProducerState | None = None) -> bool:
        """Drops records from `offset` on.  True when there were any.  Raises ValueError.

        `producers`: of what is left, where that is known."""
        if offset < 0:
            raise ValueError(f"cannot truncate {self.topic_partition} to {offset}")
        if offset >= self.local.log_end_offset:
            return False
        if offset < self.local.segments.first.base_offset:
            self.truncate_fully_and_start_at(offset, min(self.log_start_offset, offset))
            return True
        with self._storage_errors("truncating"):
            try:
                self.local.truncate_to(offset)
            finally:
                self._after_truncation(self.local.log_end_offset)
                log_lookup.rebuild_producer_state(self, producers)
        assert self.high_watermark <= self.log_end_offset == offset, (self, offset)
        assert self.local.recovery_point <= offset, (self, self.local.recovery_point)
        if CHECKED:
            self.check_invariants()
        return True

    def truncate_fully_and_start_at(self, offset: Offset, log_start_offset: Offset | None = None) -> None:
        """Drops everything on this disk; the log goes on empty at `offset`, where the partition begins, too, unless
        remote storage has it from `log_start_offset` on."""
        with self._storage_errors("truncating"):
            self.local.restart_at(offset)
            if self.committer is not None:
                self.committer.truncated(offset)
            self.leader_epoch_cache.clear()
            self.producer_state.restart_at(offset)
        assert self.log_end_offset == self.local.segments.first.base_offset == offset, (self, offset)
        self.log_start_offset = offset if log_start_offset is None else log_start_offset
        self.local_log_start_offset = self.high_watermark = offset
        if CHECKED:
            self.check_invariants()

    def _after_truncation(self, offset: Offset) -> None:
        if self.committer is not None:
            self.committer.truncated(offset)
        self.leader_epoch_cache.truncate_from_end(offset)
        self.high_watermark = min(self.high_watermark, offset)
        self.log_start_offset = min(self.log_start_offset, offset)
        self.local_log_start_offset = min(self.local_log_start_offset, offset)
        assert self.committer is None or self.committer.durable_offset <= offset, (self, offset)

    # -- durability ---------------------------------------------------------------------------------------------------

    def _small_files(self, *, with_snapshot: bool) -> list[DurableJob]:
        """Writes what changed of the small files; what has to be durable before the recovery point moves."""
        snapshot = self.producer_state.take_snapshot() if with_snapshot else None
        metadata = self.partition_metadata
        changed = metadata.path if self.local.recovery_point == 0 or metadata.was_damaged else None
        paths = tuple(path for path in (changed, snapshot) if path is not None)
        jobs = (SyncJob(paths) if paths else None, self.leader_epoch_cache.write())
        return [job for job in jobs if job is not None]

    def sync_names(self) -> None:
        """Makes durable which topic the log is of, unless a flush has done so, and the names of its files.  OSError."""
        if self.local.recovery_point == 0:
            with suppress(FileNotFoundError):
                self.local.environment.files.sync_path(self.partition_metadata.path)
        self.local.sync_directory()

    def flush(self) -> None:
        """Makes everything up to the log end durable before it returns."""
        with self._storage_errors("flushing"):
            self.local.flush_now(self.local.log_end_offset, self._small_files(with_snapshot=False))
        if self.committer is not None:
            self.committer.flushed(self.local.log_end_offset)

    def flush_records(self) -> None:
        """Makes the records durable, and no more, on a disk that has no room for what a flush writes beside them."""
        with self._storage_errors("flushing"):
            self.local.sync_records()
        if self.committer is not None:
            self.committer.flushed(self.local.log_end_offset)

    def flush_later(self) -> None:
        """Starts a flush on the executor; the recovery point moves when `collect_flushes` sees it done."""
        with self._storage_errors("flushing"):
            self.local.flush_later(self.local.log_end_offset, self._small_files(with_snapshot=False))

    def prepare_close(self) -> Callable[[], None] | None:
        """Brings all files into their final form: snapshot at the log end, indexes trimmed.

        Returns what makes them durable, to be run anywhere; None when nothing waits for that.  `close` comes after.
        """
        local, state = self.local, self.producer_state
        state.map_end_offset = local.log_end_offset
        jobs = self._small_files(with_snapshot=True)
        local.close()
        if local.log_end_offset <= local.recovery_point and self.leader_epoch_cache.write() is None:
            return None
        jobs.extend(local.sync_jobs(local.log_end_offset))
        files = self._environment.files

        def make_durable() -> None:
            for job in jobs:
                job.run(files)
            local.sync_directory()

        return make_durable

    def close(self, *, clean: bool = True) -> None:
        """Ends the use of the log.  `clean`: everything is durable when this returns."""
        if not clean:
            self.leader_epoch_cache.withdraw()
            for segment in self.local.segments:
                segment.close_files()
            return
        if (make_durable := self.prepare_close()) is not None:
            make_durable()
        self.closed_durably()

    def closed_durably(self) -> None:
        """After `prepare_close` and what it returned: the recovery point may say so."""
        assert not self.local.flush_failed and not self.local.is_flushing, self
        self.local.recovery_point = self.local.log_end_offset
