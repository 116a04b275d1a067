"""Segment directories as they lie on a disk, a broker's own or a copy of it: partitions, segments, indexes.

Read without the broker and without changing anything.  A log directory has one directory per partition, with segments
`<base offset>.log` and beside each a sparse `.index` (int32 offset after the base, int32 position of a batch) and
`.timeindex` (int64 timestamp, int32 offset after the base); zeros after the last entry are space allocated ahead.
Directories and files that a broker has set aside (`-delete`, `.deleted`, `.cleaned`, `.swap`) are left out.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from kbroker._fast.records.record_batch import BATCH_OVERHEAD, LOG_OVERHEAD, MAGIC_V2, BatchInfo
from kbroker.records.layout import MAGIC_POSITION
from kbroker.storage.directories.log_dirs import parse_partition_directory
from kbroker.storage.files.checkpoints import LOG_START_OFFSET_CHECKPOINT, CorruptCheckpointError, decode_offsets
from kbroker.storage.files.filesystem import FileSystem
from kbroker.types import TopicPartition

FILES = FileSystem()

_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
_HEADERS_AT_ONCE = 4096
_NAME_DIGITS = 20


class LogDirectoryError(ValueError):
    """A path that is no log directory, or has not what was asked for."""


@dataclass(frozen=True, slots=True)
class Segment:
    """One `.log` file, `size` bytes when it was looked at.  It holds offsets from `base` to below `stop`."""

    path: str
    base: int
    stop: int
    size: int
    is_last: bool

    def beside(self, suffix: str) -> str:
        """The path of the segment's file with this suffix."""
        return self.path.removesuffix(".log") + suffix


@dataclass(frozen=True, slots=True)
class PartitionLog:
    """A partition's segments in order; `start` is the first offset that clients may see."""

    topic: str
    partition: int
    start: int
    segments: tuple[Segment, ...] = field(default=())


def find_partitions(path: str, wanted: Callable[[str], bool]) -> list[PartitionLog]:
    """The partitions of a log directory, or the one whose directory `path` is.  LogDirectoryError otherwise."""
    root = Path(path)
    if not root.is_dir():
        raise LogDirectoryError(f"{path} is no directory here: kbroker-log reads paths that every executor can see")
    own = parse_partition_directory(root.name)
    if own is not None and any(_is_segment(name.name) for name in root.iterdir()):
        logs = [_read_partition(root, own.topic, own.partition, _start_offsets(root.parent))]
    else:
        starts = _start_offsets(root)
        logs = []
        for entry in sorted(root.iterdir()):
            place = parse_partition_directory(entry.name) if entry.is_dir() else None
            if place is not None and not place.mark and wanted(place.topic):
                logs.append(_read_partition(entry, place.topic, place.partition, starts))
        if not logs and not any(parse_partition_directory(entry.name) for entry in root.iterdir()):
            raise LogDirectoryError(f"{path} holds no partitions: give a log directory (log.dirs) or one partition's")
    return logs


def _start_offsets(root: Path) -> dict[TopicPartition, int]:
    """Where DeleteRecords and retention have moved the start of logs; nothing when the file is not there or unreadable:
    then the first segment says it."""
    path = root / LOG_START_OFFSET_CHECKPOINT
    try:
        return dict(decode_offsets(path.read_bytes(), str(path)))
    except (OSError, CorruptCheckpointError):
        return {}


def _is_segment(name: str) -> bool:
    return name.endswith(".log") and len(name) == _NAME_DIGITS + 4 and name[:_NAME_DIGITS].isdigit()


def _read_partition(directory: Path, topic: str, partition: int, starts: dict[TopicPartition, int]) -> PartitionLog:
    found = sorted((int(entry.name[:_NAME_DIGITS]), entry) for entry in directory.iterdir() if _is_segment(entry.name))
    segments = []
    for number, (base, entry) in enumerate(found):
        is_last = number + 1 == len(found)
        stop = (1 << 63) - 1 if is_last else found[number + 1][0]
        try:
            size = entry.stat().st_size
        except FileNotFoundError:
            # Retention was quicker.
            continue
        segments.append(Segment(str(entry), base, stop, size, is_last))
    start = starts.get(TopicPartition(topic, partition), 0)
    return PartitionLog(topic, partition, max(start, segments[0].base if segments else 0), tuple(segments))


class SegmentReader:
    """An open segment: headers and bytes of batches.  A context."""

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self._fd = FILES.open(segment.path, os.O_RDONLY)

    def __enter__(self) -> SegmentReader:
        return self

    def __exit__(self, *_: object) -> None:
        FILES.close(self._fd)

    def headers(self, position: int = 0) -> Iterator[BatchInfo]:
        """The headers of the batches from `position` on, until the end or what is no batch."""
        while position < self.segment.size:
            scan = FILES.scan_segment(
                self._fd, position, self.segment.size, check_crc=False, max_batches=_HEADERS_AT_ONCE
            )
            yield from scan.batches
            position = scan.valid_end
            if scan.complete or not scan.batches:
                return

    def read_into(self, buffer: memoryview, position: int) -> int:
        """Fill the buffer from `position` on; the number of bytes read."""
        return FILES.pread_into(self._fd, buffer, position)

    def batch(self, info: BatchInfo) -> bytes:
        """The bytes of one batch."""
        return FILES.pread(self._fd, info.size_in_bytes, info.position)

    def begins_batch(self, position: int) -> bool:
        """Whether a batch of this segment begins here: an index may be wrong."""
        head = FILES.pread(self._fd, BATCH_OVERHEAD, position)
        if len(head) < BATCH_OVERHEAD or head[MAGIC_POSITION] != MAGIC_V2:
            return False
        base, length = struct.unpack_from(">qi", head)
        whole = BATCH_OVERHEAD <= length + LOG_OVERHEAD <= self.segment.size - position
        return bool(whole and self.segment.base <= base < self.segment.stop)


def index_positions(segment: Segment) -> list[tuple[int, int]]:
    """(offset, position) of the sparse index, as far as its entries grow; empty without an index."""
    try:
        data = FILES.read_file(segment.beside(".index"))
    except OSError:
        return []
    found: list[tuple[int, int]] = []
    last = (-1, -1)
    for entry in _OFFSET_ENTRY.iter_unpack(data[: len(data) // 8 * 8]):
        if entry[0] <= last[0] or entry[1] <= last[1] or entry[1] >= segment.size:
            break
        last = entry
        found.append((segment.base + entry[0], entry[1]))
    return found


def largest_timestamp(segment: Segment) -> int | None:
    """The last entry of a closed segment's time index; None where only the segment itself can say."""
    if segment.is_last:
        return None
    try:
        data = FILES.read_file(segment.beside(".timeindex"))
    except OSError:
        return None
    last = None
    for timestamp, offset in _TIME_ENTRY.iter_unpack(data[: len(data) // 12 * 12]):
        if (timestamp, offset) == (0, 0) or (last is not None and timestamp <= last):
            break
        last = timestamp
    return last
