"""The keys of the records of share groups in `__consumer_offsets`: int16 record type, then what it names (see
`group_records`)."""

from __future__ import annotations

import struct
from functools import cache

from kbroker._fast.wire.codec import Program
from kbroker.coordinator.runtime.plan import KeyValue
from kbroker.schemas import message

MEMBER, EPOCH, TARGET_EPOCH, TARGET, CURRENT, STATE_PARTITIONS = 10, 11, 12, 13, 14, 15
TYPES = (MEMBER, EPOCH, TARGET_EPOCH, TARGET, CURRENT, STATE_PARTITIONS)

NAMES = {
    MEMBER: "ShareGroupMemberMetadata",
    EPOCH: "ShareGroupMetadata",
    TARGET_EPOCH: "ShareGroupTargetAssignmentMetadata",
    TARGET: "ShareGroupTargetAssignmentMember",
    CURRENT: "ShareGroupCurrentMemberAssignment",
    STATE_PARTITIONS: "ShareGroupStatePartitionMetadata",
}
RECORD_TYPE = struct.Struct(">h")


@cache
def program(name: str) -> Program:
    """The codec of a key or value."""
    made: Program = message(name).program(0)
    return made


def key_of(record_type: int, group_id: str, member_id: str | None = None) -> bytes:
    """The key of a record about a group, or one of its members."""
    name = f"{NAMES[record_type]}Key"
    fields = {"group_id": group_id} if member_id is None else {"group_id": group_id, "member_id": member_id}
    return program(name).encode(message(name)(**fields), RECORD_TYPE.pack(record_type))


def member_tombstones(group_id: str, member_id: str) -> list[KeyValue]:
    """The records that delete a member."""
    return [(key_of(record_type, group_id, member_id), None) for record_type in (CURRENT, TARGET, MEMBER)]


def group_tombstones(group_id: str) -> list[KeyValue]:
    """The records that delete a group without members."""
    return [(key_of(record_type, group_id), None) for record_type in (STATE_PARTITIONS, TARGET_EPOCH, EPOCH)]
