"""The syntax of Java's .properties files.

A logical line is a natural line plus those that follow an odd number of backslashes at its end, leading blanks of each
continuation dropped; it is nothing where that leaves no character.  Blank lines and lines whose first other character
is `#` or `!` are nothing; a comment never continues.  A key ends at the first unescaped `=`, `:` or blank; blanks
around one separator are dropped.  In keys and values `\\t \\n \\r \\f` and `\\uXXXX` are escapes, and a backslash
before anything else vanishes.

Files are read as UTF-8, and as Latin-1 (Java's choice) when they are not UTF-8.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_BLANKS = " \t\f"
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|u|.|$)", re.DOTALL)
_KEY = re.compile(r"(?:\\.|[^\\=: \t\f])*", re.DOTALL)
_SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class PropertiesError(ValueError):
    """A file that Java would refuse too."""


class Property(NamedTuple):
    """One key and value, and the line on which they start."""

    line: int
    key: str
    value: str


def decode_properties(data: bytes) -> str:
    """The text of a file's bytes."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def parse_properties(text: str) -> Iterator[Property]:
    """Every property in the order of the file; a key may come more than once.  Raises `PropertiesError`."""
    for number, line in _logical_lines(text):
        key = _KEY.match(line)
        assert key is not None
        separator = _SEPARATOR.match(line, key.end())
        assert separator is not None
        yield Property(number, _unescape(key[0], number), _unescape(line[separator.end() :], number))


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    start, parts = 0, list[str]()
    for number, natural in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        line = natural.lstrip(_BLANKS)
        if not any(parts):
            parts = []
            if not line or line[0] in "#!":
                continue
            start = number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            parts.append(line[:-1])
            continue
        parts.append(line)
        yield start, "".join(parts)
        parts = []
    if joined := "".join(parts):
        yield start, joined


def _unescape(text: str, line: int) -> str:
    def replace(match: re.Match[str]) -> str:
        code = match[1]
        if len(code) == 5:
            return chr(int(code[1:], 16))
        if code == "u":
            raise PropertiesError(f"line {line}: \\u must be followed by four hexadecimal digits")
        return _CONTROL.get(code, code)

    if "\\" not in text:
        return text
    # Java builds UTF-16: two escaped surrogates are one character.
    return _ESCAPE.sub(replace, text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
