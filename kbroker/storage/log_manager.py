"""All logs of this broker: directories, loading, creation, deletion, checkpoints, flushes, clean stop.

Start: `open_dirs` locks the directories and reads what they are bound to; `claim` binds new ones; `load_all` opens
every partition, recovering those whose last stop was not clean.  Stop: `shutdown` flushes everything, writes the
checkpoints and, only when all of that succeeded, the clean-shutdown marker.

Periodic work is offered as `periodic_tasks`; the broker's loop runs it.  Deleted partitions are renamed to `-delete`
at once and removed after `file.delete.delay.ms`.
"""

from __future__ import annotations

import asyncio
import gc
import heapq
import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from itertools import count

from kbroker.clock import Clock
from kbroker.config import BrokerConfig, LogConfig, log_config
from kbroker.errors import KafkaError, KafkaStorageError
from kbroker.periodic import PeriodicTask
from kbroker.storage.cleaner_manager import CleanerManager
from kbroker.storage.filesystem import SYSTEM_FILES, FileSystem
from kbroker.storage.group_commit import FsyncMode, GroupCommit, Loop
from kbroker.storage.local_log import LogEnvironment
from kbroker.storage.log_checkpoints import LogCheckpoints
from kbroker.storage.log_dir_failure import LogDirFailureChannel
from kbroker.storage.log_dirs import (
    CLUSTER_METADATA_DIRECTORY,
    DELETE_SUFFIX,
    STRAY_SUFFIX,
    LogDir,
    LogDirError,
    OpenedDirs,
    describe,
    marked_directory,
    open_directories,
    parse_partition_directory,
)
from kbroker.storage.log_flusher import LogFlusher
from kbroker.storage.log_loader import LoadRequest, load_log
from kbroker.storage.log_recovery import RecoveryProgress
from kbroker.storage.open_files import OpenFiles, default_budget
from kbroker.storage.retention import Retention
from kbroker.storage.unified_log import UnifiedLog
from kbroker.storage.write_gate import DirectoryGate
from kbroker.types import ZERO_UUID, TopicPartition

logger = logging.getLogger("kbroker.storage")

TopicConfigs = Mapping[str, tuple[bytes, LogConfig]]
DELETION_INTERVAL_MS = 1_000
MIN_COMPACTION_INTERVAL_MS = 100
SPACE_INTERVAL_MS = 100
SHORT_SPACE_INTERVAL_SECONDS = 0.01
MAX_FLUSH_INTERVAL_MS = 10_000
COMPACTION_TASK = "compaction"
FLUSH_WORKERS = 2
COMMIT_WORKERS = 8
CLOSE_WORKERS = 16
PROGRESS_INTERVAL_SECONDS = 5.0


class LogManager:
    """The logs of one broker, over all of its directories."""
