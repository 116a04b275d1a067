"""Requests as prebuilt bytes, and the places in their answers that the load generator looks at.

A client of the wire format only: nothing of the broker is imported, so any Kafka-compatible broker can be measured.
Produce 9 and Fetch 12 are the newest versions that name topics by name and that every Kafka since 2.8 serves.
"""

from __future__ import annotations

import struct
import time
from dataclasses import dataclass

PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS, CREATE_TOPICS, DELETE_TOPICS = 0, 1, 2, 3, 18, 19, 20

#: Records of a batch as the cells use them: 150 of 100 bytes make a batch of about 16 KB.
SMALL_RECORD_BYTES = 100
SMALL_BATCH_RECORDS = 150


@dataclass(frozen=True, slots=True)
class Layout:
    """Places in an answer, or in a request (`offset_at`), counted from its length prefix."""

    error_at: int = -1
    offset_at: int = -1
    records_at: int = -1


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint(value: int) -> bytes:
    return uvarint((value << 1) ^ (value >> 63) if value < 0 else value << 1)


def string(value: str) -> bytes:
    data = value.encode()
    return struct.pack(">h", len(data)) + data


def compact_string(value: str) -> bytes:
    data = value.encode()
    return uvarint(len(data) + 1) + data


def request(api_key: int, version: int, body: bytes, *, flexible: bool, client_id: str = "bench") -> bytes:
    """A request with its length prefix; the correlation id is 0."""
    head = struct.pack(">hhi", api_key, version, 0) + string(client_id) + (b"\0" if flexible else b"")
    return struct.pack(">i", len(head) + len(body)) + head + body


def batch(records: int, value_bytes: int) -> bytes:
    """A version 2 batch without compression; values differ, as real ones do."""
    from crc32c import crc32c

    value = bytes(32 + (index * 7) % 95 for index in range(value_bytes))
    parts = bytearray()
    for delta in range(records):
        body = b"\0" + varint(0) + varint(delta) + varint(-1) + varint(len(value)) + value + varint(0)
        parts += varint(len(body)) + body
    now = int(time.time() * 1000)
    tail = struct.pack(">hiqqqhii", 0, records - 1, now, now, -1, -1, -1, records) + bytes(parts)
    return struct.pack(">qiibI", 0, 9 + len(tail), -1, 2, crc32c(tail)) + tail


def produce(topic: str, partition: int, records: bytes, acks: int) -> bytes:
    """Produce 9 of one batch to one partition."""
    body = b"".join(
        (
            b"\0",  # no transactional id
            struct.pack(">hi", acks, 30_000),
            b"\x02" + compact_string(topic) + b"\x02" + struct.pack(">i", partition),
            uvarint(len(records) + 1) + records,
            b"\0\0\0",
        )
    )
    return request(PRODUCE, 9, body, flexible=True)


def produce_layout(topic: str) -> Layout:
    return Layout(error_at=4 + 4 + 1 + 1 + len(compact_string(topic)) + 1 + 4)


def fetch(topic: str, partition: int, max_bytes: int, max_wait_ms: int = 500) -> bytes:
    """Fetch 12 of one partition outside a session, from offset 0."""
    body = b"".join(
        (
            struct.pack(">iiiibii", -1, max_wait_ms, 1, 0x7FFFFFFF, 0, 0, -1),
            b"\x02" + compact_string(topic) + b"\x02",
            struct.pack(">iiqiqi", partition, -1, 0, -1, -1, max_bytes),
            b"\0\0",
            b"\x01\x01\0",  # nothing forgotten, no rack, no tags
        )
    )
    return request(FETCH, 12, body, flexible=True)


def fetch_layout(topic: str) -> Layout:
    head = 4 + 2 + 2 + 4 + len(string("bench")) + 1
    error_at = 4 + 4 + 1 + 4 + 2 + 4 + 1 + len(compact_string(topic)) + 1 + 4
    return Layout(
        error_at=error_at,
        offset_at=head + 25 + 1 + len(compact_string(topic)) + 1 + 4 + 4,
        records_at=error_at + 2 + 3 * 8 + 1 + 4,
    )


def metadata(topic: str) -> bytes:
    """Metadata 9 of one topic."""
    body = b"\x02" + compact_string(topic) + b"\0" + b"\0\0\0" + b"\0"
    return request(METADATA, 9, body, flexible=True)


def api_versions() -> bytes:
    """ApiVersions 3."""
    return request(API_VERSIONS, 3, compact_string("bench") + compact_string("1") + b"\0", flexible=True)


def create_topic(topic: str, partitions: int, configs: dict[str, str]) -> bytes:
    """CreateTopics 2."""
    pairs = b"".join(string(key) + string(value) for key, value in configs.items())
    body = struct.pack(">i", 1) + string(topic) + struct.pack(">ihii", partitions, 1, 0, len(configs)) + pairs
    return request(CREATE_TOPICS, 2, body + struct.pack(">i?", 30_000, False), flexible=False)


def delete_topic(topic: str) -> bytes:
    """DeleteTopics 1."""
    return request(DELETE_TOPICS, 1, struct.pack(">i", 1) + string(topic) + struct.pack(">i", 30_000), flexible=False)


def list_latest(topic: str, partition: int) -> bytes:
    """ListOffsets 1 for the end of a partition."""
    body = struct.pack(">ii", -1, 1) + string(topic) + struct.pack(">iiq", 1, partition, -1)
    return request(LIST_OFFSETS, 1, body, flexible=False)
