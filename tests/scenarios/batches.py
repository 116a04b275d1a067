"""Record batches for scenarios, sound or broken in one chosen way.

Written from the format alone and not with kbroker's own builder, so that a fault there does not hide itself.
Layout: base_offset i64, batch_length i32, partition_leader_epoch i32, magic i8, crc u32 (of all that follows),
attributes i16, last_offset_delta i32, base_timestamp i64, max_timestamp i64, producer_id i64, producer_epoch i16,
base_sequence i32, records_count i32, records.
"""

from __future__ import annotations

import gzip
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import crc32c

T0 = 1_700_000_000_000
AFTER_CRC = struct.Struct(">hiqqqhii")
BEFORE_CRC = struct.Struct(">qiib")

Pair = tuple[bytes | None, bytes | None]


def varint(value: int) -> bytes:
    """A zigzag varint."""
    left = (value << 1) ^ (value >> 63)
    out = bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


def _data(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def record(offset_delta: int, timestamp_delta: int, key: bytes | None, value: bytes | None) -> bytes:
    """One record with its length in front."""
    body = b"\0" + varint(timestamp_delta) + varint(offset_delta) + _data(key) + _data(value) + varint(0)
    return varint(len(body)) + body


@dataclass(slots=True)
class Batch:
    """A batch whose every header field may be set against the truth."""

    pairs: Sequence[Pair] = ((b"key", b"value"),)
    timestamps: Sequence[int] = ()
    codec: int = 0
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    attributes: int = 0
    base_offset: int = 0
    leader_epoch: int = 0
    magic: int = 2
    # Lies: a field named here has this value in place of the true one.
    lies: dict[str, Any] = field(default_factory=dict)

    def times(self) -> list[int]:
        """The timestamp of each record."""
        return list(self.timestamps) or [T0 + number for number in range(len(self.pairs))]

    def encoded(self) -> bytes:
        """The batch as it goes over the wire."""
        times = self.times() or [T0]
        deltas = self.lies.get("offset_deltas") or range(len(self.pairs))
        parts = zip(deltas, times, self.pairs, strict=False)
        records = b"".join(record(delta, time - times[0], *pair) for delta, time, pair in parts)
        records = self.lies.get("records", records)
        payload: bytes = self.lies.get("payload", self._compress(records))
        after = AFTER_CRC.pack(
            self.attributes | self.codec,
            self.lies.get("last_offset_delta", len(self.pairs) - 1),
            times[0],
            self.lies.get("max_timestamp", max(times)),
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.lies.get("records_count", len(self.pairs)),
        )
        crc = self.lies.get("crc", crc32c.crc32c(after + payload))
        length: int = self.lies.get("batch_length", 9 + len(after) + len(payload))
        before = BEFORE_CRC.pack(self.base_offset, length, self.leader_epoch, self.magic)
        return before + struct.pack(">I", crc) + after + payload

    def _compress(self, records: bytes) -> bytes:
        match self.codec:
            case 0:
                return records
            case 1:
                return gzip.compress(records, mtime=0)
            case 2:
                import snappy

                return bytes(snappy.compress(records))
            case 3:
                import lz4.frame

                return bytes(lz4.frame.compress(records, block_linked=False))
            case 4:
                import zstandard

                return zstandard.ZstdCompressor().compress(records)
        return records


def message_set_v1(key: bytes, value: bytes, timestamp: int) -> bytes:
    """One message of the format before record batches (magic 1)."""
    import zlib

    body = struct.pack(">bbq", 1, 0, timestamp) + struct.pack(">i", len(key)) + key
    body += struct.pack(">i", len(value)) + value
    return struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body


def summary(data: Any) -> list[dict[str, Any]]:
    """What lies in a fetched RECORDS field, batch by batch; a cut-off tail is said to be one."""
    view = bytes(data or b"")
    found = []
    position = 0
    while position < len(view):
        if len(view) - position < 61:
            found.append({"cut_off_after_bytes": len(view) - position})
            break
        base, length, epoch, magic = BEFORE_CRC.unpack_from(view, position)
        (crc,) = struct.unpack_from(">I", view, position + 17)
        names: tuple[str, ...] = ("attributes", "last_offset_delta", "base_timestamp", "max_timestamp")
        names += ("producer_id", "producer_epoch", "base_sequence", "records_count")
        values = dict(zip(names, AFTER_CRC.unpack_from(view, position + 21), strict=True))
        end = position + 12 + length
        if end > len(view):
            found.append({"base_offset": base, "cut_off_after_bytes": len(view) - position})
            break
        right = crc == crc32c.crc32c(view[position + 21 : end])
        found.append({"base_offset": base, "leader_epoch": epoch, "magic": magic, "crc_is_right": right, **values})
        position = end
    return found
