"""Record batches and messages in an older format, for consumers that know no newer one (KIP-283).

As Kafka's `RecordsUtil.downConvert`: control batches and headers are left out, codecs stay, and what is uncompressed
begins with the record that was asked for.  Zstd has no place in the older formats.
"""

from __future__ import annotations

from kbroker._fast.records.message_conversion import messages_of_records, rewrite_messages
from kbroker._fast.records.message_set import walk_messages
from kbroker._fast.records.record_batch import BATCH_OVERHEAD, MAGIC_V2, BatchInfo
from kbroker.records.batch import STORED_LIMIT_BYTES
from kbroker.records.compression import Codec, decompress
from kbroker.records.legacy import unwrap, wrap
from kbroker.types import NO_TIMESTAMP

APPEND_TIME_FLAG = 0x08


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
    payload: memoryview | bytes = batch[BATCH_OVERHEAD:]
    codec = info.compression
    if not codec:
        messages, count, *_ = messages_of_records(payload, info, magic, least=least)
        return messages, count
    payload = decompress(codec, payload, STORED_LIMIT_BYTES)
    messages, count, _first, last, timestamp, _headers = messages_of_records(payload, info, magic, inner=True)
    if not count:
        return b"", 0
    flags = APPEND_TIME_FLAG if info.timestamp_type else 0
    return wrap(messages, magic, codec, last, timestamp, flags), count
