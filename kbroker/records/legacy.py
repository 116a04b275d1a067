"""Messages of the formats before record batches (magic 0 and 1), as old brokers left them in segments.

Layouts are in `_fast/records/stored_header`.  Here they become records one by one, for compaction and tools; whole sets
that clients send or fetch are judged and converted in `_fast/records/message_set` and `message_conversion`.

A wrapper's offset is that of its last message.  The messages inside carry absolute offsets with magic 0; with magic 1
their offsets are relative to the first message.  Where the wrapper has the append time, so have its messages.  LZ4 with
magic 0 has a wrong checksum in its frame header, because old clients included the frame's magic in it.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

from kbroker._fast.records.record_batch import (
    MAGIC_V2,
    BatchInfo,
    CorruptBatchError,
    InvalidRecordsError,
    TruncatedBatchError,
)
from kbroker._fast.records.stored_header import read_stored_header
from kbroker.records.batch import STORED_LIMIT_BYTES, Record, iterate_records
from kbroker.records.compression import Codec, DecompressionLimitError, compress, decompress

Buffer = bytes | bytearray | memoryview

HEADER = struct.Struct(">qiIbb")
OFFSET_SIZE_AND_CRC = struct.Struct(">qiI")
LENGTH = struct.Struct(">i")
TIMESTAMP = struct.Struct(">q")
CODECS = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4)

_LZ4_DESCRIPTOR_START = 4
_LZ4_CONTENT_SIZE_FLAG = 0x08
_PRIME_2, _PRIME_3, _PRIME_4, _PRIME_5 = 2246822519, 3266489917, 668265263, 374761393
_PRIME_1 = 2654435761


def iterate_stored_batches(data: Buffer) -> Iterator[BatchInfo]:
    """The header of each batch or message in `data`, which ends with a whole one.  BatchError where none can be."""
    position = 0
    while position < len(data):
        info = read_stored_header(data, position)
        yield info
        position += info.size_in_bytes


def iterate_stored_records(
    batch: Buffer, info: BatchInfo | None = None, *, limit_bytes: int = STORED_LIMIT_BYTES
) -> Iterator[Record]:
    """The records of a batch of any format, with absolute offsets.

    BatchError when the batch cannot be read, or unpacks to more than `limit_bytes`.  A record of magic 0 has no
    timestamp (-1).
    """
    if info is None:
        info = read_stored_header(batch)
    if info.magic >= MAGIC_V2:
        yield from iterate_records(batch, info, limit_bytes=limit_bytes)
        return
    yield from _messages(batch, info, limit_bytes)


def _headers(data: Buffer) -> Iterator[BatchInfo]:
    """Of what a compressed message holds; a part of a message at its end is left out, as Kafka does."""
    try:
        for info in iterate_stored_batches(data):
            if info.magic >= MAGIC_V2:
                raise InvalidRecordsError(f"a record batch of magic {info.magic} inside of a compressed message")
            yield info
    except TruncatedBatchError:
        return


def _messages(batch: Buffer, info: BatchInfo, limit_bytes: int) -> Iterator[Record]:
    if not info.compression:
        key, value = _key_and_value(batch, info)
        yield Record(info.last_offset, info.max_timestamp, key, value)
        return
    inner = unwrap(batch, info, limit_bytes)
    messages = list(_headers(inner))
    if not messages:
        raise InvalidRecordsError("Found invalid compressed record set with no inner records")
    shift = 0
    # Some versions of librdkafka left the wrapper's offset at 0.
    if info.magic and info.last_offset:
        shift = info.last_offset - messages[-1].last_offset
        if shift < 0:
            raise InvalidRecordsError(
                f"Found invalid wrapper offset in compressed v1 message set, wrapper offset '{info.last_offset}' is "
                f"less than the last inner message offset '{messages[-1].last_offset}' and it is not zero."
            )
    for message in messages:
        if message.compression:
            raise InvalidRecordsError("Inner messages must not be compressed")
        key, value = _key_and_value(inner, message)
        # In Kafka, too, only a message of format 1 inherits its wrapper's time.
        timestamp = info.max_timestamp if info.timestamp_type and message.magic else message.max_timestamp
        yield Record(message.last_offset + shift, timestamp, key, value)


def unwrap(batch: Buffer, info: BatchInfo, limit_bytes: int) -> bytes:
    """The messages that a compressed one holds.  BatchError, or DecompressionLimitError past `limit_bytes`."""
    codec = info.compression
    if codec not in CODECS:
        raise InvalidRecordsError(
            f"Invalid wrapper compressionType found in wrapper record with magic {info.magic}: {codec}"
        )
    _, value = _key_and_value(batch, info)
    if value is None:
        raise InvalidRecordsError(f"Found invalid compressed record set with null value (magic = {info.magic})")
    if codec == Codec.LZ4 and info.magic == 0:
        value = with_lz4_checksum(value, _LZ4_DESCRIPTOR_START)
    try:
        return decompress(codec, value, limit_bytes)
    except DecompressionLimitError:
        raise
    except ValueError as error:
        raise InvalidRecordsError(str(error)) from error


def wrap(
    messages: Buffer, magic: int, codec: int, offset: int, timestamp: int, flags: int = 0, level: int | None = None
) -> bytearray:
    """Compresses messages into a wrapper with the last one's offset; `flags` has the timestamp type."""
    return wrap_packed(compress(codec, messages, level), magic, codec, offset, timestamp, flags)


