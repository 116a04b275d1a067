"""Requests as prebuilt bytes, and the places in their answers that the load generator looks at.

A client of the wire format only: nothing of the broker is imported, so any Kafka-compatible broker can be measured.
Produce 9 and Fetch 12 are the newest versions that name topics by name and that every Kafka since 2.8 serves.
"""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS, CREATE_TOPICS, DELETE_TOPICS = 0, 1, 2, 3, 18, 19, 20
ADD_PARTITIONS_TO_TXN, INCREMENTAL_ALTER_CONFIGS, SHARE_FETCH = 24, 44, 78
GROUP_RESOURCE = 32

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


@dataclass(frozen=True, slots=True)
class Layout:
    """Places in an answer, or in a request (`offset_at`), counted from its length prefix."""

    error_at: int = -1
    base_at: int = -1
    offset_at: int = -1
    records_at: int = -1
    rows_at: int = -1
    row_bytes: int = 0  # of a partition in the request


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


def batch(records: int, value_bytes: int, codec: str = "none", key_space: int = 0, seed: int = 0) -> bytes:
    """A version 2 batch of `records`.  Values are alike without a codec and differ, about as log lines do, with one.
    With a `key_space`, keys are drawn from that many."""
    from crc32c import crc32c

    draw = random.Random(seed)
    plain = bytes(32 + (index * 7) % 95 for index in range(value_bytes))
    words = [b"%08x" % draw.getrandbits(32) for _ in range(512)]
    parts = bytearray()
    for delta in range(records):
        value = plain
        if codec != "none":
            value = b" ".join(draw.choice(words) for _ in range(value_bytes // 9 + 1))[:value_bytes]
        key = b"key-%012d" % draw.randrange(key_space) if key_space else b""
        keyed = varint(len(key)) + key if key_space else varint(-1)
        body = b"\0" + varint(0) + varint(delta) + keyed + varint(len(value)) + value + varint(0)
        parts += varint(len(body)) + body
    now = int(time.time() * 1000)
    payload = _compress(codec, bytes(parts))
    tail = struct.pack(">hiqqqhii", CODECS[codec], records - 1, now, now, -1, -1, -1, records) + payload
    return struct.pack(">qiibI", 0, 9 + len(tail), -1, 2, crc32c(tail)) + tail


def _compress(codec: str, data: bytes) -> bytes:
    if codec == "lz4":
        from lz4 import frame

        compressed: bytes = frame.compress(data, block_size=frame.BLOCKSIZE_MAX64KB, block_linked=False)
        return compressed
    if codec == "zstd":
        import zstandard

        return zstandard.ZstdCompressor(level=3, write_content_size=False).compress(data)
    return data


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
    error_at = 4 + 4 + 1 + 1 + len(compact_string(topic)) + 1 + 4
    return Layout(error_at=error_at, base_at=error_at + 2)


def cluster_metadata(topics: Sequence[str]) -> bytes:
    """Metadata 1 of these topics alone; of none, who is in the cluster."""
    return request(METADATA, 1, struct.pack(">i", len(topics)) + b"".join(map(string, topics)), flexible=False)


FETCH_ROW = ">iiqiqi"


def fetch(topic: str, partition: int, max_bytes: int, max_wait_ms: int = 500) -> bytes:
    """Fetch 12 of one partition outside a session, from offset 0."""
    return fetch_many(topic, {partition: 0}, max_bytes, max_wait_ms)


def fetch_many(topic: str, offsets: Mapping[int, int], max_bytes: int, max_wait_ms: int = 500) -> bytes:
    """Fetch 12 outside a session; `offsets` by partition, in the order in which they are named."""
    body = b"".join(
        (
            struct.pack(">iiiibii", -1, max_wait_ms, 1, 0x7FFFFFFF, 0, 0, -1),
            b"\x02" + compact_string(topic) + uvarint(len(offsets) + 1),
            *(
                struct.pack(FETCH_ROW, index, -1, offset, -1, -1, max_bytes) + b"\0"
                for index, offset in offsets.items()
            ),
            b"\0",
            b"\x01\x01\0",  # nothing forgotten, no rack, no tags
        )
    )
    return request(FETCH, 12, body, flexible=True)


def fetch_layout(topic: str, partitions: int = 1) -> Layout:
    """Of the answer to a fetch of so many partitions; places are those of the first one."""
    head = 4 + 2 + 2 + 4 + len(string("bench")) + 1
    before = len(compact_string(topic)) + len(uvarint(partitions + 1))
    rows_at = 4 + 4 + 1 + 4 + 2 + 4 + 1 + before
    return Layout(
        error_at=rows_at + 4,
        offset_at=head + 25 + 1 + before + 4 + 4,
        records_at=rows_at + 4 + 2 + 3 * 8 + 1 + 4,
        rows_at=rows_at,
        row_bytes=struct.calcsize(FETCH_ROW) + 1,
    )


def metadata(topic: str) -> bytes:
    """Metadata 9 of one topic."""
    body = b"\x02" + compact_string(topic) + b"\0" + b"\0\0\0" + b"\0"
    return request(METADATA, 9, body, flexible=True)


def served_apis(answer: bytes) -> dict[int, int]:
    """API keys with their newest versions out of the answer to `api_versions` (without its length prefix)."""
    count, at = answer[6] - 1, 7
    if answer[6] & 0x80:
        count, at = (answer[6] & 0x7F | answer[7] << 7) - 1, 8
    return {key: newest for key, _, newest in (struct.unpack_from(">hhh", answer, at + 7 * i) for i in range(count))}


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


def set_group_config(group: str, name: str, value: str) -> bytes:
    """IncrementalAlterConfigs 0 of one setting of a group."""
    config = struct.pack(">i", 1) + string(name) + b"\0" + string(value)
    body = struct.pack(">ib", 1, GROUP_RESOURCE) + string(group) + config + b"\0"
    return request(INCREMENTAL_ALTER_CONFIGS, 0, body, flexible=False)


def list_latest(topic: str, partition: int) -> bytes:
    """ListOffsets 1 for the end of a partition."""
    body = struct.pack(">ii", -1, 1) + string(topic) + struct.pack(">iiq", 1, partition, -1)
    return request(LIST_OFFSETS, 1, body, flexible=False)
