"""What the consumers of Kafka 0.8 write into ZooKeeper: members, owners and offsets of their groups.

/consumers/G/ids/ID         {"version":1,"subscription":{"t1":1},"pattern":"white_list","timestamp":"…"}
/consumers/G/owners/T/P     ID-0, the member and its thread
/consumers/G/offsets/T/P    the next offset, in text
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kbroker.cluster.zookeeper.znode_json import (
    ZnodeError,
    as_dict,
    as_int,
    as_number,
    as_text,
    json_bytes,
    json_object,
)


@dataclass(frozen=True, slots=True)
class ConsumerZnode:
    """A member of an old consumer group: threads by topic, or by a pattern of topics."""

    subscription: Mapping[str, int]
    pattern: str
    timestamp_ms: int


def encode_consumer(consumer: ConsumerZnode) -> bytes:
    """/consumers/G/ids/ID."""
    return json_bytes(
        {
            "version": 1,
            "subscription": dict(consumer.subscription),
            "pattern": consumer.pattern,
            "timestamp": str(consumer.timestamp_ms),
        }
    )


def decode_consumer(data: bytes | None) -> ConsumerZnode:
    """/consumers/G/ids/ID."""
    content = json_object(data)
    stamp = content.get("timestamp", "0")
    return ConsumerZnode(
        {
            name: as_int(count, f"threads of {name}", 0)
            for name, count in as_dict(content.get("subscription"), "subscription").items()
        },
        as_text(content.get("pattern", "static"), "pattern"),
        as_number(as_text(stamp, "timestamp"), "timestamp", 2**63 - 1),
    )


def encode_offset(offset: int) -> bytes:
    """/consumers/G/offsets/T/P: the next offset."""
    return b"%d" % offset


def decode_offset(data: bytes | None) -> int:
    """/consumers/G/offsets/T/P; a client may have committed a negative one.  Raises ZnodeError."""
    try:
        text = (data or b"").decode()
    except UnicodeDecodeError:
        raise ZnodeError("the offset is no text") from None
    offset = as_number(text.removeprefix("-"), "the offset", 2**63 - 1)
    return -offset if text.startswith("-") else offset
