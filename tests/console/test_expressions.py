"""Expressions over records: what they mean, and what is none."""

from __future__ import annotations

import json

import pytest

from kbroker.console.decoded_record import DecodedRecord
from kbroker.console.expressions import ExpressionError, parse
from kbroker.records.batch import Record

ORDER = {
    "id": 7,
    "total": 12.5,
    "paid": True,
    "who": {"name": "Ann"},
    "lines": [{"sku": "A-1"}, {"sku": "B-2"}],
    "x": None,
}
RECORD = Record(
    41, 1_764_150_000_000, b"order 7", json.dumps(ORDER).encode(), (("kind", b"new"), ("kind", b"old"), ("e", None))
)


@pytest.mark.parametrize(
    "text",
    [
        'key = "order 7"',
        "key starts 'order' and key ends '7'",
        "value.id = 7",
        "value.total > 12 and value.total <= 12.5",
        "value.paid",
        "value.paid = true",
        'value.who.name != "Bob"',
        'value["who"].name = "Ann"',
        'value.lines[1].sku = "B-2"',
        'value.lines[-1].sku matches "^B-[0-9]$"',
        'value contains "A-1"',
        'header.kind = "old"',
        'header["kind"] = "old"',
        "header.e = null",
        "header.none = null",
        "value.x = null and value.none.deeper = null",
        "offset = 41 and partition = 3 and size > 10",
        'timestamp >= "2025-11-26T09:00:00Z" and timestamp < "2026-01-01"',
        "timestamp = 1764150000000",
        "not value.x",
        "not (offset = 1 or offset = 2)",
        "offset = 1 or offset = 41",
        'value.id != "7"',
    ],
)
def test_what_is_said_of_a_record_holds(text: str) -> None:
    """A viewer would not find the records that are there."""
    assert parse(text)(DecodedRecord(RECORD, 3)) is True


@pytest.mark.parametrize(
    "text",
    [
        "value.id = true",
        "value.paid = 1",
        'value.id < "8"',
        "value.none > 0",
        "value.lines[2].sku",
        "value.who[0]",
        'key contains "x" or value.id = 8',
        "offset = 41 and not key",
        'value.id contains "7"',
    ],
)
def test_what_does_not_hold_lets_no_record_through(text: str) -> None:
    """A viewer would take other records for those that were asked for."""
    assert parse(text)(DecodedRecord(RECORD, 3)) is False


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("colour = 1", "colour is no field at character 1"),
        ("value.id =", "a value is missing at character 11"),
        ("value.id = 7 8", "8 is not expected at character 14"),
        ("(offset = 1", ") is missing"),
        ("offset.x = 1", "offset has no parts"),
        ("header = 1", "header takes a name"),
        ("key = ~", "cannot be read at character 6"),
        ('key matches "("', "no regular expression"),
        ("key contains 5", "takes a text in quotes"),
        ('timestamp > "yesterday"', "is no time"),
        ("not " * 100 + "key", "within each other"),
        ("(" * 100 + "key" + ")" * 100, "within each other"),
        ("", "the end is no field"),
        ("offset = " + "9" * 5000, "too long a number"),
    ],
)
def test_what_is_no_expression_says_why(text: str, said: str) -> None:
    """A viewer would not know what is wrong, or an expression would take the thread's stack."""
    with pytest.raises(ExpressionError) as failed:
        parse(text)
    assert said in str(failed.value)


def test_values_that_are_no_json_have_no_parts() -> None:
    """One record of another kind, or one nested without end, would end the look at all others."""
    for value in (None, b"", b"\xff", b"text", b"[" * 100_000, b'"' + b"9" * 10):
        record = Record(0, 0, None, value, ())
        assert parse("value.id = null")(DecodedRecord(record, 0)) is True
    assert parse("key = null")(DecodedRecord(Record(0, 0, None, None, ()), 0)) is True
