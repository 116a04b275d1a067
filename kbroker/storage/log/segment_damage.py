"""Ranges of a segment file that are no batches: a file that was cut, bytes that the disk lost or changed.

Recovery has checked everything above the recovery point.  Below it, a start reads nothing, so the first read that meets
damage finds it: the headers behind a batch that the index confirms lead to bytes that cannot be a header, or to a batch
that does not end within the file.  A hole is the range from there to the next batch that an index entry leads to and
whose checksum is right.  The segment keeps it, so that later reads know it without a look at the file: reads of its
offsets raise `DamagedSegmentError`, others stop in front of it or begin behind it.

Records whose own bytes changed, under an intact header, are not looked at here: their readers check the CRC.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from kbroker._fast.records.record_batch import BatchInfo
from kbroker._fast.records.stored_header import read_stored_header
from kbroker.records.layout import BATCH_OVERHEAD, LOG_OVERHEAD
from kbroker.storage.files.filesystem import FileSystem
from kbroker.storage.log.segment_batches import BATCHES_AT_ONCE
from kbroker.storage.log.segment_view import Hole
from kbroker.types import FIRST_POSITION, Offset, Position

if TYPE_CHECKING:
    from kbroker.storage.log.segment_view import Segment

_MOST_CHECKED_BYTES = 16 << 20
"""Of a larger batch the header alone is believed, when its offsets are what the index says."""


class CorruptSegmentError(ValueError):
    """Bytes in a segment that are not whole batches, found where only whole batches may be."""


class DamagedSegmentError(CorruptSegmentError):
    """A read has come upon a hole."""

    def __init__(self, path: str, hole: Hole) -> None:
        super().__init__(f"{path} is damaged at position {hole.position}: {hole.reason}")
        self.path = path
        self.hole = hole


class Stop(NamedTuple):
    """Where reading headers ended: a batch that reaches an offset, the end of the file, or damage (`reason`)."""

    batch: BatchInfo | None
    position: Position
    next_offset: Offset
    reason: str


def read_to(
    segment: Segment, files: FileSystem, position: Position, next_offset: Offset, end: int, offset: Offset
) -> Stop:
    """Reads headers from `position`, where a batch of `next_offset` or later begins, to one that reaches `offset`."""
    file = segment.file()
    while position < end:
        scan = files.scan_segment(file.fd, position, end, check_crc=False, max_batches=64)
        for info in scan.batches:
            if info.base_offset < next_offset:
                return Stop(None, info.position, next_offset, f"offset {info.base_offset} descends")
            if info.last_offset >= offset:
                return Stop(info, info.position, next_offset, "")
            next_offset = info.last_offset + 1
        position = scan.valid_end
        if scan.complete:
            break
    if position >= end:
        return Stop(None, position, next_offset, "")
    return Stop(None, position, next_offset, scan.reason or f"the file ends there, {end} bytes were written")


def trusted_start(segment: Segment, files: FileSystem, offset: Offset, end: int) -> tuple[Position, Offset]:
    """(position, offset) of a batch at or below `offset` that an index entry leads to; else the segment's start.

    A batch before a hole does not count if `offset` lies behind the hole.
    """
    floor = max(
        ((hole.end_position, hole.end_offset) for hole in segment.holes if (hole.end_offset or offset + 1) <= offset),
        default=(FIRST_POSITION, segment.base_offset),
    )
    index = segment.offset_index
    for key, position in index.entries_down_from(offset, 8):
        if position <= floor[0]:
            break
        info = confirmed(segment, files, key, position, end)
        if info is not None and info.base_offset <= offset:
            return position, info.base_offset
    return floor[0], floor[1] or segment.base_offset


def confirmed(segment: Segment, files: FileSystem, key: Offset, position: Position, end: int) -> BatchInfo | None:
    """The batch that an index entry leads to; None when there is none, or it is not the entry's.

    Kafka up to 3.9 wrote one entry for several batches: the position of the first and the last offset of the last.
    """
    if not 0 <= position < end:
        return None
    fd = segment.file().fd
    data = files.pread(fd, min(BATCH_OVERHEAD, end - position), position)
    size = int.from_bytes(data[8:12], signed=True) + LOG_OVERHEAD
    if not LOG_OVERHEAD < size <= end - position:
        return None
    is_checked = size <= _MOST_CHECKED_BYTES
    if is_checked:
        data = files.pread(fd, size, position)
    try:
        info = read_stored_header(data if is_checked else data.ljust(size, b"\0"), check_crc=is_checked)
    except ValueError:
        return None
    if info.last_offset > key or info.base_offset < segment.base_offset or not (is_checked or info.last_offset == key):
        return None
    return info


def hole_at(segment: Segment, files: FileSystem, stop: Stop, end: int) -> Hole:
    """The hole that begins where reading stopped, up to the next batch that can be found."""
    known = next((hole for hole in segment.holes if hole.position == stop.position), None)
    if known is not None:
        return known
    resumed, offset = Position(end), None
    for key, position in segment.offset_index.entries_behind(stop.position):
        info = confirmed(segment, files, key, position, end)
        if info is not None and info.base_offset >= stop.next_offset:
            resumed, offset = position, info.base_offset
            break
    hole = Hole(stop.position, resumed, stop.next_offset, offset, stop.reason)
    segment.add_hole(hole)
    return hole


def find_shrunk(segment: Segment, files: FileSystem, end_offset: Offset) -> DamagedSegmentError | None:
    """What is gone of a segment whose file ends before `size`, up to `end_offset`; None where nothing is."""
    there = Position(files.size(segment.file().fd))
    if there >= segment.size or any(hole.position <= there for hole in segment.holes):
        return None
    position, offset = FIRST_POSITION, segment.base_offset
    entry = segment.offset_index.floor(there)
    info = confirmed(segment, files, *entry, there) if entry is not None else None
    if info is not None:
        position, offset = info.position, info.base_offset
    stop = read_to(segment, files, position, offset, there, end_offset)
    assert position <= stop.position <= there, (segment.path, position, stop.position, there)
    reason = f"the file ends at {there}, {segment.size} bytes were written"
    hole = Hole(stop.position, segment.size, stop.next_offset, end_offset, reason)
    segment.add_hole(hole)
    return DamagedSegmentError(segment.path, hole)


def readable_headers(
    segment: Segment, files: FileSystem, position: Position, end: int, at_once: int = BATCHES_AT_ONCE, *, strict: bool
) -> Iterator[BatchInfo]:
    """The headers of all batches from `position` on that can be found; `strict`: DamagedSegmentError at a hole."""
    file = segment.file()
    next_offset = segment.base_offset
    while position < end:
        scan = files.scan_segment(file.fd, position, end, check_crc=False, max_batches=at_once)
        stop = None
        for info in scan.batches:
            if info.base_offset < next_offset:
                stop = Stop(None, info.position, next_offset, f"offset {info.base_offset} descends")
                break
            next_offset = info.last_offset + 1
            yield info
        if stop is None:
            position = scan.valid_end
            if not scan.complete or position >= end:
                continue
            stop = Stop(None, position, next_offset, scan.reason or "the file ends there")
        hole = hole_at(segment, files, stop, end)
        if strict:
            raise DamagedSegmentError(segment.path, hole)
        if hole.end_offset is None:
            return
        position, next_offset = hole.end_position, hole.end_offset


def begin_of(segment: Segment, offset: Offset) -> Position | None:
    """The position of the batch or hole that holds `offset`; None when the segment ends before it."""
    try:
        location = segment.locate(offset)
    except DamagedSegmentError as error:
        return error.hole.position
    return location.position if location is not None else None


def readable_position(segment: Segment, offset: Offset) -> Position:
    """The position to begin reading at for `offset`: the end of the hole if one holds it, the segment's size when
    nothing follows."""
    try:
        location = segment.locate(offset) if offset > segment.base_offset else None
    except DamagedSegmentError as error:
        return error.hole.end_position
    return location.position if location is not None else FIRST_POSITION
