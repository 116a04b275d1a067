"""Messages of the formats before record batches (magic 0 and 1), alone or compressed together: a client's own code."""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Iterator, Sequence

import lz4.block
import lz4.frame
import snappy
import zstandard

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
XERIAL = b"\x82SNAPPY\0"
HEAD = struct.Struct(">qiIbb")
CRC_END = 16
LZ4_HEAD_BYTES = 7
LZ4_CONTENT_SIZE = 0x08
LZ4_BLOCK_SUMS = 0x10
MOST_BYTES = 1 << 26
CUT_OFF = "the bytes end early"


class MalformedMessageError(ValueError):
    """Bytes that are no whole messages."""


def encode_messages(
    values: Sequence[bytes], timestamp_ms: int, *, magic: int, codec: int = 0, key: bytes | None = None
) -> bytes:
    """A message set; a compressed one is one message that holds the others."""
    plain = b"".join(_encoded(number, value, timestamp_ms, magic, 0, key=key) for number, value in enumerate(values))
    if codec == 0:
        return plain
    return _encoded(len(values) - 1, compressed(plain, codec), timestamp_ms, magic, codec, key=None)


def _encoded(offset: int, value: bytes, timestamp_ms: int, magic: int, attributes: int, *, key: bytes | None) -> bytes:
    body = struct.pack(">bb", magic, attributes)
    if magic:
        body += struct.pack(">q", timestamp_ms)
    body += struct.pack(">i", -1) if key is None else struct.pack(">i", len(key)) + key
    body += struct.pack(">i", len(value)) + value
    return struct.pack(">qiI", offset, 4 + len(body), zlib.crc32(body)) + body


def read_messages(data: bytes) -> Iterator[tuple[int, bytes | None, bytes | None]]:
    """Offset, key and value of each record of whole messages.  MalformedMessageError."""
    position = 0
    while position < len(data):
        if len(data) - position < HEAD.size:
            raise MalformedMessageError(CUT_OFF)
        offset, size, crc, magic, attributes = HEAD.unpack_from(data, position)
        end = position + 12 + size
        if end > len(data):
            raise MalformedMessageError(CUT_OFF)
        if zlib.crc32(data[position + CRC_END : end]) != crc:
            raise MalformedMessageError(f"the message at offset {offset} has a wrong checksum")
        at = position + HEAD.size + (8 if magic else 0)
        key, at = _field(data, at)
        value, at = _field(data, at)
        if at != end:
            raise MalformedMessageError(f"the message at offset {offset} has {end - at} bytes too much")
        if attributes & 7:
            yield from _unpacked(offset, magic, attributes & 7, value or b"")
        else:
            yield offset, key, value
        position = end


def _field(data: bytes, at: int) -> tuple[bytes | None, int]:
    (size,) = struct.unpack_from(">i", data, at)
    at += 4
    return (None, at) if size < 0 else (data[at : at + size], at + size)


def _unpacked(last: int, magic: int, codec: int, data: bytes) -> Iterator[tuple[int, bytes | None, bytes | None]]:
    inner = list(read_messages(decompressed(data, codec)))
    if not inner:
        raise MalformedMessageError(f"the message at offset {last} holds none")
    # Of magic 1 they count from the first on, and the one around them has the offset of the last.
    shift = last - inner[-1][0] if magic else 0
    if not magic and inner[-1][0] != last:
        raise MalformedMessageError(f"the message at offset {last} ends with {inner[-1][0]}")
    yield from ((offset + shift, key, value) for offset, key, value in inner)


def compressed(data: bytes, codec: int) -> bytes:
    """Data as clients compress it."""
    if codec == GZIP:
        return gzip.compress(data, mtime=0)
    if codec == SNAPPY:
        packed: bytes = snappy.compress(data)
        return XERIAL + struct.pack(">iii", 1, 1, len(packed)) + packed
    if codec == LZ4:
        return bytes(lz4.frame.compress(data, block_linked=False, store_size=False))
    return zstandard.ZstdCompressor().compress(data)


def decompressed(data: bytes, codec: int) -> bytes:
    """The other way."""
    if codec == GZIP:
        return gzip.decompress(data)
    if codec == SNAPPY:
        return _from_snappy(data)
    if codec == LZ4:
        return _from_lz4(data)
    return zstandard.ZstdDecompressor().decompress(data, max_output_size=MOST_BYTES)


def _from_snappy(data: bytes) -> bytes:
    if not data.startswith(XERIAL):
        return bytes(snappy.decompress(data))
    parts, at = [], len(XERIAL) + 8
    while at < len(data):
        (size,) = struct.unpack_from(">i", data, at)
        parts.append(bytes(snappy.decompress(data[at + 4 : at + 4 + size])))
        at += 4 + size
    return b"".join(parts)


def _from_lz4(data: bytes) -> bytes:
    """A frame of independent blocks.  Its header's checksum is not looked at: magic 0 has a wrong one (KAFKA-3160)."""
    parts, flags = [], data[4]
    at = LZ4_HEAD_BYTES + (8 if flags & LZ4_CONTENT_SIZE else 0)
    while at < len(data):
        (size,) = struct.unpack_from("<I", data, at)
        at += 4
        if size == 0:
            break
        is_plain, size = size >> 31, size & 0x7FFFFFFF
        block = data[at : at + size]
        parts.append(block if is_plain else lz4.block.decompress(block, uncompressed_size=4 << 20))
        at += size + (4 if flags & LZ4_BLOCK_SUMS else 0)
    return b"".join(parts)