def compaction_interval_ms(config: BrokerConfig) -> int:
    """How often logs that are due are looked for."""
    backoff_ms: int = config.get("log.cleaner.backoff.ms")
    return max(backoff_ms, MIN_COMPACTION_INTERVAL_MS)



    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        filesystem: FileSystem = SYSTEM_FILES,
        executor: Executor | None = None,
    ) -> None:
        self._config = config
        self._clock = clock
        self._files = filesystem
        self._own_executor = executor is None
        self._executor = executor or ThreadPoolExecutor(FLUSH_WORKERS, thread_name_prefix="log-flush")
        self.failures = LogDirFailureChannel(filesystem)
        self.commits = GroupCommit(filesystem, FsyncMode(config.get("kbroker.fsync")))
        self._commit_executor: Executor | None = None
        self.open_files = OpenFiles(default_budget())
        self.environment = LogEnvironment(
            filesystem,
            clock,
            self.open_files,
            self.later,
            self._executor,
            config.get("producer.id.expiration.ms"),
            self.commits,
        )
        self.gates: list[DirectoryGate] = []
        self._closed: set[str] = set()
        self.logs: dict[TopicPartition, UnifiedLog] = {}
        self.cleaner = CleanerManager(config, self.logs, clock, filesystem)
        self.retention = Retention(self.logs, clock, self.cleaner.is_busy)
        self.directories: list[LogDir] = []
        self.progress = RecoveryProgress()
        self.checkpoints = LogCheckpoints(filesystem, self.logs, self._executor)
        self.flusher = LogFlusher(self.logs, clock, every_time=self.commits.mode is FsyncMode.INTERVAL)
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._sequence = count()

    # -- start --------------------------------------------------------------------------------------------------------

    def open_dirs(self) -> OpenedDirs:
        """Locks and reads the directories.  LogDirError says what is wrong and what to do."""
        self.directories = open_directories(self._files, self._config.log_dirs)
        self.failures.watch(directory.path for directory in self.directories)
        for directory in self.directories:
            path = directory.path
            self.checkpoints.add(path)
            gate = DirectoryGate(self._files, path, self._config.get("kbroker.disk.reserve.bytes"))
            gate.measure()
            self.gates.append(gate)
            self.environment.gates[path] = gate
        return describe(self._files, self.directories)

    def online_directories(self) -> list[LogDir]:
        """The directories that serve: opened at start, and not failed since."""
        return [directory for directory in self.directories if not self.failures.is_offline(directory.path)]

    def claim(self, cluster_id: str) -> None:
        """Binds directories that are new to the cluster and this node; refuses those of others."""
        for directory in self.directories:
            directory.bind(cluster_id, self._config.node_id)

    def start(self, cluster_id: str, topics: TopicConfigs | None = None) -> None:
        """`open_dirs`, `claim` and `load_all` in one."""
        self.open_dirs()
        self.claim(cluster_id)
        self.load_all(topics)

    def load_all(self, topics: TopicConfigs | None = None) -> None:
        """Opens every partition found.  `topics`: id and settings by name.

        With `topics` given, a partition of a topic that is unknown, or has another id, is set aside as `-stray`.
        """
        started = time.monotonic()
        default = log_config(self._config, {})
        requests: list[LoadRequest] = []
        clean = True
        for directory in self.directories:
            clean = directory.take_clean_marker() and clean
            requests.extend(self._find_partitions(directory, topics, default))
        self.progress.logs_total = len(requests)
        collecting = gc.isenabled()
        gc.disable()  # nothing that loading makes is garbage: collections over it would double the time of a start
        try:
            self._load(requests)
        finally:
            if collecting:
                gc.enable()
        if topics is not None:
            self._set_strays_aside(topics)
        if requests:
            logger.info(
                "Loaded %d logs from %d directories in %.3f s after %s stop",
                len(self.logs),
                len(self.directories),
                time.monotonic() - started,
                "a clean" if clean else "an unclean",
            )

    def _find_partitions(
        self, directory: LogDir, topics: TopicConfigs | None, default: LogConfig
    ) -> Iterator[LoadRequest]:
        checkpoints = self.checkpoints[directory.path]
        recovery_points = checkpoints.recovery_points.read()
        log_starts = checkpoints.log_starts.read()
        high_watermarks = checkpoints.high_watermarks.read()
        for entry in self._files.list_directory(directory.path):
            if not entry.is_directory or entry.name == CLUSTER_METADATA_DIRECTORY:
                continue
            found = parse_partition_directory(entry.name)
            path = f"{directory.path}/{entry.name}"
            if found is None:
                continue
            if found.mark:
                if found.mark == "delete":
                    self.later(0, lambda path=path: self._files.remove_tree(path))  # type: ignore[misc]
                continue
            tp = TopicPartition(found.topic, found.partition)
            known = topics.get(found.topic) if topics is not None else None
            yield LoadRequest(
                path,
                tp,
                known[1] if known is not None else default,
                directory.clean,
                recovery_points.get(tp, 0),
                log_starts.get(tp, 0),
                high_watermarks.get(tp, 0),
                self.progress,
            )

    def _load(self, requests: list[LoadRequest]) -> None:
        """Clean ones here, one after the other; the others on threads, as checking bytes needs no GIL."""
        unclean = [request for request in requests if not request.clean]
        reported = time.monotonic()
        for request in requests:
            if request.clean:
                self._register(load_log(request, self.environment))
        if not unclean:
            return
        workers = self._config.get("num.recovery.threads.per.data.dir") * max(1, len(self.directories))
        with ThreadPoolExecutor(workers, thread_name_prefix="log-recovery") as pool:
            for log in pool.map(self._recover, unclean):
                self._register(log)
                if time.monotonic() - reported > PROGRESS_INTERVAL_SECONDS:
                    reported = time.monotonic()
                    logger.info(
                        "Recovering: %d of %d logs, %d bytes checked",
                        self.progress.logs_done,
                        self.progress.logs_total,
                        self.progress.bytes_done,
                    )

    def _recover(self, request: LoadRequest) -> UnifiedLog:
        log = load_log(request, self.environment)
        if self.commits.mode is FsyncMode.COMMIT:
            # What a killed process left in memory is about to be shown to consumers.
            log.flush()
        return log

    def _register(self, log: UnifiedLog) -> None:
        known = self.logs.get(log.topic_partition)
        if known is not None:
            raise LogDirError(
                f"partition {log.topic_partition} lies in two directories, {known.directory} and {log.directory}; "
                "remove the older one"
            )
        self.logs[log.topic_partition] = log
        self.progress.logs_done += 1

    def _set_strays_aside(self, topics: TopicConfigs) -> None:
        for tp, log in list(self.logs.items()):
            known = topics.get(tp.topic)
            if known is not None and log.topic_id in (known[0], ZERO_UUID):
                continue
            logger.warning("%s in %s belongs to no topic that exists: setting it aside", tp, log.directory)
            self._move_away(tp, STRAY_SUFFIX)

    def attach(self, loop: Loop, on_durable: Callable[[UnifiedLog], None]) -> None:
        """The logs are loaded and belong to `loop` now: no append fsyncs in place any more (`GroupCommit.attach`)."""
        self._commit_executor = ThreadPoolExecutor(COMMIT_WORKERS, thread_name_prefix="log-commit")
        self.commits.attach(loop, self._commit_executor, on_durable)

    # -- logs ---------------------------------------------------------------------------------------------------------

    def get_log(self, topic_partition: TopicPartition) -> UnifiedLog | None:
        return self.logs.get(topic_partition)

    def get_or_create_log(self, topic_partition: TopicPartition, topic_id: bytes, config: LogConfig) -> UnifiedLog:
        """The partition's log, made in the directory with the fewest partitions when there is none.

        InconsistentTopicIdError when the directory belongs to another topic, KafkaStorageError when no disk takes it.
        """
        log = self.logs.get(topic_partition)
        if log is not None:
            log.config = config
            if topic_id != ZERO_UUID:
                log.assign_topic_id(topic_id)
            return log
        directory = self._emptiest()
        path = f"{directory.path}/{topic_partition}"
        try:
            try:
                self._files.mkdir(path)
            except FileExistsError:
                logger.warning("%s exists already; opening it", path)
            log = load_log(LoadRequest(path, topic_partition, config, False), self.environment)
        except OSError as error:
            logger.error("Cannot create %s: %s", path, error)
            raise KafkaStorageError(
                f"Error while creating log for {topic_partition} in dir {directory.path}"
            ) from error
        if topic_id != ZERO_UUID:
            log.assign_topic_id(topic_id)
        self.logs[topic_partition] = log
        return log

    def _emptiest(self) -> LogDir:
        """The directory with the fewest partitions, of those with space where there are any."""
        if len(self.directories) == 1:
            return self.directories[0]
        closed = {gate.path for gate in self.gates if gate.closed}
        candidates = [directory for directory in self.directories if directory.path not in closed] or self.directories
        counts = {directory.path: 0 for directory in self.directories}
        for log in self.logs.values():
            counts[log.parent] += 1
        return min(candidates, key=lambda directory: counts[directory.path])

    def delete_log(self, topic_partition: TopicPartition) -> None:
        """Takes a partition away at once and off the disk after `file.delete.delay.ms`."""
    def follow(self, config: BrokerConfig) -> None:
        """Takes over settings that were changed at run time; `BrokerSettings` has checked them."""
        self._config = config
        self.cleaner.reconfigure(config)
        expiration_ms = config.get("producer.id.expiration.ms")
        if expiration_ms != self.environment.producer_expiration_ms:
            self.environment.producer_expiration_ms = expiration_ms
            for log in self.logs.values():
                log.producer_state.expiration_ms = expiration_ms

        log = self.logs.get(topic_partition)
        if log is None:
            return
        delay_ms = log.config.file_delete_delay_ms
        path = self._move_away(topic_partition, DELETE_SUFFIX)
        self.later(delay_ms, lambda: self._files.remove_tree(path))

    def _move_away(self, topic_partition: TopicPartition, suffix: str) -> str:
        log = self.logs.pop(topic_partition)
        if log.committer is not None:
            log.committer.close()
        self.cleaner.forget(topic_partition)
        log.close(clean=False)
        parent = log.parent
        path = f"{parent}/{marked_directory(*topic_partition, suffix)}"
        try:
            self._files.rename(log.directory, path)
        except OSError as error:
            raise KafkaStorageError(f"Error while renaming {log.directory}") from error
        return path

    # -- periodic work ------------------------------------------------------------------------------------------------

    def later(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Runs `action` after a delay, by the deletion task."""
        heapq.heappush(self._later, (self._clock.monotonic() + delay_ms / 1000, next(self._sequence), action))

    def run_due(self) -> None:
        """Deletes what has waited long enough, or everything that waits while a directory is short of space."""
        due = math.inf if any(gate.closed for gate in self.gates) else self._clock.monotonic()
        while self._later and self._later[0][0] <= due:
            _, _, action = heapq.heappop(self._later)
            try:
                action()
            except OSError as error:
                logger.warning("A delayed deletion failed: %s", error)

    def periodic_tasks(self) -> list[PeriodicTask]:
        get = self._config.get
        flush_interval_ms = min(get("log.flush.scheduler.interval.ms"), MAX_FLUSH_INTERVAL_MS)
        if self.commits.mode is FsyncMode.INTERVAL:
            flush_interval_ms = get("kbroker.fsync.interval.ms")
        write = self.checkpoints
        return [
            PeriodicTask("watch the disks", SPACE_INTERVAL_MS, self.watch_space),
            PeriodicTask("flush logs", flush_interval_ms, self.flusher.run),
            PeriodicTask(
                "checkpoint recovery points",
                get("log.flush.offset.checkpoint.interval.ms"),
                write.start_recovery_points,
            ),
            PeriodicTask(
                "checkpoint log start offsets",
                get("log.flush.start.offset.checkpoint.interval.ms"),
                write.start_log_starts,
            ),
            PeriodicTask(
                "checkpoint high watermarks",
                get("replica.high.watermark.checkpoint.interval.ms"),
                write.start_high_watermarks,
            ),
            PeriodicTask("delete files", DELETION_INTERVAL_MS, self.run_due),
            PeriodicTask(
                "retention",
                get("log.retention.check.interval.ms"),
                self.retention.run,
                get("log.initial.task.delay.ms"),
            ),
            PeriodicTask(COMPACTION_TASK, compaction_interval_ms(self._config), self.cleaner.run),
            PeriodicTask("expire producer ids", get("producer.id.expiration.check.interval.ms"), self.expire_producers),
        ]

    async def watch_space(self) -> None:
        """Looks at the free space of every directory (`write_gate`), more often when it gets short.

        Retention has its turn at once when a gate has closed: there may be something to delete.
        """
        while True:
            for gate in self.gates:
                gate.measure()
            closed = {gate.path for gate in self.gates if gate.closed}
            newly, self._closed = closed - self._closed, closed
            if newly:
                await self.retention.run()
                self.run_due()
            if not any(gate.is_short for gate in self.gates):
                return
            await asyncio.sleep(SHORT_SPACE_INTERVAL_SECONDS)

    def expire_producers(self) -> None:
        now_ms = self._clock.now_ms()
        for log in self.logs.values():
            if log.producer_state.producers:
                log.producer_state.remove_expired(now_ms)

    # -- stop ---------------------------------------------------------------------------------------------------------

    def shutdown(self) -> None:
        """Closes every log, makes all durable, writes checkpoints, then the markers; a directory that fails gets none.

        Many files become durable side by side: the file system then commits them together.
        """
        self.cleaner.stop()
        with ThreadPoolExecutor(CLOSE_WORKERS, thread_name_prefix="log-close") as pool:
            for path, logs in self.checkpoints.by_directory().items():
                if self._close_logs(logs, pool):
                    self._write_final_checkpoints(path)
        self.release()

    def _close_logs(self, logs: list[UnifiedLog], pool: Executor) -> bool:
        failed = 0
        waiting = []
        for log in logs:
            try:
                make_durable = log.prepare_close()
            except (OSError, KafkaError) as error:
                failed += 1
                self._tell_unclean(log, error, failed)
                continue
            if make_durable is not None:
                waiting.append((log, pool.submit(make_durable)))
        for log, future in waiting:
            try:
                future.result()
            except OSError as error:
                failed += 1
                self._tell_unclean(log, error, failed)
            else:
                log.closed_durably()
        if failed:
            logger.error("%d of %d logs were not closed cleanly; the next start recovers them", failed, len(logs))
        return failed == 0

    @staticmethod
    def _tell_unclean(log: UnifiedLog, error: Exception, failed: int) -> None:
        """A full disk fails every log for the same reason: say it once."""
        if failed == 1:
            logger.error("%s was not closed cleanly: %s", log.topic_partition, error)

    def _write_final_checkpoints(self, path: str) -> None:
        directory = next(directory for directory in self.directories if directory.path == path)
        try:
            self.checkpoints.write_all()
            directory.write_clean_marker()
        except OSError as error:
            logger.error("No clean-shutdown marker for %s: %s", path, error)

    def release(self) -> None:
        """Gives directories back without flushing anything: after a failed start, or as the last step of a stop."""
        for directory in self.directories:
            directory.release()
        self.commits.detach()
        if self._commit_executor is not None:
            self._commit_executor.shutdown(wait=True)
        if self._own_executor:
            self._executor.shutdown(wait=True)
