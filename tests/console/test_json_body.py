"""Bodies of actions as JSON: what `json.loads` makes of them, within bounds.

Also of `kbroker.console.manage.json_body`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.console.manage.json_body import MOST_DEPTH, MOST_VALUES, read_body, values_of
from kbroker.console.parameters import BadParameterError

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


def values(value: object) -> Iterator[object]:
    yield value
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for each in inner:
        yield from values(each)


@given(st.dictionaries(st.text(max_size=9), VALUES, max_size=5), st.booleans(), st.sampled_from([None, 1]))
def test_a_body_is_read_as_json_is(value: object, is_ascii: bool, indent: int | None) -> None:
    """A record would be written with another text or number than was sent, or a small body be taken for a large one."""
    body = json.dumps(value, ensure_ascii=is_ascii, indent=indent).encode()
    assert read_body(body) == json.loads(body)
    count = sum(1 for _ in values(value))
    assert count <= values_of(body) <= 2 * count


@given(st.text(alphabet='{}[]",:\\u01dtrue.-e \n', max_size=30) | st.binary(max_size=20))
def test_what_is_no_object_of_json_is_refused(text: str | bytes) -> None:
    """A body that is nearly JSON would become other fields than were meant, or end in an error of Python."""
    body = text.encode() if isinstance(text, str) else text
    try:
        expected = json.loads(body.decode())
    except (ValueError, RecursionError):
        expected = None
    try:
        found: object = read_body(body)
    except BadParameterError:
        found = None
    assert found == (expected if isinstance(expected, dict) else None)


@pytest.mark.parametrize("body", [b'{"a": NaN}', b'{"a": "\\ud800"}', b'{"a": ' + b"[" * 40_000 + b"]" * 40_000 + b"}"])
def test_what_nothing_can_carry_on_is_refused(body: bytes) -> None:
    """It would end as an error of Python in the midst of an action."""
    with pytest.raises(BadParameterError):
        read_body(body)


def test_a_body_is_nested_as_deep_as_on_any_python() -> None:
    """What one release of Python takes another would fail at, and an action with it."""
    inner: object = []
    for _ in range(MOST_DEPTH - 2):
        inner = [inner]
    assert read_body(json.dumps({"a": inner}).encode()) == {"a": inner}
    with pytest.raises(BadParameterError, match=f"nested more than {MOST_DEPTH} deep"):
        read_body(json.dumps({"a": [inner]}).encode())


@pytest.mark.parametrize("piece", [b"[]", b"{}", b'""', b"1", b'"\\",\\\\"', b"[[[]]]"])
def test_megabytes_of_short_values_are_too_many(piece: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight megabytes of lists held the loop for half a second, and took hundreds of megabytes."""
    monkeypatch.setattr(json, "loads", pytest.fail)
    body = b'{"fields": [' + b",".join([piece] * (8 * (1 << 20) // (len(piece) + 1))) + b"]}"
    with pytest.raises(BadParameterError, match=f"more than {MOST_VALUES} values"):
        read_body(body)


@pytest.mark.parametrize("text", ["x" * (4 << 20), "1,2,[3\n" * 200_000, '\\"{,' * 500_000])
def test_signs_in_a_text_are_no_values(text: str) -> None:
    """A file of lines would be refused for its commas."""
    value = {"fields": {"text": text}}
    assert read_body(json.dumps(value).encode()) == value
