"""The records of `__consumer_offsets`, byte for byte as Kafka 4.3's coordinator writes them.

    key    int16 record type (0 and 1 offset, 2 group metadata; others are of newer kinds of groups), then its fields
    value  int16 version, then the value's fields; a null value is a tombstone: forget what the key names

Written: OffsetCommitValue v4, which carries the topic's id; v1 for commits with a retention time of their own, which no
later version can hold.  GroupMetadataValue v3.  Read: every version.

An unknown record type or value version is an `UnknownRecordError`, which a load logs and skips: a newer broker may have
written here.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

from kbroker._fast.wire.codec import DecodeError
from kbroker.coordinator.classic.group import Group
from kbroker.coordinator.classic.member import Member
from kbroker.coordinator.classic.messages import MemberProtocol
from kbroker.coordinator.classic.offsets import NO_EXPIRY, CommittedOffset
from kbroker.coordinator.modern.kind_records import UnknownRecordError
from kbroker.schemas import message, program, wire

OFFSET_TYPES = (0, 1)
GROUP_TYPE = 2

_SHORT, _INT, _LONG = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">q")
_OFFSET_KEY_PREFIX = _SHORT.pack(1)
_GROUP_KEY_PREFIX = _SHORT.pack(GROUP_TYPE)
_GROUP_VERSION = 3
_PREFIXES = {version: _SHORT.pack(version) for version in range(8)}


class OffsetRecord(NamedTuple):
    """An offset of a group; `committed` None is a tombstone."""

    group_id: str
    topic: str
    partition: int
    committed: CommittedOffset | None


class GroupRecord(NamedTuple):
    """The metadata of a group; `value` (GroupMetadataValue) None is a tombstone."""

    group_id: str
    value: wire.GroupMetadataValue | None


def offset_key(group_id: str, topic: str, partition: int) -> bytes:
    """The key of an offset."""
    key = wire.OffsetCommitKey(group=group_id, topic=topic, partition=partition)
    return program("OffsetCommitKey").encode(key, _OFFSET_KEY_PREFIX)


def offset_value(committed: CommittedOffset) -> bytes:
    """The value of an offset."""
    value = wire.OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_timestamp,
        expire_timestamp=committed.expire_timestamp,
        topic_id=committed.topic_id,
    )
    version = 4 if committed.expire_timestamp == NO_EXPIRY else 1
    return program("OffsetCommitValue", version).encode(value, _PREFIXES[version])


class OffsetEncoder:
    """The records of many offsets of one group, as `offset_key` and `offset_value` make them.  What consecutive records
    share is encoded once: the key but for the partition, which is its last field, and the value but for the offset,
    its first field after the version, and the time of the commit."""

    __slots__ = (
        "_before_time",
        "_behind_time",
        "_group_id",
        "_key",
        "_pack_key",
        "_pack_value",
        "_shared",
        "_topic",
        "_version",
    )

    def __init__(self, group_id: str) -> None:
        self._group_id = group_id
        self._topic: str | None = None
        self._key = b""
        self._pack_key = _INT.pack
        self._shared: tuple[object, ...] = ()
        self._version = self._before_time = self._behind_time = b""
        self._pack_value = _LONG.pack

    def record(self, topic: str, partition: int, committed: CommittedOffset) -> tuple[bytes, bytes]:
        """The record of a commit."""
        if topic != self._topic:
            self._key = offset_key(self._group_id, topic, 0)[: -_INT.size]
            self._pack_key = struct.Struct(f">{len(self._key)}si").pack
            self._topic = topic
        offset, epoch, metadata, timestamp, expiry, topic_id = committed
        shared = epoch, metadata, expiry, topic_id
        if shared != self._shared:
            self._share(committed)
            self._shared = shared
        value = self._pack_value(self._version, offset, self._before_time, timestamp, self._behind_time)
        return self._pack_key(self._key, partition), value

    def _share(self, committed: CommittedOffset) -> None:
        """Encode what records have besides: where two values differ is the time that they differ in."""
        value = offset_value(committed._replace(commit_timestamp=0))
        other = offset_value(committed._replace(commit_timestamp=-1))
        at = next(index for index, byte in enumerate(value) if byte != other[index])
        self._version, self._before_time = value[: _SHORT.size], value[_SHORT.size + _LONG.size : at]
        self._behind_time = value[at + _LONG.size :]
        sizes = len(self._before_time), len(self._behind_time)
        self._pack_value = struct.Struct(f">{_SHORT.size}sq{sizes[0]}sq{sizes[1]}s").pack


def group_key(group_id: str) -> bytes:
    """The key of a group's metadata."""
    return program("GroupMetadataKey").encode(wire.GroupMetadataKey(group=group_id), _GROUP_KEY_PREFIX)


