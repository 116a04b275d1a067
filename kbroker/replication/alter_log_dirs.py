"""Moves of partitions between the log directories of this broker: AlterReplicaLogDirs (KIP-113).

    asked -> copy in pieces (threads, throttled) -> nearly level -> pause fsyncs -> copy, made durable -> take over

Each move has a task on the loop, which decides what is copied next (`future_log`), and `num.replica.alter.log.dirs
.threads` threads carry the pieces out; a piece is small enough that moves share the threads.  Produce, fetch, retention
and compaction go on.  The log takes the copy over in one turn of the loop (`log_relocation`), for which its cleaner
is stopped; nothing that was durable in the old directory is less durable in the new one.

A compaction that replaces segments faster than they are copied would keep a move from ending.  So once the copied bytes
that compaction has made obsolete exceed the size of the log, the partition is not compacted until the move is over
(Kafka does not compact it at all during a move).

A move ends when it is done.  It ends early when the partition is asked back to its directory or to a third one, when
its topic is deleted, and on a disk error, lack of space or a damaged segment: the copy is then deleted, and the log
stays where it is.  A stop of the broker leaves the copy, and the next start goes on with it.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Final

from kbroker.errors import (
    ErrorCode,
    InvalidReplicaAssignmentError,
    InvalidTopicError,
    KafkaError,
    KafkaStorageError,
    LogDirNotFoundError,
    NotLeaderOrFollowerError,
    again,
)
from kbroker.storage.directories.directory_plans import MoveTotals
from kbroker.storage.directories.future_log import (
    CopyStep,
    CorruptSourceError,
    FutureLog,
    MoveCancelledError,
    SourceChangedError,
)
from kbroker.storage.directories.log_dirs import DELETE_SUFFIX, MAX_PARTITION_DIRECTORY, marked_directory
from kbroker.storage.directories.log_relocation import take_over
from kbroker.storage.files.throttle import Throttle
from kbroker.storage.log.local_log import storage_error
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig
    from kbroker.replication.replica_manager import ReplicaManager
    from kbroker.storage.log.group_commit import LogCommitter
    from kbroker.storage.manager.log_manager import LogManager

logger = logging.getLogger("kbroker.moves")

THROTTLE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
FUTURE_NAME_BYTES = len(".-future") + 32
LEVEL_BYTES = 4 << 20
TAKE_OVER_BYTES = 256 << 10
CLOSING_ROUNDS = 32
IDLE_SECONDS = 0.001


class DirectoryMoves:
    """See the module.  All of it belongs to the loop."""

    def __init__(
        self, config: BrokerConfig, log_manager: LogManager, replicas: ReplicaManager, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._logs = log_manager
        self._replicas = replicas
        self._loop = loop
        self._files = log_manager.environment.files
        self._threads = config.get("num.replica.alter.log.dirs.threads") or len(log_manager.directories)
        self._throttle = Throttle(config.get(THROTTLE))
        self._unthrottled = Throttle(math.inf)
        self._executor: ThreadPoolExecutor | None = None
        self.tasks: set[asyncio.Task[None]] = set()
        self._stopping = False

    def follow(self, config: BrokerConfig) -> None:
        """Takes over what was changed at run time: the throttle."""
        self._throttle.bytes_per_second = config.get(THROTTLE)

    def _count(self, *, done: int = 0, failed: int = 0, called_off: int = 0, copied: int = 0) -> None:
        totals = self._logs.plans.totals
        self._logs.plans.totals = MoveTotals(
            totals.done + done, totals.failed + failed, totals.called_off + called_off, totals.bytes_copied + copied
        )

    # -- what is asked ------------------------------------------------------------------------------------------------

    def alter(self, topic_partition: TopicPartition, path: str) -> None:
        """Moves a partition to a log directory, or makes it there when it does not exist yet.

        KafkaError with the code that Kafka answers when that cannot be begun.
        """
        self._check_request(topic_partition, path)
        plans = self._logs.plans
        future = plans.futures.get(topic_partition)
        if future is not None and future.parent != path:
            logger.info("The move of %s to %s is given up: it is to be in %s", topic_partition, future.parent, path)
            plans.cancel(topic_partition)
            future = None
        log = self._logs.get_log(topic_partition)
        if log is None:
            plans.prefer(topic_partition, path)
        try:
            log = self._replicas.replica(*topic_partition).log
        except NotLeaderOrFollowerError as error:
            raise KafkaError.of(ErrorCode.REPLICA_NOT_AVAILABLE, str(error)) from error
        if log.parent == path or future is not None:
            return
        future = FutureLog(self._files, log, path)
        try:
            future.create()
        except OSError as error:
            failures = self._logs.failures
            raise storage_error("creating a copy", topic_partition, future.directory, error, failures) from error
        self._begin(future)

    def _check_request(self, topic_partition: TopicPartition, path: str) -> None:
        if len(str(topic_partition)) + FUTURE_NAME_BYTES > MAX_PARTITION_DIRECTORY:
            raise InvalidTopicError("The topic name is too long.")
        if path not in {directory.path for directory in self._logs.directories}:
            raise LogDirNotFoundError(f"Log dir {path} is not found in the config.")
        if path not in {directory.path for directory in self._logs.online_directories()}:
            raise KafkaStorageError(f"Log directory {path} is offline")
        if path in self._logs.plans.cordoned:
            raise InvalidReplicaAssignmentError(f"Log directory {path} is cordoned")

    def resume_found(self) -> None:
        """Goes on with the moves that the last stop has interrupted."""
        found, self._logs.plans.found = self._logs.plans.found, {}
        for topic_partition, directory in found.items():
            log = self._logs.get_log(topic_partition)
            parent = directory.rpartition("/")[0]
            if log is not None and log.parent != parent:
                self._begin(FutureLog(self._files, log, parent, directory))

    def _begin(self, future: FutureLog) -> None:
        tp = future.log.topic_partition
        assert tp not in self._logs.plans.futures, f"{tp} is being moved already"
        assert future.parent != future.log.parent, f"{tp} is in {future.parent} already"
        self._logs.plans.futures[tp] = future
        logger.info("Moving %s from %s to %s, %d bytes", tp, future.log.parent, future.parent, future.log.size_bytes)
        task = self._loop.create_task(self._move(future))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    # -- a move -------------------------------------------------------------------------------------------------------

    async def _move(self, future: FutureLog) -> None:
        tp = future.log.topic_partition
        moved = False
        try:
            await self._in_thread(future.begin)
            while not moved:
                await self._copy(future)
                moved = await self._close(future)
            self._count(done=1)
        except MoveCancelledError:
            self._count(called_off=not self._stopping)
            when = "goes on with the next start" if self._stopping else "was called off"
            logger.info("The move of %s to %s %s", tp, future.parent, when)
        except Exception as error:
            # Any error concerns this move alone; the log serves on where it is.
            if not future.cancelled:
                self._tell_failure(future, error)
        finally:
            if future.cleaning_paused:
                self._logs.cleaner.resume(tp)
            if self._logs.plans.futures.get(tp) is future and not self._stopping:
                del self._logs.plans.futures[tp]
        if not moved and not self._stopping:
            await self._discard(future)

    def _tell_failure(self, future: FutureLog, error: Exception) -> None:
        self._count(failed=1)
        logger.error(
            "The move of %s to %s has failed and was given up after %d bytes; the partition serves on in %s: %s",
            future.log.topic_partition,
            future.parent,
            future.copied_bytes,
            future.log.parent,
            f"{error.strerror} ({error.filename})" if isinstance(error, OSError) and error.strerror else error,
            exc_info=None if isinstance(error, (OSError, KafkaError, CorruptSourceError)) else error,
        )
        if isinstance(error, OSError) and error.filename is not None:
            self._logs.failures.report(str(error.filename), "moving a partition", error)

    async def _copy(self, future: FutureLog) -> None:
        """Copies until the copy is nearly level with the log."""
        while True:
            ready = future.ready_bytes()
            if ready is not None and ready <= LEVEL_BYTES:
                return
            steps = future.next_steps()
            if not steps:
                return
            await self._carry_out(future, steps, self._throttle)
            if not future.cleaning_paused and future.discarded_bytes > future.log.size_bytes:
                future.cleaning_paused = True
                self._logs.cleaner.abort_and_pause(future.log.topic_partition)

    async def _carry_out(self, future: FutureLog, steps: list[CopyStep], throttle: Throttle) -> None:
        self._check(future)
        segments = future.log.local.segments
        before = future.copied_bytes
        copied: list[int] = []
        try:
            await self._in_thread(partial(future.carry_out, steps, throttle, copied))
        except SourceChangedError as error:
            named_as_then = all(step.copy.source.path == step.source_path for step in steps)
            if future.log.local.segments is segments and named_as_then:
                raise OSError(f"files of the log are missing: {error}") from error
        finally:
            future.finished(steps, copied)
        self._count(copied=max(0, future.copied_bytes - before))
        self._check(future)

    def _check(self, future: FutureLog) -> None:
        """Raises when the move cannot go on: it was cancelled, or its directory is short of space."""
        future.check()
        guard = self._logs.environment.space_guards.get(future.parent)
        if guard is not None and guard.closed:
            raise OSError(f"{future.parent} has less free space than kbroker.disk.reserve.bytes")

    async def _close(self, future: FutureLog) -> bool:
        """Ends a move; False when the log has grown too fast meanwhile, so that there is more to copy first."""
        committer = future.log.committer
        if committer is not None:
            committer.pause()
        try:
            while committer is not None and committer.is_running and not future.cancelled:  # noqa: ASYNC110
                await asyncio.sleep(IDLE_SECONDS)
            await self._make_durable(future)
            for _ in range(CLOSING_ROUNDS):
                missing = future.ready_bytes()
                if missing is not None and missing <= TAKE_OVER_BYTES and self._may_take_over(future, committer):
                    doomed = self._take_over(future)
                    break
                steps = future.next_steps(sync=missing is not None and missing <= TAKE_OVER_BYTES)
                await self._carry_out(future, steps, self._unthrottled)
            else:
                return False
        finally:
            if committer is not None:
                committer.resume()
        await self._finish(future, doomed)
        return True

    async def _make_durable(self, future: FutureLog) -> None:
        """All that the log holds now is durable in the copy, with the offset that it starts at."""
        needed = future.log.log_end_offset
        for saved in self._logs.checkpoints.save_log_starts():
            error = await asyncio.wrap_future(saved)
            if error is not None:
                raise again(error)
        epochs = future.log.leader_epoch_cache.encode()
        await self._in_thread(partial(future.copy_small_files, list(future.log.producer_state.snapshots), epochs))
        future.epochs = epochs, needed
        for _ in range(CLOSING_ROUNDS):
            if future.synced_offset >= needed:
                return
            await self._carry_out(future, future.next_steps(sync=True), self._unthrottled)

    def _may_take_over(self, future: FutureLog, committer: LogCommitter | None) -> bool:
        """Whether everything that was acknowledged as durable is durable in the copy, and the names of its files."""
        future.check()
        if not future.has_durable_names:
            return False
        if future.log.committer is not committer:
            # Made just now, by a change of settings; the next round pauses it.
            return False
        return committer is None or committer.durable_offset <= future.synced_offset

    def _take_over(self, future: FutureLog) -> str:
        log, cleaner = future.log, self._logs.cleaner
        tp, old_parent, end = log.topic_partition, log.parent, log.log_end_offset
        cleaner.abort_and_pause(tp)
        try:
            doomed = take_over(future)
            cleaner.moved(tp, old_parent, log.parent)
        finally:
            cleaner.resume(tp)
        assert log.parent == future.parent != old_parent, (tp, log.parent, old_parent)
        assert log.log_end_offset == end, f"{tp} ends at {log.log_end_offset} after its move, it ended at {end}"
        assert log.local.recovery_point <= end and log.high_watermark <= end, (log, log.local.recovery_point)
        del self._logs.plans.futures[tp]
        checkpoints = self._logs.checkpoints
        checkpoints.start_recovery_points()
        checkpoints.start_log_starts()
        checkpoints.start_high_watermarks()
        logger.info("Moved %s from %s to %s, log end offset %d", tp, old_parent, log.parent, log.log_end_offset)
        return doomed

    async def _finish(self, future: FutureLog, doomed: str) -> None:
        """The new name is durable before anything of the old directory goes."""
        assert doomed != future.log.directory, f"{doomed} is where the log lies"
        for directory in (future.parent, doomed.rpartition("/")[0]):
            try:
                await self._in_thread(partial(self._files.fsync_directory, directory))
            except OSError as error:
                logger.error("%s stays, as the names of its successor are not durable: %s", doomed, error)
                self._logs.failures.report(directory, "an fsync", error, fsync=True)
                return
        self._logs.deletions.later(future.log.config.file_delete_delay_ms, partial(self._files.remove_tree, doomed))

    async def _discard(self, future: FutureLog) -> None:
        """Removes the copy of a move that is no longer wanted, under a name that no start takes up again."""
        assert future.directory != future.log.directory, f"{future.directory} is where the log lies"
        if self._logs.failures.is_offline(future.parent):
            return
        name = f"{future.parent}/{marked_directory(*future.log.topic_partition, DELETE_SUFFIX)}"

        def remove() -> None:
            if self._files.exists(future.directory):
                self._files.rename(future.directory, name)
                self._files.remove_tree(name)

        try:
            await self._in_thread(remove)
        except OSError as error:
            logger.warning("The copy in %s was not removed: %s", future.directory, error)
            self._logs.failures.report(future.directory, "deleting files", error)

    # -- threads ------------------------------------------------------------------------------------------------------

    def _pool(self) -> ThreadPoolExecutor:
        if self._executor is None:
            self._executor = ThreadPoolExecutor(self._threads, thread_name_prefix="log-move")
        return self._executor

    async def _in_thread(self, job: Callable[[], object]) -> object:
        if self._stopping:
            raise MoveCancelledError("the broker stops")
        return await self._loop.run_in_executor(self._pool(), job)

    async def stop(self) -> None:
        """Interrupts the moves; what they have copied stays for the next start."""
        self._stopping = True
        for future in self._logs.plans.futures.values():
            future.cancelled = True
        if self.tasks:
            await asyncio.wait(self.tasks)
        if self._executor is not None:
            self._executor.shutdown(wait=True)
