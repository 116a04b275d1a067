"""Records of one kind of group in `__consumer_offsets`.

A key is the record's type and version 0 of its fields; a value is version 0; null is a tombstone.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from kbroker._fast.wire.codec import DecodeError
from kbroker.coordinator.runtime.plan import KeyValue
from kbroker.schemas import message, program

if TYPE_CHECKING:
    from kbroker._fast.wire.codec import Struct

VALUE_VERSION = 0

_SHORT = struct.Struct(">h")
_VALUE_PREFIX = _SHORT.pack(VALUE_VERSION)


class UnknownRecordError(ValueError):
    """A record that this broker does not know how to read."""


class KindRecord(NamedTuple):
    """A record of a group; `value` None is a tombstone."""

    record_type: int
    key: Any
    value: Any | None

    @property
    def group_id(self) -> str:
        """The group that it is about."""
        group_id: str = self.key.group_id
        return group_id


class KindRecords:
    """Writes and reads the records of a kind, whose messages `names` has by record type: `ConsumerGroupMetadata` for
    `ConsumerGroupMetadataKey` and `ConsumerGroupMetadataValue`.

    Every kind has five of them:

        group          the epoch; its tombstone ends the group
        member         what a member says of itself
        target         the epoch of the target assignment, and when it was made
        member_target  a member's target assignment
        current        where a member stands
    """

    def __init__(
        self, names: Mapping[int, str], *, group: int, member: int, target: int, member_target: int, current: int
    ) -> None:
        self.names = names
        self.group = group
        self.member = member
        self.target = target
        self.member_target = member_target
        self.current = current
        self._prefixes = {record_type: _SHORT.pack(record_type) for record_type in names}

    # Writing

    def record(self, record_type: int, value: Struct | None, **key: str) -> KeyValue:
        """The bytes of a record, with the fields of its key; a tombstone without a value."""
        name = self.names[record_type]
        encoded = None if value is None else program(f"{name}Value").encode(value, _VALUE_PREFIX)
        return program(f"{name}Key").encode(message(f"{name}Key")(**key), self._prefixes[record_type]), encoded

    def target_epoch(self, group_id: str, epoch: int, timestamp_ms: int) -> KeyValue:
        """The epoch that the target assignment was made for, and when."""
        value = message(f"{self.names[self.target]}Value")(assignment_epoch=epoch, assignment_timestamp=timestamp_ms)
        return self.record(self.target, value, group_id=group_id)

    def removal(self, group_id: str, member_id: str) -> list[KeyValue]:
        """A member is gone: where it stood, its target and itself."""
        types = (self.current, self.member_target, self.member)
        return [self.record(each, None, group_id=group_id, member_id=member_id) for each in types]

    def removal_of_all(self, group_id: str, member_ids: Iterable[str]) -> list[KeyValue]:
        """All members are gone, and the target assignment with them, in Kafka's order."""
        removals = [self.removal(group_id, member_id) for member_id in member_ids]
        return [
            *(current for current, _, _ in removals),
            *(member_target for _, member_target, _ in removals),
            self.record(self.target, None, group_id=group_id),
            *(member for _, _, member in removals),
        ]

    # Reading

    def parse(self, key: bytes, value: bytes | None) -> KindRecord:
        """The record behind a key of one of the kind's types and a value.  UnknownRecordError for others."""
        (record_type,) = _SHORT.unpack_from(key)
        name = self.names[record_type]
        try:
            parsed_key = program(f"{name}Key").decode(key, _SHORT.size)
            if value is None:
                return KindRecord(record_type, parsed_key, None)
            version = _SHORT.unpack_from(value)[0] if len(value) >= _SHORT.size else None
            if version != VALUE_VERSION:
                raise UnknownRecordError(f"{name}Value version {version}")
            return KindRecord(record_type, parsed_key, program(f"{name}Value").decode(value, _SHORT.size))
        except DecodeError as error:
            raise UnknownRecordError(f"{name}: {error}") from error
