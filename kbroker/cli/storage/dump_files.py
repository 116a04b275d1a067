"""What is in the files beside segments: indexes, producer snapshots, checkpoints and identity files.

Index entries (big endian), counted from the base offset in the file's name: `.index` int32 relative offset, int32
position; `.timeindex` int64 timestamp, int32 relative offset.  Zeros after the last entry are space allocated ahead.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Row = dict[str, object]

OFFSET_ENTRY = struct.Struct(">ii")
TIME_ENTRY = struct.Struct(">qi")


def base_offset_of(path: Path) -> int:
    """The offset that an index's or segment's file name states.  ValueError when it states none."""
    name = path.name.partition(".")[0]
    if len(name) != 20 or not name.isdigit():
        raise ValueError("the name does not start with a base offset of 20 digits")
    return int(name)


def dump_offset_index(path: Path) -> Iterator[Row]:
    """Entries, each compared with the segment beside the index where there is one."""
    base, last = base_offset_of(path), None
    segment = path.with_suffix(".log")
    log = segment.read_bytes() if segment.exists() else None
    for relative, position in _entries(path, OFFSET_ENTRY):
        row: Row = {"offset": base + relative, "position": position}
        if last is not None and (relative <= last[0] or position <= last[1]):
            row["error"] = "out of order"
        elif log is not None:
            row |= _compare(log, base + relative, position)
        last = (relative, position)
        yield row


def _compare(log: bytes, offset: int, position: int) -> Row:
    from kbroker._fast.records.record_batch import BatchError, read_header

    if position >= len(log):
        return {"error": f"the segment has {len(log)} bytes only"}
    try:
        info = read_header(log, position)
    except BatchError as error:
        return {"error": f"the segment has no batch there: {error}"}
    if not info.base_offset <= offset <= info.last_offset:
        return {"error": f"the batch there has offsets {info.base_offset} to {info.last_offset}"}
    return {}


def dump_time_index(path: Path) -> Iterator[Row]:
    """The entries of a `.timeindex`; one that is not above the entry before has an `error`."""
    base, last = base_offset_of(path), None
    for timestamp, relative in _entries(path, TIME_ENTRY):
        row: Row = {"timestamp": timestamp, "offset": base + relative}
        # An equal entry is what Kafka writes when a segment closes right after an entry.
        if last is not None and (timestamp < last[0] or relative < last[1]):
            row["error"] = "out of order"
        last = (timestamp, relative)
        yield row


def _entries(path: Path, entry: struct.Struct) -> Iterator[tuple[Any, ...]]:
    data = path.read_bytes()
    whole = len(data) - len(data) % entry.size
    empty = bytes(entry.size)
    for position in range(0, whole, entry.size):
        if data[position : position + entry.size] == empty and not any(data[position:]):
            return
        yield entry.unpack_from(data, position)
    if whole != len(data):
        raise ValueError(f"{len(data)} bytes are not a whole number of {entry.size}-byte entries")


def dump_transaction_index(path: Path) -> Iterator[Row]:
    """The aborted transactions of a `.txnindex`.  ValueError when it is damaged."""
    from kbroker.storage.log.txn_index import decode_entries

    for entry in decode_entries(path.read_bytes(), path.name):
        yield entry._asdict()


def dump_producer_snapshot(path: Path) -> Iterator[Row]:
    """The producers of a `.snapshot`.  ValueError when it is damaged."""
    from kbroker.storage.log.producer_snapshot import decode_snapshot

    for entry in decode_snapshot(path.read_bytes(), path.name):
        yield {
            "producer_id": entry.producer_id,
            "producer_epoch": entry.producer_epoch,
            "coordinator_epoch": entry.coordinator_epoch,
            "current_txn_first_offset": entry.current_txn_first_offset,
            "last_timestamp": entry.last_timestamp,
            "first_sequence": entry.last_sequence - entry.last_offset_delta if entry.count else -1,
            "last_sequence": entry.last_sequence,
            "last_offset": entry.last_offset,
            "offset_delta": entry.last_offset_delta,
        }


def dump_offset_checkpoint(path: Path) -> Iterator[Row]:
    """The rows of a checkpoint of offsets by partition.  CorruptCheckpointError."""
    from kbroker.storage.files.checkpoints import decode_offsets

    for tp, offset in decode_offsets(path.read_bytes(), path.name).items():
        yield {"topic": tp.topic, "partition": tp.partition, "offset": offset}


def dump_epoch_checkpoint(path: Path) -> Iterator[Row]:
    """The rows of a `leader-epoch-checkpoint`.  CorruptCheckpointError."""
    from kbroker.storage.files.checkpoints import decode_checkpoint

    for fields in decode_checkpoint(path.read_bytes(), path.name):
        epoch, start_offset = (int(field) for field in fields)
        yield {"leader_epoch": epoch, "start_offset": start_offset}


def dump_partition_metadata(path: Path) -> Iterator[Row]:
    """The topic id of a `partition.metadata`.  ValueError when it is damaged."""
    from kbroker.storage.log.partition_metadata import decode_partition_metadata
    from kbroker.types import uuid_to_text

    yield {"topic_id": uuid_to_text(decode_partition_metadata(path.read_bytes(), path.name))}


def dump_properties(path: Path) -> Iterator[Row]:
    """The keys and values of a properties file, such as `meta.properties`."""
    from kbroker.config.properties import decode_properties, parse_properties

    for _line, key, value in parse_properties(decode_properties(path.read_bytes())):
        yield {"key": key, "value": value}
