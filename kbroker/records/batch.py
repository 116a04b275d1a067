"""Whole v2 batches as Python objects: `RecordBatchBuilder` writes one, `iterate_records` reads one.

For internal topics, command-line tools and tests.  What clients send and fetch never becomes objects.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from kbroker._fast.records.record_batch import BATCH_OVERHEAD, MAGIC_V2, BatchInfo, read_header, seal
from kbroker._fast.records.record_codec import append_record, decode_records
from kbroker.records.compression import Codec, compress, decompress
from kbroker.types import NO_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP

HEADER = struct.Struct(">qiibIhiqqqhii")
TRANSACTIONAL_FLAG = 0x10
CONTROL_FLAG = 0x20
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


class RecordBatchBuilder:
    """Collects records and builds one batch of them.

    The base timestamp is the first record's.  `build` may be called once there is a record, and gives a writable batch
    with its CRC, ready to be sent or appended.
    """

    __slots__ = (
        "_attributes",
        "_base_offset",
        "_base_sequence",
        "_base_timestamp",
        "_codec",
        "_count",
        "_level",
        "_max_timestamp",
        "_partition_leader_epoch",
        "_payload",
        "_producer_epoch",
        "_producer_id",
    )

    def __init__(
        self,
        base_offset: int = 0,
        compression: int = Codec.NONE,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        *,
        is_transactional: bool = False,
        is_control: bool = False,
        partition_leader_epoch: int = NO_LEADER_EPOCH,
        level: int | None = None,
    ) -> None:
        self._base_offset = base_offset
        self._codec = compression
        self._producer_id = producer_id
        self._producer_epoch = producer_epoch
        self._base_sequence = base_sequence
        self._partition_leader_epoch = partition_leader_epoch
        self._level = level
        self._attributes = (TRANSACTIONAL_FLAG if is_transactional else 0) | (CONTROL_FLAG if is_control else 0)
        self._payload = bytearray()
        self._count = 0
        self._base_timestamp = NO_TIMESTAMP
        self._max_timestamp = NO_TIMESTAMP

    def append(
        self,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int,
        headers: Iterable[tuple[str, bytes | None]] = (),
    ) -> None:
        """Add a record.  The first one's time is the batch's base timestamp."""
        if self._count == 0:
            self._base_timestamp = timestamp_ms
        append_record(self._payload, timestamp_ms - self._base_timestamp, self._count, key, value, headers)
        self._max_timestamp = max(self._max_timestamp, timestamp_ms)
        self._count += 1

    def extend(
        self, records: Sequence[tuple[bytes | None, bytes | None]], begin: int, timestamp_ms: int, most_bytes: int
    ) -> int:
        """Add records of one time, from number `begin` on, until the batch has `most_bytes`; the number of the next."""
        if self._count == 0:
            self._base_timestamp = timestamp_ms
        self._max_timestamp = max(self._max_timestamp, timestamp_ms)
        payload, delta, offset_delta = self._payload, timestamp_ms - self._base_timestamp, self._count
        most_bytes -= BATCH_OVERHEAD
        at = begin
        for at in range(begin, len(records)):
            key, value = records[at]
            append_record(payload, delta, offset_delta, key, value)
            offset_delta += 1
            if len(payload) >= most_bytes:
                break
        self._count = offset_delta
        return at + 1

    @property
    def count(self) -> int:
        """How many records it holds."""
        return self._count

    @property
    def size_bytes(self) -> int:
        """The size of the batch so far, before compression."""
        return BATCH_OVERHEAD + len(self._payload)

    def build(self) -> bytearray:
        """The batch, header and CRC included.  ValueError without a record."""
        if self._count == 0:
            raise ValueError("a batch needs at least one record")
        batch = bytearray(
            HEADER.pack(
                self._base_offset,
                0,
                self._partition_leader_epoch,
                MAGIC_V2,
                0,
                self._attributes,
                self._count - 1,
                self._base_timestamp,
                self._max_timestamp,
                self._producer_id,
                self._producer_epoch,
                self._base_sequence,
                self._count,
            )
        )
        batch += self._payload if self._codec == Codec.NONE else compress(self._codec, self._payload, self._level)
        seal(batch, self._codec)
        return batch


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
