"""What is in a segment (`.log`): its batches, and with `deep` their records.

Every batch's checksum is checked.  The first byte that is no batch ends the dump, with the reason; zeros up to the end
of the file are space that was allocated ahead and no damage.  Messages of the formats before record batches (magic 0
and 1) are shown as batches; where a compressed one begins only `deep` tells.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from kbroker.records.compression import Codec
from kbroker.records.control import ControlType
from kbroker.schemas.internal_records import decode_record, decodes, plain
from kbroker.types import CLUSTER_METADATA_TOPIC

if TYPE_CHECKING:
    from kbroker._fast.records.record_batch import BatchInfo
    from kbroker.records.batch import Record

Row = dict[str, object]

SNAPSHOT_SUFFIX = ".checkpoint"
_MARKERS = {kind.value: kind.name for kind in ControlType if kind is not ControlType.UNKNOWN}
_ENDS = (ControlType.ABORT.name, ControlType.COMMIT.name)


def topic_of(path: Path) -> str:
    """The topic whose partition directory a segment lies in; a snapshot is of the metadata log wherever it lies."""
    if path.name.endswith(SNAPSHOT_SUFFIX):
        return CLUSTER_METADATA_TOPIC
    return path.absolute().parent.name.rpartition("-")[0]


def dump_segment(path: Path, *, deep: bool, print_data: bool, decode: bool) -> Iterator[Row]:
    """A row for each batch, followed by rows for its records."""
    from kbroker._fast.records.record_batch import BatchError
    from kbroker._fast.records.stored_header import read_stored_header

    with path.open("rb") as file:
        size = file.seek(0, 2)
        if size == 0:
            return
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    topic = topic_of(path) if decode else ""
    position = 0
    while position < size:
        try:
            info = read_stored_header(data, position, size)
        except BatchError as error:
            if any(data[position : position + 64]) or data[position:].count(0) != size - position:
                yield {"position": position, "error": f"no batch: {error}"}
            else:
                yield {"position": position, "padding_bytes": size - position}
            return
        row = describe_batch(info)
        try:
            read_stored_header(data, position, size, check_crc=True)
        except BatchError as error:
            yield {**row, "is_valid": False, "error": str(error)}
        else:
            yield {**row, "is_valid": True}
            if deep:
                yield from _dump_records(data[position : position + info.size_in_bytes], info, topic, print_data)
        position += info.size_in_bytes


def describe_batch(info: BatchInfo) -> Row:
    """A batch's header."""
    return {
        "base_offset": info.base_offset,
        "last_offset": info.last_offset,
        "count": info.records_count,
        "base_sequence": info.base_sequence,
        "last_sequence": info.last_sequence,
        "producer_id": info.producer_id,
        "producer_epoch": info.producer_epoch,
        "partition_leader_epoch": info.partition_leader_epoch,
        "is_transactional": info.is_transactional,
        "is_control": info.is_control,
        "position": info.position,
        "timestamp_type": "LogAppendTime" if info.timestamp_type else "CreateTime",
        "max_timestamp": info.max_timestamp,
        "size": info.size_in_bytes,
        "magic": info.magic,
        "compression": Codec(info.compression).name.lower() if info.compression <= max(Codec) else info.compression,
        "crc": info.crc,
    }


def _dump_records(batch: bytes, info: BatchInfo, topic: str, print_data: bool) -> Iterator[Row]:
    from kbroker.records.legacy import iterate_stored_records

    try:
        for record in iterate_stored_records(batch):
            row: Row = {
                "record": record.offset,
                "timestamp": record.timestamp,
                "key_size": -1 if record.key is None else len(record.key),
                "value_size": -1 if record.value is None else len(record.value),
                "headers": [name for name, _ in record.headers],
            }
            yield row | _contents(record, info, topic, print_data)
    except ValueError as error:
        yield {"position": info.position, "error": f"records: {error}"}


def _contents(record: Record, info: BatchInfo, topic: str, print_data: bool) -> Row:
    key = None if record.key is None else bytes(record.key)
    value = None if record.value is None else bytes(record.value)
    if info.is_control:
        return _control(key, value)
    if topic == CLUSTER_METADATA_TOPIC:
        return _metadata(record)
    if decodes(topic):
        try:
            return {"payload": decode_record(topic, key, value)}
        except ValueError as error:
            return {"error": f"not decoded: {error}"}
    if not print_data:
        return {}
    headers = {name: _text(None if content is None else bytes(content)) for name, content in record.headers}
    return {"headers": headers, "key": _text(key), "value": _text(value)}


def _metadata(record: Record) -> Row:
    """A record of KRaft's metadata log, with its name in Kafka's schemas."""
    from kbroker.metadata import metadata_record

    try:
        found = metadata_record.decode_record(record.value, f"not decoded: record {record.offset}")
    except metadata_record.MetadataLogError as error:
        return {"error": str(error)}
    return {"payload": {"type": found.name, "version": found.version, "data": plain(found.value)}}


def _control(key: bytes | None, value: bytes | None) -> Row:
    """An end-of-transaction marker: key int16 version, int16 type; value int16 version, int32 coordinator epoch.

    A record of KRaft's quorum has its fields."""
    if key is None or len(key) < 4:
        return {"error": "not decoded: the control record has no type"}
    kind = int.from_bytes(key[2:4], "big", signed=True)
    if kind not in _MARKERS:
        return {"control": kind}
    row: Row = {"control": _MARKERS[kind]}
    if row["control"] in _ENDS and value is not None and len(value) >= 6:
        row["coordinator_epoch"] = int.from_bytes(value[2:6], "big", signed=True)
    if row["control"] not in _ENDS:
        row |= _of_quorum(key, value)
    return row


def _of_quorum(key: bytes, value: bytes | None) -> Row:
    from kbroker._fast.wire.codec import DecodeError
    from kbroker.cluster.kraft.batches import control_record

    try:
        found = control_record(key, value).value
    except DecodeError as error:
        return {"error": f"not decoded: {error}"}
    return {} if found is None else {"data": plain(found)}


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "backslashreplace")
