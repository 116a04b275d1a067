"""End-of-transaction markers as the log sees them: the one record of a control batch."""

from __future__ import annotations

from kbroker._fast.record_batch import BatchError
from kbroker.errors import InvalidRecordError
from kbroker.records.control import ControlType, read_end_transaction
from kbroker.storage.producer_state import ControlMarker


def read_marker(batch: memoryview | bytearray | bytes) -> ControlMarker | None:
    """The marker in a control batch, given from its first byte on.  InvalidRecordError when it cannot be read."""
    try:
        marker = read_end_transaction(batch)
    except BatchError as error:
        raise InvalidRecordError(f"a control batch without a valid control record: {error}") from error
    if marker is None:
        return None
    return ControlMarker(marker.control_type is ControlType.ABORT, marker.coordinator_epoch)
