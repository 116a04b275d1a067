"""The JSON of a body, read in small steps and within bounds.  For a thread.

`json.loads` holds the loop until it is through, which for megabytes of short lists or of escapes takes half a second,
and makes tens of bytes of each.  Here a body is read value by value and, within a text, piece by piece: between any two
steps another thread may go on.
"""

from __future__ import annotations

import re
from json.decoder import JSONDecodeError
from typing import NoReturn

from kbroker.console.parameters import BadParameterError

MOST_VALUES = 250_000
"""Objects, lists, texts, numbers and words; names in objects count, too."""
MOST_DEPTH = 64
_STEP = 1 << 16
_SPACE = re.compile(rf"[ \t\n\r]{{0,{_STEP}}}")
_PIECE = re.compile(rf'[^"\\\x00-\x1f]{{0,{_STEP}}}')
_NUMBER = re.compile(r"-?(?:0|[1-9]\d{0,400})(?:\.\d{1,400})?(?:[eE][-+]?\d{1,4})?", re.ASCII)
_WORDS = {"t": ("true", True), "f": ("false", False), "n": ("null", None)}
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_HEX = re.compile(r"[0-9A-Fa-f]{4}")


def read_body(body: bytes) -> dict[str, object]:
    """The object that a body is.  BadParameterError."""
    try:
        return BodyReader(body.decode()).whole()
    except (JSONDecodeError, UnicodeDecodeError):
        raise BadParameterError("the body must be an object of JSON") from None


class BodyReader:
    """`values` and `steps` count what was done so far; a step goes over at most 64 KiB."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self.values = 0
        self.steps = 0

    def whole(self) -> dict[str, object]:
        """JSONDecodeError, BadParameterError."""
        found = self._value(0)
        if self._next() or not isinstance(found, dict):
            self._fail()
        return found

    def _fail(self) -> NoReturn:
        raise JSONDecodeError("unexpected", self._text, self._at)

    def _next(self) -> str:
        """The next character that is no space; empty at the end."""
        while True:
            self.steps += 1
            found = _SPACE.match(self._text, self._at)
            assert found is not None
            self._at = found.end()
            if found.end() - found.start() < _STEP:
                return self._text[self._at : self._at + 1]

    def _takes(self, sign: str) -> bool:
        if self._next() != sign:
            return False
        self._at += 1
        return True

    def _value(self, depth: int) -> object:
        self.values += 1
        if self.values > MOST_VALUES:
            raise BadParameterError(f"the body has more than {MOST_VALUES} values")
        if depth > MOST_DEPTH:
            raise BadParameterError(f"more than {MOST_DEPTH} lists and objects of the body lie within each other")
        first = self._next()
        if first == "{":
            return self._object(depth)
        if first == "[":
            return self._list(depth)
        if first == '"':
            return self._string()
        if first in _WORDS and first:
            word, value = _WORDS[first]
            if not self._text.startswith(word, self._at):
                self._fail()
            self._at += len(word)
            return value
        return self._number()

    def _object(self, depth: int) -> dict[str, object]:
        self._at += 1
        found: dict[str, object] = {}
        if self._takes("}"):
            return found
        while True:
            if self._next() != '"':
                self._fail()
            self.values += 1
            name = self._string()
            if not self._takes(":"):
                self._fail()
            found[name] = self._value(depth + 1)
            if self._takes("}"):
                return found
            if not self._takes(","):
                self._fail()

    def _list(self, depth: int) -> list[object]:
        self._at += 1
        found: list[object] = []
        if self._takes("]"):
            return found
        while True:
            found.append(self._value(depth + 1))
            if self._takes("]"):
                return found
            if not self._takes(","):
                self._fail()

    def _number(self) -> int | float:
        found = _NUMBER.match(self._text, self._at)
        if found is None:
            self._fail()
        self._at = found.end()
        text = found.group()
        return int(text) if text.lstrip("-").isdigit() else float(text)

    def _string(self) -> str:
        self._at += 1
        pieces: list[str] = []
        has_codes = False
        while True:
            self.steps += 1
            found = _PIECE.match(self._text, self._at)
            assert found is not None
            pieces.append(found.group())
            self._at = found.end()
            if found.end() - found.start() == _STEP:
                continue
            sign = self._text[self._at : self._at + 1]
            self._at += 1
            if sign == '"':
                break
            if sign != "\\":
                self._fail()
            letter = self._text[self._at : self._at + 1]
            self._at += 1
            if letter == "u":
                has_codes = True
                pieces.append(self._code())
            elif letter in _ESCAPES:
                pieces.append(_ESCAPES[letter])
            else:
                self._fail()
        text = "".join(pieces)
        if has_codes:
            try:
                text.encode()
            except UnicodeEncodeError:
                # Half of a surrogate pair is text for JSON, but for nothing that this is going to.
                raise BadParameterError("the body has text that UTF-8 cannot carry") from None
        return text

    def _code(self) -> str:
        """A character behind `\\u`, of two such escapes where it takes a pair."""
        code = self._hex(self._at)
        self._at += 4
        if 0xD800 <= code < 0xDC00 and self._text.startswith("\\u", self._at):
            low = self._hex(self._at + 2)
            if 0xDC00 <= low < 0xE000:
                self._at += 6
                return chr(0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00))
        return chr(code)

    def _hex(self, at: int) -> int:
        found = _HEX.match(self._text, at)
        if found is None:
            self._fail()
        return int(found.group(), 16)
