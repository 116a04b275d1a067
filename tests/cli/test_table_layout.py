"""Tables of commands on a terminal: none is wider, and no word is cut that need not be.

Also of `kbroker.cli.output`.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.cli.table_layout import GAP, column_widths, one_below_the_other, wrapped
from tests.cli.terminal import Terminal

texts = st.text(st.sampled_from("ab3 -_./:漢"), max_size=30)


def shown(columns: int, *arguments: str) -> list[str]:
    """What a command prints on a terminal of so many columns."""
    with Terminal(columns, *arguments) as terminal:
        terminal.end()
        return terminal.text.splitlines()


@pytest.mark.parametrize("columns", [40, 80, 120])
@pytest.mark.parametrize("arguments", [("config",), ("config", "--topics"), ("doctor",)], ids=" ".join)
def test_tables_fit_the_terminal(columns: int, arguments: tuple[str, ...]) -> None:
    """The terminal would break each row, and nobody see which cell is whose."""
    lines = shown(columns, *arguments)
    assert len(lines) > 5
    assert max(map(len, lines)) <= columns


def test_words_that_do_not_fit_side_by_side_stand_below_each_other() -> None:
    """A name would be read in pieces of seven letters."""
    lines = shown(80, "config")
    assert any(line.split() == ["NAME", "metrics.listener"] for line in lines)
    assert any(line.split() == ["VALUE", "http://127.0.0.1:9644"] for line in lines)


@given(st.lists(st.lists(texts, min_size=3, max_size=3), max_size=4), st.integers(12, 80))
def test_columns_are_never_wider_than_there_is_room(rows: list[list[str]], room: int) -> None:
    """A row would go on in the next line."""
    headers = ("A", "BB", "CCC")
    widths = column_widths(headers, rows, room)
    if widths is None:
        return
    assert sum(widths) + GAP * 2 <= room
    for row in rows:
        for cell, width in zip(row, widths, strict=True):
            lines = wrapped(cell, width)
            assert "".join(lines).replace(" ", "") == cell.replace(" ", "")


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("the clock follows none", 9, ["the clock", "follows", "none"]),
        ("__consumer_offsets", 12, ["__consumer_", "offsets"]),
        ("PLAINTEXT://127.0.0.1:9092", 26, ["PLAINTEXT://127.0.0.1:9092"]),
        ("2026-11-26 13:37:38.128Z", 16, ["2026-11-26", "13:37:38.128Z"]),
        ("abcdefgh", 3, ["abc", "def", "gh"]),
        ("", 5, [""]),
    ],
)
def test_a_cell_is_broken_where_its_words_end(text: str, width: int, lines: list[str]) -> None:
    """A time or an address would be read as another."""
    assert wrapped(text, width) == lines


def test_a_row_below_each_other_names_each_cell_once() -> None:
    """The lines of a long cell would look like cells without a name."""
    (block,) = one_below_the_other(("NAME", "X"), [["a b", "cccccccccc dddddddddd"]], 20)
    assert block == [("NAME", "a b"), ("X   ", "cccccccccc"), ("    ", "dddddddddd")]
