"""What the tests of the codec share: every message in every version, and names as Kafka's Java classes write them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kbroker.protocol.schema import Field, MessageSchema, parse_versions
from kbroker.schemas import families, family_messages, message


def all_schemas() -> list[MessageSchema]:
    return [schema for family in families() for schema in family_messages(family)]


def all_versions() -> Iterator[tuple[Any, int]]:
    """Every message class with each of its versions."""
    for schema in all_schemas():
        for version in range(schema.min_version, schema.max_version + 1):
            yield message(schema.name), version


def plain(name: str) -> str:
    """A field's name without regard to case style: `throttle_time_ms` and `throttleTimeMs` agree."""
    return name.replace("_", "").lower()


def fields_in(fields: tuple[Field, ...], version: int) -> list[Field]:
    return [field for field in fields if version in parse_versions(field.versions)]


def nested_fields(schema: MessageSchema, field: Field) -> tuple[Field, ...]:
    if field.fields:
        return field.fields
    return next(shared.fields for shared in schema.structs if shared.name == field.item_type)


def is_tagged(field: Field, version: int) -> bool:
    return version in parse_versions(field.tagged)


def is_nullable(field: Field, version: int) -> bool:
    return version in parse_versions(field.nullable)
