"""Bodies of actions as JSON: what `json.loads` makes of them, in small steps and within bounds.

Also of `kbroker.console.manage.json_body`.
"""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.console.manage import json_body
from kbroker.console.manage.json_body import MOST_VALUES, BodyReader, read_body
from kbroker.console.parameters import BadParameterError

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text(max_size=9), VALUES, max_size=5), st.booleans(), st.sampled_from([None, 1]))
def test_a_body_is_read_as_json_is(value: object, is_ascii: bool, indent: int | None) -> None:
    """A record would be written with another text or number than was sent."""
    body = json.dumps(value, ensure_ascii=is_ascii, indent=indent).encode()
    assert read_body(body) == json.loads(body)


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


@pytest.mark.parametrize("piece", [b"[]", b"{}", b'""', b"1", b"[[[]]]"])
def test_megabytes_of_short_values_end_where_there_are_too_many(piece: bytes) -> None:
    """Eight megabytes of lists held the loop for half a second, and took hundreds of megabytes."""
    body = b'{"fields": [' + b",".join([piece] * (8 * (1 << 20) // (len(piece) + 1))) + b"]}"
    reader = BodyReader(body.decode())
    with pytest.raises(BadParameterError, match="more than 250000 values"):
        reader.whole()
    assert reader.values == MOST_VALUES + 1
    # A few looks at spaces for each value, and none goes further than the next sign.
    assert reader.steps < 8 * MOST_VALUES


@pytest.mark.parametrize("text", ["x" * (4 << 20), "\\n" * 200_000, " " * (4 << 20)])
def test_a_long_text_is_read_in_pieces(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One text of megabytes, or the space between two, would be one step, in which nothing else goes on."""
    longest = [0]

    class Counted:
        def __init__(self, pattern: object) -> None:
            self._pattern = pattern

        def match(self, text: str, at: int) -> object:
            found = self._pattern.match(text, at)  # type: ignore[attr-defined]
            longest[0] = max(longest[0], found.end() - found.start())
            return found

    for name in ("_PIECE", "_SPACE"):
        monkeypatch.setattr(json_body, name, Counted(getattr(json_body, name)))
    body = f'{{"a":{text if text.startswith(" ") else ""} "{text}"}}'
    assert read_body(body.encode()) == json.loads(body)
    assert longest[0] <= 1 << 16


def test_lists_within_each_other_are_bounded() -> None:
    """A body of brackets would take the thread's stack."""
    with pytest.raises(BadParameterError, match="within each other"):
        read_body(b'{"a": ' + b"[" * 100_000)
