"""Where a new partition goes, and which of two directories is the partition's."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kbroker.errors import KafkaStorageError
from kbroker.storage.filesystem import FileSystem
from kbroker.storage.local_log import storage_error
from kbroker.storage.log_dirs import LogDirError
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.storage.log_dirs import LogDir
    from kbroker.storage.log_manager import LogManager
    from kbroker.storage.unified_log import UnifiedLog

logger = logging.getLogger("kbroker.storage")


def make_partition_directory(manager: LogManager, files: FileSystem, topic_partition: TopicPartition) -> str:
    """A new partition's directory: in the next best log directory where the best one turns out to have failed.

    KafkaStorageError when none takes it.
    """
    while True:
        path = f"{emptiest(manager).path}/{topic_partition}"
        try:
            files.mkdir(path)
        except FileExistsError:
            logger.warning("%s exists already; opening it", path)
        except OSError as error:
            refusal = storage_error("creating log", topic_partition, path, error, manager.failures)
            if not manager.failures.is_offline(path.rpartition("/")[0]):
                raise refusal from error
            continue
        return path


def emptiest(manager: LogManager) -> LogDir:
    """The directory that serves with the fewest partitions, of those with space where there are any."""
    online = manager.online_directories()
    if not online:
        raise KafkaStorageError("all log directories are offline")
    closed = {gate.path for gate in manager.gates if gate.closed}
    candidates = [directory for directory in online if directory.path not in closed] or online
    if len(candidates) == 1:
        return candidates[0]
    counts = {directory.path: 0 for directory in manager.directories}
    for log in manager.logs.values():
        counts[log.parent] += 1
    return min(candidates, key=lambda directory: counts[directory.path])


def stray_of_two(known: UnifiedLog, other: UnifiedLog, topic_id: bytes | None) -> UnifiedLog:
    """The log that is not the partition's, of two that have its name.  LogDirError when both could be.

    Two are there when a topic was deleted and made again while one of its directories was offline.
    """
    if known.topic_id != other.topic_id:
        if known.topic_id == topic_id:
            return other
        if other.topic_id == topic_id:
            return known
    raise LogDirError(
        f"partition {known.topic_partition} lies in two directories, {known.directory} and {other.directory}; "
        "remove the older one"
    )