def group_value(group: Group, assignments: Mapping[str, bytes]) -> bytes:
    """The value of a group's metadata, with these assignments instead of those that its members have."""
    value_class = wire.GroupMetadataValue
    members = [
        value_class.MemberMetadata(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            rebalance_timeout=member.rebalance_timeout_ms,
            session_timeout=member.session_timeout_ms,
            subscription=member.metadata_for(group.protocol_name),
            assignment=assignments.get(member.member_id, b""),
        )
        for member in group.members.values()
    ]
    value = value_class(
        protocol_type=group.protocol_type or "",
        generation=group.generation_id,
        protocol=group.protocol_name,
        leader=group.leader_id,
        current_state_timestamp=-1 if group.state_timestamp is None else group.state_timestamp,
        members=members,
    )
    return program("GroupMetadataValue", _GROUP_VERSION).encode(value, _PREFIXES[_GROUP_VERSION])


def parse_record(key: bytes | None, value: bytes | None) -> OffsetRecord | GroupRecord:
    """The record behind a key and a value.  UnknownRecordError when it cannot be read."""
    if key is None or len(key) < 2:
        raise UnknownRecordError("a record without a key")
    (record_type,) = _SHORT.unpack_from(key)
    try:
        if record_type in OFFSET_TYPES:
            parsed = program("OffsetCommitKey").decode(key, 2)
            return OffsetRecord(parsed.group, parsed.topic, parsed.partition, _parse_offset(value, record_type))
        if record_type == GROUP_TYPE:
            parsed = program("GroupMetadataKey").decode(key, 2)
            return GroupRecord(parsed.group, None if value is None else _parse_value("GroupMetadataValue", value))
    except DecodeError as error:
        raise UnknownRecordError(f"record of type {record_type}: {error}") from error
    raise UnknownRecordError(f"record type {record_type}")


def _parse_value(name: str, value: bytes) -> Any:
    if len(value) < 2:
        raise UnknownRecordError(f"a {name} of {len(value)} bytes")
    (version,) = _SHORT.unpack_from(value)
    value_class = message(name)
    if not value_class.min_version <= version <= value_class.max_version:
        raise UnknownRecordError(f"{name} version {version}")
    return program(name, version).decode(value, 2)


def _parse_offset(value: bytes | None, record_type: int) -> CommittedOffset | None:
    if value is None:
        return None
    parsed = _parse_value("OffsetCommitValue", value)
    return CommittedOffset(
        parsed.offset,
        parsed.leader_epoch,
        parsed.metadata,
        parsed.commit_timestamp,
        parsed.expire_timestamp,
        parsed.topic_id,
    )


def restore_group(group: Group, value: wire.GroupMetadataValue) -> None:
    """Make `group` what a GroupMetadataValue says.  Of its members' protocols only the chosen one was stored."""
    members = [
        Member(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            member.session_timeout if member.rebalance_timeout == -1 else member.rebalance_timeout,
            member.session_timeout,
            value.protocol_type,
            (MemberProtocol(value.protocol or "", member.subscription),),
            member.assignment,
        )
        for member in value.members
    ]
    timestamp = None if value.current_state_timestamp == -1 else value.current_state_timestamp
    group.restore(members, value.generation, value.protocol_type, value.protocol, value.leader, timestamp)
