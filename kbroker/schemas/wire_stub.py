"""Writes `wire.pyi`, the types of all messages, from their tables: `python -m kbroker.schemas.wire_stub`.

A long bytes field of a request may be a view of the buffer that the request came in, which is used like bytes; the
records of a Fetch answer may be a part of a file.  Every field has a default.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from kbroker.protocol.schema import Field, MessageSchema, parse_versions
from kbroker.schemas import families, family_messages

STUB = Path(__file__).with_name("wire.pyi")

_HEAD = """\
# Written by `python -m kbroker.schemas.wire_stub` from the tables of messages.
from kbroker._fast.files.file_region import FileRegion
from kbroker._fast.wire.structs import Struct
from kbroker.protocol.messages import Message
"""

_TYPES = {
    "bool": "bool",
    "float64": "float",
    "uuid": "bytes",
    "string": "str",
    "bytes": "bytes",
    "records": "bytes | memoryview | FileRegion",
}


def stub() -> str:
    """The text of `wire.pyi`."""
    lines = [_HEAD]
    for schema in sorted((schema for family in families() for schema in family_messages(family)), key=lambda s: s.name):
        lines += ["", *_message(schema)]
    return "\n".join(lines) + "\n"


def _message(schema: MessageSchema) -> Iterator[str]:
    yield f"class {schema.name}(Message):"
    for name, fields in _structs(schema):
        yield from (f"    {line}" for line in _struct(schema, f"class {name}(Struct):", fields))
    yield from (f"    {line}" for line in _members(schema, schema.fields))


def _structs(schema: MessageSchema) -> Iterator[tuple[str, tuple[Field, ...]]]:
    """The nested structs of a message, each once, those that others use first."""

    def nested(fields: Iterable[Field]) -> Iterator[tuple[str, tuple[Field, ...]]]:
        for field in fields:
            if field.is_struct and field.fields:
                yield from nested(field.fields)
                yield field.item_type, field.fields

    for shared in schema.structs:
        yield from nested(shared.fields)
        yield shared.name, shared.fields
    yield from nested(schema.fields)


def _struct(schema: MessageSchema, head: str, fields: tuple[Field, ...]) -> Iterator[str]:
    yield head
    yield from (f"    {line}" for line in _members(schema, fields))


def _members(schema: MessageSchema, fields: tuple[Field, ...]) -> Iterator[str]:
    for field in fields:
        yield f"{field.name}: {_type(schema, field)} = ..."
    if not fields:
        yield "..."


def _type(schema: MessageSchema, field: Field) -> str:
    item = f"{schema.name}.{field.item_type}" if field.is_struct else _TYPES.get(field.item_type, "int")
    if field.item_type == "records" and schema.kind == "request":
        item = "memoryview"
    text = f"list[{item}]" if field.is_array else item
    nullable = len(parse_versions(field.nullable)) > 0 or field.default is None or field.type == "records"
    return f"{text} | None" if nullable else text


if __name__ == "__main__":
    STUB.write_text(stub())