def wrap_packed(packed: bytes, magic: int, codec: int, offset: int, timestamp: int, flags: int = 0) -> bytearray:
    """As `wrap`, for messages that are already compressed."""
    if magic == 0 and codec == Codec.LZ4:
        packed = with_lz4_checksum(packed, 0)
    out = bytearray(OFFSET_SIZE_AND_CRC.size)
    out += bytes((magic, flags | codec if magic else codec))
    if magic:
        out += TIMESTAMP.pack(timestamp)
    out += LENGTH.pack(-1) + LENGTH.pack(len(packed))
    out += packed
    with memoryview(out)[OFFSET_SIZE_AND_CRC.size :] as body:
        OFFSET_SIZE_AND_CRC.pack_into(out, 0, offset, len(body) + LENGTH.size, zlib.crc32(body))
    return out


def _key_and_value(data: Buffer, info: BatchInfo) -> tuple[bytes | None, bytes | None]:
    position = info.position + HEADER.size + (TIMESTAMP.size if info.magic else 0)
    end = info.position + info.size_in_bytes
    fields: list[bytes | None] = []
    for what in ("key", "value"):
        if position + LENGTH.size > end:
            raise CorruptBatchError(f"the message at offset {info.last_offset} ends before its {what}")
        (size,) = LENGTH.unpack_from(data, position)
        position += LENGTH.size
        if size > end - position:
            raise CorruptBatchError(f"the {what} of the message at offset {info.last_offset} is cut off")
        fields.append(bytes(data[position : position + size]) if size >= 0 else None)
        position += max(size, 0)
    if position != end:
        raise CorruptBatchError(f"the message at offset {info.last_offset} has bytes after its value")
    return fields[0], fields[1]


def with_lz4_checksum(frame: bytes, start: int) -> bytes:
    """The frame with a header checksum over what lies from `start` on: 4 is right, 0 is what magic 0 has."""
    if len(frame) < _LZ4_DESCRIPTOR_START + 3:
        return frame
    at = _LZ4_DESCRIPTOR_START + 2 + (8 if frame[_LZ4_DESCRIPTOR_START] & _LZ4_CONTENT_SIZE_FLAG else 0)
    checksum = _xxh32_of_few(frame[start:at]) >> 8 & 0xFF
    return frame[:at] + bytes((checksum,)) + frame[at + 1 :]


def _xxh32_of_few(data: bytes) -> int:
    """XXH32 with seed 0 of fewer than 16 bytes, which is all that a frame's header has."""
    mask = 0xFFFFFFFF
    value = _PRIME_5 + len(data) & mask
    position = 0
    while position + 4 <= len(data):
        value = value + int.from_bytes(data[position : position + 4], "little") * _PRIME_3 & mask
        value = (value << 17 | value >> 15) * _PRIME_4 & mask
        position += 4
    for byte in data[position:]:
        value = value + byte * _PRIME_5 & mask
        value = (value << 11 | value >> 21) * _PRIME_1 & mask
    value = (value ^ value >> 15) * _PRIME_2 & mask
    value = (value ^ value >> 13) * _PRIME_3 & mask
    return value ^ value >> 16
