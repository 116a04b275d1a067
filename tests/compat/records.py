"""The records that clients write and must get back, and the comparison of the two.

`stored_codecs` reads the attributes of the batches on disk: a client that says gzip but sends plain bytes, as some
do when a broker's version list confuses them, is caught there and nowhere else.
"""

from __future__ import annotations

import base64
import hashlib
import struct
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
BATCH_HEADER = struct.Struct(">qiibih")
LOG_OVERHEAD = 12

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Record:
    """One record; `offset` is -1 before it is written."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp: int = -1
    offset: int = -1

    def to_json(self) -> dict[str, Any]:
        """The record as a driver's line carries it."""
        return {
            "partition": self.partition,
            "offset": self.offset,
            "key": encode(self.key),
            "value": encode(self.value),
            "headers": [[name, encode(value)] for name, value in self.headers],
            "timestamp": self.timestamp,
        }

    @staticmethod
    def from_json(line: Mapping[str, Any]) -> Record:
        """The record that a driver's line carries."""
        headers = tuple((str(name), decode(value)) for name, value in line["headers"])
        key, value = decode(line["key"]), decode(line["value"])
        return Record(line["partition"], key, value, headers, line["timestamp"], line["offset"])


def encode(data: bytes | None) -> str | None:
    """Bytes as text for a driver's line."""
    return None if data is None else base64.b64encode(data).decode()


def decode(text: str | None) -> bytes | None:
    """Bytes out of a driver's line."""
    return None if text is None else base64.b64decode(text)


def noise(seed: str, size: int) -> bytes:
    """Bytes that no codec makes smaller, the same for the same seed."""
    parts = [hashlib.sha256(f"{seed}{index}".encode()).digest() for index in range(size // 32 + 1)]
    return b"".join(parts)[:size]


def odd_records(partitions: int, *, null_headers: bool = True, repeated_headers: bool = True) -> list[Record]:
    """Records whose keys, values and headers are what breaks a sloppy broker, spread over the partitions."""
    now = int(time.time() * 1000)
    shapes: list[tuple[bytes | None, bytes | None, Headers]] = [
        (None, b"value without a key", ()),
        (b"", b"empty key", ()),
        (b"tombstone", None, ()),
        (b"empty value", b"", ()),
        (bytes(range(256)), bytes(reversed(range(256))), ()),
        ("ключ-鍵-🔑".encode(), "значение-値-📦".encode(), (("заголовок", b"\x00\xff"),)),
        (b"headers", b"two", (("trace", b"1"), ("content-type", b"text/plain"))),
        (b"long", b"abcdefgh" * 8000, ()),
        (b"noise", noise("n", 20_000), ()),
        (b"empty header", b"x", (("empty", b""),)),
    ]
    if null_headers:
        shapes.append((b"null header", b"x", (("null", None),)))
    if repeated_headers:
        shapes.append((b"repeated header", b"x", (("same", b"1"), ("same", b"2"))))
    shapes += [(b"key-%d" % number, b"plain value %d" % number * 3, ()) for number in range(24)]
    records = []
    for number, (key, value, headers) in enumerate(shapes):
        records.append(Record(number % partitions, key, value, headers, now - 1000 + number))
    return records


def plain_records(prefix: str, count: int, partitions: int) -> list[Record]:
    """Records with telling values, spread evenly over the partitions."""
    now = int(time.time() * 1000)
    names = [f"{prefix}-{number}".encode() for number in range(count)]
    return [Record(number % partitions, name, b"value of " + name, (), now) for number, name in enumerate(names)]


def with_offsets(records: Iterable[Record], offsets: Iterable[int]) -> list[Record]:
    """The records as they lie in the log."""
    return [replace(record, offset=offset) for record, offset in zip(records, offsets, strict=True)]


def in_order(records: Iterable[Record]) -> list[Record]:
    """The records by partition, then in the order given."""
    return sorted(records, key=lambda record: record.partition)


def by_place(records: Iterable[Record]) -> list[Record]:
    """The records by partition and offset."""
    return sorted(records, key=lambda record: (record.partition, record.offset))


def ends(records: Iterable[Record]) -> dict[int, int]:
    """The offset after the last record, by partition."""
    found: dict[int, int] = {}
    for record in records:
        found[record.partition] = max(found.get(record.partition, 0), record.offset + 1)
    return found


def stored_codecs(data: Path, topic: str) -> set[str]:
    """The codecs of all batches of a topic that lie on disk."""
    found = set()
    for segment in sorted(data.glob(f"{topic}-*/*.log")):
        raw = segment.read_bytes()
        position = 0
        while position + BATCH_HEADER.size <= len(raw):
            _, length, _, magic, _, attributes = BATCH_HEADER.unpack_from(raw, position)
            if magic != 2:
                break
            found.add(CODECS[attributes & 7])
            position += LOG_OVERHEAD + length
    return found
