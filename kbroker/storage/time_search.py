"""Finding a time in a segment: from where its time index leads to.

A time index is under no checksum.  An entry says that the batch at its offset has its time, and that none before has a
later one.  So that batch is looked at before an entry is believed: the last one of a segment once, any other when it is
used.  Where the batch says something else the index is damaged, and built again from the batches.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kbroker._fast.batch_seek import max_timestamp_of
from kbroker.storage.filesystem import FileSystem
from kbroker.storage.segment_batches import iterate_headers

if TYPE_CHECKING:
    from kbroker.storage.log_segment import LogSegment

logger = logging.getLogger("kbroker.storage")

_HEADER_BYTES = 61


def latest_time(segment: LogSegment, files: FileSystem) -> int:
    """The largest timestamp of a segment's batches, -1 without one."""
    if not segment.times_checked:
        segment.times_checked = True
        entry = segment.max_timestamp
        if segment.time_index.table.entries and not _holds(segment, files, entry):
            rebuild_time_index(segment, files)
    return segment.max_timestamp[0]


def start_for(segment: LogSegment, files: FileSystem, timestamp: int) -> int:
    """An offset from which every record of the segment with a timestamp >= `timestamp` follows."""
    entry = segment.time_index.entry_for(timestamp)
    if entry is not None and not _holds(segment, files, entry):
        rebuild_time_index(segment, files)
        entry = segment.time_index.entry_for(timestamp)
    return segment.base_offset if entry is None else entry[1]


def _holds(segment: LogSegment, files: FileSystem, entry: tuple[int, int]) -> bool:
    """Whether the batch at the entry's offset has the entry's time."""
    timestamp, offset = entry
    place = segment.locate(offset) if timestamp >= 0 else None
    if place is None:
        return False
    return max_timestamp_of(files.pread(segment.file().fd, _HEADER_BYTES, place.position)) == timestamp


def rebuild_time_index(segment: LogSegment, files: FileSystem) -> None:
    """Makes the entries again that appending the batches made."""
    logger.warning("%s: the time index leads astray; building it again", segment.path)
    index = segment.time_index
    index.keep(0)
    largest, offset_of_largest = -1, segment.base_offset
    since = 0
    for info in iterate_headers(files, segment, 0, segment.size):
        if info.max_timestamp > largest:
            largest, offset_of_largest = info.max_timestamp, info.last_offset
        if since > segment.config.index_interval_bytes and not index.is_full:
            index.append(largest, offset_of_largest)
            since = 0
        since += info.size_in_bytes
    if segment.tail is not None:
        index.write_tail()
        # What it knows of times came from the damaged index.
        segment.tail = None
        segment.prepare_append()
        return
    if largest >= 0:
        index.append(largest, offset_of_largest)
    index.trim()
