"""What the newest records of a topic are like, by partition: sizes, keys, nulls, how many come in a second.

A partition is looked through from up to `MOST_OFFSETS` before its end, and as far as `MOST_BYTES` of its log go; the
answer says how many records these were.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from kbroker._fast.records.record_batch import BatchError
from kbroker.console.messages import LARGEST_BATCH_BYTES, READ_BYTES, readable_topic
from kbroker.console.partition_source import source_of
from kbroker.console.record_rows import UNPACKED_BYTES
from kbroker.errors import KafkaError
from kbroker.records.compression import CompressionError
from kbroker.records.legacy import iterate_stored_batches, iterate_stored_records

if TYPE_CHECKING:
    from kbroker._fast.records.batch_info import BatchInfo
    from kbroker.console.parameters import Parameters
    from kbroker.console.partition_source import PartitionSource
    from kbroker.console.parts import ConsoleParts, Value
    from kbroker.records.batch import Record

MOST_OFFSETS = 20_000
MOST_BYTES = 4 << 20
MOST_PARTITIONS = 24
"""In one answer."""


@dataclass(frozen=True, slots=True)
class PartitionStatistics:
    """Of `record_count` records from `first_offset` on, without those of brokers.  Sizes are in bytes: keys and values
    as producers wrote them, `stored_bytes` the batches as they are on the disk.  `key_count`: different keys;
    `rate`: records a second between the first time and the last, None where these are one.  `problem`: what could not
    be read."""

    partition: int
    first_offset: int
    end_offset: int
    record_count: int
    null_keys: int
    key_count: int
    key_bytes: int
    largest_key: int
    null_values: int
    value_bytes: int
    largest_value: int
    header_count: int
    stored_bytes: int
    first_ms: int | None
    last_ms: int | None
    rate: float | None
    is_whole: bool
    problem: str


@dataclass(frozen=True, slots=True)
class TopicStatistics:
    """A page of partitions, from `start` on."""

    topic: str
    partition_count: int
    start: int
    partitions: Sequence[PartitionStatistics]


@dataclass(slots=True)
class _Sums:
    """What was seen so far, from offset `start` on."""

    start: int
    next_offset: int
    record_count: int = 0
    null_keys: int = 0
    keys: set[int] = field(default_factory=set)
    key_bytes: int = 0
    largest_key: int = 0
    null_values: int = 0
    value_bytes: int = 0
    largest_value: int = 0
    header_count: int = 0
    stored_bytes: int = 0
    first_ms: int | None = None
    last_ms: int | None = None
    problem: str = ""

    def add(self, record: Record) -> None:
        """One more record."""
        self.record_count += 1
        key, value, at = record.key, record.value, record.timestamp
        if key is None:
            self.null_keys += 1
        else:
            self.keys.add(hash(key))
            self.key_bytes += len(key)
            self.largest_key = max(self.largest_key, len(key))
        if value is None:
            self.null_values += 1
        else:
            self.value_bytes += len(value)
            self.largest_value = max(self.largest_value, len(value))
        self.header_count += len(record.headers)
        if at >= 0:
            self.first_ms = at if self.first_ms is None else min(self.first_ms, at)
            self.last_ms = at if self.last_ms is None else max(self.last_ms, at)

    @property
    def rate(self) -> float | None:
        """Records a second."""
        if self.first_ms is None or self.last_ms is None or self.last_ms <= self.first_ms:
            return None
        return 1000 * (self.record_count - 1) / (self.last_ms - self.first_ms)


async def statistics(parts: ConsoleParts, parameters: Parameters) -> Value:
    """GET /console/api/statistics?topic=&start=: a page of MOST_PARTITIONS partitions."""
    image = readable_topic(parts, parameters)
    start = parameters.number("start", 0, 0, 1 << 31)
    found = []
    for each in image.partitions[start : start + MOST_PARTITIONS]:
        try:
            source = await source_of(parts, image, each.partition, is_committed=False)
        except KafkaError as error:
            sums = _Sums(0, 0, problem=str(error))
            found.append(_line(each.partition, sums, 0, 0))
            continue
        with parts.reader.turn():
            sums = await _look_through(parts, source)
        found.append(_line(each.partition, sums, source.log_start_offset, source.end))
    return partial(TopicStatistics, image.name, len(image.partitions), start, found)


async def _look_through(parts: ConsoleParts, source: PartitionSource) -> _Sums:
    files = parts.services.log_manager.environment.files
    start = max(source.log_start_offset, source.end - MOST_OFFSETS)
    sums, left = _Sums(start, start), MOST_BYTES
    while sums.next_offset < source.end and left > 0 and not sums.problem:
        position = sums.next_offset
        try:
            data = await source.read(position, min(READ_BYTES, left))
        except KafkaError as error:
            sums.problem = str(error)
            break
        if data is None:
            break
        if data.size_bytes > LARGEST_BATCH_BYTES:
            sums.problem = f"The batch at offset {position} has {data.size_bytes} bytes, too many to read."
            break
        left -= data.size_bytes
        await parts.reader.read(files, data.records, partial(add_batches, sums=sums, stop=source.end))
        if sums.next_offset <= position:
            break
    return sums


def add_batches(data: bytes, sums: _Sums, stop: int) -> None:
    """Go through whole batches with offsets below `stop`.  Pure, for a thread."""
    try:
        for info in iterate_stored_batches(data):
            if info.base_offset >= stop:
                break
            _add_batch(data, info, sums, stop)
            sums.next_offset = max(sums.next_offset, info.last_offset + 1)
    except BatchError:
        pass  # The data ends within a batch.


def _add_batch(data: bytes, info: BatchInfo, sums: _Sums, stop: int) -> None:
    if info.is_control:
        return
    sums.stored_bytes += info.size_in_bytes
    try:
        for record in iterate_stored_records(data, info, limit_bytes=UNPACKED_BYTES):
            if sums.start <= record.offset < stop:
                sums.add(record)
    except (BatchError, CompressionError, ValueError) as error:
        sums.problem = f"The batch at offset {info.base_offset} cannot be read: {error}."


def _line(partition: int, sums: _Sums, first: int, end: int) -> PartitionStatistics:
    return PartitionStatistics(
        partition,
        sums.start,
        end,
        sums.record_count,
        sums.null_keys,
        len(sums.keys),
        sums.key_bytes,
        sums.largest_key,
        sums.null_values,
        sums.value_bytes,
        sums.largest_value,
        sums.header_count,
        sums.stored_bytes,
        sums.first_ms,
        sums.last_ms,
        sums.rate,
        sums.start <= first and sums.next_offset >= end,
        sums.problem,
    )
