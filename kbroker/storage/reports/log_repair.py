"""Checking and repairing the segments of a partition while no broker runs: every byte is read, checksums included.

    skip       ranges that are no valid batches are taken out of their segments; offsets stay, with a gap
    truncate   the log ends in front of the first such range; what follows leaves the log

Files that change are kept as `<name>.damaged` beside, which no start looks at.  Offset and time indexes of changed
segments are removed, and made again by the next start.  A crash in between leaves the old file or the new one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import zip_longest
from typing import NamedTuple

from kbroker._fast.log.batch_rules import MAX_RELATIVE_OFFSET
from kbroker.records.batch import empty_batch
from kbroker.storage.files.checkpoints import (
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    OffsetCheckpoint,
)
from kbroker.storage.files.filesystem import FileSystem
from kbroker.storage.files.open_files import OpenFiles
from kbroker.storage.log.log_segment import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    LogSegment,
    base_offset_of,
)
from kbroker.storage.log.segment_batches import BATCHES_AT_ONCE, iterate_headers
from kbroker.storage.log.segment_damage import Stop, hole_at
from kbroker.storage.log.segment_search import is_thinned, missing_behind
from kbroker.storage.log.segment_view import Hole, SegmentConfig
from kbroker.storage.log.txn_index import TransactionIndex
from kbroker.types import FIRST_POSITION, TopicPartition

DAMAGED_SUFFIX = ".damaged"
_COPY_BYTES = 1 << 20
_INDEX_BYTES = 10 << 20


class Finding(NamedTuple):
    """A segment with damage, its holes in order."""

    segment: LogSegment
    holes: tuple[Hole, ...]


class PartitionFiles:
    """The segments of one partition's directory, whose log directory the caller has locked."""

    def __init__(self, directory: str, files: FileSystem) -> None:
        self._directory = directory
        self._files = files
        config = SegmentConfig(4096, _INDEX_BYTES)
        open_files = OpenFiles(16)
        names = {entry.name: entry.size for entry in files.list_directory(directory)}
        self.segments = [
            LogSegment(
                files,
                open_files,
                directory,
                base_offset_of(name),
                config,
                size=names[name],
                has_txn_index=name[:20] + TXN_INDEX_SUFFIX in names,
            )
            for name in sorted(names)
            if name.endswith(LOG_SUFFIX) and len(name) == 20 + len(LOG_SUFFIX) and name[:20].isdigit()
        ]

    def check(self) -> Iterator[Finding]:
        """Reads everything; the segments that have damage, or are followed by one that is gone."""
        may_have_gaps = any(is_thinned(each, self._files, FIRST_POSITION, each.base_offset) for each in self.segments)
        for segment, following in zip_longest(self.segments, self.segments[1:]):
            holes = tuple(_holes(segment, self._files))
            if not holes and following is not None and not may_have_gaps:
                hole = missing_behind(segment, self._files, following)
                holes = (hole,) if hole is not None else ()
            segment.close_files()
            if holes:
                yield Finding(segment, holes)

    def skip(self, finding: Finding) -> int:
        """Takes the holes out of a segment.  Returns the bytes that left.

        A hole at the segment's end is replaced by a batch without records, as compaction does: a gap between two
        segments would mean that batches are missing.
        """
        segment, files = finding.segment, self._files
        path = segment.path
        temporary = f"{path}.repaired"
        source, target = files.open(path, os.O_RDONLY), files.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        try:
            start = written = 0
            for stop, resume in [*((hole.position, hole.end_position) for hole in finding.holes), (segment.size, 0)]:
                for position in range(start, stop, _COPY_BYTES):
                    data = files.pread(source, min(_COPY_BYTES, stop - position), position)
                    files.pwrite(target, data, written)
                    written += len(data)
                start = resume
            left = written
            if finding.holes[-1].end_offset is None:
                files.pwrite(target, self._filler(segment, finding.holes[-1]), written)
            files.fsync(target)
        finally:
            files.close(source)
            files.close(target)
        self._drop_indexes(segment)
        files.rename(path, f"{path}{DAMAGED_SUFFIX}")
        files.rename(temporary, path)
        files.fsync_directory(self._directory)
        return segment.size - left

    def _filler(self, segment: LogSegment, hole: Hole) -> bytes:
        """A batch without records from a hole's first offset to the next segment; nothing where none follows."""
        following = next((each.base_offset for each in self.segments if each.base_offset > segment.base_offset), None)
        if following is None or not hole.offset < following <= hole.offset + MAX_RELATIVE_OFFSET:
            return b""
        before = iterate_headers(self._files, segment, FIRST_POSITION, hole.position)
        epoch = max((info.partition_leader_epoch for info in before), default=0)
        return empty_batch(hole.offset, following - 1, epoch)

    def truncate(self, finding: Finding, topic_partition: TopicPartition) -> int:
        """Ends the log in front of a segment's first hole.  Returns the new log end offset."""
        files, hole = self._files, finding.holes[0]
        for segment in reversed([each for each in self.segments if each.base_offset > finding.segment.base_offset]):
            files.rename(segment.path, f"{segment.path}{DAMAGED_SUFFIX}")
            self._drop_indexes(segment)
            files.unlink_if_exists(segment.path_of(TXN_INDEX_SUFFIX))
        self.segments = self.segments[: self.segments.index(finding.segment) + 1]
        self.skip(finding._replace(holes=(hole._replace(end_position=finding.segment.size),)))
        if finding.segment.has_txn_index:
            path = finding.segment.path_of(TXN_INDEX_SUFFIX)
            TransactionIndex(files, path, finding.segment.base_offset, exists=True).truncate_to(hole.offset)
        for name in (RECOVERY_POINT_CHECKPOINT, REPLICATION_OFFSET_CHECKPOINT):
            checkpoint = OffsetCheckpoint(files, f"{os.path.dirname(self._directory)}/{name}")  # noqa: PTH120
            offsets = checkpoint.read()
            if offsets.get(topic_partition, 0) > hole.offset:
                checkpoint.write({**offsets, topic_partition: hole.offset})
        files.fsync_directory(self._directory)
        return hole.offset

    def _drop_indexes(self, segment: LogSegment) -> None:
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            self._files.unlink_if_exists(segment.path_of(suffix))


