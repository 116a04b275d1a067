"""Bytes that Kafka's own generated classes wrote, with Kafka's JSON of the same objects.

`vectors/DumpVectors.java` makes the files: 4.3.1 has every version that it serves, 3.9.1 those that 4.x dropped.
Each line is name, version, bytes in hex, JSON.
"""

from __future__ import annotations

import base64
from typing import Any

import pytest

from kbroker._fast.wire.codec import DecodeError
from kbroker.protocol.schema import Field, MessageSchema
from kbroker.types import uuid_from_text
from tests.protocol.names import all_versions, fields_in, is_tagged, nested_fields, plain
from tests.protocol.vector_files import RELEASES, load


def assert_same(schema: MessageSchema, fields: tuple[Field, ...], version: int, struct: Any, described: Any) -> None:
    """Every field of Kafka's JSON is in the struct with the same value, and none is missing."""
    wanted = {plain(name): value for name, value in described.items()}
    for field in fields_in(fields, version):
        value = getattr(struct, field.name)
        if field.type == "records":
            # Kafka's JSON does not show what records hold; that they come back in the same bytes is tested apart.
            assert (value is None) == (wanted.pop(plain(field.name)) is None), field.name
        elif plain(field.name) in wanted:
            assert_value(schema, field, version, value, wanted.pop(plain(field.name)))
        else:
            assert is_tagged(field, version), f"{field.name} is not in Kafka's JSON"
    assert not wanted


def assert_value(schema: MessageSchema, field: Field, version: int, value: Any, described: Any) -> None:
    if value is None or described is None:
        assert value is None and described is None, field.name
    elif field.is_array:
        assert len(value) == len(described), field.name
        for item, item_described in zip(value, described, strict=True):
            assert_item(schema, field, version, item, item_described)
    else:
        assert_item(schema, field, version, value, described)


def assert_item(schema: MessageSchema, field: Field, version: int, value: Any, described: Any) -> None:
    if field.is_struct:
        assert_same(schema, nested_fields(schema, field), version, value, described)
    elif field.item_type == "uuid":
        assert value == uuid_from_text(described), field.name
    elif field.item_type == "bytes":
        assert value == base64.b64decode(described), field.name
    else:
        assert value == described and type(value) is type(described), field.name


@pytest.mark.parametrize("release", RELEASES)
def test_kafkas_bytes_decode_to_kafkas_values(release: str) -> None:
    """A client's request or Kafka's record would be read with a wrong value."""
    for message_class, version, encoded, described in load(release):
        struct, position = message_class.program(version).decode_from(encoded)
        assert position == len(encoded), (message_class, version)
        try:
            assert_same(message_class.schema, message_class.schema.fields, version, struct, described)
        except AssertionError as error:
            raise AssertionError(f"{message_class.__name__} v{version} {described}: {error}") from error


@pytest.mark.parametrize("release", RELEASES)
def test_encoding_gives_kafkas_bytes(release: str) -> None:
    """A client or Kafka itself could not read what we answer or store."""
    for message_class, version, encoded, _ in load(release):
        program = message_class.program(version)
        assert program.encode(program.decode(encoded)) == encoded, (message_class, version)


@pytest.mark.parametrize("release", RELEASES)
def test_defaults_encode_as_kafkas_defaults(release: str) -> None:
    """A field that a handler leaves alone would go out with another value than Kafka's."""
    seen = set()
    for message_class, version, encoded, _ in load(release):
        if (message_class, version) not in seen:
            seen.add((message_class, version))
            assert message_class.program(version).encode(message_class()) == encoded, (message_class, version)


@pytest.mark.parametrize("release", RELEASES)
def test_truncated_vectors_are_refused(release: str) -> None:
    """A cut request would be taken for a whole one with made-up values."""
    for message_class, version, encoded, _ in load(release):
        program = message_class.program(version)
        for size in {0, 1, len(encoded) // 3, len(encoded) // 2, len(encoded) - 1}:
            if 0 <= size < len(encoded):
                with pytest.raises(DecodeError):
                    program.decode(encoded[:size])


def test_vectors_cover_every_version() -> None:
    """A version without a vector is a version that nobody has compared with Kafka."""
    covered = {
        (message_class.__name__, version) for release in RELEASES for message_class, version, _, _ in load(release)
    }
    missing = {(message_class.__name__, version) for message_class, version in all_versions()} - covered
    # The Streams library, which has this class, is no part of the broker's jars.
    assert {name for name, _ in missing} <= {"SubscriptionInfoData"}
