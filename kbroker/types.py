"""Small values that every layer shares: names of partitions and of internal topics, 16-byte ids and their text form."""

from __future__ import annotations

import base64
import os
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

ZERO_UUID = bytes(16)
METADATA_TOPIC_UUID = bytes(15) + b"\x01"
# Ids of log directories that KRaft sets apart (KIP-858): of a broker that named none yet, of a replica whose broker has
# not named its directory yet, and of one that does not work.
MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY, LOST_DIRECTORY = (bytes(15) + bytes([number]) for number in range(3))
RESERVED_UUIDS = frozenset({ZERO_UUID, METADATA_TOPIC_UUID})

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_TIMESTAMP = -1

GROUP_METADATA_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
SHARE_GROUP_STATE_TOPIC = "__share_group_state"
INTERNAL_TOPICS = frozenset({GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_GROUP_STATE_TOPIC})
CLUSTER_METADATA_TOPIC = "__cluster_metadata"
"""The log of a KRaft quorum, which is no topic of the cluster."""

MAX_STRING_BYTES = 0x7FFF
"""The longest string that a request, an answer or a coordinator's record can hold, in UTF-8."""


if TYPE_CHECKING:

    class Offset(int):
        """Of a record in its partition.  With a number of records added or taken away it is one again."""

        def __add__(self, count: int, /) -> Offset: ...
        def __sub__(self, count: int, /) -> Offset: ...

    class Position(int):
        """Of a byte in a segment's file, in the same way."""

        def __add__(self, size: int, /) -> Position: ...
        def __sub__(self, size: int, /) -> Position: ...

    class LeaderEpoch(int):
        """Of a partition's leader."""

        def __add__(self, count: int, /) -> LeaderEpoch: ...

else:
    Offset = Position = LeaderEpoch = int

NO_OFFSET, NO_POSITION, NO_LEADER_EPOCH = Offset(-1), Position(-1), LeaderEpoch(-1)
FIRST_OFFSET, FIRST_POSITION = Offset(0), Position(0)

# What is JSON, or becomes it; its shape is the file's or the page's.
JsonObject = dict[str, Any]
# The options of a command by name, as the command line's parser gives them.
Options = dict[str, Any]


class Link(Protocol):
    """A client's connection, as what goes with it sees it."""

    @property
    def closed(self) -> bool:
        """Whether it is gone."""


class TopicPartition(NamedTuple):
    """A partition by topic name and index; its text form `topic-index` names the directory on disk."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def is_internal(topic: str) -> bool:
    """Whether brokers themselves keep state in this topic; a name such as `__mine` alone says nothing."""
    return topic in INTERNAL_TOPICS


def uuid_to_text(value: bytes) -> str:
    """The 22-character URL-safe base64 form, without padding, that Kafka prints for a 16-byte id."""
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def uuid_from_text(text: str) -> bytes:
    """The 16 bytes behind Kafka's 22-character form.  ValueError when it is not one."""
    if len(text) > 24:
        raise ValueError(f"{text!r} is too long for a base64 id of 16 bytes")
    if len(text) < 22:
        raise ValueError(f"{text!r} is too short: it has {len(text)} characters, a base64 id of 16 bytes has 22")
    try:
        value = base64.b64decode(text.encode() + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except ValueError as error:
        raise ValueError(f"{text!r} is not URL-safe base64") from error
    if len(value) != 16:
        raise ValueError(f"{text!r} holds {len(value)} bytes, a base64 id has 16")
    return value


def random_uuid() -> bytes:
    """A random (version 4) id.  Like Kafka's, never a reserved one and never starting with '-' in text form."""
    while True:
        raw = bytearray(os.urandom(16))
        raw[6] = (raw[6] & 0x0F) | 0x40
        raw[8] = (raw[8] & 0x3F) | 0x80
        value = bytes(raw)
        if value not in RESERVED_UUIDS and not uuid_to_text(value).startswith("-"):
            return value


LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
"""Times that stand for a place in a log, as in ListOffsets: its end, its beginning, its latest record (KIP-734)."""
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
"""Isolation levels, as Fetch and ListOffsets have them."""
