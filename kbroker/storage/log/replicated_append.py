"""Appending batches that have their offsets already: a follower's copy of its leader's log."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kbroker._fast.records.record_batch import MAGIC_V2, BatchError, BatchInfo, TruncatedBatchError
from kbroker._fast.records.stored_header import read_stored_header
from kbroker.errors import CorruptMessageError
from kbroker.storage.log import markers
from kbroker.storage.log.log_values import AppendResult

if TYPE_CHECKING:
    from kbroker.storage.log.log_view import Log

logger = logging.getLogger("kbroker.storage")

NO_TIMESTAMP = -1
MAX_INT = 2**31 - 1


def append_batches(log: Log, records: memoryview | bytearray | bytes) -> AppendResult | None:
    """See UnifiedLog.append_as_follower.  What was appended before a bad batch stays.  Raises CorruptMessageError."""
    view = memoryview(records)
    first = last = -1
    size = 0
    try:
        for info in _batches(view):
            if info.base_offset < log.log_end_offset:
                raise CorruptMessageError(
                    f"Out of order offsets found in append to {log.topic_partition}: {info.base_offset} after log end "
                    f"offset {log.log_end_offset}"
                )
            _append(log, info, view[info.position : info.position + info.size_in_bytes])
            first = info.base_offset if first < 0 else first
            last = info.last_offset
            size += info.size_in_bytes
    except BatchError as error:
        if last < 0:
            raise CorruptMessageError(str(error)) from error
        logger.warning("%s: left out the end of a replicated append: %s", log.topic_partition, error)
    if last < 0:
        return None
    if log.committer is not None:
        log.committer.appended(last + 1)
    return AppendResult(first, last, NO_TIMESTAMP, log.log_start_offset, False, size)


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


def _append(log: Log, info: BatchInfo, batch: memoryview) -> None:
    base, last, size = info.base_offset, info.last_offset, info.size_in_bytes
    roll_base = base
    if info.magic < MAGIC_V2:
        log.forget_epochs(info.magic)
        # Where a compressed message begins only its messages tell; a segment's base must lie before that.
        roll_base = max(log.log_end_offset, last - MAX_INT)
    else:
        log.leader_epoch_cache.assign(info.partition_leader_epoch, base)
    segment = log.segment_for(size, last, info.max_timestamp, roll_base)
    marker = markers.read_marker(batch) if info.producer_id >= 0 and info.is_control else None
    try:
        segment.append(base, last, info.max_timestamp, batch, size)
    except OSError as error:
        raise log.storage_error("appending records", error) from error
    log.local.log_end_offset = last + 1
    if info.producer_id >= 0:
        markers.update_producer(log, info, base, last, marker, segment)
