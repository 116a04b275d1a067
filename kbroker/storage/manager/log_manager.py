"""All logs of this broker: directories, loading, creation, deletion, checkpoints, flushes, clean stop.

Start: `open_dirs` locks the directories and reads what they are bound to; `claim` binds new ones; `load_all` opens
every partition, recovering those whose last stop was not clean.  Stop: `shutdown` flushes everything, writes the
checkpoints and, only when all of that succeeded, the clean-shutdown marker.  If the start was interrupted, `shutdown`
restores the marker in directories that had one.

Periodic work is offered as `periodic_tasks`; the broker's loop runs it.  Deleted partitions are renamed to `-delete`
at once and removed after `file.delete.delay.ms`.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial

from kbroker._fast.base.slices import Slices
from kbroker._fast.log.producer_table import ProducerBudget
from kbroker.clock import Clock
from kbroker.config import BrokerConfig, LogConfig, log_config
from kbroker.errors import KafkaError, KafkaStorageError, again
from kbroker.log_output import RateLimitedLog
from kbroker.periodic import PeriodicTask
from kbroker.storage.cleaner.cleaner_manager import CleanerManager
from kbroker.storage.cleaner.cleaner_settings import CleanerSettings
from kbroker.storage.directories.directory_plans import DirectoryPlans
from kbroker.storage.directories.future_dirs import settle_futures
from kbroker.storage.directories.log_dir_offline import DirectoryWatch, directory_ids, miss_lost, take_offline
from kbroker.storage.directories.log_dirs import (
    CLUSTER_METADATA_DIRECTORY,
    DELETE_SUFFIX,
    NO_EPOCH,
    NO_NODE,
    STRAY_SUFFIX,
    LogDir,
    OpenedDirs,
    describe,
    marked_directory,
    open_directories,
    parse_partition_directory,
)
from kbroker.storage.directories.log_placement import make_partition_directory, stray_of_two
from kbroker.storage.directories.lost_files import LostPartitions, tell_unbound
from kbroker.storage.directories.strays import KnownTopic, log_strays, stray_logs
from kbroker.storage.files.filesystem import SYSTEM_FILES, FileSystem
from kbroker.storage.files.log_dir_failure import NO_SPACE, LogDirFailureChannel
from kbroker.storage.files.open_files import open_segments, process_limits
from kbroker.storage.log.group_commit import CommittedLog, FsyncMode, GroupCommit
from kbroker.storage.log.kept_traffic import KeptTraffic
from kbroker.storage.log.local_log import LogEnvironment, storage_error
from kbroker.storage.log.space_guard import DirectorySpaceGuard
from kbroker.storage.log.unified_log import UnifiedLog
from kbroker.storage.manager.delayed_deletions import DelayedDeletions
from kbroker.storage.manager.log_checkpoints import LogCheckpoints
from kbroker.storage.manager.log_closing import close_logs, may_end_clean
from kbroker.storage.manager.log_flusher import LogFlusher
from kbroker.storage.manager.retention import Retention
from kbroker.storage.recovery.log_loader import LoadRequest, load_log
from kbroker.storage.recovery.log_recoveries import Opener, note_loaded, recover_logs, take_saved_points
from kbroker.storage.recovery.recovery_progress import RecoveryProgress
from kbroker.storage.recovery.recovery_saver import RecoverySaver
from kbroker.types import FIRST_OFFSET, ZERO_UUID, TopicPartition

logger = logging.getLogger("kbroker.storage")
complaints = RateLimitedLog(logger)

TopicConfigs = Mapping[str, KnownTopic]
DELETION_INTERVAL_MS = 1_000
COMPACTION_TASK = "compaction"
FLUSH_WORKERS = 2
COMMIT_WORKERS = 8


def compaction_interval_ms(config: BrokerConfig) -> int:
    """How often logs that are due are looked for."""
    return CleanerSettings.of(config).interval_ms


class LogManager:
    """The logs of one broker, over all of its directories."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        filesystem: FileSystem = SYSTEM_FILES,
        executor: Executor | None = None,
        activity: Callable[[], int] | None = None,
        slices: Slices | None = None,
    ) -> None:
        self.slices = slices or Slices()
        self._config = config
        self._clock = clock
        self._files = filesystem
        self._own_executor = executor is None
        self._executor = executor or ThreadPoolExecutor(FLUSH_WORKERS, thread_name_prefix="log-flush")
        self.failures = LogDirFailureChannel(filesystem)
        self.deletions = DelayedDeletions(clock, self._executor, self.failures)
        self.commits = GroupCommit(filesystem, FsyncMode(config.get("kbroker.fsync")))
        self._commit_executor: Executor | None = None
        self.open_files = open_segments(config.get("kbroker.max.open.segments"), process_limits())
        self.environment = LogEnvironment(
            filesystem,
            clock,
            self.open_files,
            self.deletions.later,
            self._executor,
            config.get("producer.id.expiration.ms"),
            self.commits,
            ProducerBudget(config.get("kbroker.max.producers")),
            verifies=config.get("transaction.partition.verification.enable"),
        )
        self.environment.producers.on_eviction = self._on_producer_evicted
        self.environment.failures = self.failures
        self.environment.soon = self.deletions.soon
        self.space_guards: list[DirectorySpaceGuard] = []
        self._unopened: dict[TopicPartition, LoadRequest] = {}
        self.logs: dict[TopicPartition, UnifiedLog] = {}
        self.traffic = KeptTraffic()
        self.plans = DirectoryPlans(config)
        self.cleaner = CleanerManager(config, self.logs, clock, filesystem, self.failures, self.slices)
        self.retention = Retention(self.logs, clock, self.cleaner.is_busy, self.slices)
        self.directories: list[LogDir] = []
        self.watch = DirectoryWatch(self, self._make_room, activity)
        self.progress = RecoveryProgress()
        self.broker_epoch = NO_EPOCH
        self.checkpoints = LogCheckpoints(
            filesystem, self.logs, self._executor, self.failures, self.plans.futures, self.slices
        )
        self.flusher = LogFlusher(self.logs, clock, config, self.slices)

    # -- start --------------------------------------------------------------------------------------------------------

    def open_dirs(self, *, first_has_metadata: bool = True) -> OpenedDirs:
        """Locks and reads the directories.  LogDirError says what is wrong and what to do."""
        self.directories = open_directories(
            self._files,
            self._config.log_dirs,
            tolerate=True,
            first_has_metadata=first_has_metadata,
            # Where others have the metadata, they or the directories may give the id.
            node_id=self._config.node_id if first_has_metadata else NO_NODE,
        )
        self.failures.watch(directory.path for directory in self.directories)
        for directory in self.directories:
            if directory.failure:
                self.failures.maybe_add_offline_log_dir(directory.path, directory.failure)
        for directory in self.online_directories():
            path = directory.path
            self.checkpoints.add(path)
            guard = DirectorySpaceGuard(
                self._files, path, self._config.get("kbroker.disk.reserve.bytes"), self.failures
            )
            guard.measure()
            self.space_guards.append(guard)
            self.environment.space_guards[path] = guard
        return describe(self.online_directories())

    def online_directories(self) -> list[LogDir]:
        """The directories that serve: opened at start, and not failed since."""
        return [directory for directory in self.directories if not self.failures.is_offline(directory.path)]

    def claim(
        self, cluster_id: str, known: Mapping[str, str] | None = None, keeper: str | None = None
    ) -> dict[str, str]:
        """Binds directories that are new to the cluster and this node; refuses those of others.  Ids by path.

        `known`: the ids of the directories that were used before, by path; one without `meta.properties` is taken
        offline (`miss_lost`).  `keeper`: the directory with the metadata store.
        """
        miss_lost(self, known or {}, keeper)
        tell_unbound(self._files, self.online_directories())
        for directory in self.online_directories():
            try:
                directory.bind(cluster_id, self._config.node_id)
            except OSError as error:
                self._survive(directory.path, "writing meta.properties", error)
        return directory_ids(self)

    def begin_epoch(self, epoch: int, last: int) -> None:
        """Sets the broker epochs of this start, for clean-shutdown markers, and of the one before."""
        self.broker_epoch = epoch
        for directory in self.online_directories():
            directory.check_epoch(last)

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
        found: dict[str, list[LoadRequest]] = {}
        lost = LostPartitions()
        settle_futures(self, self._files, topics)
        clean = True
        for directory in self.online_directories():
            try:
                clean = directory.take_clean_marker() and clean
                found[directory.path] = list(self._find_partitions(directory, topics, default, lost))
            except OSError as error:
                self._survive(directory.path, "reading the directory", error)
        requests = [request for each in found.values() for request in each]
        lost.note(self.environment.damages, (request.topic_partition for request in requests), topics)
        self.progress.logs_total = len(requests)
        collecting = gc.isenabled()
        gc.disable()  # nothing that loading makes is garbage: collections over it would double the time of a start
        try:
            self._load(requests, topics)
        except BaseException:
            note_loaded(self.directories, found, self.logs)
            raise
        finally:
            if collecting:
                gc.enable()
        note_loaded(self.directories, found)
        if topics is not None:
            self._set_strays_aside(topics)
        self.drop_failed()
        if requests:
            text = "Loaded %d logs from %d directories in %.3f s after %s stop"
            stop = "a clean" if clean else "an unclean"
            logger.info(text, len(self.logs), len(self.directories), time.monotonic() - started, stop)

    def _find_partitions(
        self, directory: LogDir, topics: TopicConfigs | None, default: LogConfig, lost: LostPartitions
    ) -> Iterator[LoadRequest]:
        checkpoints = self.checkpoints[directory.path]
        recovery_points = checkpoints.recovery_points.read()
        log_starts = checkpoints.log_starts.read()
        high_watermarks = checkpoints.high_watermarks.read()
        saver = None
        if not directory.clean:
            saver = RecoverySaver(self._files, checkpoints.recovery_points, recovery_points, self.failures)
        strays = []
        entries = lost.look_at(directory, recovery_points, self._files.list_directory(directory.path))
        checkpoints.begin(entries)
        for entry in entries:
            if not entry.is_directory or entry.name == CLUSTER_METADATA_DIRECTORY:
                continue
            found = parse_partition_directory(entry.name)
            path = f"{directory.path}/{entry.name}"
            if found is None:
                continue
            if found.mark:
                if found.mark == "delete":
                    self.deletions.later(0, partial(self._files.remove_tree, path))
                elif found.mark == "stray":
                    strays.append(entry.name)
                continue
            tp = TopicPartition(found.topic, found.partition)
            known = topics.get(found.topic) if topics is not None else None
            yield LoadRequest(
                path,
                tp,
                known[1] if known is not None else default,
                directory.clean,
                recovery_points.get(tp, FIRST_OFFSET),
                log_starts.get(tp, FIRST_OFFSET),
                high_watermarks.get(tp, FIRST_OFFSET),
                self.progress,
                saver,
            )
        log_strays(directory.path, strays)

    def interrupt_loading(self) -> None:
        """Makes `load_all`, which another thread runs, raise LoadingInterruptedError soon; `shutdown` comes next."""
        self.progress.interrupted = True

    def _load(self, requests: list[LoadRequest], topics: TopicConfigs | None) -> None:
        """Loads logs after a clean stop on this thread; recovers the others on threads, as checking bytes needs no
        GIL."""
        unclean = [request for request in requests if not request.clean]
        for request in requests:
            if request.clean:
                self.progress.check()
                self._register(self._open(request, partial(load_log, request, self.environment)), topics)
        if unclean:
            workers = self._config.get("num.recovery.threads.per.data.dir") * max(1, len(self.directories))
            try:
                for log in recover_logs(unclean, self.environment, workers, self.progress, self._recover):
                    self._register(log, topics)
            finally:
                take_saved_points(self.logs.values(), unclean)

    def _open(self, request: LoadRequest, opener: Opener) -> UnifiedLog | None:
        """The log; None where its directory has failed."""
        try:
            return opener()
        except OSError as error:
            if error.errno in NO_SPACE:
                logger.error("There is no room to open %s: it is tried again when it is asked for", request.directory)
                self._unopened[request.topic_partition] = request
            else:
                self._survive(request.directory, f"loading {request.topic_partition}", error)
            return None

    def _recover(self, request: LoadRequest, opener: Opener) -> UnifiedLog | None:
        log = self._open(request, opener)
        if log is not None and log.committer is not None and log.committer.threshold == 1:
            # Consumers are about to get records that the killed process may have left in the page cache only.
            try:
                try:
                    log.flush()
                except KafkaStorageError as error:
                    if not (isinstance(error.__cause__, OSError) and error.__cause__.errno in NO_SPACE):
                        raise
                    log.flush_records()
            except KafkaStorageError as error:
                self._survive(request.directory, f"flushing {request.topic_partition}", error)
        return log

    def _survive(self, path: str, what: str, error: Exception) -> None:
        """While starting: goes on without a directory that has failed; raises an error that has another reason."""
        parent = self.failures.parent_of(path)
        if not self.failures.report(path, what, error) and not (parent and self.failures.is_offline(parent)):
            raise again(error) from error

    def drop_failed(self) -> list[TopicPartition]:
        """Takes the directories that have failed since the last time offline.  The partitions that lay there."""
        gone: list[TopicPartition] = []
        while (path := self.failures.take_next_offline_log_dir()) is not None:
            gone.extend(take_offline(self, path))
        return gone

    def _register(self, log: UnifiedLog | None, topics: TopicConfigs | None) -> None:
        if log is None:
            return
        tp = log.topic_partition
        known = self.logs.get(tp)
        if known is not None:
            topic_id = None
            if topics is not None:
                topic = topics.get(tp.topic)
                topic_id = ZERO_UUID if topic is None else topic.topic_id
            stray = self.logs[tp] = stray_of_two(known, log, topic_id)
            logger.warning("%s is not the partition's log any more: setting it aside", stray.directory)
            self._move_away(tp, STRAY_SUFFIX)
            log = known if stray is log else log
        self.logs[log.topic_partition] = log
        self.progress.logs_done += 1

    def _set_strays_aside(self, topics: TopicConfigs) -> None:
        for log, why in list(stray_logs(self.logs.values(), topics)):
            self.retire_as_stray(log.topic_partition, why)

    def retire_as_stray(self, topic_partition: TopicPartition, why: str) -> None:
        """Keeps a log on the disk under a name that is not served."""
        directory = self.logs[topic_partition].directory
        try:
            logger.warning("Set %s aside as %s: %s", directory, self._move_away(topic_partition, STRAY_SUFFIX), why)
        except KafkaStorageError as error:
            self._survive(directory, f"setting {topic_partition} aside", error)

    def attach(
        self,
        loop: asyncio.AbstractEventLoop,
        on_durable: Callable[[CommittedLog], None],
        on_refused: Callable[[CommittedLog, KafkaError], None],
    ) -> None:
        """The logs are loaded and belong to `loop` now: no append fsyncs in place any more (`GroupCommit.attach`)."""
        self._commit_executor = ThreadPoolExecutor(COMMIT_WORKERS, thread_name_prefix="log-commit")
        self.commits.attach(loop, self._commit_executor, on_durable, on_refused)

    def follow(self, config: BrokerConfig) -> None:
        """Takes over settings that were changed at run time; `BrokerSettings` has checked them."""
        self._config = config
        self.plans.follow(config)
        self.cleaner.reconfigure(config)
        for guard in self.space_guards:
            guard.keep(config.get("kbroker.disk.reserve.bytes"))
        expiration_ms = config.get("producer.id.expiration.ms")
        verifies = config.get("transaction.partition.verification.enable")
        environment = self.environment
        if (expiration_ms, verifies) != (environment.producer_expiration_ms, environment.verifies):
            environment.producer_expiration_ms, environment.verifies = expiration_ms, verifies
            for log in self.logs.values():
                log.producer_state.expiration_ms = expiration_ms
                log.producer_state.verifies = verifies

    # -- logs ---------------------------------------------------------------------------------------------------------

    def get_log(self, topic_partition: TopicPartition) -> UnifiedLog | None:
        """The log of a partition."""
        return self.logs.get(topic_partition)

    def get_or_create_log(
        self, topic_partition: TopicPartition, topic_id: bytes, config: LogConfig, *, is_known: bool = False
    ) -> UnifiedLog:
        """The partition's log, made in the directory with the fewest partitions when there is none.

        InconsistentTopicIdError when the directory belongs to another topic, KafkaStorageError when no disk takes it;
        `is_known`: the broker's log says so of the partition already.
        """
        log = self.logs.get(topic_partition)
        if log is not None:
            self.configure(log, config)
            if topic_id != ZERO_UUID:
                log.assign_topic_id(topic_id)
            return log
        request = self._unopened.get(topic_partition)
        if request is None:
            path = make_partition_directory(self, self._files, topic_partition, is_known=is_known)
            request = LoadRequest(path, topic_partition, config, False)
            self.checkpoints.forget(path.rpartition("/")[0], topic_partition)
        path = request.directory
        try:
            log = load_log(request, self.environment)
            self._unopened.pop(topic_partition, None)
            if topic_id != ZERO_UUID:
                log.assign_topic_id(topic_id)
        except (OSError, KafkaStorageError) as error:
            self._unopened[topic_partition] = request  # The next attempt must use the same directory.
            if isinstance(error, KafkaStorageError):
                raise
            raise storage_error(
                "creating log", topic_partition, path, error, self.failures, is_known=is_known
            ) from error
        self.logs[topic_partition] = log
        self.flusher.expect(config.flush_ms)
        return log

    def configure(self, log: UnifiedLog, config: LogConfig) -> None:
        """Gives a log the settings that its topic has now."""
        log.config = config
        self.flusher.expect(config.flush_ms)

    def delete_log(self, topic_partition: TopicPartition) -> None:
        """Takes a partition away at once and off the disk after `file.delete.delay.ms`."""
        log = self.logs.get(topic_partition)
        unopened = self._unopened.pop(topic_partition, None)
        if log is None:
            if unopened is not None:
                self._delete_unopened(unopened)
            return
        delay_ms = log.config.file_delete_delay_ms
        self.plans.cancel(topic_partition)
        path = self._move_away(topic_partition, DELETE_SUFFIX)
        self.deletions.later(delay_ms, partial(self._files.remove_tree, path))

    def _delete_unopened(self, request: LoadRequest) -> None:
        """What there is of a log that could not be made, or not be opened."""
        name, parent = request.topic_partition, request.directory.rpartition("/")[0]
        path = f"{parent}/{marked_directory(*name, DELETE_SUFFIX)}"
        try:
            self._files.rename(request.directory, path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise storage_error("renaming", name, request.directory, error, self.failures) from error
        self.deletions.later(request.config.file_delete_delay_ms, partial(self._files.remove_tree, path))

    def _move_away(self, topic_partition: TopicPartition, suffix: str) -> str:
        log = self.logs.pop(topic_partition)
        self.traffic.keep(log)
        if log.committer is not None:
            log.committer.close()
        self.cleaner.forget(topic_partition)
        log.close(clean=False)
        with contextlib.suppress(OSError):
            log.local.finish_removals()
        log.local.left = True
        parent = log.parent
        path = f"{parent}/{marked_directory(*topic_partition, suffix)}"
        try:
            self._files.rename(log.directory, path)
        except OSError as error:
            raise storage_error("renaming", topic_partition, log.directory, error, self.failures) from error
        return path

    # -- periodic work ------------------------------------------------------------------------------------------------

    def run_due(self) -> None:
        """Deletes files whose delay has passed, or all waiting ones while a directory is short of space."""
        self.deletions.run_due(everything=any(guard.is_refusing for guard in self.space_guards))

    def periodic_tasks(self) -> list[PeriodicTask]:
        """What the loop runs.  Five begin after `log.initial.task.delay.ms`, as Kafka's LogManager has them."""
        get = self._config.get
        delay_ms = get("log.initial.task.delay.ms")
        write = self.checkpoints
        return [
            PeriodicTask("watch the disks", self.watch.interval_ms, self.watch.run),
            self.flusher.task(delay_ms),
            PeriodicTask(
                "checkpoint recovery points",
                get("log.flush.offset.checkpoint.interval.ms"),
                write.move_recovery_points,
                delay_ms,
            ),
            PeriodicTask(
                "checkpoint log start offsets",
                get("log.flush.start.offset.checkpoint.interval.ms"),
                write.start_log_starts,
                delay_ms,
            ),
            PeriodicTask(
                "checkpoint high watermarks",
                get("replica.high.watermark.checkpoint.interval.ms"),
                write.start_high_watermarks,
            ),
            PeriodicTask(
                "delete files", lambda: self.deletions.next_due_ms(DELETION_INTERVAL_MS), self.run_due, delay_ms
            ),
            PeriodicTask("retention", get("log.retention.check.interval.ms"), self.retention.run, delay_ms),
            PeriodicTask(COMPACTION_TASK, compaction_interval_ms(self._config), self.cleaner.run),
            PeriodicTask("expire producer ids", get("producer.id.expiration.check.interval.ms"), self.expire_producers),
        ]

    async def _make_room(self) -> None:
        await self.retention.run()
        self.run_due()

    def _on_producer_evicted(self) -> None:
        complaints.warning(
            "kbroker.max.producers",
            "More than kbroker.max.producers (%d) idempotent producers: those not heard of for longest are forgotten, "
            "and retries of theirs would be stored twice",
            self.environment.producers.limit,
        )

    def expire_producers(self) -> None:
        """Forget the producers that were idle for longer than `producer.id.expiration.ms`."""
        now_ms = self._clock.now_ms()
        for log in self.logs.values():
            if log.producer_state.producers:
                log.producer_state.remove_expired(now_ms)

    # -- stop ---------------------------------------------------------------------------------------------------------

    def shutdown(self) -> None:
        """Closes every log, makes all durable, writes checkpoints, then markers; a directory that fails gets none.

        A directory that was not completely loaded is left as the start found it: it keeps its marker, if it had one,
        unless one of its indexes was being rebuilt.
        """
        self.cleaner.stop()
        self.deletions.stop()
        logs = self.checkpoints.by_directory()
        for directory in self.online_directories():
            may_be = may_end_clean(directory, self.progress)
            if may_be and close_logs(directory, logs.get(directory.path, []), self._files):
                self._write_final_checkpoints(directory)
        self.release()

    def _write_final_checkpoints(self, directory: LogDir) -> None:
        try:
            if directory.loaded:  # else the existing checkpoints cover more logs than were loaded
                self.checkpoints.write_all(directory.path)
            directory.write_clean_marker(self.broker_epoch)
        except OSError as error:
            logger.error("No clean-shutdown marker for %s: %s", directory.path, error)

    def release(self) -> None:
        """Gives directories back without flushing anything: after a failed start, or as the last step of a stop."""
        for directory in self.directories:
            directory.release()
        self.commits.detach()
        if self._commit_executor is not None:
            self._commit_executor.shutdown(wait=True)
        if self._own_executor:
            self._executor.shutdown(wait=True)
