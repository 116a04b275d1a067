"""Record batches of model clients, made and read from the format alone, not with the broker's own code."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import crc32c

from tests.scenarios.batches import Batch
from tests.simulation.old_formats import MalformedMessageError, decompressed, read_messages

HEAD = struct.Struct(">qiibIhiqqqhii")
BEFORE_CRC_BYTES = 21
MAGIC_POSITION = 16
TRANSACTIONAL, CONTROL = 0x10, 0x20


class MalformedBatchError(ValueError):
    """Bytes of an answer that are no whole record batches."""


class ReadBatch(NamedTuple):
    """A batch of an answer; `values` by offset."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    attributes: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    values: Sequence[tuple[int, bytes | None]]
    magic: int = 2
    timestamp: int = -1
    """Of the first record, which model clients give to all."""

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)


def encode_batch(
    values: Sequence[bytes],
    timestamp_ms: int,
    *,
    codec: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
    transactional: bool = False,
) -> bytes:
    """A batch; `producer`: id, epoch and first sequence."""
    return Batch(
        [(None, value) for value in values],
        [timestamp_ms] * len(values),
        codec,
        *producer,
        attributes=TRANSACTIONAL if transactional else 0,
    ).encoded()


def read_batches(data: bytes | memoryview | None) -> Iterator[ReadBatch]:
    """The whole batches of an answer; one at its end that is cut off is left out, as clients do."""
    view = memoryview(data or b"")
    position = 0
    while len(view) - position > MAGIC_POSITION:
        if view[position + MAGIC_POSITION] < 2:
            (size,) = struct.unpack_from(">i", view, position + 8)
            if position + 12 + size > len(view):
                return
            yield _message(bytes(view[position : position + 12 + size]))
            position += 12 + size
            continue
        if len(view) - position < HEAD.size:
            return
        head = HEAD.unpack_from(view, position)
        base, length, epoch, magic, crc, attributes, last_delta, timestamp, _ = head[:9]
        producer_id, producer_epoch, sequence, count = head[9:]
        end = position + 12 + length
        if magic != 2 or length < HEAD.size - 12:
            raise MalformedBatchError(f"at {position}: magic {magic}, length {length}")
        if end > len(view):
            return
        if crc32c.crc32c(view[position + BEFORE_CRC_BYTES : end]) != crc:
            raise MalformedBatchError(f"at {position}: the checksum of the batch at offset {base} is wrong")
        payload = bytes(view[position + HEAD.size : end])
        codec = attributes & 7
        if codec:
            payload = decompressed(payload, codec)
        values = tuple(_records(payload, base, count))
        producer = producer_id, producer_epoch, sequence
        yield ReadBatch(base, base + last_delta, epoch, attributes, *producer, values, timestamp=timestamp)
        position = end


def _message(data: bytes) -> ReadBatch:
    """A message of the formats before batches, or several that are compressed together."""
    try:
        found = list(read_messages(data))
    except (MalformedMessageError, ValueError, zlib.error) as error:
        raise MalformedBatchError(str(error)) from error
    values = tuple((offset, value) for offset, _, value in found)
    return ReadBatch(values[0][0], values[-1][0], -1, 0, -1, -1, -1, values, data[MAGIC_POSITION])


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7


def _records(payload: bytes, base: int, count: int) -> Iterator[tuple[int, bytes | None]]:
    position = 0
    try:
        for _ in range(count):
            size, position = _varint(payload, position)
            end = position + size
            _, position = _varint(payload, position + 1)
            delta, position = _varint(payload, position)
            key_size, position = _varint(payload, position)
            value_size, position = _varint(payload, position + max(0, key_size))
            yield base + delta, None if value_size < 0 else payload[position : position + value_size]
            position = end
    except IndexError as error:
        raise MalformedBatchError(f"the records at offset {base} end early") from error
    if position != len(payload):
        raise MalformedBatchError(f"{len(payload) - position} bytes behind the records at offset {base}")
