"""fsync before the answer: group commit, for `kbroker.fsync=commit` and for topics with `flush.messages`.

    append -> appended() -> (end of the loop's turn) -> one fsync in a thread -> durable -> `Partition.advance`

Each log that needs it has a `LogCommitter`.  At most one fsync of a log is under way; appends that come meanwhile wait
for the next one together, so the slower the disk is, the more appends share an fsync.  Nothing here blocks the loop.

What is made durable is what recovery needs: the bytes of the segments and the names of their files.  Indexes and
snapshots are built again from them after a crash, so they are left to the flushes that move the recovery point.

    durable_offset    everything below it survives a crash of the machine
    requested_offset  an append below it, and not below durable_offset, waits; never below durable_offset

A failed fsync says nothing about which bytes are on the disk, and the next one may succeed without them.  The log's
directory has failed then (`log_dir_failure`) and a restart checks the log.  With `commit` no such append was answered
and no consumer saw its records, so the log is truncated to its durable end, if the disk allows it.  It takes no others
in their place, as followers may have copied them in this leader epoch.  Otherwise (state of a coordinator that is ahead
in memory; records acknowledged before, as with flush.messages above 1) it refuses appends, too.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import Executor
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kbroker._fast.base.build_facts import CHECKED
from kbroker._fast.base.counters import Histogram
from kbroker.errors import KafkaError, NotLeaderOrFollowerError, bare
from kbroker.storage.files.filesystem import FileSystem
from kbroker.storage.files.open_files import SegmentFile
from kbroker.storage.log.space_guard import FailedDirectoryGuard
from kbroker.types import Offset, is_internal

if TYPE_CHECKING:
    from kbroker.config import LogConfig
    from kbroker.errors import KafkaStorageError
    from kbroker.storage.files.log_dir_failure import LogDirFailureChannel
    from kbroker.storage.log.log_segments import LogSegments
    from kbroker.storage.log.space_guard import SpaceGuard
    from kbroker.types import TopicPartition

logger = logging.getLogger("kbroker.storage")

NO_LIMIT = 1 << 62


class FsyncMode(Enum):
    """`kbroker.fsync`."""

    OS = "os"
    INTERVAL = "interval"
    COMMIT = "commit"


class Environment(Protocol):
    """What logs share."""

    failures: LogDirFailureChannel | None


class Local(Protocol):
    """The segments of a log, as group commit sees them."""

    flush_failed: bool
    log_end_offset: Offset

    @property
    def environment(self) -> Environment:
        """What logs share."""

    @property
    def segments(self) -> LogSegments:
        """As they are now."""


class CommittedLog(Protocol):
    """A log, as group commit sees it."""

    directory: str
    space_guard: SpaceGuard
    topic_partition: TopicPartition

    def sync_names(self) -> None:
        """Makes durable whose records they are, and the names of the files."""

    @property
    def config(self) -> LogConfig:
        """The topic's settings."""

    @property
    def local(self) -> Local:
        """Its segments."""

    @property
    def recovery_point(self) -> Offset:
        """Everything below it is durable, with indexes and snapshots."""

    def flush(self) -> None:
        """Makes everything durable, in place."""

    def storage_error(self, what: str, error: OSError) -> KafkaStorageError:
        """The client's error for a disk that failed."""

    def truncate_to(self, offset: Offset) -> object:
        """Drops every record at or after `offset`."""


class _Job(NamedTuple):
    """One fsync: what to sync, and up to where that makes the log durable."""

    files: tuple[SegmentFile, ...]
    sync_directory: Callable[[], None] | None
    end_offset: Offset
    newest_base: int
    generation: int


