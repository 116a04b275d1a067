"""Record batches and messages in an older format, for consumers that know no newer one (KIP-283).

As Kafka's `RecordsUtil.downConvert`: control batches and record headers are left out, and codecs are kept.  A zstd
batch raises an error, because the older formats do not have this codec.  Of an uncompressed batch, records before the
fetch offset are left out.

A compressed batch is decompressed, converted and compressed again in pieces of `PIECE_BYTES`, or of one larger record,
because a few kilobytes may expand to many megabytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from kbroker._fast.records.message_conversion import messages_of_piece, messages_of_records, rewrite_messages
from kbroker._fast.records.message_set import walk_messages
from kbroker._fast.records.record_batch import BATCH_OVERHEAD, MAGIC_V2, BatchInfo, InvalidRecordsError
from kbroker.records.batch import STORED_LIMIT_BYTES
from kbroker.records.compression import (
    Codec,
    DecompressionLimitError,
    compress,
    compress_chunks,
    decompress,
    iter_decompress,
)
from kbroker.records.legacy import unwrap, wrap, wrap_packed
from kbroker.types import NO_TIMESTAMP

APPEND_TIME_FLAG = 0x08
PIECE_BYTES = 1 << 20


class NoOlderCodecError(ValueError):
    """A batch in zstd."""


def down_convert(data: memoryview, info: BatchInfo, magic: int, least: int) -> tuple[bytes | bytearray, int]:
    """(messages of format `magic` or below, records converted) of the batch or message of `data` at `info`.

    Records before offset `least` may be left out.  BatchError or CompressionError for what cannot be read.
    """
    batch = data[info.position : info.position + info.size_in_bytes]
    if info.magic <= magic:
        return bytes(batch), 0
    if info.is_control:
        return b"", 0
    if info.compression == Codec.ZSTD:
        raise NoOlderCodecError("Down-conversion of zstandard-compressed batches is not supported")
    if info.magic == MAGIC_V2:
        return _of_batch(batch, info, magic, least)
    if not info.compression:
        return rewrite_messages(batch, magic, least=least), 1
    inner = unwrap(data, info, STORED_LIMIT_BYTES)
    found = walk_messages(inner, info.magic)
    shift = info.last_offset - found.last_offset if info.last_offset else 0
    messages = rewrite_messages(inner, magic, shift=shift)
    return wrap(messages, magic, info.compression, info.last_offset, NO_TIMESTAMP), found.count


def _of_batch(batch: memoryview, info: BatchInfo, magic: int, least: int) -> tuple[bytes | bytearray, int]:
    payload = batch[BATCH_OVERHEAD:]
    codec = info.compression
    if not codec:
        messages, count, _ = messages_of_records(payload, info, magic, least=least)
        return messages, count
    found = _Messages(payload, info, magic)
    pieces = iter(found)
    first, second = next(pieces, b""), next(pieces, None)
    packed = compress(codec, first) if second is None else compress_chunks(codec, chain((first, second), pieces))
    if not found.count:
        return b"", 0
    flags = APPEND_TIME_FLAG if info.timestamp_type else 0
    return wrap_packed(packed, magic, codec, found.last_offset, found.max_timestamp, flags), found.count


class _Messages:
    """The messages of a compressed batch, piece by piece, with the count and offsets of those given so far."""

    def __init__(self, payload: memoryview, info: BatchInfo, magic: int) -> None:
        self._payload = payload
        self._info = info
        self._magic = magic
        self._rest = b""
        self.count = 0
        self.last_offset = -1
        self.max_timestamp = NO_TIMESTAMP

    def __iter__(self) -> Iterator[bytes]:
        first = -1
        for piece in self._pieces():
            data = self._rest + piece if self._rest else piece
            messages, used, count, first, last, timestamp = messages_of_piece(data, self._info, self._magic, first)
            self._rest = data[used:]
            if count:
                self.count += count
                self.last_offset = last
                self.max_timestamp = max(self.max_timestamp, timestamp)
                yield messages
        if self._rest:
            raise InvalidRecordsError("Found invalid record structure")

    def _pieces(self) -> Iterator[bytes]:
        """The decompressed payload in pieces; in one piece where it is small."""
        codec = self._info.compression
        try:
            whole = decompress(codec, self._payload, PIECE_BYTES)
        except DecompressionLimitError:
            pass
        else:
            yield whole
            return
        kept, size = [], 0
        for chunk in iter_decompress(codec, self._payload, STORED_LIMIT_BYTES):
            kept.append(bytes(chunk))
            size += len(chunk)
            # Each join at least doubles an incomplete large record, so that it is copied a few times only.
            if size >= max(PIECE_BYTES, len(self._rest)):
                yield b"".join(kept)
                kept, size = [], 0
        yield b"".join(kept)
