"""Appending batches that have their offsets already: a follower's copy of its leader's log."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kbroker._fast.base.build_facts import CHECKED
from kbroker._fast.log.append_steps import count_in, request_fsync
from kbroker._fast.log.batch_rules import MAX_RELATIVE_OFFSET, roll_cause
from kbroker._fast.records.record_batch import MAGIC_V2, BatchError, BatchInfo, TruncatedBatchError
from kbroker._fast.records.stored_header import read_stored_header
from kbroker.errors import CorruptMessageError
from kbroker.records.layout import LENGTH_POSITION, LOG_OVERHEAD
from kbroker.storage.log import markers
from kbroker.storage.log.log_values import AppendResult
from kbroker.types import NO_OFFSET, NO_TIMESTAMP

if TYPE_CHECKING:
    from kbroker.storage.log.log_segment import LogSegment
    from kbroker.storage.log.log_view import Log
    from kbroker.storage.log.producer_state import ControlMarker

logger = logging.getLogger("kbroker.storage")

PORTION_BATCHES = 100
"""What is appended in some 0.1 ms where the batches are the smallest, and in a slice where each is written alone."""


def append_batches(log: Log, records: memoryview | bytearray | bytes) -> AppendResult | None:
    """See UnifiedLog.append_as_follower.  What was appended before a bad batch stays.  Raises CorruptMessageError."""
    run = _Run(log, memoryview(records))
    try:
        for info in _batches(run.view):
            run.take(info)
    except BatchError as error:
        run.write()
        if run.last < 0:
            raise CorruptMessageError(str(error)) from error
        logger.warning("%s: left out the end of a replicated append: %s", log.topic_partition, error)
    finally:
        # Also in front of a batch that is refused: the next fetch begins with that one.
        run.write()
        if run.last >= 0:
            request_fsync(log)
    if run.last < 0:
        return None
    return AppendResult(run.first, run.last, NO_TIMESTAMP, log.log_start_offset, False, run.size)


def portions(records: memoryview, most: int = PORTION_BATCHES) -> Iterator[memoryview]:
    """What a leader sent, in parts of `most` whole batches; what is no whole batch is in the last."""
    if len(records) <= most * LOG_OVERHEAD:
        yield records  # It cannot be more batches: nothing is looked at.
        return
    start = position = count = 0
    while position + LOG_OVERHEAD <= len(records):
        size = int.from_bytes(records[position + LENGTH_POSITION : position + LOG_OVERHEAD], "big", signed=True)
        if size <= 0 or position + LOG_OVERHEAD + size > len(records):
            break
        if count == most:
            yield records[start:position]
            start, count = position, 0
        position += LOG_OVERHEAD + size
        count += 1
    yield records[start:]


class _Run:
    """Batches that follow each other and fit one segment: written by one system call.

    `first`, `last` and `size` are of all that was written.
    """

    __slots__ = ("_batches", "_bytes", "_log", "_next", "_segment", "first", "last", "size", "view")

    def __init__(self, log: Log, view: memoryview) -> None:
        self.view = view
        self.first = self.last = NO_OFFSET
        self.size = 0
        self._log = log
        self._next = log.log_end_offset
        self._batches: list[tuple[BatchInfo, ControlMarker | None]] = []
        self._bytes = 0
        self._segment: LogSegment | None = None

    def take(self, info: BatchInfo) -> None:
        """The next batch.  CorruptMessageError where its offsets do not ascend, InvalidRecordError for a bad marker."""
        log = self._log
        if info.base_offset < self._next:
            raise CorruptMessageError(
                f"Out of order offsets found in append to {log.topic_partition}: {info.base_offset} after log end "
                f"offset {self._next}"
            )
        marker = None
        if info.producer_id >= 0 and info.is_control:
            marker = markers.read_marker(self.view[info.position : info.position + info.size_in_bytes])
        if self._batches and not self._fits(info):
            self.write()
        if not self._batches:
            self._segment = _segment_for(log, info)
        self._batches.append((info, marker))
        self._bytes += info.size_in_bytes
        self._next = info.last_offset + 1
        if info.magic < MAGIC_V2:
            self.write()

    def _fits(self, info: BatchInfo) -> bool:
        segment = self._segment
        if segment is None or segment.tail is None or info.magic < MAGIC_V2:
            return False
        limit = self._log.local.config.roll_bytes
        end = segment.tail.size + self._bytes
        return not roll_cause(segment, limit, end, info.size_in_bytes, info.last_offset, info.max_timestamp)

    def write(self) -> None:
        """Writes what was taken.  KafkaStorageError: nothing of it was written."""
        batches, segment, log = self._batches, self._segment, self._log
        if not batches or segment is None:
            return
        self._batches, size, self._bytes = [], self._bytes, 0
        first, last = batches[0][0], batches[-1][0]
        try:
            segment.write(self.view[first.position : first.position + size], size, last.last_offset)
        except OSError as error:
            raise log.storage_error("appending records", error) from error
        for info, marker in batches:
            if info.magic >= MAGIC_V2:
                log.leader_epoch_cache.assign(info.partition_leader_epoch, info.base_offset)
            count_in(log, segment, info, info.base_offset, info.size_in_bytes, marker, True)
        if CHECKED:
            assert log.log_end_offset == last.last_offset + 1, (log.topic_partition, log.log_end_offset, last)
            assert self.last < first.base_offset, (log.topic_partition, self.last, first)
        self.first = first.base_offset if self.first < 0 else self.first
        self.last = last.last_offset
        self.size += size


def _batches(view: memoryview) -> Iterator[BatchInfo]:
    """Whole batches and messages of the older formats, their checksums verified."""
    position = 0
    while position < len(view):
        try:
            info = read_stored_header(view, position, check_crc=True)
        except TruncatedBatchError:
            return
        yield info
        position += info.size_in_bytes


def _segment_for(log: Log, info: BatchInfo) -> LogSegment:
    roll_base = info.base_offset
    if info.magic < MAGIC_V2:
        log.forget_epochs(info.magic)
        # The first offset of a compressed message is known only from its inner messages; the segment's base must not
        # exceed it.
        roll_base = max(log.log_end_offset, info.last_offset - MAX_RELATIVE_OFFSET)
    return log.segment_for(info.size_in_bytes, info.last_offset, info.max_timestamp, roll_base)
