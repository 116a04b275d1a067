"""Where a new partition goes, and which of two directories is the partition's."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kbroker.errors import KafkaStorageError, again
from kbroker.storage.directories.future_dirs import shorter_of_two
from kbroker.storage.directories.log_dirs import LogDirError
from kbroker.storage.directories.strays import is_of_another_topic
from kbroker.storage.files.filesystem import FileSystem
from kbroker.storage.log.local_log import storage_error
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.storage.directories.log_dirs import LogDir
    from kbroker.storage.directories.managed_logs import ManagedLogs
    from kbroker.storage.log.unified_log import UnifiedLog

logger = logging.getLogger("kbroker.storage")


def make_partition_directory(
    manager: ManagedLogs, files: FileSystem, topic_partition: TopicPartition, *, is_known: bool
) -> str:
    """A new partition's directory: in the next best log directory where the best one turns out to have failed.

    KafkaStorageError when none takes it; `is_known`: the broker's log says so of the partition already.
    """
    while True:
        path = f"{directory_for(manager, topic_partition).path}/{topic_partition}"
        try:
            files.mkdir(path)
        except FileExistsError:
            logger.warning("%s exists already; opening it", path)
        except OSError as error:
            refusal = storage_error("creating log", topic_partition, path, error, manager.failures, is_known=is_known)
            if not manager.failures.is_offline(path.rpartition("/")[0]):
                raise again(refusal) from error
            continue
        manager.plans.preferred.pop(topic_partition, None)
        return path


def all_cordoned(manager: ManagedLogs) -> bool:
    """Whether no directory that serves takes new partitions."""
    return all(directory.path in manager.plans.cordoned for directory in manager.online_directories())


def directory_for(manager: ManagedLogs, topic_partition: TopicPartition) -> LogDir:
    """The directory that was asked for where that serves, else the emptiest.  KafkaStorageError when none serves."""
    wanted = manager.plans.preferred.get(topic_partition)
    return next((each for each in manager.online_directories() if each.path == wanted), None) or emptiest(manager)


def emptiest(manager: ManagedLogs) -> LogDir:
    """The directory that serves with the fewest partitions, then the most free space.

    Cordoned directories and those without space count only where there are no others.
    Raises KafkaStorageError.
    """
    online = manager.online_directories()
    if not online:
        raise KafkaStorageError("all log directories are offline")
    closed = {guard.path for guard in manager.space_guards if guard.is_refusing}
    cordoned = manager.plans.cordoned
    candidates = [directory for directory in online if directory.path not in cordoned] or online
    candidates = [directory for directory in candidates if directory.path not in closed] or candidates
    if len(candidates) == 1:
        return candidates[0]
    counts = {directory.path: 0 for directory in manager.directories}
    for log in manager.logs.values():
        counts[log.parent] += 1
    free = {guard.path: guard.free_bytes for guard in manager.space_guards}
    return min(candidates, key=lambda directory: (counts[directory.path], -free.get(directory.path, 0)))


def stray_of_two(known: UnifiedLog, other: UnifiedLog, topic_id: bytes | None) -> UnifiedLog:
    """The log that is not the partition's, of two that have its name.  LogDirError when both could be.

    Two are there when a topic was deleted and made again while one of its directories was offline.  A power cut may
    have taken a log's id.  `topic_id` is None where topics are not known yet, and zero where there is no such topic.
    """
    if topic_id is not None:
        for log in (known, other):
            if is_of_another_topic(log, topic_id):
                return log
        if known.topic_id != other.topic_id:
            return other if known.topic_id == topic_id else known
    shorter = shorter_of_two(known, other)
    if shorter is not None:
        return shorter
    raise LogDirError(
        f"partition {known.topic_partition} lies in two directories, {known.directory} and {other.directory}; "
        "remove the older one"
    )
