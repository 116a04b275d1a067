"""A slow, plain-Python reading and writing of v2 batches: what the C code is compared with.

Written from the format's description alone, sharing nothing with `kbroker`; clarity before speed.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import crc32c as crc32c_package

HEADER = struct.Struct(">qiibIhiqqqhii")
AFTER_CRC = 21
OVERHEAD = 61


class MalformedError(Exception):
    """The batch is not well-formed."""


class ReferenceRecord(NamedTuple):
    offset_delta: int
    timestamp_delta: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()
    attributes: int = 0


class ReferenceHeader(NamedTuple):
    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int


def encode_varint(value: int) -> bytes:
    raw = value * 2 if value >= 0 else -value * 2 - 1
    out = bytearray()
    while True:
        byte = raw & 0x7F
        raw >>= 7
        if not raw:
            out.append(byte)
            return bytes(out)
        out.append(byte | 0x80)


def decode_varint(data: bytes, pos: int, bits: int) -> tuple[int, int]:
    raw = shift = 0
    while True:
        if pos >= len(data):
            raise MalformedError("varint cut off")
        byte = data[pos]
        pos += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    if raw >> bits or shift > 7 * ((bits - 1) // 7):
        raise MalformedError("varint too long")
    return (raw >> 1) ^ -(raw & 1), pos


def _encode_bytes(value: bytes | None) -> bytes:
    return encode_varint(-1) if value is None else encode_varint(len(value)) + value


def encode_record(record: ReferenceRecord) -> bytes:
    body = bytes([record.attributes & 0xFF]) + encode_varint(record.timestamp_delta)
    body += encode_varint(record.offset_delta) + _encode_bytes(record.key) + _encode_bytes(record.value)
    body += encode_varint(len(record.headers))
    for key, value in record.headers:
        body += encode_varint(len(key)) + key + _encode_bytes(value)
    return encode_varint(len(body)) + body


def seal(batch: bytes | bytearray) -> bytearray:
    """`batch` with the right batch_length and CRC."""
    sealed = bytearray(batch)
    struct.pack_into(">i", sealed, 8, len(sealed) - 12)
    struct.pack_into(">I", sealed, 17, crc32c_package.crc32c(bytes(sealed[AFTER_CRC:])))
    return sealed


def encode_batch(payload: bytes, count: int, **fields: Any) -> bytearray:
    """A batch around `payload` (records, compressed or not), any header field given by name."""
    header = {
        "base_offset": 0,
        "batch_length": 0,
        "partition_leader_epoch": -1,
        "magic": 2,
        "crc": 0,
        "attributes": 0,
        "last_offset_delta": count - 1,
        "base_timestamp": 0,
        "max_timestamp": 0,
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        "records_count": count,
        **fields,
    }
    return seal(HEADER.pack(*header.values()) + payload)


def simple_records(
    values: Sequence[bytes | None], *, keys: Sequence[bytes | None] | None = None, deltas: Sequence[int] | None = None
) -> bytes:
    """The records 0, 1, 2 … with these values."""
    return b"".join(
        encode_record(ReferenceRecord(index, deltas[index] if deltas else 0, keys[index] if keys else b"key", value))
        for index, value in enumerate(values)
    )


def decode_header(data: bytes) -> ReferenceHeader:
    return ReferenceHeader(*HEADER.unpack_from(data))


def _take(data: bytes, pos: int, size: int) -> tuple[bytes, int]:
    if size < 0 or len(data) - pos < size:
        raise MalformedError("field passes the end")
    return data[pos : pos + size], pos + size


def _take_nullable(data: bytes, pos: int) -> tuple[bytes | None, int]:
    size, pos = decode_varint(data, pos, 32)
    if size == -1:
        return None, pos
    return _take(data, pos, size)


def decode_record(data: bytes, pos: int) -> tuple[ReferenceRecord, int]:
    size, pos = decode_varint(data, pos, 32)
    body, after = _take(data, pos, size)
    attributes, pos = _take(body, 0, 1)
    timestamp_delta, pos = decode_varint(body, pos, 64)
    offset_delta, pos = decode_varint(body, pos, 32)
    key, pos = _take_nullable(body, pos)
    value, pos = _take_nullable(body, pos)
    count, pos = decode_varint(body, pos, 32)
    if count < 0:
        raise MalformedError("negative count of headers")
    headers = []
    for _ in range(count):
        key_size, pos = decode_varint(body, pos, 32)
        header_key, pos = _take(body, pos, key_size)
        header_value, pos = _take_nullable(body, pos)
        headers.append((header_key, header_value))
    if pos != len(body):
        raise MalformedError("record longer than its fields")
    return ReferenceRecord(offset_delta, timestamp_delta, key, value, tuple(headers), attributes[0]), after


def walk(payload: bytes, records_count: int) -> list[ReferenceRecord]:
    """All records of an uncompressed payload; MalformedError unless exactly these are there, in order."""
    records: list[ReferenceRecord] = []
    pos = 0
    for index in range(records_count):
        record, pos = decode_record(payload, pos)
        if record.offset_delta != index:
            raise MalformedError("offset delta out of order")
        records.append(record)
    if pos != len(payload):
        raise MalformedError("bytes left over")
    return records
