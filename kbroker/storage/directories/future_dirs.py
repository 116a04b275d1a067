"""What a start makes of `-future` directories, the copies of partitions that were on the move (`future_log`).

    the partition has a log            the move goes on with what was copied
    it has none, all directories serve the copy was whole when the old directory went (`log_relocation`): it becomes the
                                       partition's log
    it has none, a directory failed    the log may lie there: the copy stays as it is until that is known
    its topic is gone, or another      the copy goes; so does one that does not say its topic's id, as a topic that was
                                       deleted may have had the name

Of several copies of a partition the first is kept.  A crash of the machine may lose the rename of the old directory and
keep that of the new one.  Two logs of the partition are left then: the longer one is the partition's, as appends went
on there.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kbroker.storage.directories.future_log import COPY_SUFFIX
from kbroker.storage.directories.log_dirs import DELETE_SUFFIX, LogDir, marked_directory, parse_partition_directory
from kbroker.storage.directories.strays import KnownTopic
from kbroker.storage.files.filesystem import FileSystem
from kbroker.storage.log.partition_metadata import PartitionMetadata
from kbroker.types import ZERO_UUID, TopicPartition

if TYPE_CHECKING:
    from kbroker.storage.directories.managed_logs import ManagedLogs
    from kbroker.storage.log.unified_log import UnifiedLog

logger = logging.getLogger("kbroker.storage")


def settle_futures(manager: ManagedLogs, files: FileSystem, topics: Mapping[str, KnownTopic] | None) -> None:
    """Before the logs are loaded: puts copies in their place or away, and notes those that a move goes on with."""
    online = manager.online_directories()
    ids = None if topics is None else {name: topic.topic_id for name, topic in topics.items()}
    try:
        found = settle(files, online, ids, all_serve=len(online) == len(manager.directories))
    except OSError as error:
        if not manager.failures.report(str(error.filename), "looking for partitions on the move", error):
            raise
    else:
        manager.plans.found.update(found)


def settle(
    files: FileSystem,
    directories: Sequence[LogDir],
    topic_ids: Mapping[str, bytes] | None,
    *,
    all_serve: bool,
) -> dict[TopicPartition, str]:
    """Puts copies in their place or away.  Returns those that a move goes on with, by the partition's name.

    `topic_ids` of the topics that exist; None where they are unknown.  OSError when a directory fails.
    """
    logs: set[TopicPartition] = set()
    copies: list[tuple[TopicPartition, str, str]] = []
    for directory in directories:
        for entry in files.list_directory(directory.path):
            found = parse_partition_directory(entry.name) if entry.is_directory else None
            if found is None or found.mark not in ("", "future"):
                continue
            tp = TopicPartition(found.topic, found.partition)
            if found.mark:
                copies.append((tp, directory.path, f"{directory.path}/{entry.name}"))
            else:
                logs.add(tp)
    moving: dict[TopicPartition, str] = {}
    for tp, parent, path in copies:
        if not _is_of(files, tp, path, topic_ids) or tp in moving:
            logger.info("Removing %s, a copy that is not needed", path)
            files.rename(path, f"{parent}/{marked_directory(*tp, DELETE_SUFFIX)}")
        elif tp in logs:
            moving[tp] = path
        elif all_serve:
            _promote(files, tp, parent, path)
            logs.add(tp)
        else:
            logger.warning("%s has no log, but a log directory is offline: %s is left alone", tp, path)
    return moving


def _is_of(files: FileSystem, tp: TopicPartition, path: str, topic_ids: Mapping[str, bytes] | None) -> bool:
    """Whether a copy belongs to a topic that exists; one without an id belongs to a topic without one alone."""
    if topic_ids is None:
        return True
    try:
        own = PartitionMetadata(files, path, exists=True).topic_id
    except FileNotFoundError:
        own = ZERO_UUID
    return topic_ids.get(tp.topic) == own


def _promote(files: FileSystem, tp: TopicPartition, parent: str, path: str) -> None:
    for entry in files.list_directory(path):
        if entry.name.endswith(COPY_SUFFIX):
            files.unlink(f"{path}/{entry.name}")
    logger.warning("%s was being moved when the broker ended: %s becomes its log", tp, path)
    files.rename(path, f"{parent}/{tp}")
    files.fsync_directory(parent)


def shorter_of_two(one: UnifiedLog, other: UnifiedLog) -> UnifiedLog | None:
    """Of two logs of the same topic the one that is not the partition's; None if their topics differ or are unknown."""
    if one.topic_id != other.topic_id or one.topic_id == ZERO_UUID:
        return None
    return min((one, other), key=lambda log: (log.latest_epoch, log.log_end_offset))
