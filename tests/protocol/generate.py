"""Hypothesis strategies for structs of any message in any version, made from the tables."""

from __future__ import annotations

from functools import cache
from typing import Any

from hypothesis import strategies as st

from kbroker.protocol.schema import Field, MessageSchema
from tests.protocol.names import all_versions, fields_in, is_nullable, nested_fields

PRIMITIVES: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int8": st.integers(-(2**7), 2**7 - 1),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "uint16": st.integers(0, 2**16 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "uint32": st.integers(0, 2**32 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "float64": st.floats(allow_nan=False),
    "uuid": st.binary(min_size=16, max_size=16),
    "string": st.text(st.characters(codec="utf-8"), max_size=8),
    "bytes": st.binary(max_size=8),
    "records": st.binary(max_size=8),
}

VERSIONS = [(message_class, version) for message_class, version in all_versions()]


@cache
def structs(message_class: Any, version: int) -> st.SearchStrategy[Any]:
    """Any value of the message that this version can carry."""
    schema = message_class.schema
    return _struct(schema, message_class, message_class, schema.fields, version)


def _struct(
    schema: MessageSchema, message_class: Any, struct_class: Any, fields: tuple[Field, ...], version: int
) -> st.SearchStrategy[Any]:
    named = {field.name: _value(schema, message_class, field, version) for field in fields_in(fields, version)}
    return st.fixed_dictionaries({}, optional=named).map(lambda values: struct_class(**values))


def _value(schema: MessageSchema, message_class: Any, field: Field, version: int) -> st.SearchStrategy[Any]:
    if field.is_struct:
        nested = nested_fields(schema, field)
        item = _struct(schema, message_class, message_class.structs[field.item_type], nested, version)
    else:
        item = PRIMITIVES[field.item_type]
    if field.is_array:
        item = st.lists(item, max_size=2)
    return st.none() | item if is_nullable(field, version) else item


def any_struct() -> st.SearchStrategy[tuple[Any, int, Any]]:
    """A message class, one of its versions, and a struct."""
    return st.sampled_from(VERSIONS).flatmap(lambda pair: st.tuples(st.just(pair[0]), st.just(pair[1]), structs(*pair)))