class GroupCommit:
    """What the committers of all logs share.  Until `attach` there is no loop, and appends fsync in place."""

    __slots__ = (
        "_executor",
        "_files",
        "fsync_count",
        "fsync_seconds",
        "loop",
        "mode",
        "on_durable",
        "on_refused",
        "settled_count",
        "times",
    )

    def __init__(self, files: FileSystem, mode: FsyncMode = FsyncMode.OS) -> None:
        self._files = files
        self._executor: Executor | None = None
        self.mode = mode
        self.loop: asyncio.AbstractEventLoop | None = None
        self.on_durable: Callable[[CommittedLog], None] = lambda log: None
        self.on_refused: Callable[[CommittedLog, KafkaError], None] = lambda log, error: None
        self.fsync_count = 0
        self.fsync_seconds = 0.0
        self.settled_count = 0
        self.times = Histogram()

    def attach(
        self,
        loop: asyncio.AbstractEventLoop,
        executor: Executor,
        on_durable: Callable[[CommittedLog], None],
        on_refused: Callable[[CommittedLog, KafkaError], None],
    ) -> None:
        """From now on fsync in `executor`.

        Called on the loop: `on_durable(log)` when more of a log is durable, `on_refused(log, why)` when what is not
        durable yet will not be.
        """
        self._executor = executor
        self.on_durable = on_durable
        self.on_refused = on_refused
        self.loop = loop

    def detach(self) -> None:
        """The logs are closed: begin no fsync any more."""
        self.loop = None

    def threshold(self, flush_messages: int) -> int:
        """How many records make an fsync due."""
        return 1 if self.mode is FsyncMode.COMMIT else flush_messages

    def committer(self, log: CommittedLog, known: LogCommitter | None = None) -> LogCommitter | None:
        """The committer that a log needs with its settings, `known` if it has one."""
        threshold = self.threshold(log.config.flush_messages)
        if known is not None:
            # Appends may wait for it, so it stays once made.
            known.threshold = threshold
            return known
        return None if threshold >= NO_LIMIT else LogCommitter(self, log, threshold)

    def submit(self, job: _Job, done: Callable[[_Job, OSError | None], None]) -> None:
        """Run a job in the executor; `done` is called on the loop."""
        executor, loop = self._executor, self.loop
        if executor is None or loop is None:
            raise RuntimeError("group commit is not attached to a loop")

        def run() -> None:
            failure: OSError | None = None
            started = time.monotonic()
            try:
                for file in job.files:
                    self._files.fdatasync(file.fd)
                if job.sync_directory is not None:
                    job.sync_directory()
            except OSError as error:
                failure = bare(error)
            seconds = time.monotonic() - started

            def tell() -> None:
                self.fsync_count += 1
                self.fsync_seconds += seconds
                self.times.add(round(seconds * 1e9))
                done(job, failure)

            loop.call_soon_threadsafe(tell)

        executor.submit(run)


