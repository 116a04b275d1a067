"""What stands behind a backslash: one character, or a named set of them."""

from __future__ import annotations

from kbroker.java_patterns.code_points import PREDEFINED, Ranges, complement, of_property
from kbroker.java_patterns.syntax import Cursor

_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_HEXADECIMAL = frozenset("0123456789abcdefABCDEF")
_MOST = 0x10FFFF


def named_set(cursor: Cursor, *, any_case: bool) -> Ranges | None:
    """The set of the escape at the cursor (`d`, `W`, `p{L}` … behind a backslash); None where it is no set."""
    letter = cursor.peek()
    if letter in ("p", "P"):
        cursor.take()
        name = cursor.until("}") if cursor.takes("{") else cursor.take()
        if not name:
            raise cursor.error("Empty character family")
        if name.startswith("^"):
            raise cursor.error("Unknown character property name")
        found = of_property(name, any_case=any_case)
        return complement(found) if letter == "P" else found
    if letter and letter.lower() in PREDEFINED:
        cursor.take()
        found = PREDEFINED[letter.lower()]
        return complement(found) if letter.isupper() else found
    return None


def escaped_character(cursor: Cursor) -> int:
    """The code point of the escape at the cursor, behind its backslash.  JavaPatternError for one that has none."""
    char = cursor.take()
    if char in _CONTROLS:
        return ord(_CONTROLS[char])
    if char == "0":
        return _octal(cursor)
    if char == "x":
        return _hexadecimal(cursor)
    if char == "u":
        return _utf16(cursor)
    if char == "c":
        return ord(cursor.take()) ^ 64
    if char.isascii() and char.isalnum():
        raise cursor.error(f"Illegal/unsupported escape sequence \\{char}")
    return ord(char)


def _octal(cursor: Cursor) -> int:
    """One to three digits, the first of three at most 3."""
    value, digits = 0, 0
    while digits < 3 and cursor.peek() in tuple("01234567") and value * 8 + int(cursor.peek()) <= 0o377:
        value = value * 8 + int(cursor.take())
        digits += 1
    if not digits:
        raise cursor.error("Illegal octal escape sequence")
    return value


def _hexadecimal(cursor: Cursor) -> int:
    if not cursor.takes("{"):
        return _digits(cursor, 2, "Illegal hexadecimal escape sequence")
    text = cursor.until("}")
    if not text or not set(text) <= _HEXADECIMAL or int(text, 16) > _MOST:
        raise cursor.error("Illegal hexadecimal escape sequence")
    return int(text, 16)


def _utf16(cursor: Cursor) -> int:
    """`uXXXX`; two that are a pair of surrogates are one code point."""
    high = _digits(cursor, 4, "Illegal Unicode escape sequence")
    if not 0xD800 <= high < 0xDC00:
        return high
    start = cursor.at
    if cursor.takes("\\u"):
        low = _digits(cursor, 4, "Illegal Unicode escape sequence")
        if 0xDC00 <= low < 0xE000:
            return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00)
    cursor.at = start
    return high


def _digits(cursor: Cursor, count: int, why: str) -> int:
    text = "".join(cursor.peek(ahead) for ahead in range(count))
    if len(text) != count or not set(text) <= _HEXADECIMAL:
        raise cursor.error(why)
    cursor.at += count
    return int(text, 16)