def _holes(segment: LogSegment, files: FileSystem) -> Iterator[Hole]:
    position, next_offset, end = 0, segment.base_offset, segment.size
    fd = segment.file().fd
    while position < end:
        scan = files.scan_segment(fd, position, end, check_crc=True, max_batches=BATCHES_AT_ONCE)
        stop = None
        for info in scan.batches:
            if info.base_offset < next_offset:
                stop = Stop(None, info.position, next_offset, f"offset {info.base_offset} descends")
                break
            next_offset = info.last_offset + 1
        if stop is None:
            position = scan.valid_end
            if not scan.complete or position >= end:
                continue
            stop = Stop(None, position, next_offset, scan.reason or "the file ends there")
        hole = _one_batch(segment, files, stop, end) or hole_at(segment, files, stop, end)
        yield hole
        if hole.end_offset is None:
            return
        position, next_offset = hole.end_position, hole.end_offset


def _one_batch(segment: LogSegment, files: FileSystem, stop: Stop, end: int) -> Hole | None:
    """The hole where a header is good and a batch follows it in order: its records alone are damaged."""
    headers = files.scan_segment(segment.file().fd, stop.position, end, check_crc=False, max_batches=2).batches
    if not headers or headers[0].base_offset < stop.next_offset:
        return None
    following = headers[0].position + headers[0].size_in_bytes
    if following < end and (len(headers) < 2 or headers[1].base_offset <= headers[0].last_offset):
        return None
    return Hole(stop.position, following, stop.next_offset, headers[0].last_offset + 1, stop.reason)
