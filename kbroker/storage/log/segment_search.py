"""Finding a batch in a segment by its offset: from where the index leads to, header by header.

No checksum protects an index.  A walk from an entry's position therefore verifies the entry: a batch must begin there,
at or below the requested offset, and the offsets of the batches after it must ascend.  Otherwise either the index or
the log is damaged.  A second walk, from the closest entry that the log confirms, decides which.  If it reaches the
offset, the index is rebuilt from the batches; if it reaches bytes that are no batch, those are a hole
(`segment_damage`).  An index whose gaps make walks long is built again as well.

A reader usually asks next for the offset behind the batch that it was given last.  `follow_ups` keeps position and end
of that batch for some readers of a segment, so that reading on, or again, costs one header and no look-up.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, NamedTuple

from kbroker._fast.log.batch_seek import FollowUps, find_batch, walk_batches
from kbroker.records.layout import BATCH_OVERHEAD
from kbroker.storage.files.filesystem import FileSystem
from kbroker.storage.log.segment_batches import BATCHES_AT_ONCE
from kbroker.storage.log.segment_damage import (
    CorruptSegmentError,
    DamagedSegmentError,
    hole_at,
    read_to,
    readable_headers,
    readable_position,
    trusted_start,
)
from kbroker.storage.log.segment_view import BatchLocation, Hole
from kbroker.types import FIRST_POSITION, NO_LEADER_EPOCH, LeaderEpoch, Offset, Position

if TYPE_CHECKING:
    from kbroker.storage.log.segment_view import Segment

logger = logging.getLogger("kbroker.storage")

MOST_OFFSETS = 0x7FFFFFFF
"""Of one segment, whose indexes have 31 bits for them."""

_SCAN_BYTES = 16384
_SHORT_SCAN_BYTES = 4096
_SHORT_INTERVAL_BYTES = 1024
_LONG_WALK_BYTES = 1 << 20
_LONG_WALK_ENTRIES = 16


def find_location(segment: Segment, files: FileSystem, offset: Offset, end: int) -> BatchLocation | None:
    """The first batch that ends at or after `offset`, in a segment of `end` bytes; None when there is none.

    DamagedSegmentError when the offset lies in a hole.
    """
    for hole in segment.holes:
        if hole.holds(offset):
            raise DamagedSegmentError(segment.path, hole)
    follow_ups = segment.follow_ups
    if follow_ups is None:
        follow_ups = segment.follow_ups = FollowUps()
    position = follow_ups.find(offset)
    location = None
    if 0 <= position < end:
        # This position needs no check: a reader has seen the batch here, or the one that ends right before it.
        header = files.pread(segment.file().fd, BATCH_OVERHEAD, position)
        with contextlib.suppress(ValueError):  # the look-up says what is wrong
            found = find_batch(header, offset, position, end)
            location = BatchLocation(*found) if found[1] else None
    if location is None:
        location = _look_up(segment, files, offset, end)
    if location is not None and location.last_offset >= offset:
        follow_ups.note(offset, location.position)
        follow_ups.note(location.last_offset + 1, location.position + location.size)
    return location


def _look_up(segment: Segment, files: FileSystem, offset: Offset, end: int) -> BatchLocation | None:
    position = segment.offset_index.position_for(offset)
    floors = [hole.end_position for hole in segment.holes if hole.end_offset is not None and hole.end_offset <= offset]
    position = max(position, *floors) if floors else position
    reason = f"position {position} of {end}"
    if 0 <= position < end or position == end == 0:
        try:
            location, stopped = _walk(
                segment, files, offset, position, end, *((segment.base_offset,) if position else ())
            )
        except ValueError as error:
            reason = str(error)
        else:
            if location is not None and _is_long(segment, location.position - position):
                segment.is_index_checked = True
                logger.warning("%s: the offset index leaves much out; building it again", segment.path)
                rebuild_offset_index(segment, files, end)
            if location is not None or stopped == end:
                return location
            reason = f"the walk ends at position {stopped} of {end}"
    return _judge(segment, files, offset, end, position, reason)


def _is_long(segment: Segment, walked: int) -> bool:
    """Whether a look-up has walked so far that the index must lack entries."""
    longest = max(_LONG_WALK_BYTES, _LONG_WALK_ENTRIES * segment.config.index_interval_bytes)
    return walked > longest and not segment.is_index_checked


def _judge(
    segment: Segment, files: FileSystem, offset: Offset, end: int, position: Position, reason: str
) -> BatchLocation | None:
    """A look-up that began at `position` came to bytes that are no batch: which of index and log is damaged?"""
    start, first = trusted_start(segment, files, offset, end)
    stop = read_to(segment, files, start, first, end, offset)
    if stop.reason:
        hole = hole_at(segment, files, stop, end)
        if hole.holds(offset):
            raise DamagedSegmentError(segment.path, hole)
        return find_location(segment, files, offset, end)
    if stop.batch is None and segment.time_index.last_entry()[1] >= offset:
        return None  # Both indexes know more than the log has: the caller says what that means.
    logger.warning("%s: the offset index leads astray (%s); building it again", segment.path, reason)
    rebuild_offset_index(segment, files, end)
    batch = stop.batch
    return batch and BatchLocation(batch.position, batch.size_in_bytes, batch.base_offset, batch.last_offset)


def check_end(segment: Segment, files: FileSystem, offset: Offset) -> None:
    """Checks a segment that ends before `offset`, though the log goes on: its end may have been cut off between two
    batches.

    The time index has an entry for the segment's last batches.  DamagedSegmentError when that entry proves that
    `offset` was in the segment.
    """
    if segment.tail is not None or segment.time_index.last_entry()[1] < offset or segment.time_index.table.entries == 0:
        return
    start, first = trusted_start(segment, files, offset, segment.size)
    stop = read_to(segment, files, start, first, segment.size, offset)
    if stop.batch is not None or stop.reason:
        return
    hole = Hole(stop.position, stop.position, stop.next_offset, None, "the file ends there, its indexes go on")
    segment.add_hole(hole)
    raise DamagedSegmentError(segment.path, hole)


def _walk(
    segment: Segment, files: FileSystem, offset: Offset, position: Position, end: int, *least_offset: Offset
) -> tuple[BatchLocation | None, int]:
    """The location, and where the walk stopped."""
    file = segment.file()
    size = _SCAN_BYTES if segment.config.index_interval_bytes > _SHORT_INTERVAL_BYTES else _SHORT_SCAN_BYTES
    while position < end:
        data = files.pread(file.fd, min(size, end - position), position)
        location = find_batch(data, offset, position, end, *least_offset)
        if location[1]:
            return BatchLocation(*location), location[0]
        if location[0] == position:
            break
        position = location[0]
        # What follows lies behind a good batch.
        least_offset = ()
    return None, position


def rebuild_offset_index(segment: Segment, files: FileSystem, end: int) -> None:
    """Makes the entries again that appending the batches made."""
    index = segment.offset_index
    entries: list[tuple[Offset, Position]] = []
    since = 0
    for info in readable_headers(segment, files, FIRST_POSITION, end, strict=False):
        if since > segment.config.index_interval_bytes and len(entries) < index.max_entries:
            entries.append((info.last_offset, info.position))
            since = 0
        since += info.size_in_bytes
    index.keep(0)
    for offset, position in entries:
        index.table.append(offset, position)
    index.settle(trim=segment.tail is None)


class Measured(NamedTuple):
    """The batches at a segment's end: the offset after them, their max timestamp and its offset, the last's epoch."""

    next_offset: Offset
    max_timestamp: int
    offset_of_max: Offset
    leader_epoch: LeaderEpoch


def measure_end(segment: Segment, files: FileSystem, *, is_indexed: bool) -> Measured:
    """What a segment's batches from its offset index's last entry on say.

    CorruptSegmentError when the file does not end with a whole batch, or the index does not lead to one.
    """
    max_timestamp, offset_of_max = -1, segment.base_offset
    next_offset, epoch = segment.base_offset, NO_LEADER_EPOCH
    size, path = segment.size, segment.path
    file = segment.file() if size else None
    position: Position | None = FIRST_POSITION
    if file is not None and is_indexed:
        position = segment.offset_index.last_position(file.fd, size)
    if position is None:
        raise CorruptSegmentError(f"{path}: the last entry of its index leads to no batch")
    while file is not None and position < size:
        data = files.pread(file.fd, min(_SCAN_BYTES, size - position), position)
        try:
            following, last, timestamp, offset, epoch = walk_batches(data, position, size)
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
    return Measured(next_offset, max_timestamp, offset_of_max, epoch)


def measure(segment: Segment, files: FileSystem) -> tuple[Offset, int, Offset]:
    """See LogSegment.measure."""
    next_offset, timestamp, offset, _ = measure_end(segment, files, is_indexed=True)
    if segment.size == 0:
        return next_offset, timestamp, offset
    largest = segment.time_index.last_entry()
    position = readable_position(segment, largest[1]) if largest[0] >= 0 else FIRST_POSITION
    # If the time index lacks entries, the batches between its last entry and the offset index's last entry are not in
    # it.
    for info in readable_headers(segment, files, position, segment.offset_index.table.last_value, 64, strict=False):
        if info.max_timestamp > largest[0]:
            largest = info.max_timestamp, info.last_offset
    return (next_offset, timestamp, offset) if timestamp > largest[0] else (next_offset, *largest)


def missing_behind(segment: Segment, files: FileSystem, following: Segment) -> Hole | None:
    """The hole behind a segment that ends before the next one begins, in a log that is not to be compacted.

    A segment begins where the one before it ends, so a gap means that batches are gone.  None where compaction may have
    made the gap: either side shows its traces (`is_thinned`), the gap is wider than a segment can be, or nothing
    decides it.
    """
    start, first = trusted_start(segment, files, following.base_offset - 1, segment.size)
    stop = read_to(segment, files, start, first, segment.size, following.base_offset)
    if stop.reason or stop.batch is not None or stop.next_offset >= following.base_offset or segment.size == 0:
        return None
    if following.base_offset - stop.next_offset > MOST_OFFSETS:
        return None
    if is_thinned(segment, files, start, first) or is_thinned(following, files, FIRST_POSITION, following.base_offset):
        return None
    last = following.base_offset - 1
    reason = f"offsets {stop.next_offset} to {last} are missing: a segment between it and the next one is gone"
    hole = Hole(segment.size, segment.size, stop.next_offset, None, reason)
    segment.add_hole(hole)
    return hole


def is_thinned(segment: Segment, files: FileSystem, position: Position, next_offset: Offset) -> bool:
    """Whether batches lack records or follow each other with gaps, or are of a format that does not tell."""
    if position >= segment.size:
        return False
    scan = files.scan_segment(segment.file().fd, position, segment.size, check_crc=False, max_batches=BATCHES_AT_ONCE)
    for info in scan.batches:
        if info.base_offset != next_offset or info.records_count != info.last_offset - info.base_offset + 1:
            return True
        next_offset = info.last_offset + 1
    return False
