"""Requests of groups as prebuilt bytes; see `bench.frames`."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from bench.frames import Layout, compact_string, request, string, uvarint

OFFSET_COMMIT, FIND_COORDINATOR, JOIN_GROUP, HEARTBEAT, SYNC_GROUP = 8, 10, 11, 12, 14
CONSUMER_GROUP_HEARTBEAT = 68

#: Where the error stands in an answer whose body begins with a throttle time: both heartbeats.
HEARTBEAT_LAYOUT = Layout(error_at=4 + 4 + 1 + 4)
SESSION_MS = 60_000
REBALANCE_MS = 60_000


def find_coordinator(group: str) -> bytes:
    """FindCoordinator 1 of a group."""
    return request(FIND_COORDINATOR, 1, string(group) + b"\0", flexible=False)


def join(group: str) -> bytes:
    """JoinGroup 1 of a new consumer, which subscribes to nothing."""
    body = string(group) + struct.pack(">ii", SESSION_MS, REBALANCE_MS) + string("") + string("consumer")
    metadata = struct.pack(">hii", 0, 0, -1)
    body += struct.pack(">i", 1) + string("range") + struct.pack(">i", len(metadata)) + metadata
    return request(JOIN_GROUP, 1, body, flexible=False)


def joined(answer: bytes) -> tuple[int, str]:
    """Generation and member id out of the answer to `join` (without its length prefix)."""
    error, generation = struct.unpack_from(">hi", answer, 4)
    if error:
        raise ValueError(f"JoinGroup: error {error}")
    at, texts = 10, []
    for _ in range(3):  # protocol, leader, member id
        (size,) = struct.unpack_from(">h", answer, at)
        texts.append(answer[at + 2 : at + 2 + size].decode())
        at += 2 + size
    return generation, texts[2]


def sync(group: str, generation: int, member_id: str) -> bytes:
    """SyncGroup 0 of the leader, which assigns nothing."""
    assignment = struct.pack(">hii", 0, 0, -1)
    body = string(group) + struct.pack(">i", generation) + string(member_id)
    body += struct.pack(">i", 1) + string(member_id) + struct.pack(">i", len(assignment)) + assignment
    return request(SYNC_GROUP, 0, body, flexible=False)


def heartbeat(group: str, generation: int, member_id: str) -> bytes:
    """Heartbeat 4."""
    body = compact_string(group) + struct.pack(">i", generation) + compact_string(member_id) + b"\0\0"
    return request(HEARTBEAT, 4, body, flexible=True)


def consumer_heartbeat(
    group: str,
    member_id: str,
    epoch: int,
    topics: Sequence[str] | None = None,
    owned: Mapping[bytes, Sequence[int]] | None = None,
) -> bytes:
    """ConsumerGroupHeartbeat 1; `topics` and the rebalance time-out are said by a member that joins, as clients do."""
    joins = epoch == 0
    names = b"\0" if topics is None else uvarint(len(topics) + 1) + b"".join(map(compact_string, topics))
    rows = b"\0"
    if owned is not None:
        rows = uvarint(len(owned) + 1)
        for topic_id, partitions in owned.items():
            rows += topic_id + uvarint(len(partitions) + 1) + struct.pack(f">{len(partitions)}i", *partitions) + b"\0"
    body = b"".join(
        (
            compact_string(group) + compact_string(member_id) + struct.pack(">i", epoch),
            b"\0\0",  # no instance id, no rack
            struct.pack(">i", REBALANCE_MS if joins else -1),
            names,
            b"\0\0",  # no regular expression, no assignor
            rows,
            b"\0",
        )
    )
    return request(CONSUMER_GROUP_HEARTBEAT, 1, body, flexible=True)


def read_consumer_heartbeat(answer: bytes) -> tuple[int, int, dict[bytes, list[int]] | None]:
    """Error, member epoch and what is assigned, if that is said, out of an answer without its length prefix."""
    (error,) = struct.unpack_from(">h", answer, 9)
    at = 11
    for _ in range(2):  # error message, member id
        size = answer[at]
        at += max(size, 1)
    epoch, _interval = struct.unpack_from(">ii", answer, at)
    at += 8
    if answer[at] == 0xFF:
        return error, epoch, None
    assigned: dict[bytes, list[int]] = {}
    at += 1
    count, at = _uvarint(answer, at)
    for _ in range(count - 1):
        topic_id = answer[at : at + 16]
        size, at = _uvarint(answer, at + 16)
        assigned[topic_id] = list(struct.unpack_from(f">{size - 1}i", answer, at))
        at += 4 * (size - 1) + 1
    return error, epoch, assigned


def _uvarint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def commit(group: str, topic: str, partitions: Sequence[int], offset: int) -> bytes:
    """OffsetCommit 8 by a consumer that is no member of the group."""
    body = compact_string(group) + struct.pack(">i", -1) + compact_string("") + b"\0"
    body += b"\x02" + compact_string(topic) + uvarint(len(partitions) + 1)
    for partition in partitions:
        body += struct.pack(">iqi", partition, offset, -1) + b"\x01\0"
    return request(OFFSET_COMMIT, 8, body + b"\0\0", flexible=True)


def commit_layout(topic: str, partitions: int) -> Layout:
    """Of the answer to `commit`; the place is that of the first partition."""
    return Layout(error_at=4 + 4 + 1 + 4 + 1 + len(compact_string(topic)) + len(uvarint(partitions + 1)) + 4)
