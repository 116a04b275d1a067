"""Where a new partition goes, and which of two directories is the partition's."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, NamedTuple

from kbroker.errors import KafkaStorageError
from kbroker.storage.filesystem import FileSystem
from kbroker.storage.future_dirs import shorter_of_two
from kbroker.storage.local_log import storage_error
from kbroker.storage.log_dirs import LogDirError
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig
    from kbroker.storage.future_log import FutureLog
    from kbroker.storage.log_dirs import LogDir
    from kbroker.storage.log_manager import LogManager
    from kbroker.storage.unified_log import UnifiedLog

logger = logging.getLogger("kbroker.storage")

MAX_PREFERENCES = 10_000


def make_partition_directory(manager: LogManager, files: FileSystem, topic_partition: TopicPartition) -> str:
    """A new partition's directory: in the next best log directory where the best one turns out to have failed.

    KafkaStorageError when none takes it.
    """
    while True:
        path = f"{directory_for(manager, topic_partition).path}/{topic_partition}"
        try:
            files.mkdir(path)
        except FileExistsError:
            logger.warning("%s exists already; opening it", path)
        except OSError as error:
            refusal = storage_error("creating log", topic_partition, path, error, manager.failures)
            if not manager.failures.is_offline(path.rpartition("/")[0]):
                raise refusal from error
            continue
        manager.plans.preferred.pop(topic_partition, None)
        return path


class MoveTotals(NamedTuple):
    """What moves between directories have come to; `bytes_copied` also of those that failed or still run."""

    done: int = 0
    failed: int = 0
    called_off: int = 0
    bytes_copied: int = 0


class DirectoryPlans:
    """Where partitions are to go: what the settings and AlterReplicaLogDirs ask for.

    `cordoned`   directories that take no new partitions (`cordoned.log.dirs`)
    `preferred`  places for partitions that do not exist yet, in memory only, as in Kafka
    `futures`    the copies of logs that move to another directory
    `found`      the copies that the start has found, for moves to go on with
    `totals`     what moves have done since the start
    """

    __slots__ = ("cordoned", "found", "futures", "preferred", "totals")

    def __init__(self, config: BrokerConfig) -> None:
        self.preferred: dict[TopicPartition, str] = {}
        self.futures: dict[TopicPartition, FutureLog] = {}
        self.found: dict[TopicPartition, str] = {}
        self.totals = MoveTotals()
        self.follow(config)

    def follow(self, config: BrokerConfig) -> None:
        """Takes `cordoned.log.dirs` over; `*` stands for all directories."""
        named = config.get("cordoned.log.dirs")
        # As `LogDir` makes its paths: symbolic links stay as they were named.
        self.cordoned = frozenset(map(os.path.abspath, config.log_dirs if "*" in named else named))

    def prefer(self, topic_partition: TopicPartition, path: str) -> None:
        """Remembers where to make a partition; the oldest wish goes when there are too many."""
        self.preferred[topic_partition] = path
        if len(self.preferred) > MAX_PREFERENCES:
            del self.preferred[next(iter(self.preferred))]

    def cancel(self, topic_partition: TopicPartition) -> None:
        """Ends a move: whoever carries it out removes the copy."""
        future = self.futures.pop(topic_partition, None)
        if future is not None:
            future.cancelled = True


def all_cordoned(manager: LogManager) -> bool:
    """Whether no directory that serves takes new partitions."""
    return all(directory.path in manager.plans.cordoned for directory in manager.online_directories())


def directory_for(manager: LogManager, topic_partition: TopicPartition) -> LogDir:
    """The directory that was asked for where that serves, else the emptiest.  KafkaStorageError when none serves."""
    wanted = manager.plans.preferred.get(topic_partition)
    return next((each for each in manager.online_directories() if each.path == wanted), None) or emptiest(manager)


def emptiest(manager: LogManager) -> LogDir:
    """The directory that serves with the fewest partitions, then the most free space.

    Cordoned directories and those without space count only where there are no others.
    """
    online = manager.online_directories()
    if not online:
        raise KafkaStorageError("all log directories are offline")
    closed = {gate.path for gate in manager.gates if gate.closed}
    cordoned = manager.plans.cordoned
    candidates = [directory for directory in online if directory.path not in cordoned] or online
    candidates = [directory for directory in candidates if directory.path not in closed] or candidates
    if len(candidates) == 1:
        return candidates[0]
    counts = {directory.path: 0 for directory in manager.directories}
    for log in manager.logs.values():
        counts[log.parent] += 1
    free = {gate.path: gate.free_bytes for gate in manager.gates}
    return min(candidates, key=lambda directory: (counts[directory.path], -free.get(directory.path, 0)))


def stray_of_two(known: UnifiedLog, other: UnifiedLog, topic_id: bytes | None) -> UnifiedLog:
    """The log that is not the partition's, of two that have its name.  LogDirError when both could be.

    Two are there when a topic was deleted and made again while one of its directories was offline.
    """
    if known.topic_id != other.topic_id:
        if known.topic_id == topic_id:
            return other
        if other.topic_id == topic_id:
            return known
    shorter = shorter_of_two(known, other)
    if shorter is not None:
        return shorter
    raise LogDirError(
        f"partition {known.topic_partition} lies in two directories, {known.directory} and {other.directory}; "
        "remove the older one"
    )
