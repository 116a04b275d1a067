"""A slow decoder, written from Kafka's description of the format and from the tables alone: the codec must agree.

It gives plain dictionaries, holding every field of the message: those that the version lacks with their defaults.
"""

from __future__ import annotations

import struct
from typing import Any

from kbroker.protocol.schema import NATURAL, NATURAL_DEFAULTS, Field, MessageSchema, parse_versions
from tests.protocol.names import is_nullable, is_tagged, nested_fields

FIXED = {
    "int8": ">b",
    "int16": ">h",
    "uint16": ">H",
    "int32": ">i",
    "uint32": ">I",
    "int64": ">q",
    "float64": ">d",
}


class MalformedError(Exception):
    """The bytes are no encoding of the message."""


class Reference:
    """Decodes one message from `payload`."""

    def __init__(self, schema: MessageSchema, version: int, payload: bytes) -> None:
        self.schema = schema
        self.version = version
        self.flexible = schema.is_flexible(version)
        self.rest = payload

    def message(self) -> dict[str, Any]:
        return self.struct(self.schema.fields)

    def take(self, size: int) -> bytes:
        if not 0 <= size <= len(self.rest):
            raise MalformedError(f"{size} bytes of {len(self.rest)}")
        taken, self.rest = self.rest[:size], self.rest[size:]
        return taken

    def uvarint(self) -> int:
        value = shift = 0
        while True:
            (byte,) = self.take(1)
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
            if shift >= 35:
                raise MalformedError("varint")
        if value > 0xFFFFFFFF:
            raise MalformedError("varint")
        return value

    def struct(self, fields: tuple[Field, ...]) -> dict[str, Any]:
        values: dict[str, Any] = {field.name: self.default(field) for field in fields}
        present = [field for field in fields if self.version in parse_versions(field.versions)]
        for field in present:
            if not is_tagged(field, self.version):
                values[field.name] = self.value(field)
        if self.flexible:
            self.tagged({field.tag: field for field in present if is_tagged(field, self.version)}, values)
        return values

    def tagged(self, known: dict[int | None, Field], values: dict[str, Any]) -> None:
        for _ in range(self.uvarint()):
            tag = self.uvarint()
            content = self.take(self.uvarint())
            if tag in known:
                outer, self.rest = self.rest, content
                values[known[tag].name] = self.value(known[tag])
                if self.rest:
                    raise MalformedError("left over in a tagged field")
                self.rest = outer

    def default(self, field: Field) -> Any:
        if field.default is not NATURAL:
            return field.default
        if field.is_array:
            return []
        if field.is_struct:
            return {nested.name: self.default(nested) for nested in nested_fields(self.schema, field)}
        return NATURAL_DEFAULTS[field.type]

    def value(self, field: Field) -> Any:
        nullable = is_nullable(field, self.version)
        if field.is_array:
            count = self.length(field, ">i", nullable)
            # A count beyond the bytes left can only fail, and would take long to.
            if count is not None and count > len(self.rest):
                raise MalformedError("count")
            return None if count is None else [self.item(field) for _ in range(count)]
        if field.is_struct and nullable:
            # In a tagged field a varint says whether it is there, else an int8.
            tagged = is_tagged(field, self.version) and self.flexible
            if self.uvarint() == 0 if tagged else struct.unpack(">b", self.take(1))[0] < 0:
                return None
        return self.item(field, nullable)

    def item(self, field: Field, nullable: bool = False) -> Any:
        kind = field.item_type
        if field.is_struct:
            return self.struct(nested_fields(self.schema, field))
        if kind in FIXED:
            return struct.unpack(FIXED[kind], self.take(struct.calcsize(FIXED[kind])))[0]
        if kind == "bool":
            return self.take(1) != b"\0"
        if kind == "uuid":
            return self.take(16)
        return self.sized(field, kind, nullable)

    def sized(self, field: Field, kind: str, nullable: bool) -> Any:
        size = self.length(field, ">h" if kind == "string" else ">i", nullable)
        if size is None:
            return None
        if kind != "string":
            return self.take(size)
        if size > 0x7FFF:
            raise MalformedError("string too long")
        try:
            return self.take(size).decode()
        except UnicodeDecodeError as error:
            raise MalformedError("UTF-8") from error

    def length(self, field: Field, layout: str, nullable: bool) -> int | None:
        if self.flexible and not field.flexible:
            length = self.uvarint() - 1
            if length >= 2**31:
                length -= 2**32
        else:
            (length,) = struct.unpack(layout, self.take(struct.calcsize(layout)))
        if length < 0 and nullable:
            return None
        if length < 0:
            raise MalformedError("length")
        return int(length)


def as_dict(value: Any) -> Any:
    """A struct of the codec as the reference would give it."""
    names = getattr(type(value), "__slots__", None)
    if names is not None:
        return {name: as_dict(getattr(value, name)) for name in names}
    if isinstance(value, list):
        return [as_dict(item) for item in value]
    return bytes(value) if isinstance(value, memoryview) else value
