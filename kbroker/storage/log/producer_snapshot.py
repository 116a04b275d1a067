"""Snapshot files of producer state: `<offset>.snapshot`, the state of all producers before that offset.

Layout, big endian (Kafka's ProducerSnapshot, version 1):

    version int16 | crc uint32 (CRC-32C of everything after it) | count int32 | count entries of 46 bytes:
    producer_id int64 | producer_epoch int16 | last_sequence int32 | last_offset int64 | offset_delta int32 |
    timestamp int64 | coordinator_epoch int32 | current_txn_first_offset int64 (-1: none)

Only the last batch of each producer is kept.  A file that breaks the layout or its checksum is refused whole.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from kbroker._fast.base.crc32c import crc32c
from kbroker._fast.log.producer_entry import ProducerEntry

SNAPSHOT_SUFFIX = ".snapshot"
SNAPSHOT_VERSION = 1
HEADER = struct.Struct(">hIi")
ENTRY = struct.Struct(">qhiqiqiq")
CRC_START = 6
EMPTY_SNAPSHOT_BYTES = HEADER.size


class CorruptSnapshotError(ValueError):
    """A snapshot whose checksum or layout is wrong."""


def encode_snapshot(producers: Iterable[ProducerEntry]) -> bytearray:
    """The file for these producers."""
    data = bytearray(HEADER.size)
    count = 0
    for entry in producers:
        count += 1
        data += ENTRY.pack(
            entry.producer_id,
            entry.producer_epoch,
            entry.last_sequence,
            entry.last_offset,
            entry.last_offset_delta,
            entry.last_timestamp,
            entry.coordinator_epoch,
            entry.current_txn_first_offset,
        )
    HEADER.pack_into(data, 0, SNAPSHOT_VERSION, 0, count)
    HEADER.pack_into(data, 0, SNAPSHOT_VERSION, crc32c(memoryview(data)[CRC_START:]), count)
    return data


def decode_snapshot(data: bytes, path: str) -> list[ProducerEntry]:
    """The producers of a file.  CorruptSnapshotError when it is not a whole, unchanged snapshot."""
    if len(data) < HEADER.size:
        raise CorruptSnapshotError(f"{path}: {len(data)} bytes are no snapshot")
    version, crc, count = HEADER.unpack_from(data)
    if version != SNAPSHOT_VERSION:
        raise CorruptSnapshotError(f"{path}: version {version}, expected {SNAPSHOT_VERSION}")
    if crc32c(memoryview(data)[CRC_START:]) != crc:
        raise CorruptSnapshotError(f"{path}: the checksum does not match")
    if count < 0 or len(data) != HEADER.size + count * ENTRY.size:
        raise CorruptSnapshotError(f"{path}: {len(data)} bytes cannot hold {count} producers")
    producers = []
    for pid, epoch, sequence, offset, delta, timestamp, coordinator, txn in ENTRY.iter_unpack(data[HEADER.size :]):
        entry = ProducerEntry(pid, epoch, coordinator, timestamp, txn)
        if offset >= 0:
            entry.add(epoch, sequence, offset, delta, timestamp)
        producers.append(entry)
    return producers
