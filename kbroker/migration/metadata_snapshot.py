"""Writes a snapshot of a cluster's metadata as KRaft's controllers do (KIP-630): see `metadata_log` for the format.

A snapshot alone is a whole metadata log: a controller that finds one behind the end of its log begins with it.
"""

from __future__ import annotations

from collections.abc import Iterable

from kbroker._fast.wire.codec import Struct
from kbroker.metadata.metadata_record import MetadataRecord, encode_record
from kbroker.protocol.messages import Message
from kbroker.records.batch import RecordBatchBuilder
from kbroker.records.control import ControlType, encode_control_key
from kbroker.schemas import wire

BATCH_BYTES = 1 << 20
CONTROL_VERSION = 0


def snapshot_name(end_offset: int, epoch: int) -> str:
    """The name of the snapshot of all records before an offset."""
    return f"{end_offset:020}-{epoch:010}.checkpoint"


def encode_snapshot(records: Iterable[MetadataRecord], epoch: int, timestamp_ms: int) -> bytes:
    """The content of a snapshot file.  `timestamp_ms`: when the last of the records was written."""
    header = wire.SnapshotHeaderRecord(version=CONTROL_VERSION, last_contained_log_timestamp=timestamp_ms)
    data = _control(ControlType.SNAPSHOT_HEADER, header, 0, epoch, timestamp_ms)
    offset = 1
    builder = RecordBatchBuilder(offset, partition_leader_epoch=epoch)
    for record in records:
        if builder.size_bytes > BATCH_BYTES:
            data += builder.build()
            offset += builder.count
            builder = RecordBatchBuilder(offset, partition_leader_epoch=epoch)
        builder.append(None, encode_record(record), timestamp_ms)
    if builder.count:
        data += builder.build()
        offset += builder.count
    footer = wire.SnapshotFooterRecord(version=CONTROL_VERSION)
    return bytes(data + _control(ControlType.SNAPSHOT_FOOTER, footer, offset, epoch, timestamp_ms))


def _control(kind: ControlType, value: Struct, offset: int, epoch: int, timestamp_ms: int) -> bytearray:
    builder = RecordBatchBuilder(offset, is_control=True, partition_leader_epoch=epoch)
    assert isinstance(value, Message)
    content = bytes(value.program(CONTROL_VERSION).encode(value))
    builder.append(encode_control_key(kind), content, timestamp_ms)
    return builder.build()
