"""Finding a time in a segment: from where its time index leads to.

No checksum protects a time index.  An entry (timestamp, offset) states that the batch at the offset has the timestamp,
and that no earlier batch has a later one; the last entry, that no batch behind it has a later one either.  An entry is
used only after a look at its batch: the last entry of a segment is checked once, together with the batches behind it,
any other when it is used.  If the batches contradict the index, or have times but no entry, the index is damaged and
rebuilt from them.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kbroker._fast.log.batch_seek import max_timestamp_of
from kbroker.records.layout import BATCH_OVERHEAD
from kbroker.storage.files.filesystem import FileSystem
from kbroker.storage.log.segment_damage import DamagedSegmentError, readable_headers, readable_position
from kbroker.types import FIRST_POSITION, Offset

if TYPE_CHECKING:
    from kbroker.storage.log.segment_view import Segment

logger = logging.getLogger("kbroker.storage")

_BATCHES_AT_ONCE = 64


def latest_time(segment: Segment, files: FileSystem) -> int:
    """The largest timestamp of a segment's batches, -1 without one."""
    if not segment.times_checked:
        segment.times_checked = True
        if segment.size and not _is_whole(segment, files):
            rebuild_time_index(segment, files)
    return segment.max_timestamp[0]


def _is_whole(segment: Segment, files: FileSystem) -> bool:
    """Whether the segment's largest timestamp is what its time index, or the tail that came from it, says."""
    return is_latest(segment, files, segment.max_timestamp, segment.size)


def is_latest(segment: Segment, files: FileSystem, entry: tuple[int, Offset], end: int) -> bool:
    """Whether an entry (timestamp, offset) is right, and no batch behind it, up to `end`, is later; -1 for no time."""
    largest, offset = entry
    if largest >= 0 and not _holds(segment, files, entry):
        return False
    position = readable_position(segment, offset) if largest >= 0 else FIRST_POSITION
    later = readable_headers(segment, files, position, end, _BATCHES_AT_ONCE, strict=False)
    return all(info.max_timestamp <= largest for info in later)


def start_for(segment: Segment, files: FileSystem, timestamp: int) -> Offset:
    """An offset from which every record of the segment with a timestamp >= `timestamp` follows."""
    entry = segment.time_index.entry_for(timestamp)
    if entry is not None and not _holds(segment, files, entry):
        rebuild_time_index(segment, files)
        entry = segment.time_index.entry_for(timestamp)
    return segment.base_offset if entry is None else entry[1]


def _holds(segment: Segment, files: FileSystem, entry: tuple[int, Offset]) -> bool:
    """Whether the batch at the entry's offset has the entry's time."""
    timestamp, offset = entry
    try:
        location = segment.locate(offset) if timestamp >= 0 and offset >= segment.base_offset else None
    except DamagedSegmentError:
        return True  # Its batch lies in a hole: nothing contradicts it, and a search there reports the hole.
    if location is None:
        return False
    return max_timestamp_of(files.pread(segment.file().fd, BATCH_OVERHEAD, location.position)) == timestamp


def rebuild_time_index(segment: Segment, files: FileSystem, why: str = "leads astray") -> None:
    """Makes the entries again that appending the batches made."""
    logger.warning("%s: the time index %s; building it again", segment.path, why)
    index = segment.time_index
    index.keep(0)
    largest, offset_of_largest = -1, segment.base_offset
    since = 0
    for info in readable_headers(segment, files, FIRST_POSITION, segment.size, strict=False):
        if info.max_timestamp > largest:
            largest, offset_of_largest = info.max_timestamp, info.last_offset
        if since > segment.config.index_interval_bytes and not index.is_full:
            index.table.append(largest, offset_of_largest)
            since = 0
        since += info.size_in_bytes
    if segment.tail is not None:
        index.settle(trim=False)
        # What it knows of times came from the damaged index.
        segment.tail = None
        segment.prepare_append()
        return
    if largest >= 0:
        index.table.append(largest, offset_of_largest)
    index.settle(trim=True)
