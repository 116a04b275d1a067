"""Expressions over records, such as `value.order.total > 100 and header.kind = "new"`.  Pure, for a thread.

    expression = and-part {"or" and-part}
    and-part   = part {"and" part}
    part       = "not" part | "(" expression ")" | field [operator literal]
    field      = name {"." name | "[" literal "]"}
    name       = "key" | "value" | "header" | "offset" | "partition" | "timestamp" | "size", first in a field
    operator   = "=" | "!=" | "<" | "<=" | ">" | ">=" | "contains" | "starts" | "ends" | "matches"
    literal    = "text" | 'text' | number | true | false | null

A field with a path looks into what a schema decodes, or into JSON; `header` takes a name.  A field alone holds where
there is something but null or false.  What is not there is null; values of different kinds are not equal, and neither
is less.  `matches` is RE2's search.  A time is compared with milliseconds since the epoch, or with a text such as
"2026-11-26T10:00:00Z".

Nothing is executed: an expression is a tree of these few nodes, of bounded size.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from kbroker.patterns import PatternError, compile_pattern

if TYPE_CHECKING:
    from kbroker.console.decoded_record import DecodedRecord
    from kbroker.patterns import Pattern

MOST_DEPTH = 32
FIELDS = ("key", "value", "header", "offset", "partition", "timestamp", "size")
WORDS = ("contains", "starts", "ends", "matches")
_NUMBERS = ("offset", "partition", "timestamp", "size")
_TOKEN = re.compile(
    r"""\s*(?:(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(?P<number>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)"""
    r"""|(?P<sign><=|>=|!=|==|[=<>().\[\]])|(?P<name>[^\W\d][\w-]*))"""
)
_ORDER: Mapping[str, Callable[[int], bool]] = {
    "<": lambda sign: sign < 0,
    "<=": lambda sign: sign <= 0,
    ">": lambda sign: sign > 0,
    ">=": lambda sign: sign >= 0,
}
"""By the sign of how the value compares with the literal."""
_TEXTS: Mapping[str, Callable[[str, str], bool]] = {
    "contains": lambda text, part: part in text,
    "starts": str.startswith,
    "ends": str.endswith,
}


class ExpressionError(ValueError):
    """A text that is no expression; says what is wrong, and where."""


Test = Callable[["DecodedRecord"], bool]


@dataclass(frozen=True, slots=True)
class _Field:
    """A field of a record, and the way into its JSON."""

    name: str
    path: Sequence[str | int]

    def of(self, looked: DecodedRecord) -> object:
        record = looked.record
        match self.name:
            case "offset":
                return record.offset
            case "partition":
                return looked.partition
            case "timestamp":
                return record.timestamp
            case "size":
                return len(record.key or b"") + len(record.value or b"")
            case "header":
                found = [value for name, value in record.headers if name == self.path[0]]
                return None if not found or found[-1] is None else _text(found[-1])
        is_key = self.name == "key"
        if not self.path:
            return looked.whole(is_key=is_key)
        value = looked.json_of(is_key=is_key)
        for step in self.path:
            if isinstance(value, dict) and isinstance(step, str):
                value = value.get(step)
            elif isinstance(value, list) and isinstance(step, int) and -len(value) <= step < len(value):
                value = value[step]
            else:
                return None
        return value


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def parse(text: str) -> Test:
    """Whether a record is meant.  ExpressionError."""
    parser = _Parser(text)
    test = parser.any_of(0)
    parser.end()
    return test


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, str, int]] = []
        self._at = 0
        self._length = len(text)
        position = 0
        while text[position:].strip():
            found = _TOKEN.match(text, position)
            if found is None:
                raise ExpressionError(
                    f"this cannot be read at character {position + 1}: {text[position:].strip()[:20]}"
                )
            kind = found.lastgroup or ""
            self._tokens.append((kind, found.group(kind), found.start(kind) + 1))
            position = found.end()

    # Tokens

    def _peek(self) -> tuple[str, str, int]:
        return self._tokens[self._at] if self._at < len(self._tokens) else ("end", "the end", self._length + 1)

    def _next(self) -> tuple[str, str, int]:
        token = self._peek()
        self._at += 1
        return token

    def _takes(self, *words: str) -> str | None:
        kind, word, _ = self._peek()
        if kind in ("sign", "name") and word in words:
            self._at += 1
            return word
        return None

    def end(self) -> None:
        """ExpressionError where something is left."""
        kind, word, at = self._peek()
        if kind != "end":
            raise ExpressionError(f"{word} is not expected at character {at}")

    # ConsoleParts

    def any_of(self, depth: int) -> Test:
        """ConsoleParts with `or` between them."""
        tests = [self._all_of(depth)]
        while self._takes("or"):
            tests.append(self._all_of(depth))
        return tests[0] if len(tests) == 1 else lambda looked: any(test(looked) for test in tests)

    def _all_of(self, depth: int) -> Test:
        tests = [self._part(depth)]
        while self._takes("and"):
            tests.append(self._part(depth))
        return tests[0] if len(tests) == 1 else lambda looked: all(test(looked) for test in tests)

    def _part(self, depth: int) -> Test:
        if depth > MOST_DEPTH:
            raise ExpressionError(f"more than {MOST_DEPTH} parts lie within each other")
        if self._takes("not"):
            inner = self._part(depth + 1)
            return lambda looked: not inner(looked)
        if self._takes("("):
            inner = self.any_of(depth + 1)
            if not self._takes(")"):
                raise ExpressionError(f") is missing at character {self._peek()[2]}")
            return inner
        return self._comparison()

    def _comparison(self) -> Test:
        field = self._field()
        sign = self._takes("=", "==", "!=", *_ORDER, *WORDS)
        if sign is None:
            return lambda looked: field.of(looked) not in (None, False)
        at = self._peek()[2]
        literal = self._literal()
        if field.name == "timestamp" and isinstance(literal, str):
            literal = _milliseconds(literal, at)
        if sign in ("=", "=="):
            return lambda looked: _equal(field.of(looked), literal)
        if sign == "!=":
            return lambda looked: not _equal(field.of(looked), literal)
        if sign in _ORDER:
            compare = _ORDER[sign]
            return lambda looked: (order := _compared(field.of(looked), literal)) is not None and compare(order)
        if not isinstance(literal, str):
            raise ExpressionError(f"{sign} takes a text in quotes at character {at}")
        return _text_test(sign, field, literal, at)

    def _field(self) -> _Field:
        kind, name, at = self._next()
        if kind != "name" or name not in FIELDS:
            raise ExpressionError(f"{name} is no field at character {at}; there are {', '.join(FIELDS)}")
        path: list[str | int] = []
        while True:
            if self._takes("."):
                kind, step, at = self._next()
                if kind not in ("name", "text"):
                    raise ExpressionError(f"a name is missing at character {at}")
                path.append(_quoted(step) if kind == "text" else step)
            elif self._takes("["):
                step_value = self._literal()
                if isinstance(step_value, bool) or not isinstance(step_value, (str, int)) or not self._takes("]"):
                    raise ExpressionError(f"[ takes a name in quotes or a number, then ], at character {at}")
                path.append(step_value)
            else:
                break
        if name in _NUMBERS and path:
            raise ExpressionError(f"{name} has no parts (character {at})")
        if name == "header" and (len(path) != 1 or not isinstance(path[0], str)):
            raise ExpressionError(f'header takes a name, as header.kind or header["kind"] (character {at})')
        return _Field(name, path)

    def _literal(self) -> object:
        kind, word, at = self._next()
        if kind == "text":
            return _quoted(word)
        if kind == "number":
            try:
                return int(word) if re.fullmatch(r"-?\d+", word) else float(word)
            except ValueError:
                raise ExpressionError(f"{word[:20]}… is too long a number") from None
        if kind == "name" and word in ("true", "false", "null"):
            return {"true": True, "false": False, "null": None}[word]
        raise ExpressionError(f"a value is missing at character {at}: a text in quotes, a number, true, false or null")


def _quoted(token: str) -> str:
    return re.sub(r"\\(.)", r"\1", token[1:-1], flags=re.DOTALL)


def _equal(value: object, literal: object) -> bool:
    if isinstance(value, bool) or isinstance(literal, bool):
        return value is literal
    return value == literal


def _compared(value: object, literal: object) -> int | None:
    """-1, 0 or 1; None for values that have no order."""
    if isinstance(value, bool) or isinstance(literal, bool):
        return None
    if isinstance(value, (int, float)) and isinstance(literal, (int, float)):
        return (value > literal) - (value < literal)
    if isinstance(value, str) and isinstance(literal, str):
        return (value > literal) - (value < literal)
    return None


def _milliseconds(text: str, at: int) -> int:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ExpressionError(f'"{text}" is no time at character {at}, such as "2026-11-26T10:00:00Z"') from None
    if found.tzinfo is None:
        found = found.replace(tzinfo=UTC)
    return int(found.timestamp() * 1000)


def _text_test(sign: str, field: _Field, literal: str, at: int) -> Test:
    if sign == "matches":
        try:
            pattern: Pattern = compile_pattern(f"(?s).*(?:{literal}).*")
        except PatternError as error:
            raise ExpressionError(f"no regular expression at character {at}: {error}") from None
        return lambda looked: isinstance(value := field.of(looked), str) and pattern.fullmatch(value) is not None
    compare = _TEXTS[sign]

    def test(looked: DecodedRecord) -> bool:
        value = field.of(looked)
        if isinstance(value, list) and sign == "contains":
            return literal in value
        return isinstance(value, str) and compare(value, literal)

    return test
