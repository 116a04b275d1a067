"""What is hidden of records: which fields, from whom, and that no search or filter tells it.

Of `kbroker.console.masking`.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from kbroker.config import BrokerConfig, ConfigError
from kbroker.console.expressions import parse
from kbroker.console.masking import Masks
from kbroker.console.record_filter import RecordFilter
from kbroker.console.record_rows import Wanted, look
from kbroker.records.batch import RecordBatchBuilder
from kbroker.registry.display import Shown

CARD = {"id": 7, "card": {"number": "4111", "name": "Ada"}, "lines": [{"pin": 1}, {"pin": 2, "n": 3}], "pin": None}
RULES = ("orders:value.card.number", "orders:value.lines.pin", "orders:header.token", "secret-*:key", "secret-*:value")


def shown(topic: str, value: bytes | None, chosen: RecordFilter | None = None, display: Any = None) -> list[Any]:
    """The rows of one record that a viewer sees for whom the rules hold."""
    builder = RecordBatchBuilder()
    builder.append(b"the key", value, 0, [("token", b"t0ken"), ("kind", b"new"), ("token", None)])
    mask = Masks(RULES).of(topic)
    wanted = Wanted(topic, 0, 9, 9, False, chosen or RecordFilter(), 4096, None, mask=mask, display=display)
    return list(look(bytes(builder.build()), wanted).rows)


def test_fields_and_headers_are_hidden_and_others_are_not() -> None:
    """A person without the right would read them, or nothing of a record at all."""
    (row,) = shown("orders", json.dumps(CARD).encode())
    assert json.loads(row.value.text) == {
        "id": 7,
        "card": {"number": "***", "name": "Ada"},
        "lines": [{"pin": "***"}, {"pin": "***", "n": 3}],
        "pin": None,
    }
    assert row.key.text == "the key"
    assert [each.value and each.value.text for each in row.headers] == ["***", "new", None]
    (row,) = shown("secret-1", b"x")
    assert (row.key.text, row.value.text) == ("***", "***")
    (row,) = shown("other", b"4111")
    assert row.value.text == "4111" and Masks(RULES).of("other") is None


@pytest.mark.parametrize(
    "value", [b"4111", b"{4111", b"\x00\x00\x00\x00\x014111", b'"4111"', b'{"card": "4111"}', b'{"card": [["4111"]]}']
)
def test_what_cannot_be_opened_is_hidden_as_a_whole(value: bytes) -> None:
    """A record of another shape would show what the rule is about."""
    (row,) = shown("orders", value)
    assert "4111" not in row.value.text and "***" in row.value.text
    assert shown("orders", None)[0].value is None


@pytest.mark.parametrize(
    "chosen",
    [
        RecordFilter("4111"),
        RecordFilter("t0ken"),
        RecordFilter(test=parse('value.card.number = "4111"')),
        RecordFilter(test=parse('value.card.number starts "4"')),
        RecordFilter(test=parse('value contains "4111"')),
        RecordFilter(test=parse('header.token = "t0ken"')),
        RecordFilter(test=parse("value.lines[0].pin = 1")),
    ],
)
def test_no_search_tells_what_is_hidden(chosen: RecordFilter) -> None:
    """A person would find a number digit by digit."""
    assert shown("orders", json.dumps(CARD).encode(), chosen) == []
    assert len(shown("orders", json.dumps(CARD).encode(), RecordFilter("ada"))) == 1


def test_what_a_schema_decodes_is_hidden_as_well() -> None:
    """Avro would show what JSON hides."""

    class Decoding:
        def show(self, topic: str, data: bytes | None, headers: object, *, is_key: bool) -> Shown | None:
            if is_key:
                return None
            return Shown("5", CARD, True, "4111 is no number") if data == b"good" else Shown("5", None, False, "4111")

    (row,) = shown("orders", b"good", display=Decoding())
    assert json.loads(row.value.text)["card"] == {"number": "***", "name": "Ada"}
    (bad,) = shown("orders", b"bad 4111", display=Decoding())
    assert "4111" not in repr(row) and "4111" not in repr(bad) and bad.value.text == "***"


@pytest.mark.parametrize(
    "text", ["orders", "orders:card", ":value", "orders:value..x", "orders:value.", "a b:value", "a*b:value"]
)
def test_a_rule_that_hides_nothing_is_refused_at_the_start(text: str) -> None:
    """A word that is mistyped would show what was to be hidden."""
    with pytest.raises(ConfigError, match=r"kbroker\.console\.masks"):
        BrokerConfig.load(None, [f"kbroker.console.masks={text}"], {})
    with pytest.raises(ValueError, match="is no rule"):
        Masks([text if " " not in text else "orders:card"])
