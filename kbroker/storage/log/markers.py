"""What an append means for its producer, and end-of-transaction markers: the one record of a control batch."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kbroker._fast.records.record_batch import BatchError, BatchInfo
from kbroker.errors import InvalidRecordError
from kbroker.records.control import ControlType, read_end_transaction
from kbroker.storage.log.log_values import AppendResult
from kbroker.storage.log.producer_state import ControlMarker, Duplicate, ProducerState
from kbroker.storage.log.txn_index import AbortedTransaction
from kbroker.types import Offset

if TYPE_CHECKING:
    from kbroker.storage.log.log_segment import LogSegment
    from kbroker.storage.log.log_view import Log

logger = logging.getLogger("kbroker.storage")


def read_marker(batch: memoryview | bytearray | bytes) -> ControlMarker | None:
    """The marker in a control batch, given from its first byte on.  InvalidRecordError when it cannot be read."""
    try:
        marker = read_end_transaction(batch)
    except BatchError as error:
        raise InvalidRecordError(f"a control batch without a valid control record: {error}") from error
    if marker is None:
        return None
    return ControlMarker(marker.control_type is ControlType.ABORT, marker.coordinator_epoch)


def validated_marker(
    state: ProducerState, info: BatchInfo, batch: memoryview | bytearray | bytes, offset: Offset
) -> ControlMarker | None:
    """The marker in a control batch that is to be appended; KafkaError when its coordinator has been replaced."""
    marker = read_marker(batch)
    if marker is not None:
        state.validate_marker(info, marker, offset)
    return marker


def duplicate_result(duplicate: Duplicate, log_start_offset: Offset, size: int) -> AppendResult:
    """As in Kafka: the time of the batch as it was stored, whichever kind of time it is."""
    first, last, timestamp = duplicate
    return AppendResult(first, last, timestamp, log_start_offset, True, size)


def update_producer(
    log: Log, info: BatchInfo, base: Offset, last: Offset, marker: ControlMarker | None, segment: LogSegment
) -> None:
    """Notes in the producer state, and in the transaction index, a batch that was written."""
    state = log.producer_state
    completed = state.update(info, base, last, marker)
    if completed is None:
        return
    if completed.is_aborted:
        stable = state.stable_offset_after(completed)
        entry = AbortedTransaction(completed.producer_id, completed.first_offset, completed.last_offset, stable)
        try:
            segment.txn_index.append(entry)
        except OSError as error:
            # The marker is in the log, so the transaction has ended.  Readers get the entry from memory.  The next
            # start counts as unclean and rebuilds the file.
            logger.error("%s: the transaction index was not written: %s", log.topic_partition, error)
            log.local.flush_failed = True
            log.local.report("writing a transaction index", error)
    state.complete(completed)
