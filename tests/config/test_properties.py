"""The .properties syntax, held against java.util.Properties' rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.config.properties import PropertiesError, decode_properties, parse_properties


def parse(text: str) -> list[tuple[str, str]]:
    return [(key, value) for _line, key, value in parse_properties(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1", [("a", "1")]),
        ("a : 1", [("a", "1")]),
        ("a 1", [("a", "1")]),
        ("a\t=\t1  ", [("a", "1  ")]),
        ("a = = 1", [("a", "= 1")]),
        ("a==1", [("a", "=1")]),
        ("a", [("a", "")]),
        ("a=", [("a", "")]),
        ("  # no\n! no\n\n   \na=1", [("a", "1")]),
        ("a=1 # yes", [("a", "1 # yes")]),
        ("# no \\\na=1", [("a", "1")]),
        ("a=1,\\\n   2,\\\n\t3", [("a", "1,2,3")]),
        ("a=1\\\\\nb=2", [("a", "1\\"), ("b", "2")]),
        ("a=1\\", [("a", "1")]),
        ("a=1\\\n", [("a", "1")]),
        ("a=\\\n#b", [("a", "#b")]),
        ("a\\ b\\:c\\=d=1", [("a b:c=d", "1")]),
        ("a=\\u0041\\t\\q\\\\", [("a", "A\tq\\")]),
        ("a=\\ud83d\\ude00", [("a", "😀")]),
        ("a=1\r\nb=2\rc=3", [("a", "1"), ("b", "2"), ("c", "3")]),
        ("log.dirs=C\\:/x", [("log.dirs", "C:/x")]),
        ("=1", [("", "1")]),
        ("\\\na=1", [("a", "1")]),
        ("\\\n\na=1", [("a", "1")]),
        ("\\\n#b\na=1", [("a", "1")]),
        ("a=1\n  \\\n  \nb=2", [("a", "1"), ("b", "2")]),
        ("a=1\n\\\n", [("a", "1")]),
    ],
)
def test_lines_are_read_as_java_reads_them(text: str, expected: list[tuple[str, str]]) -> None:
    """A server.properties that works with Kafka would mean something else here."""
    assert parse(text) == expected


def test_a_broken_escape_names_its_line() -> None:
    """The user would have to search the file for what is wrong."""
    with pytest.raises(PropertiesError, match="line 2: "):
        parse("a=1\nb=\\u12x4")


def test_lines_are_counted_from_where_a_property_starts() -> None:
    """Warnings would point at the wrong line."""
    assert [(entry.line, entry.key) for entry in parse_properties("# x\na=1\\\n2\nb=3")] == [(2, "a"), (4, "b")]


def test_files_that_are_not_utf8_are_latin_1() -> None:
    """A file that an older editor wrote for Java would not be readable."""
    assert decode_properties("a=ü".encode("latin-1")) == "a=ü"
    assert decode_properties("\ufeffa=ü".encode()) == "a=ü"


def escape(text: str) -> str:
    return "".join(char if char.isalnum() and char.isascii() else f"\\u{ord(char):04x}" for char in text)


@given(
    st.dictionaries(
        st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]), min_size=1),
        st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"])),
    )
)
def test_escaped_properties_survive(properties: dict[str, str]) -> None:
    """Keys and values with odd characters would not come through."""
    text = "\n".join(f"{escape(key)}={escape(value)}" for key, value in properties.items())
    assert dict(parse(text)) == properties


@given(st.text())
def test_no_text_breaks_the_parser(text: str) -> None:
    """A damaged file would end in a traceback instead of an error."""
    try:
        parse(text)
    except PropertiesError:
        pass
