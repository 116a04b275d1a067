"""Avro, by fastavro.

What a record's bytes say is bounded by their number: a schema by which few bytes would make very many items is refused,
and one that refers to itself is read in Python, which ends deep nesting with an error where C would overflow its stack.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import fastavro
from fastavro import _read_py, _write_py

from kbroker.registry.decoded import Decoded
from kbroker.registry.errors import SchemaError, UndecodableError, UnencodableError
from kbroker.registry.plain import plain

if TYPE_CHECKING:
    from kbroker.registry.client import Schema
    from kbroker.registry.decoded import Decoder

Named = dict[str, dict[str, object]]
Parsed = str | list[object] | dict[str, object]
NOTES = ("__fastavro_parsed__", "__named_schemas")
EMPTY_TYPES = frozenset({"null"})
NAMED_TYPES = ("record", "error", "enum", "fixed")


def avro_encoder(schema: Schema) -> Callable[[object], bytes]:
    """What writes values as `plain` gives them.  SchemaError; UnencodableError of what it gives."""
    parsed, shape = _prepared(schema)
    write = _write_py.schemaless_writer if shape.recursive else fastavro.schemaless_writer

    def encode(value: object) -> bytes:
        out = io.BytesIO()
        try:
            write(out, parsed, _with_bytes(value), strict_allow_default=True)
        except Exception as error:  # The library raises all kinds for values that are not of a schema.
            raise UnencodableError(f"not of this Avro schema: {type(error).__name__}: {error}") from None
        return out.getvalue()

    return encode


def _with_bytes(value: object) -> object:
    """With bytes in the place of `{"base64": …}`.  ValueError."""
    if isinstance(value, list):
        return [_with_bytes(each) for each in value]
    if not isinstance(value, dict):
        return value
    if set(value) == {"base64"} and isinstance(value["base64"], str):
        return base64.b64decode(value["base64"], validate=True)
    return {name: _with_bytes(each) for name, each in value.items()}


def avro_decoder(schema: Schema) -> Decoder:
    """See `decoded.Decoder`.  SchemaError."""
    parsed, shape = _prepared(schema)
    read = _read_py.schemaless_reader if shape.recursive else fastavro.schemaless_reader

    def decode(payload: bytes, _path: bytes | None) -> Decoded:
        source = io.BytesIO(payload)
        try:
            value = plain(read(source, parsed, None))
        except Exception as error:  # The library raises all kinds for bytes that are not Avro.
            raise UndecodableError(f"not Avro of this schema: {type(error).__name__}: {error}") from None
        if left := len(payload) - source.tell():
            raise UndecodableError(f"not Avro of this schema: {left} bytes are left over")
        return Decoded(value)

    return decode


def _prepared(schema: Schema) -> tuple[Parsed, _Shape]:
    named: Named = {}
    try:
        for _, text in schema.references:
            _parse(json.loads(text), named)
        parsed = _parse(json.loads(schema.text), named)
        if schema.references:
            # fastavro reads by a schema that stands alone.
            parsed = _parse(_inlined(parsed, named, set()), {})
        shape = _Shape(named)
        shape.look_at(parsed)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        # fastavro's own errors are ValueErrors; others come of JSON that is no schema.
        raise SchemaError(f"the Avro schema cannot be used: {type(error).__name__}: {error}") from None
    if shape.unbounded:
        raise SchemaError("the Avro schema has an array of items that take no bytes, which nothing bounds")
    return parsed, shape


def _parse(schema: object, named: Named) -> Parsed:
    """Takes notice of the names that it defines.  ValueError."""
    if not isinstance(schema, str | list | dict):
        raise TypeError("a schema is a text, a list or an object")
    parsed: Parsed = fastavro.parse_schema(schema, named_schemas=named)
    return parsed


def _inlined(schema: object, named: Mapping[str, object], there: set[str]) -> object:
    """The schema with the definition of each name in the place where the name comes first."""
    if isinstance(schema, str):
        if schema not in named or schema in there:
            return schema
        return _inlined(named[schema], named, there)
    if isinstance(schema, list):
        return [_inlined(each, named, there) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("type") in NAMED_TYPES:
        there.add(str(schema["name"]))
    nested = {"type", "items", "values", "fields"}
    return {
        name: _inlined(value, named, there) if name in nested else value
        for name, value in schema.items()
        if name not in NOTES
    }


class _Shape:
    """What a schema allows: whether types contain themselves, whether arrays have items without bytes."""

    def __init__(self, named: Mapping[str, object]) -> None:
        self._named = named
        self._within: list[str] = []
        self._sizes: dict[str, bool] = {}
        self.recursive = False
        self.unbounded = False

    def look_at(self, schema: object) -> bool:
        """Whether values of it may take no byte."""
        if isinstance(schema, str):
            if schema in self._within:
                self.recursive = True
                return False  # It takes a byte to choose the end.
            if schema in self._sizes:
                return self._sizes[schema]
            named = self._named.get(schema)
            return schema in EMPTY_TYPES if named is None else self.look_at(named)
        if isinstance(schema, list):
            for each in schema:
                self.look_at(each)
            return False
        if not isinstance(schema, dict):
            return False
        return self._of_type(schema)

    def _of_type(self, schema: dict[str, object]) -> bool:
        match schema.get("type"):
            case "record" | "error":
                return self._of_record(schema)
            case "array":
                self.unbounded |= self.look_at(schema.get("items"))
                return False
            case "map":
                self.look_at(schema.get("values"))
                return False
            case "fixed":
                return schema.get("size") == 0
            case "enum":
                return False
            case other:
                return self.look_at(other)

    def _of_record(self, schema: dict[str, object]) -> bool:
        name, fields = str(schema.get("name")), schema.get("fields")
        if name in self._sizes:
            return self._sizes[name]
        self._within.append(name)
        found = (
            [self.look_at(each.get("type")) for each in fields if isinstance(each, dict)]
            if isinstance(fields, list)
            else []
        )
        self._within.pop()
        self._sizes[name] = all(found)
        return self._sizes[name]
