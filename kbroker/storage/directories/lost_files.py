"""What a start misses in a log directory: partitions that its checkpoints name, and checkpoints that a stop wrote."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from kbroker.storage.directories.log_dirs import META_PROPERTIES, LogDir, parse_partition_directory
from kbroker.storage.files.checkpoints import (
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
)
from kbroker.types import FIRST_OFFSET, Offset, TopicPartition

if TYPE_CHECKING:
    from kbroker.storage.directories.strays import KnownTopic
    from kbroker.storage.files.filesystem import DirectoryEntry, FileSystem
    from kbroker.storage.log.damages import Damages

logger = logging.getLogger("kbroker.storage")

_MEANINGS = {
    RECOVERY_POINT_CHECKPOINT: "after an unclean stop all of its logs are recovered from their starts",
    LOG_START_OFFSET_CHECKPOINT: "records that DeleteRecords has deleted are back where their segments are there",
    REPLICATION_OFFSET_CHECKPOINT: "high watermarks begin at the log ends",
}


def tell_lost_checkpoints(path: str, entries: Iterable[DirectoryEntry], *, clean: bool) -> None:
    """Warns of checkpoints that are missing or empty, in a directory in which they were written before.

    A clean stop writes all of them, and the two others are there before the first recovery points are written.
    """
    sizes = {entry.name: entry.size for entry in entries}
    if not clean and not sizes.get(RECOVERY_POINT_CHECKPOINT):
        return
    for name, meaning in _MEANINGS.items():
        if not sizes.get(name):
            what = "empty" if name in sizes else "missing"
            logger.warning("%s/%s is %s, although it was written before: %s", path, name, what, meaning)


def tell_unbound(files: FileSystem, directories: Iterable[LogDir]) -> None:
    """Warns of directories with partitions that nothing binds to a cluster: they are bound anew, with another id."""
    for directory in directories:
        if directory.meta is None and any(
            entry.is_directory and parse_partition_directory(entry.name)
            for entry in files.list_directory(directory.path)
        ):
            logger.warning(
                "%s/%s is missing in a directory with partitions: made again", directory.path, META_PROPERTIES
            )


class LostPartitions:
    """Finds partitions with records of existing topics whose directories are gone."""

    __slots__ = ("_expected",)

    def __init__(self) -> None:
        self._expected: dict[TopicPartition, tuple[Offset, str]] = {}

    def look_at(
        self, directory: LogDir, recovery_points: Mapping[TopicPartition, Offset], entries: list[DirectoryEntry]
    ) -> list[DirectoryEntry]:
        """Takes in what the checkpoint of a log directory names; tells of lost checkpoints.  Its entries, as given."""
        tell_lost_checkpoints(directory.path, entries, clean=directory.clean)
        for tp, point in recovery_points.items():
            self._expected[tp] = max(self._expected.get(tp, (FIRST_OFFSET, "")), (point, directory.path))
        return entries

    def note(self, damages: Damages, found: Iterable[TopicPartition], topics: Mapping[str, KnownTopic] | None) -> None:
        """Says what was not `found`."""
        there = set(found)
        for tp, (offset, path) in self._expected.items():
            if offset <= 0 or tp in there:
                continue
            known = topics.get(tp.topic) if topics is not None else None
            if topics is not None and known is None:
                continue
            if known is not None and known.partition_count is not None and tp.partition >= known.partition_count:
                continue
            directory = f"{path}/{tp.topic}-{tp.partition}"
            reason = f"the directory {directory} is gone, which had records up to offset {offset}"
            damages.missing(tp, directory, FIRST_OFFSET, offset, reason)
