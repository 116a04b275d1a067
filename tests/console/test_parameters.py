"""What a viewer's query may ask for."""

from __future__ import annotations

import pytest

from kbroker.console.parameters import BadParameterError, Key, Parameters, View, page_of, view_of

KEYS: dict[str, Key[str]] = {"name": str, "length": len}


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("offset=x", "whole number"),
        ("offset=-1", "whole number from 0"),
        ("offset=9223372036854775808", "whole number"),
        ("offset=99999999999999999999999999", "whole number"),
        ("offset=%D9%A3", "whole number"),
        ("", "missing"),
    ],
)
def test_numbers_have_bounds(query: str, words: str) -> None:
    """A query could ask for what no log has, or end in a page of Python."""
    with pytest.raises(BadParameterError, match=words):
        Parameters(query).number("offset")


def test_texts_and_fields_have_bounds() -> None:
    """A query could hold the loop."""
    assert Parameters("name=%3Cb%3E").text("name") == "<b>"
    with pytest.raises(BadParameterError, match="missing"):
        Parameters("").text("name")
    with pytest.raises(BadParameterError, match="1000 characters"):
        Parameters("name=" + "x" * 1001).text("name")
    with pytest.raises(BadParameterError, match="cannot be read"):
        Parameters("&".join(f"a{index}=1" for index in range(50)))
    with pytest.raises(BadParameterError, match="cannot be read"):
        Parameters("name=%ff")
    with pytest.raises(BadParameterError, match="one of a, b"):
        Parameters("kind=c").choice("kind", ("a", "b"))


def test_a_table_is_searched_sorted_and_cut() -> None:
    """A viewer would see other rows than those that were asked for."""
    rows = [f"topic-{index}" for index in range(120)] + ["other"]
    first = page_of(rows, view_of(Parameters("q=TOPIC&sort=-length"), KEYS), KEYS, str)
    assert (first.total, first.matching, first.start, len(first.rows)) == (121, 120, 0, 50)
    assert first.rows[0] == "topic-100" and (first.sort, first.descending) == ("length", True)
    last = page_of(rows, view_of(Parameters("q=topic&start=100&count=200"), KEYS), KEYS, str)
    assert (last.start, len(last.rows)) == (100, 20)
    beyond = page_of(rows, View("other", "name", False, 5000, 50), KEYS, str)
    assert (beyond.start, list(beyond.rows)) == (0, ["other"])
    with pytest.raises(BadParameterError, match="sort must be one of name, length"):
        view_of(Parameters("sort=size"), KEYS)
