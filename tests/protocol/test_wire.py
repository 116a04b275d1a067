"""The classes of messages by name, and what type checkers are told of them."""

from __future__ import annotations

import pytest

from kbroker.schemas import families, family_messages, message, wire
from kbroker.schemas.wire_stub import STUB, stub


def test_the_types_of_messages_are_those_of_their_tables() -> None:
    """Fields that a message does not have would pass; `python -m kbroker.schemas.wire_stub` writes them anew."""
    assert STUB.read_text() == stub()


def test_every_message_is_found_by_its_name() -> None:
    """A handler would end in an AttributeError."""
    for family in families():
        for schema in family_messages(family):
            assert getattr(wire, schema.name) is message(schema.name)


def test_a_name_that_kafka_does_not_have_is_refused() -> None:
    """A misspelt name would be taken for a message."""
    with pytest.raises(AttributeError, match="no message ProduceAnswer"):
        _ = wire.ProduceAnswer  # type: ignore[attr-defined]
