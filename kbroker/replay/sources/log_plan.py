"""Which bytes of which segments a query over log directories reads, in pieces of about `maxPartitionBytes`.

A segment is cut at batches of its sparse index, after a check that a batch does begin there; without an index it stays
whole.  Segments outside of the offsets asked for are left out by their names, those before a time by their time index.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from kbroker.records.batch import iterate_records
from kbroker.replay.sources.log_files import (
    LogDirectoryError,
    PartitionLog,
    Segment,
    SegmentReader,
    find_partitions,
    index_positions,
    largest_timestamp,
)
from kbroker.replay.sources.log_options import LogOptions

MAX_OFFSET = (1 << 63) - 1


class Piece(NamedTuple):
    """Bytes [position, end) of a segment, of which the records with start <= offset < stop are read.

    `is_tail`: the end of a partition, where a crash or a copy may have left half a batch.
    """

    topic: str
    partition: int
    path: str
    position: int
    end: int
    start: int
    stop: int
    is_tail: bool


def plan(options: LogOptions) -> list[Piece]:
    """LogDirectoryError when a directory is none, or has nothing of what was asked for."""
    logs = [log for path in options.paths for log in find_partitions(path, options.wants)]
    missing = set(options.topics) - {log.topic for log in logs}
    if missing:
        raise LogDirectoryError(f"no partition of {', '.join(sorted(missing))} in {', '.join(options.paths)}")
    seen: dict[tuple[str, int], str] = {}
    for log in logs:
        first = log.segments[0].path if log.segments else ""
        if seen.setdefault((log.topic, log.partition), first) != first:
            raise LogDirectoryError(
                f"{log.topic}-{log.partition} is there twice: {seen[log.topic, log.partition]}, {first}"
            )
    for option in (options.starting_offsets, options.ending_offsets):
        unknown = (option or {}).keys() - seen.keys()
        if unknown:
            raise LogDirectoryError(f"offsets are given for partitions that are not there: {sorted(unknown)}")
    return [piece for log in logs for piece in _plan_log(log, options)]


def _plan_log(log: PartitionLog, options: LogOptions) -> Iterator[Piece]:
    at = (log.topic, log.partition)
    start = (options.starting_offsets or {}).get(at, log.start)
    stop = (options.ending_offsets or {}).get(at, MAX_OFFSET)
    if options.starting_timestamp is not None:
        start = _first_at(log, options.starting_timestamp)
    if options.ending_timestamp is not None:
        stop = _first_at(log, options.ending_timestamp)
    if start < log.start and stop > start and options.fail_on_data_loss:
        raise LogDirectoryError(
            f"{log.topic}-{log.partition} starts at offset {log.start}, not at {start}: records before that were "
            "deleted. To go on with what is there, set the option failOnDataLoss to false"
        )
    start = max(start, log.start)
    for segment in log.segments:
        if segment.stop > start and segment.base < stop and segment.size:
            yield from _cut(log, segment, start, stop, options.max_partition_bytes)


def _cut(log: PartitionLog, segment: Segment, start: int, stop: int, size: int) -> Iterator[Piece]:
    with SegmentReader(segment) as reader:
        edges = _edges(reader, start, stop, size)
    for position, end in pairwise(edges):
        is_tail = segment.is_last and end == segment.size
        # Never more than its own offsets, even where two segments overlap.
        yield Piece(log.topic, log.partition, segment.path, position, end, start, min(stop, segment.stop), is_tail)


def _edges(reader: SegmentReader, start: int, stop: int, size: int) -> list[int]:
    """Positions to cut at: the first at or before `start`, the last at or after `stop`.

    An entry has the position of a batch and its last offset, or the last offset of several batches that were appended
    together.  So the batch of the next entry begins after that offset.
    """
    first, last, passed = 0, reader.segment.size, False
    inner: list[int] = []
    for offset, position in index_positions(reader.segment):
        if passed:
            last = position
            break
        passed = offset >= stop
        if offset < start:
            first = position
        elif position - (inner[-1] if inner else first) >= size:
            inner.append(position)
    if first and not reader.begins_batch(first):
        first = 0
    if last < reader.segment.size and not reader.begins_batch(last):
        last = reader.segment.size
    return [first, *(position for position in inner if position < last and reader.begins_batch(position)), last]


def _first_at(log: PartitionLog, timestamp: int) -> int:
    """The offset of the first record at or after a time; the largest offset where there is none."""
    for segment in log.segments:
        largest = largest_timestamp(segment)
        if segment.size == 0 or (largest is not None and largest < timestamp):
            continue
        with SegmentReader(segment) as reader:
            for info in reader.headers():
                if info.max_timestamp < timestamp or info.is_control:
                    continue
                if info.timestamp_type:
                    return max(int(info.base_offset), log.start)
                data = reader.batch(info)
                for record in iterate_records(data):
                    if record.timestamp >= timestamp and record.offset >= log.start:
                        return record.offset
    return MAX_OFFSET
