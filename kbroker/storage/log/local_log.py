"""The segments of a partition on this disk: log end offset, recovery point, roll, flush, truncate, delete.

Knows nothing of high watermarks, producers or epochs: `UnifiedLog` puts those on top.

    recovery_point   everything below it is durable: data, indexes, transaction index
    log_end_offset   the offset that the next record gets

Segments that leave the log are renamed to `.<number>.deleted` and unlinked later, so that readers that already hold a
file region end in peace and a crash in between leaves nothing that could be mistaken for data.  Numbers are unique:
before the first segment is unlinked, another one of the same base offset may leave, from this log or from a later one
in a directory of the same name.  Segments that retention removes are renamed by a thread (`segment_removal`).
"""

from __future__ import annotations

import errno
import logging
import random
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from itertools import pairwise
from typing import TYPE_CHECKING

from kbroker._fast.base.build_facts import CHECKED
from kbroker._fast.log.log_fields import LocalLogFields
from kbroker._fast.log.producer_table import ProducerBudget
from kbroker.clock import Clock
from kbroker.config import LogConfig
from kbroker.errors import KafkaError, KafkaStorageError, again, bare
from kbroker.storage.files.filesystem import FileSystem
from kbroker.storage.files.flush_totals import FlushTotals
from kbroker.storage.files.log_dir_failure import LogDirFailureChannel
from kbroker.storage.files.open_files import OpenFiles
from kbroker.storage.log.damages import Damages
from kbroker.storage.log.log_segment import DurableJob, LogSegment, SyncJob
from kbroker.storage.log.log_segments import LogSegments
from kbroker.storage.log.roll import RollReason
from kbroker.storage.log.segment_damage import DamagedSegmentError
from kbroker.storage.log.segment_removal import SegmentRemoval, retired_suffix
from kbroker.storage.log.segment_view import SegmentConfig
from kbroker.storage.log.space_guard import SpaceGuard
from kbroker.types import FIRST_OFFSET, Offset, TopicPartition

if TYPE_CHECKING:
    from kbroker.storage.log.group_commit import GroupCommit
    from kbroker.storage.log.log_values import Tier

logger = logging.getLogger("kbroker.storage")

Later = Callable[[int, Callable[[], None]], None]

NEVER_CUT = 1 << 62


class LogEnvironment:
    """What all logs of a broker share.

    `space_guards` has the guard of each log directory; logs elsewhere have an open one.  `failures` takes reports of
    I/O errors, `damages` of what cannot be read or is not there.
    Without `commits` a log fsyncs in place when `flush.messages` asks for it.  `later` carries deletions out
    after a delay in ms, away from the loop, and `soon` without one; where that is None they are made in place.
    `producers` is what the logs' producers are counted against; `verifies`: a transaction's first batch must bring a
    guard (`transaction.partition.verification.enable`).  `tier`: where records are that have left this disk.
    """

    __slots__ = (
        "clock",
        "commits",
        "damages",
        "executor",
        "failures",
        "files",
        "flushes",
        "space_guards",
        "later",
        "open_files",
        "producer_expiration_ms",
        "producers",
        "soon",
        "tier",
        "verifies",
    )

    def __init__(
        self,
        files: FileSystem,
        clock: Clock,
        open_files: OpenFiles,
        later: Later,
        executor: Executor | None = None,
        producer_expiration_ms: int = 86_400_000,
        commits: GroupCommit | None = None,
        producers: ProducerBudget | None = None,
        *,
        verifies: bool = False,
    ) -> None:
        self.files = files
        self.producers = producers or ProducerBudget()
        self.verifies = verifies
        self.flushes = FlushTotals()
        self.damages = Damages()
        self.commits = commits
        self.space_guards: dict[str, SpaceGuard] = {}
        self.failures: LogDirFailureChannel | None = None
        self.clock = clock
        self.open_files = open_files
        self.later = later
        self.soon: Callable[[Callable[[], None]], None] | None = None
        self.tier: Tier | None = None
        self.executor = executor
        self.producer_expiration_ms = producer_expiration_ms


def segment_config(config: LogConfig) -> SegmentConfig:
    """What a segment needs of the log's settings."""
    return SegmentConfig(
        config.index_interval_bytes,
        config.segment_index_bytes,
        config.roll_bytes if config.preallocate else 0,
        config.roll_bytes,
    )


def random_jitter(config: LogConfig) -> int:
    """Spreads time-based rolling over `segment.jitter.ms`."""
    return random.randrange(min(config.segment_jitter_ms, config.segment_ms)) if config.segment_jitter_ms > 0 else 0


