"""Where a serialized record names its schema: Confluent's wire format.

Either in front of the payload, a zero byte and the id as an int32, or in a header of the record, `__key_schema_id` or
`__value_schema_id`, a one byte and the 16 bytes of the schema's GUID.  With Protobuf the path of the message within the
file follows (`message_path`).
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterable
from dataclasses import dataclass

from kbroker.registry.errors import UndecodableError

MAGIC = 0
GUID_MAGIC = 1
PREFIX = struct.Struct(">bi")
GUID_BYTES = 16
MOST_INDEXES = 64
VARINT_BYTES = 5
KEY_HEADER = "__key_schema_id"
VALUE_HEADER = "__value_schema_id"

SchemaName = int | str
"""An id, or a GUID as text."""


@dataclass(frozen=True, slots=True)
class Framed:
    """A payload and the name of its schema.  `path`: what stood behind a GUID, for Protobuf."""

    schema: SchemaName
    payload: bytes
    path: bytes | None = None


def unframe(data: bytes) -> Framed | None:
    """The payload behind an id; None where there is none."""
    if len(data) < PREFIX.size or data[0] != MAGIC:
        return None
    return Framed(PREFIX.unpack_from(data)[1], data[PREFIX.size :])


def framed_by(data: bytes, headers: Iterable[tuple[str, bytes | None]], *, is_key: bool) -> Framed | None:
    """As `unframe`, where a header of the record does not name the schema, which goes first."""
    wanted = KEY_HEADER if is_key else VALUE_HEADER
    for name, value in headers:
        if name == wanted and value is not None and len(value) > GUID_BYTES and value[0] == GUID_MAGIC:
            guid = str(uuid.UUID(bytes=bytes(value[1 : 1 + GUID_BYTES])))
            return Framed(guid, data, bytes(value[1 + GUID_BYTES :]))
    return unframe(data)


def message_path(data: bytes) -> tuple[tuple[int, ...], int]:
    """The indexes that lead to a Protobuf message, outermost first, and where they end.  UndecodableError.

    A varint of how many, and each; one zero stands for the first message.
    """
    count, at = _varint(data, 0)
    if count == 0:
        return (0,), at
    if not 0 < count <= MOST_INDEXES:
        raise UndecodableError(f"{count} message indexes")
    path = []
    for _ in range(count):
        index, at = _varint(data, at)
        path.append(index)
    return tuple(path), at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    raw = shift = 0
    for position in range(at, min(at + VARINT_BYTES, len(data))):
        raw |= (data[position] & 0x7F) << shift
        shift += 7
        if data[position] < 0x80:
            return (raw >> 1) ^ -(raw & 1), position + 1
    raise UndecodableError("the message indexes are cut off")
