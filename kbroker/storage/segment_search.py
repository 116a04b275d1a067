"""Finding a batch in a segment by its offset: from where the index leads to, header by header.

An index is under no checksum.  A walk that begins at an entry's position therefore checks what an entry promises: a
batch that begins at or before the offset asked for, with ascending ones after it.  Where that is not so the index is
damaged: it is built again from the batches, and the walk begins at the segment's start.

Who reads on asks for the offset behind the batch that was found last: where that one lies and where it ends is kept for
some readers of a segment (`follow_ups`), so that reading on, or again, costs one header and no look-up.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from kbroker._fast.batch_seek import FollowUps, find_batch, walk_batches
from kbroker.storage.filesystem import FileSystem
from kbroker.storage.segment_batches import iterate_headers

if TYPE_CHECKING:
    from kbroker.storage.log_segment import LogSegment

logger = logging.getLogger("kbroker.storage")

_SCAN_BYTES = 16384
_SHORT_SCAN_BYTES = 4096
_SHORT_INTERVAL_BYTES = 1024
_HEADER_BYTES = 61


class CorruptSegmentError(ValueError):
    """Bytes in a segment that are not whole batches, found where only whole batches may be."""


class BatchPlace(NamedTuple):
    """Where a batch lies in its segment, and its offsets (-1 when they were not needed to find it)."""

    position: int
    size: int
    base_offset: int
    last_offset: int


def find_place(segment: LogSegment, files: FileSystem, offset: int, end: int) -> BatchPlace | None:
    """The first batch that ends at or after `offset`, in a segment of `end` bytes; None when there is none."""
    follow_ups = segment.follow_ups
    if follow_ups is None:
        follow_ups = segment.follow_ups = FollowUps()
    position = follow_ups.find(offset)
    place = None
    if 0 <= position < end:
        # Nothing leads astray here: the batch was seen at this place, or one that ends right before it in front of it.
        header = files.pread(segment.file().fd, _HEADER_BYTES, position)
        found = find_batch(header, offset, position, end)
        place = BatchPlace(*found) if found[1] else None
    if place is None:
        place = _look_up(segment, files, offset, end)
    if place is not None and place.last_offset >= offset:
        follow_ups.note(offset, place.position)
        follow_ups.note(place.last_offset + 1, place.position + place.size)
    return place


def _look_up(segment: LogSegment, files: FileSystem, offset: int, end: int) -> BatchPlace | None:
    position = segment.offset_index.position_for(offset)
    if position == 0:
        return _walk(segment, files, offset, 0, end)[0]
    reason = f"position {position} of {end}"
    if 0 < position < end:
        try:
            place, stopped = _walk(segment, files, offset, position, end, segment.base_offset)
        except ValueError as error:
            reason = str(error)
        else:
            if place is not None or stopped == end:
                return place
            reason = f"the walk ends at position {stopped} of {end}"
    logger.warning("%s: the offset index leads astray (%s); building it again", segment.path, reason)
    rebuild_offset_index(segment, files, end)
    return _walk(segment, files, offset, 0, end)[0]


def _walk(
    segment: LogSegment, files: FileSystem, offset: int, position: int, end: int, *least_offset: int
) -> tuple[BatchPlace | None, int]:
    """The place, and where the walk stopped."""
    file = segment.file()
    size = _SCAN_BYTES if segment.config.index_interval_bytes > _SHORT_INTERVAL_BYTES else _SHORT_SCAN_BYTES
    while position < end:
        data = files.pread(file.fd, min(size, end - position), position)
        place = find_batch(data, offset, position, end, *least_offset)
        if place[1]:
            return BatchPlace(*place), place[0]
        if place[0] == position:
            break
        position = place[0]
        # What follows lies behind a good batch.
        least_offset = ()
    return None, position


def rebuild_offset_index(segment: LogSegment, files: FileSystem, end: int) -> None:
    """Makes the entries again that appending the batches made."""
    index = segment.offset_index
    index.keep(0)
    since = 0
    for info in iterate_headers(files, segment, 0, end):
        if since > segment.config.index_interval_bytes and not index.is_full:
            index.append(info.last_offset, info.position)
            since = 0
        since += info.size_in_bytes
    if segment.tail is None:
        index.trim()
    else:
        index.write_tail()


def measure_end(segment: LogSegment, files: FileSystem, *, is_indexed: bool) -> tuple[int, int, int]:
    """(next offset, max timestamp, offset of it) of a segment's batches from its offset index's last entry on.

    CorruptSegmentError when the file does not end with a whole batch, or the index does not lead to one.
    """
    max_timestamp, offset_of_max = -1, segment.base_offset
    next_offset = segment.base_offset
    size, path = segment.size, segment.path
    file = segment.file() if size else None
    position: int | None = 0
    if file is not None and is_indexed:
        position = segment.offset_index.last_position(file.fd, size)
    if position is None:
        raise CorruptSegmentError(f"{path}: the last entry of its index leads to no batch")
    while file is not None and position < size:
        data = files.pread(file.fd, min(_SCAN_BYTES, size - position), position)
        try:
            following, last, timestamp, offset = walk_batches(data, position, size)
        except ValueError as error:
            raise CorruptSegmentError(f"{path}: {error}") from error
        if last < 0 or following <= position:
            raise CorruptSegmentError(f"{path}: no whole batch at position {position} of {size}")
        if last < next_offset - 1 or last < segment.base_offset:
            raise CorruptSegmentError(f"{path}: offset {last} at {position} descends")
        position = following
        next_offset = last + 1
        if timestamp > max_timestamp:
            max_timestamp, offset_of_max = timestamp, offset
    return next_offset, max_timestamp, offset_of_max
