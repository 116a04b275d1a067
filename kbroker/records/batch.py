"""Whole v2 batches as Python objects: `RecordBatchBuilder` writes one, `iterate_records` reads one.

For internal topics, command-line tools and tests.  What clients send and fetch never becomes objects.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from kbroker._fast.records.batch_builder import BatchBuilder
from kbroker._fast.records.record_batch import BATCH_OVERHEAD, MAGIC_V2, BatchInfo, read_header, seal
from kbroker._fast.records.record_codec import decode_records
from kbroker.records.compression import Codec, compress, decompress
from kbroker.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP

HEADER = struct.Struct(">qiibIhiqqqhii")
TRANSACTIONAL_FLAG = 0x10
PORTION_COUNT = 512

# Stored batches were checked against their topic's limits; this one keeps a damaged file from exhausting memory.
STORED_LIMIT_BYTES = 1 << 30

Headers = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """One record.  `timestamp` is in milliseconds; a header's key may occur more than once."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class RecordBatchBuilder(BatchBuilder):
    """Collects records and builds one batch of them.

    The base timestamp is the first record's.  `build` may be called once there is a record, and gives a writable batch
    with its CRC, ready to be sent or appended.
    """

    __slots__ = ()

    def compressed(self, codec: int, payload: memoryview, level: int | None) -> bytes:
        """The records by a codec."""
        return compress(codec, payload, level)


def empty_batch(first_offset: int, last_offset: int, leader_epoch: int) -> bytes:
    """A batch without records, as compaction leaves them: readers go on behind `last_offset`."""
    none = NO_TIMESTAMP, NO_TIMESTAMP, NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE
    delta = last_offset - first_offset
    batch = bytearray(HEADER.pack(first_offset, 0, leader_epoch, MAGIC_V2, 0, 0, delta, *none, 0))
    seal(batch, Codec.NONE)
    return bytes(batch)


def iterate_records(
    batch: bytes | bytearray | memoryview, info: BatchInfo | None = None, *, limit_bytes: int = STORED_LIMIT_BYTES
) -> Iterator[Record]:
    """The records of one batch, which starts at `info.position` (or 0).  The checksum is not checked.

    Raises BatchError for what is no batch, CompressionError for what cannot be decompressed.
    """
    if info is None:
        info = read_header(batch)
    start = info.position + BATCH_OVERHEAD
    payload: bytes | memoryview = memoryview(batch)[start : info.position + info.size_in_bytes]
    if info.compression:
        payload = decompress(info.compression, payload, limit_bytes)
    position = 0
    while position < len(payload):
        records, position = decode_records(payload, info, Record, position, PORTION_COUNT)
        yield from records
