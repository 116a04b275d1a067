"""Stored batches of any format: walking over them, messages of the old ones, captured and made."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kbroker._fast.records.record_batch import BatchInfo
from kbroker._fast.records.stored_header import read_stored_header
from kbroker.records.batch import Record
from kbroker.records.compression import Codec, compress
from kbroker.records.legacy import LENGTH, TIMESTAMP, with_lz4_checksum

APPEND_TIME_FLAG = 0x08
LEGACY_VECTORS: list[dict[str, Any]] = json.loads((Path(__file__).parent / "vectors" / "legacy.json").read_text())


def stored_batches(data: bytes) -> Iterator[tuple[bytes, BatchInfo]]:
    """Each batch or message as bytes, with its header; checksums are verified."""
    position = 0
    while position < len(data):
        info = read_stored_header(data, position, check_crc=True)
        yield data[position : position + info.size_in_bytes], info
        position += info.size_in_bytes


def encode_messages(records: Sequence[Record], magic: int, codec: int, append_time_ms: int | None = None) -> bytes:
    """Records as messages of an old format, in one wrapper when there is a codec.

    `append_time_ms` where the records have the time of their append (magic 1 only).
    """
    flags = 0 if append_time_ms is None or magic == 0 else APPEND_TIME_FLAG
    if flags and append_time_ms is not None:
        records = [record._replace(timestamp=append_time_ms) for record in records]
    if not codec:
        return b"".join(message_bytes(r.offset, magic, flags, r.timestamp, r.key, r.value) for r in records)
    first, last = records[0].offset, records[-1].offset
    base = first if magic else 0
    inner = b"".join(message_bytes(r.offset - base, magic, flags, r.timestamp, r.key, r.value) for r in records)
    packed = compress(codec, memoryview(inner))
    if magic == 0 and codec == Codec.LZ4:
        packed = with_lz4_checksum(packed, 0)
    return message_bytes(last, magic, flags | codec, max(r.timestamp for r in records), None, packed)


def message_bytes(
    offset: int, magic: int, attributes: int, timestamp: int, key: bytes | None, value: bytes | None
) -> bytes:
    body = bytearray(struct.pack(">bb", magic, attributes))
    if magic:
        body += TIMESTAMP.pack(timestamp)
    for field in (key, value):
        body += LENGTH.pack(-1) if field is None else LENGTH.pack(len(field)) + field
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body
