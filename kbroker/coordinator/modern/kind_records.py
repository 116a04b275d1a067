"""Records of one kind of group in `__consumer_offsets`.

A key is the record's type and version 0 of its fields; a value is version 0; null is a tombstone.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from kbroker._fast.wire.codec import DecodeError
from kbroker.coordinator.runtime.plan import KeyValue
from kbroker.schemas import message

if TYPE_CHECKING:
    from kbroker._fast.wire.codec import Program, Struct

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


@cache
def _program(name: str) -> Program:
    program: Program = message(name).program(0)
    return program


class KindRecords:
    """Writes and reads the records of a kind, whose messages `names` has by record type: `ConsumerGroupMetadata` for
    `ConsumerGroupMetadataKey` and `ConsumerGroupMetadataValue`."""

    def __init__(self, names: Mapping[int, str]) -> None:
        self._names = names
        self._prefixes = {record_type: _SHORT.pack(record_type) for record_type in names}

    def record(self, record_type: int, key: Struct, value: Struct | None) -> KeyValue:
        """The bytes of a record."""
        name = self._names[record_type]
        encoded = None if value is None else _program(f"{name}Value").encode(value, _VALUE_PREFIX)
        return _program(f"{name}Key").encode(key, self._prefixes[record_type]), encoded

    def parse(self, key: bytes, value: bytes | None) -> KindRecord:
        """The record behind a key of one of the kind's types and a value.  UnknownRecordError for others."""
        (record_type,) = _SHORT.unpack_from(key)
        name = self._names[record_type]
        try:
            parsed_key = _program(f"{name}Key").decode(key, _SHORT.size)
            if value is None:
                return KindRecord(record_type, parsed_key, None)
            version = _SHORT.unpack_from(value)[0] if len(value) >= _SHORT.size else None
            if version != VALUE_VERSION:
                raise UnknownRecordError(f"{name}Value version {version}")
            return KindRecord(record_type, parsed_key, _program(f"{name}Value").decode(value, _SHORT.size))
        except DecodeError as error:
            raise UnknownRecordError(f"{name}: {error}") from error
