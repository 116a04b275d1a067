"""Segment files that became shorter while they were in use: cut by another program, or by a disk that loses bytes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kbroker.storage.directories.log_dirs import parse_partition_directory
from kbroker.storage.log.segment_damage import find_shrunk
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.storage.manager.log_manager import LogManager


def note_shrunk(manager: LogManager, fd: int) -> None:
    """A range of the file `fd` could not be sent, because the file ends before it: records the loss as damage.

    From then on fetches of the lost offsets get CORRUPT_MESSAGE; other fetches succeed.
    """
    path = str(Path(f"/proc/self/fd/{fd}").readlink())
    name = parse_partition_directory(Path(path).parent.name)
    log = None if name is None else manager.logs.get(TopicPartition(name.topic, name.partition))
    if log is None:
        return
    for segment in log.local.segments:
        if segment.path == path:
            following = log.local.segments.higher(segment.base_offset)
            end_offset = log.log_end_offset if following is None else following.base_offset
            error = find_shrunk(segment, manager.environment.files, end_offset)
            if error is not None:
                log.local.note_damage(error)
