"""Large requests that are legal, as prebuilt bytes: what `bench.large_requests` puts beside a well-behaved client.

Versions are such as Kafka 2.8 to 4.x serve, mostly the newest without compact lengths.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from bench.frames import batch, produce, request, string

LIST_OFFSETS, METADATA, OFFSET_COMMIT, OFFSET_FETCH, FETCH = 2, 3, 8, 9, 1
JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP, DESCRIBE_GROUPS = 11, 13, 14, 15
CREATE_TOPICS, DELETE_TOPICS, DELETE_RECORDS, OFFSET_FOR_LEADER_EPOCH = 19, 20, 21, 23
DESCRIBE_CONFIGS, DESCRIBE_LOG_DIRS, CREATE_PARTITIONS, DELETE_GROUPS = 32, 35, 37, 42
INCREMENTAL_ALTER_CONFIGS, OFFSET_DELETE = 44, 47
TOPIC_RESOURCE = 2
NEVER_A_MEMBER = "no-such-member"
MEGABYTE = 1_000_000
#: A topic of this name and so many partitions is there before (`WIDE_PARTITIONS`); requests name each of them often.
WIDE_TOPIC = "wide"
WIDE_PARTITIONS = 1_000
#: Takes records of `BIG_RECORD_BYTES`.
BIG_TOPIC = "big"
BIG_RECORD_BYTES = 80 * MEGABYTE
ITEMS = 100_000


@dataclass(frozen=True, slots=True)
class LargeRequest:
    """One row of the table: `frame` makes the bytes."""

    name: str
    frame: Callable[[], bytes]


def _array(items: Iterable[bytes]) -> bytes:
    parts = list(items)
    return struct.pack(">i", len(parts)) + b"".join(parts)


def _plain(api_key: int, version: int, body: bytes) -> bytes:
    return request(api_key, version, body, flexible=False)


def many_names(prefix: str, count: int) -> list[str]:
    return [f"{prefix}-{number:06d}" for number in range(count)]


def _indexes() -> Iterable[int]:
    return (number % WIDE_PARTITIONS for number in range(ITEMS))


def _of_wide_topic(row: str, *values: int) -> bytes:
    """The one topic with ITEMS partitions, each an index and the same values."""
    pack = struct.Struct(">i" + row).pack
    return _array([string(WIDE_TOPIC) + _array(pack(index, *values) for index in _indexes())])


def create_topics(names: list[str], partitions: int = 1) -> bytes:
    topics = _array(string(name) + struct.pack(">ihii", partitions, 1, 0, 0) for name in names)
    return _plain(CREATE_TOPICS, 4, topics + struct.pack(">ib", 60_000, 0))


def delete_topics(names: list[str]) -> bytes:
    return _plain(DELETE_TOPICS, 3, _array(map(string, names)) + struct.pack(">i", 60_000))


def create_partitions(name: str, count: int) -> bytes:
    body = _array([string(name) + struct.pack(">ii", count, -1)]) + struct.pack(">ib", 60_000, 0)
    return _plain(CREATE_PARTITIONS, 1, body)


def _offset_commit() -> bytes:
    pack = struct.Struct(">iqh").pack
    rows = _array(pack(index, 7, -1) for index in _indexes())
    body = string("large") + struct.pack(">i", -1) + string("") + struct.pack(">q", -1)
    return _plain(OFFSET_COMMIT, 2, body + _array([string(WIDE_TOPIC) + rows]))


def _fetch() -> bytes:
    body = struct.pack(">iiiibii", -1, 0, 0, MEGABYTE, 0, 0, -1) + _of_wide_topic("iqqi", -1, 0, -1, 1000)
    return _plain(FETCH, 11, body + struct.pack(">i", 0) + string(""))


def _metadata() -> bytes:
    return _plain(METADATA, 8, _array(map(string, many_names("nowhere", ITEMS))) + b"\0\0\0")


def _list_offsets() -> bytes:
    return _plain(LIST_OFFSETS, 5, struct.pack(">ib", -1, 0) + _of_wide_topic("iq", -1, -1))


def _join_group() -> bytes:
    data = bytes(90 * MEGABYTE)
    body = string("large-join") + struct.pack(">ii", 30_000, 30_000) + string("") + string("consumer")
    return _plain(JOIN_GROUP, 3, body + _array([string("range") + struct.pack(">i", len(data)) + data]))


def _sync_group() -> bytes:
    data = bytes(90 * MEGABYTE)
    body = string("large-join") + struct.pack(">i", 1) + string(NEVER_A_MEMBER) + struct.pack(">h", -1)
    return _plain(SYNC_GROUP, 3, body + _array([string(NEVER_A_MEMBER) + struct.pack(">i", len(data)) + data]))


def _leave_group() -> bytes:
    members = _array(string(name) + struct.pack(">h", -1) for name in many_names("member", ITEMS))
    return _plain(LEAVE_GROUP, 3, string("large") + members)


def _describe_configs() -> bytes:
    rows = _array(struct.pack(">b", TOPIC_RESOURCE) + string(name) + struct.pack(">i", -1) for name in WIDE_ROWS)
    return _plain(DESCRIBE_CONFIGS, 1, rows + b"\0")


def _alter_configs() -> bytes:
    rows = _array(
        struct.pack(">b", TOPIC_RESOURCE) + string(name) + struct.pack(">i", 0) for name in many_names("nowhere", ITEMS)
    )
    return _plain(INCREMENTAL_ALTER_CONFIGS, 0, rows + b"\0")


#: One topic asked for so often answers with the settings of that many.
WIDE_ROWS = many_names("made", 2_500)

PARTITIONS = _of_wide_topic
MADE = many_names("made", 5_000)
FEW = many_names("few", 250)

LARGE_REQUESTS = (
    LargeRequest("CreateTopics, 250 topics", lambda: create_topics(FEW)),
    LargeRequest("CreateTopics, 5,000 topics", lambda: create_topics(MADE)),
    LargeRequest("CreateTopics, one of 10,000 partitions", lambda: create_topics(["tall"], 10_000)),
    LargeRequest("CreatePartitions, 1 to 10,000", lambda: create_partitions("few-000000", 10_000)),
    LargeRequest("DescribeConfigs, 2,500 topics", _describe_configs),
    LargeRequest("IncrementalAlterConfigs, 100,000 topics", _alter_configs),
    LargeRequest("Metadata, all topics", lambda: _plain(METADATA, 8, struct.pack(">i", -1) + b"\0\0\0")),
    LargeRequest("Metadata, 100,000 names", _metadata),
    LargeRequest("OffsetCommit, 100,000 partitions", _offset_commit),
    LargeRequest("OffsetFetch, 100,000 partitions", lambda: _plain(OFFSET_FETCH, 5, string("large") + PARTITIONS(""))),
    LargeRequest("OffsetDelete, 100,000 partitions", lambda: _plain(OFFSET_DELETE, 0, string("none") + PARTITIONS(""))),
    LargeRequest("ListOffsets, 100,000 partitions", _list_offsets),
    LargeRequest("Fetch, 100,000 partitions", _fetch),
    LargeRequest(
        "DeleteRecords, 100,000 partitions",
        lambda: _plain(DELETE_RECORDS, 1, PARTITIONS("q", 0) + struct.pack(">i", 60_000)),
    ),
    LargeRequest(
        "OffsetForLeaderEpoch, 100,000 partitions",
        lambda: _plain(OFFSET_FOR_LEADER_EPOCH, 3, struct.pack(">i", -1) + PARTITIONS("ii", -1, 0)),
    ),
    LargeRequest("DescribeLogDirs, 100,000 partitions", lambda: _plain(DESCRIBE_LOG_DIRS, 1, PARTITIONS(""))),
    LargeRequest(
        "DescribeGroups, 100,000 groups",
        lambda: _plain(DESCRIBE_GROUPS, 4, _array(map(string, many_names("group", ITEMS))) + b"\0"),
    ),
    LargeRequest(
        "DeleteGroups, 100,000 groups",
        lambda: _plain(DELETE_GROUPS, 1, _array(map(string, many_names("group", ITEMS)))),
    ),
    LargeRequest("LeaveGroup, 100,000 members", _leave_group),
    LargeRequest("JoinGroup, 90 MB", _join_group),
    LargeRequest("SyncGroup, 90 MB", _sync_group),
    LargeRequest("Produce, one record of 80 MB", lambda: produce(BIG_TOPIC, 0, batch(1, BIG_RECORD_BYTES), 1)),
    LargeRequest("DeleteTopics, 250 topics", lambda: delete_topics(FEW)),
    LargeRequest("DeleteTopics, 5,001 topics", lambda: delete_topics([*MADE, "tall"])),
)