class LogCommitter:
    """The group commit of one log.  Belongs to the loop."""

    __slots__ = (
        "_closed",
        "_commits",
        "_generation",
        "_log",
        "_named_base",
        "_paused",
        "_running",
        "durable_offset",
        "has_failed",
        "requested_offset",
        "threshold",
    )

    def __init__(self, commits: GroupCommit, log: CommittedLog, threshold: int) -> None:
        self._closed = False
        self._commits = commits
        self._log = log
        self._generation = 0
        self._named_base = -1
        self._paused = False
        self._running = False
        self.has_failed = False
        self.threshold = threshold
        self.durable_offset = log.recovery_point
        self.requested_offset = log.recovery_point

    def appended(self, end_offset: Offset) -> None:
        """The log ends at `end_offset` now.  Raises KafkaError only where there is no loop that could wait."""
        requested = self.requested_offset
        # While an fsync is due every append waits for it, so the acknowledged records that are not durable never exceed
        # the threshold.
        if requested <= self.durable_offset and end_offset - max(requested, self._log.recovery_point) < self.threshold:
            return
        if self._commits.loop is None:
            self._log.flush()
            return
        self.requested_offset = end_offset
        self._schedule()
        if CHECKED:
            self.check_invariants()

    def check_invariants(self) -> None:
        """Raises AssertionError unless what is asked for lies behind what is durable, within the log."""
        end = self._log.local.log_end_offset
        assert self.durable_offset <= self.requested_offset <= end, (
            self._log.topic_partition,
            self.durable_offset,
            self.requested_offset,
            end,
        )
        waits = self.requested_offset > self.durable_offset
        assert not waits or self._running or self._paused, f"{self._log.topic_partition}: an fsync that is not begun"

    def holds(self, last_offset: Offset) -> bool:
        """Whether the batch that ends with `last_offset` must not be acknowledged yet."""
        return self.durable_offset <= last_offset < self.requested_offset

    def bound(self, log_end_offset: Offset) -> Offset:
        """The offset below which all is as durable as the settings ask, of a log that ends at `log_end_offset`."""
        return self.durable_offset if self.has_failed or self.requested_offset > self.durable_offset else log_end_offset

    def settled(self, count: int) -> None:
        """Counts acknowledgements that have waited for an fsync."""
        self._commits.settled_count += count

    def flushed(self, end_offset: Offset) -> None:
        """Everything below `end_offset` was made durable in another way."""
        self.durable_offset = max(self.durable_offset, end_offset)
        self.requested_offset = max(self.requested_offset, end_offset)
        assert self.durable_offset <= self._log.local.log_end_offset, (self._log.topic_partition, self.durable_offset)

    def truncated(self, offset: Offset) -> None:
        """The log was cut at `offset`: what an fsync under way covers is not known any more."""
        self._generation += 1
        self._named_base = -1
        self.durable_offset = min(self.durable_offset, offset)
        self.requested_offset = min(self.requested_offset, offset)
        assert self.durable_offset <= self.requested_offset, (self._log.topic_partition, self.durable_offset, offset)

    def renamed(self) -> None:
        """The active segment has another file, whose name is not durable yet."""
        self._generation += 1
        self._named_base = -1

    @property
    def is_running(self) -> bool:
        """Whether an fsync is under way, or about to begin."""
        return self._running

    def pause(self) -> None:
        """Begin no fsync until `resume`: the log is about to take over other files.  Appends wait a little longer."""
        self._paused = True

    def resume(self) -> None:
        """Go on, if need be with other files, whose names are not durable yet."""
        assert self.requested_offset <= self._log.local.log_end_offset, (
            self._log.topic_partition,
            "an fsync of nothing",
        )
        self._paused = False
        self._named_base = -1
        if self.requested_offset > self.durable_offset:
            self._schedule()

    def close(self, reason: KafkaError | None = None) -> None:
        """The log is going away: what waits for it is refused, with the reason or NOT_LEADER_OR_FOLLOWER."""
        self._closed = True
        self._commits.on_refused(self._log, reason or NotLeaderOrFollowerError())

    # -- the fsync ----------------------------------------------------------------------------------------------------

    def _schedule(self) -> None:
        """All appends of this turn of the loop share the fsync."""
        if not self._running and not self._paused:
            self._running = True
            loop = self._commits.loop
            if loop is None:
                raise RuntimeError("group commit is not attached to a loop")
            loop.call_soon(self._start)

    def _start(self) -> None:
        if self._closed or self._commits.loop is None:
            return
        local = self._log.local
        end = local.log_end_offset
        newest = local.segments.active.base_offset
        names = None if newest == self._named_base else self._log.sync_names
        try:
            files = tuple(segment.file() for segment in local.segments.between(self.durable_offset, end))
        except OSError as error:
            self._running = False
            self._fail(error)
            return
        self._commits.submit(_Job(files, names, end, newest, self._generation), self._done)

    def _done(self, job: _Job, error: OSError | None) -> None:
        self._running = False
        if self._closed or self._commits.loop is None:
            return  # The logs were closed meanwhile, which made them durable as far as that works.
        if error is not None:
            self._fail(error)
            return
        if job.generation == self._generation:
            self._named_base = job.newest_base
            self.durable_offset = max(self.durable_offset, job.end_offset)
            self.requested_offset = max(self.requested_offset, self.durable_offset)
            self._commits.on_durable(self._log)
        if self.requested_offset > self.durable_offset:
            self._schedule()
        if CHECKED:
            self.check_invariants()

    def _fail(self, error: OSError) -> None:
        log = self._log
        refusal = log.storage_error("flushing", error)
        failures = log.local.environment.failures
        is_over = failures is not None and failures.report(log.directory, "an fsync", error, fsync=True)
        if not self._cut():
            logger.error("%s refuses appends until the broker is started again", log.topic_partition)
            log.local.flush_failed = True
            assert self.durable_offset <= log.local.log_end_offset, (log.topic_partition, self.durable_offset)
            self.has_failed = is_over = True
            self.requested_offset = self.durable_offset
        if is_over:
            # A follower may have what was cut, and would take other records at its offsets, in this epoch, for that.
            log.space_guard = FailedDirectoryGuard(refusal)
        self._commits.on_refused(log, refusal)

    def _cut(self) -> bool:
        """Cuts the log back to its durable end if no client has an answer for what lies behind it; returns whether it
        did."""
        log = self._log
        if self._commits.mode is not FsyncMode.COMMIT or is_internal(log.topic_partition.topic):
            return False
        try:
            log.truncate_to(self.durable_offset)
        except KafkaError as error:
            logger.error("%s cannot be cut back to offset %d: %s", log.topic_partition, self.durable_offset, error)
            return False
        assert log.local.log_end_offset == self.durable_offset, (log.topic_partition, self.durable_offset)
        logger.error("%s was cut back to its durable end, offset %d", log.topic_partition, self.durable_offset)
        return True
