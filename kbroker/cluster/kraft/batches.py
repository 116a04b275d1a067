"""Record batches of the metadata log, and the records in them.

The log is made of ordinary batches of format 2.  Their leader epoch is the controllers'; a batch with the control bit
has records of the quorum itself, any other has metadata records (KIP-595).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kbroker._fast.records.record_batch import LOG_OVERHEAD, MAGIC_V2, BatchError
from kbroker._fast.records.stored_header import read_stored_header
from kbroker._fast.wire.codec import DecodeError, Struct
from kbroker.metadata.metadata_record import MetadataLogError, MetadataRecord, decode_record
from kbroker.records.batch import RecordBatchBuilder, iterate_records
from kbroker.records.compression import CompressionError
from kbroker.records.control import ControlType, encode_control_key, parse_control_key
from kbroker.records.layout import LENGTH_END, LENGTH_POSITION
from kbroker.schemas import message

if TYPE_CHECKING:
    from kbroker._fast.records.record_batch import BatchInfo
    from kbroker.protocol.messages import Message

CONTROL_VERSION = 0
_CONTROL_MESSAGES = {
    ControlType.LEADER_CHANGE: "LeaderChangeMessage",
    ControlType.SNAPSHOT_HEADER: "SnapshotHeaderRecord",
    ControlType.SNAPSHOT_FOOTER: "SnapshotFooterRecord",
    ControlType.KRAFT_VERSION: "KRaftVersionRecord",
    ControlType.KRAFT_VOTERS: "VotersRecord",
}


class DamagedBatchesError(MetadataLogError):
    """Bytes that are not whole batches, one behind the other; the text says where and why."""


class MetadataBatch(NamedTuple):
    """A whole batch whose checksum is right.  `info.position` is 0 in `data`."""

    info: BatchInfo
    data: bytes

    @property
    def base_offset(self) -> int:
        """The offset of its first record."""
        return self.info.base_offset

    @property
    def end_offset(self) -> int:
        """What follows its last record."""
        return self.info.last_offset + 1

    @property
    def epoch(self) -> int:
        """The epoch of the leader that wrote it."""
        return self.info.partition_leader_epoch


@dataclass(frozen=True, slots=True)
class ControlRecord:
    """A record of the quorum itself; `value` is None for a kind that a later release may have."""

    kind: ControlType
    value: Struct | None


def whole_batches(data: bytes | memoryview, where: str) -> Iterator[MetadataBatch]:
    """The batches in what a controller has sent: the last one may be cut, and is left out then.

    DamagedBatchesError for anything else that is not a whole batch of format 2, or without a single whole one.
    """
    view, position, has_any = memoryview(data), 0, False
    while position < len(view):
        rest = len(view) - position
        size = LENGTH_END
        if rest >= LENGTH_END:
            start = position + LENGTH_POSITION
            size = LOG_OVERHEAD + int.from_bytes(view[start : start + LENGTH_END - LENGTH_POSITION], "big", signed=True)
        if size > rest and has_any:
            return
        batch = bytes(view[position : position + max(size, 0)])
        yield checked_batch(batch, f"{where}: the batch at byte {position}")
        has_any = True
        position += len(batch)


def checked_batch(data: bytes, where: str) -> MetadataBatch:
    """All of `data` as a batch.  DamagedBatchesError."""
    try:
        info = read_stored_header(data, 0, len(data), check_crc=True)
    except BatchError as error:
        raise DamagedBatchesError(f"{where} is damaged: {error}") from error
    if info.magic != MAGIC_V2 or info.size_in_bytes != len(data) or info.last_offset < info.base_offset:
        raise DamagedBatchesError(f"{where} is no batch of format {MAGIC_V2}")
    return MetadataBatch(info, data)


def records_of(batch: MetadataBatch, where: str) -> Iterator[tuple[int, MetadataRecord | ControlRecord]]:
    """The records of a batch with their offsets.  MetadataLogError for what cannot be read."""
    info = batch.info
    try:
        for record in iterate_records(batch.data, info):
            if info.is_control:
                yield record.offset, control_record(record.key, record.value)
            else:
                yield record.offset, decode_record(record.value, f"{where}: record {record.offset}")
    except (BatchError, CompressionError, DecodeError) as error:
        raise DamagedBatchesError(f"{where}: the batch at offset {info.base_offset} is damaged: {error}") from error


def control_record(key: bytes | None, value: bytes | None) -> ControlRecord:
    """A record of the quorum itself from its key and value.  DecodeError."""
    kind = parse_control_key(key)
    name = _CONTROL_MESSAGES.get(kind)
    if name is None or value is None or len(value) < 2:
        return ControlRecord(kind, None)
    cls = message(name)
    version = min(int.from_bytes(value[:2], "big"), int(cls.max_version))
    return ControlRecord(kind, cls.program(version).decode(value))


def control_batch(records: Iterable[tuple[ControlType, Message]], offset: int, epoch: int, timestamp_ms: int) -> bytes:
    """A batch with records of the quorum itself."""
    builder = RecordBatchBuilder(offset, is_control=True, partition_leader_epoch=epoch)
    for kind, value in records:
        content = bytes(value.program(CONTROL_VERSION).encode(value))
        builder.append(encode_control_key(kind), content, timestamp_ms)
    return bytes(builder.build())
