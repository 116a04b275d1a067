"""Control batches: one record, written by brokers, that ends a transaction or marks a change of leader.

    key   => version int16, type int16
    value => for ABORT and COMMIT: version int16, coordinator_epoch int32

A later version may add fields behind these, so what follows them is not looked at.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

from kbroker._fast.records.record_batch import BatchInfo, InvalidRecordsError
from kbroker.records.batch import Record, RecordBatchBuilder, iterate_records

KEY = struct.Struct(">hh")
END_TRANSACTION = struct.Struct(">hi")
VERSION = 0


class ControlType(IntEnum):
    """Kafka's ControlRecordType; UNKNOWN stands for what a later version may write."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class EndTransactionMarker(NamedTuple):
    """How a producer's transaction ended, and the epoch of the coordinator that says so."""

    control_type: ControlType
    coordinator_epoch: int


def encode_control_key(control_type: ControlType) -> bytes:
    """The key of a control record: version and type, 4 bytes."""
    return KEY.pack(VERSION, control_type)


def parse_control_key(key: bytes | None) -> ControlType:
    """InvalidRecordsError unless it is a control record's key."""
    if key is None or len(key) < KEY.size:
        raise InvalidRecordsError(f"a control record needs a key of {KEY.size} bytes, this one is {key!r}")
    version, value = KEY.unpack_from(key)
    if version < 0:
        raise InvalidRecordsError(f"Invalid version found for control record: {version}. May indicate data corruption")
    return ControlType(value) if value in ControlType._value2member_map_ else ControlType.UNKNOWN


def parse_end_transaction(record: Record) -> EndTransactionMarker:
    """The marker that `record` is.  InvalidRecordsError when it is none."""
    control_type = parse_control_key(record.key)
    if control_type not in (ControlType.ABORT, ControlType.COMMIT):
        raise InvalidRecordsError(f"a record of type {control_type.name} does not end a transaction")
    if record.value is None or len(record.value) < END_TRANSACTION.size:
        raise InvalidRecordsError(f"the end of a transaction needs {END_TRANSACTION.size} bytes of value")
    version, coordinator_epoch = END_TRANSACTION.unpack_from(record.value)
    if version < 0:
        raise InvalidRecordsError(f"Invalid version found for end transaction marker: {version}")
    return EndTransactionMarker(control_type, coordinator_epoch)


def read_end_transaction(
    batch: bytes | bytearray | memoryview, info: BatchInfo | None = None
) -> EndTransactionMarker | None:
    """The marker in a control batch; None for a control batch of another type.  Raises InvalidRecordsError."""
    record = next(iterate_records(batch, info), None)
    if record is None:
        raise InvalidRecordsError("a control batch without a record")
    if parse_control_key(record.key) not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    return parse_end_transaction(record)


def build_end_transaction(
    control_type: ControlType, coordinator_epoch: int, producer_id: int, producer_epoch: int, timestamp_ms: int
) -> bytearray:
    """The control batch that ends a transaction of `producer_id`."""
    builder = RecordBatchBuilder(
        producer_id=producer_id, producer_epoch=producer_epoch, is_transactional=True, is_control=True
    )
    builder.append(encode_control_key(control_type), END_TRANSACTION.pack(VERSION, coordinator_epoch), timestamp_ms)
    return builder.build()