def new_segment(directory: str, config: LogConfig, environment: LogEnvironment, base_offset: Offset) -> LogSegment:
    """A segment with freshly made files."""
    segment = LogSegment(
        environment.files,
        environment.open_files,
        directory,
        base_offset,
        segment_config(config),
        created_ms=environment.clock.now_ms(),
        roll_jitter_ms=random_jitter(config),
        failures=environment.failures,
    )
    segment.create_files()
    return segment


class LocalLog(LocalLogFields):
    """One partition's segments."""

    __slots__ = (
        "_flushing",
        "_name_durable",
        "_removals",
        "config",
        "directory",
        "flush_failed",
        "left",
        "lowest_cut",
        "recovery_point",
        "topic_partition",
    )

    segments: LogSegments
    environment: LogEnvironment

    def __init__(
        self,
        directory: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        environment: LogEnvironment,
        segments: LogSegments,
        recovery_point: Offset,
        log_end_offset: Offset,
    ) -> None:
        self.directory = directory
        self.topic_partition = topic_partition
        self.config = config
        self.environment = environment
        self.segments = segments
        self.recovery_point = recovery_point
        self.log_end_offset = log_end_offset
        self._name_durable = False
        # The log was moved or deleted, or its disk has failed: what waits to be unlinked goes with the directory, whose
        # name may be given again.
        self.left = False
        # The smallest offset that a truncation went to; a copy in another directory (`future_log`) resets it.
        self.lowest_cut = NEVER_CUT
        self.flush_failed = False
        self._flushing: list[tuple[Offset, Future[Exception | None]]] = []
        self._removals: list[SegmentRemoval] = []

    @classmethod
    def empty(
        cls,
        directory: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        environment: LogEnvironment,
        offset: Offset,
    ) -> LocalLog:
        """A log without records in a directory without segments."""
        first = new_segment(directory, config, environment, offset)
        return cls(directory, topic_partition, config, environment, LogSegments([first]), offset, offset)

    # -- roll ---------------------------------------------------------------------------------------------------------

    def _new_segment(self, base_offset: Offset) -> LogSegment:
        return new_segment(self.directory, self.config, self.environment, base_offset)

    def roll(self, base_offset: Offset, reason: RollReason | None) -> LogSegment:
        """Ends the active segment and starts one at `base_offset`.  Returns the segment that became inactive.

        An empty active segment with the same base offset, whose index has no room for an entry is made anew.
        Raises KafkaError.
        """
        old = self.segments.active
        assert base_offset >= self.log_end_offset, (self.topic_partition, base_offset, self.log_end_offset)
        if base_offset == old.base_offset and old.size == 0:
            old.close_files()
            self.segments = self.segments.replacing([old], [self._new_segment(base_offset)])
            return old
        if base_offset <= old.base_offset:
            raise KafkaError(
                f"cannot roll {self.topic_partition} to {base_offset}: its active segment starts at {old.base_offset}"
            )
        old.become_inactive()
        self.segments = self.segments.with_added(self._new_segment(base_offset))
        logger.info(
            "Rolled %s to offset %d after %d bytes%s",
            self.topic_partition,
            base_offset,
            old.size,
            f": {reason.value}" if reason else "",
        )
        return old

    # -- flush --------------------------------------------------------------------------------------------------------

    def sync_directory(self) -> None:
        """Makes the names of the files durable, and with the first call the directory's own."""
        files = self.environment.files
        try:
            files.fsync_directory(self.directory)
        except FileNotFoundError:
            # The partition was deleted meanwhile.
            return
        if not self._name_durable:
            files.fsync_directory(self.directory.rpartition("/")[0])
            self._name_durable = True

    def sync_jobs(self, end_offset: Offset) -> list[SyncJob]:
        """What to fsync so that everything below `end_offset` is durable."""
        return [segment.sync_job() for segment in self.segments.between(self.recovery_point, end_offset)]

    def report(self, what: str, error: OSError, *, fsync: bool = False, directory: str | None = None) -> None:
        """Report an I/O error; the log directory may fail because of it.  `directory`: where the log was then."""
        failures = self.environment.failures
        if failures is not None:
            failures.report(directory or self.directory, what, error, fsync=fsync)

    def note_damage(self, error: ValueError) -> None:
        """A read has failed: what is damaged, if that is why, is said once and kept."""
        if isinstance(error, DamagedSegmentError):
            following = self.segments.higher(error.hole.offset)
            end = following.base_offset if following is not None else self.log_end_offset
            self.environment.damages.damaged(self.topic_partition, error, end)

    def _check_flushes(self) -> None:
        """Raises when an fsync has failed: the next one may succeed without the bytes of that one.

        So the recovery point stays where it is until a restart has checked what lies above it.
        """
        if self.flush_failed:
            raise OSError(errno.EIO, "an earlier fsync failed", self.directory)

    def flush_now(self, end_offset: Offset, extra: Iterable[DurableJob] = ()) -> None:
        """fsyncs and moves the recovery point to `end_offset`, or to the log's end where that comes before it."""
        if end_offset <= self.recovery_point:
            return
        self._check_flushes()
        jobs, directory = (*self.sync_jobs(end_offset), *extra), self.directory
        try:
            self._sync(jobs)
        except OSError as error:
            self.flush_failed = True
            self.report("an fsync", error, fsync=True, directory=directory)
            raise
        self.recovery_point = max(self.recovery_point, min(end_offset, self.log_end_offset))

    def sync_records(self) -> None:
        """fsyncs the records alone, on a disk without room for the other files of a flush; the recovery point stays."""
        for segment in self.segments.between(self.recovery_point, self.log_end_offset):
            self.environment.files.sync_path(segment.path)
        self.sync_directory()

    def _sync(self, jobs: Iterable[DurableJob]) -> None:
        with self.environment.flushes.timed():
            for job in jobs:
                job.run(self.environment.files)
            self.sync_directory()

    def flush_later(self, end_offset: Offset, extra: Iterable[DurableJob] = ()) -> None:
        """The same on the executor, when there is one; `collect_flushes` moves the recovery point."""
        executor = self.environment.executor
        if executor is None:
            self.flush_now(end_offset, extra)
            return
        if end_offset <= self.recovery_point:
            return
        jobs, directory = (*self.sync_jobs(end_offset), *extra), self.directory

        def run() -> Exception | None:
            try:
                self._sync(jobs)
            except Exception as error:
                if isinstance(error, OSError):
                    # By then the log may lie in another directory, which is fine.
                    self.report("an fsync", error, fsync=True, directory=directory)
                return bare(error)  # The log keeps the future.
            return None

        self.collect_flushes()
        self._flushing.append((end_offset, executor.submit(run)))

    @property
    def is_flushing(self) -> bool:
        """Whether a flush is under way in a thread."""
        return bool(self._flushing)

    @property
    def flushes_under_way(self) -> list[Future[Exception | None]]:
        """What `flush_later` started and `collect_flushes` has not seen done: each comes to its error, or None."""
        return [future for _, future in self._flushing]

    def collect_flushes(self) -> None:
        """Moves the recovery point over flushes that the executor has finished, up to the first that failed."""
        while self._flushing and self._flushing[0][1].done():
            end_offset, future = self._flushing.pop(0)
            error = future.result()
            if error is not None and not self.flush_failed:
                self.flush_failed = True
                logger.error(
                    "Flushing %s failed: %s.  Its recovery point stays at %d until a restart has checked what follows",
                    self.topic_partition,
                    error,
                    self.recovery_point,
                )
            if not self.flush_failed:
                self.recovery_point = max(self.recovery_point, min(end_offset, self.log_end_offset))
        if CHECKED:
            self.check_invariants()

    def check_invariants(self) -> None:
        """Raises AssertionError unless the segments follow each other and the ends lie within them.

        A follower begins a segment for a batch behind a gap, which compaction has left: until that batch is written the
        segment is empty, and the log ends before it.
        """
        bases = [segment.base_offset for segment in self.segments]
        assert all(one < other for one, other in pairwise(bases)), (self.topic_partition, bases)
        with_records = bases if self.segments.active.size else bases[:-1] or [FIRST_OFFSET]
        assert with_records[-1] <= self.log_end_offset, (self.topic_partition, bases, self.log_end_offset)
        assert self.recovery_point <= self.log_end_offset, (self.topic_partition, self.recovery_point)

    def wait_for_flushes(self) -> None:
        """Block until the flushes under way have ended; only where the loop does not run any more."""
        for _, future in self._flushing:
            future.result()
        self.collect_flushes()

    # -- removal ------------------------------------------------------------------------------------------------------

    def remove(self, removed: Iterable[LogSegment]) -> None:
        """Takes segments out of the log now; their files lose their names soon and are unlinked after the delay."""
        gone = list(removed)
        if not gone:
            return
        self.segments = self.segments.without(gone)
        assert gone[-1].base_offset < self.segments.first.base_offset, (self.topic_partition, gone)
        is_empty = len(self.segments) == 1 and self.segments.active.size == 0
        removal = SegmentRemoval(self, gone, self.sync_directory if is_empty else None)
        soon = self.environment.soon
        if soon is None or self.config.file_delete_delay_ms <= 0:
            self._finish(removal, self.config.file_delete_delay_ms)
            return
        self._removals = [each for each in self._removals if not each.is_finished]
        self._removals.append(removal)
        soon(removal.finish_in_thread)
        self.environment.later(self.config.file_delete_delay_ms, removal.unlink_in_thread)

    def discard(self, segments: Iterable[LogSegment], delay_ms: int) -> None:
        """Takes their names from segments that are not the log's any more, now, and unlinks them after the delay.

        OSError when one cannot be renamed: it and those after it keep their names.
        """
        self._finish(SegmentRemoval(self, segments), delay_ms)

    def _finish(self, removal: SegmentRemoval, delay_ms: int) -> None:
        try:
            removal.finish()
        finally:
            if delay_ms <= 0:
                removal.unlink()
            else:
                self.environment.later(delay_ms, removal.unlink_in_thread)

    def finish_removals(self) -> None:
        """Renames the segments that a thread has not yet; called before a file name is reused or the directory renamed.

        OSError when a file cannot be renamed; even then no removal is pending afterwards.
        """
        removals, self._removals = self._removals, []
        failure: OSError | None = None
        for removal in removals:
            try:
                removal.finish()
            except OSError as error:
                failure = failure or bare(error)
        if failure is not None:
            raise again(failure)

    def truncate_to(self, offset: Offset) -> None:
        """Drops every record at or after `offset`."""
        if offset >= self.log_end_offset:
            return
        self.wait_for_flushes()
        self.finish_removals()
        self.lowest_cut = min(self.lowest_cut, offset)
        later = [segment for segment in self.segments if segment.base_offset > offset]
        # In memory each step is whole before the disk may fail, so that the log goes on from where it came to.
        if later:
            self.segments = self.segments.without(later)
            self.log_end_offset = later[0].base_offset
            self.recovery_point = min(self.recovery_point, offset)
            self.discard(later, 0)
        active = self.segments.active
        assert active.base_offset <= offset, (self.topic_partition, active, offset)
        active.truncate_to(offset)
        self.log_end_offset = offset
        self.recovery_point = min(self.recovery_point, offset)
        assert not self._flushing and not self._removals, self.topic_partition
        if CHECKED:
            self.check_invariants()
        active.resize_indexes()

    def restart_at(self, offset: Offset) -> None:
        """Drops all records; the log goes on empty at `offset`."""
        self.wait_for_flushes()
        self.finish_removals()
        old = list(self.segments)
        assert not self._removals, f"{self.topic_partition}: files that are to be renamed"
        suffix = retired_suffix()
        for segment in old:
            segment.rename_suffix(suffix)
        self.segments = LogSegments([self._new_segment(offset)])
        for segment in old:
            segment.delete_files()
        self.log_end_offset = offset
        self.recovery_point = min(self.recovery_point, offset)
        if CHECKED:
            self.check_invariants()

    def close(self) -> None:
        """Brings all files into their final form.  OSError when a flush failed before: that cannot be a clean end."""
        self.wait_for_flushes()
        self.finish_removals()
        for segment in self.segments:
            segment.close()
        self._check_flushes()

    def size_bytes(self) -> int:
        """The bytes of all segments."""
        return self.segments.size_bytes


def storage_error(
    what: str,
    topic_partition: TopicPartition,
    directory: str,
    error: OSError,
    failures: LogDirFailureChannel | None = None,
    *,
    is_known: bool = False,
) -> KafkaStorageError:
    """The client's error for a disk that fails, in Kafka's words; the cause goes to the log and to `failures`.

    `is_known`: the log has said so already, and would grow by every attempt, on a disk that is full perhaps.
    """
    parent = directory.rpartition("/")[0]
    level = logging.DEBUG if is_known else logging.ERROR
    logger.log(level, "%s failed for %s in %s: %s", what, topic_partition, parent, error)
    if failures is not None:
        failures.report(directory, what, error)
    return KafkaStorageError(f"Error while {what} for {topic_partition} in dir {parent}")
