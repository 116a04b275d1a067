"""The acknowledgements that a producer may ask for."""

from __future__ import annotations

from kbroker.handlers.records.partition_append import are_valid


def test_acks_are_none_one_or_all() -> None:
    """A producer that asks for two would be answered after one, as Kafka has not done since 0.9."""
    assert [acks for acks in range(-3, 4) if are_valid(acks)] == [-1, 0, 1]
