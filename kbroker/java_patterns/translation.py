"""From Java's syntax to that of the package `regex`.

    alternation := sequence ('|' sequence)*      sequence := (atom quantifier?)*
    atom        := character | escape | class | '.' | anchor | group

Every character becomes an escape or a class of code points, with both cases of a letter within `(?i)`, and every anchor
what Java documents of it, so no flag of `regex` plays a part.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from kbroker.java_patterns.classes import MOST_DEPTH, read_class
from kbroker.java_patterns.code_points import (
    ALL,
    LINE_ENDS,
    VERTICAL,
    WORD,
    complement,
    in_both_cases,
    single,
    written,
)
from kbroker.java_patterns.escapes import escaped_character, named_set
from kbroker.java_patterns.syntax import Cursor, JavaPatternError

_MOST_REPEATED = 2**31 - 1
_LINE_END = written(LINE_ENDS)
_BEFORE_LAST_LINE_END = rf"(?=\r\n\Z|{written(tuple(each for each in LINE_ENDS if each != (10, 10)))}\Z|(?<!\r)\n\Z|\Z)"
_WORD = written(WORD)
_BOUNDARY = rf"(?:(?<={_WORD})(?!{_WORD})|(?<!{_WORD})(?={_WORD}))"
_ANCHORS = {
    "b": _BOUNDARY,
    "B": rf"(?!{_BOUNDARY})",
    "A": r"\A",
    "Z": _BEFORE_LAST_LINE_END,
    "z": r"\Z",
    "R": rf"(?:\r\n|{written(VERTICAL)})",
}
_LINE_START = rf"(?!\Z)(?:\A|(?<={written(tuple(each for each in LINE_ENDS if each != (13, 13)))})|(?<=\r)(?!\n))"
_ANY_LINE_END = rf"(?:(?=(?:(?!\n){_LINE_END})|\Z)|(?<!\r)(?=\n))"
_LOOKS = ("=", "!", "<=", "<!", ">", ":")


@dataclass(frozen=True, slots=True)
class _Flags:
    any_case: bool = False
    multiline: bool = False
    dot_all: bool = False


_OF_LETTER = {"i": "any_case", "m": "multiline", "s": "dot_all"}
_REFUSED = {
    "d": "UNIX_LINES",
    "u": "UNICODE_CASE",
    "x": "COMMENTS",
    "U": "UNICODE_CHARACTER_CLASS",
}


@dataclass(frozen=True, slots=True)
class _Part:
    """A piece of the translation.  `may_be_empty`: it can match nothing; `captures`: a group is in it."""

    text: str
    may_be_empty: bool = False
    captures: bool = False


@dataclass(slots=True)
class Translation:
    """One pattern on its way.  `groups` counts the capturing groups that have begun, `closed` has the finished ones."""

    cursor: Cursor
    groups: int = 0
    names: dict[str, int] = field(default_factory=dict)
    closed: set[int] = field(default_factory=set)

    def read(self) -> str:
        """The whole pattern.  JavaPatternError."""
        made = self._alternation(_Flags(), 0)
        if not self.cursor.at_end:
            raise self.cursor.error("Unmatched closing ')'")
        return made.text

    def _alternation(self, flags: _Flags, depth: int) -> _Part:
        """Up to the end or the closing parenthesis.  Flags that are set on the way hold for the rest of the group."""
        if depth > MOST_DEPTH:
            raise self.cursor.error("the pattern is nested too deeply")
        made: list[str] = []
        before = self.groups
        empty_branch, empty_so_far = False, True
        while not self.cursor.at_end and self.cursor.peek() != ")":
            if self.cursor.takes("|"):
                made.append("|")
                empty_branch, empty_so_far = empty_branch or empty_so_far, True
            elif (changed := self._flags_alone(flags)) is not None:
                flags = changed
            else:
                part = self._quantified(self._atom(flags, depth))
                made.append(part.text)
                empty_so_far = empty_so_far and part.may_be_empty
        return _Part("".join(made), empty_branch or empty_so_far, self.groups > before)

    def _flags_alone(self, flags: _Flags) -> _Flags | None:
        """The flags after `(?i)`; None where no such thing comes."""
        start = self.cursor.at
        if self.cursor.takes("(?") and self.cursor.peek() not in ("", "<", *_LOOKS):
            flags = self._read_flags(flags)
            if self.cursor.takes(")"):
                return flags
        self.cursor.at = start
        return None

    def _read_flags(self, flags: _Flags) -> _Flags:
        value = True
        while (letter := self.cursor.peek()) and letter not in (")", ":"):
            self.cursor.take()
            if letter == "-" and value:
                value = False
            elif letter in _OF_LETTER:
                flags = replace(flags, **{_OF_LETTER[letter]: value})
            elif letter in _REFUSED and value:
                raise self.cursor.error(f"the flag {letter} ({_REFUSED[letter]}) is not known here")
            elif letter not in _REFUSED:
                raise self.cursor.error("Unknown inline modifier")
        return flags

    # Atoms

    def _atom(self, flags: _Flags, depth: int) -> _Part:
        cursor = self.cursor
        if cursor.is_quoted:
            return _character(ord(cursor.take()), flags)
        char = cursor.take()
        if char == "(":
            return self._group(flags, depth)
        if char == "[":
            return _Part(written(read_class(cursor, any_case=flags.any_case)))
        if char == "\\":
            return self._escape(flags)
        if char == ".":
            return _Part(written(ALL if flags.dot_all else complement(LINE_ENDS)))
        if char == "^":
            return _Part(f"(?:{_LINE_START})" if flags.multiline else r"\A", may_be_empty=True)
        if char == "$":
            return _Part(_ANY_LINE_END if flags.multiline else _BEFORE_LAST_LINE_END, may_be_empty=True)
        if char in "*+?":
            raise cursor.error(f"Dangling meta character '{char}'")
        if char == "{":
            raise cursor.error("Illegal repetition")
        return _character(ord(char), flags)

    def _escape(self, flags: _Flags) -> _Part:
        cursor = self.cursor
        letter = cursor.peek()
        if cursor.at_end:
            raise cursor.error("Unexpected internal error: a backslash at the end")
        if letter in _ANCHORS:
            cursor.take()
            return _Part(_ANCHORS[letter], may_be_empty=letter != "R")
        if letter in ("G", "X", "N"):
            raise cursor.error(f"\\{letter} is not known here")
        if letter == "k":
            cursor.take()
            return self._reference(self._named(), flags)
        if letter in tuple("123456789"):
            return self._reference(self._number(), flags)
        found = named_set(cursor, any_case=flags.any_case)
        if found is not None:
            return _Part(written(found))
        return _character(escaped_character(cursor), flags)

    def _named(self) -> int:
        if not self.cursor.takes("<"):
            raise self.cursor.error("\\k is not followed by '<' for named capturing group")
        name = self.cursor.until(">")
        if name not in self.names:
            raise self.cursor.error(f"named capturing group <{name}> does not exist")
        return self.names[name]

    def _number(self) -> int:
        """As many digits as there are groups up to here."""
        number = int(self.cursor.take())
        while self.cursor.peek() in tuple("0123456789") and number * 10 + int(self.cursor.peek()) <= self.groups:
            number = number * 10 + int(self.cursor.take())
        return number

    def _reference(self, number: int, flags: _Flags) -> _Part:
        if number not in self.closed:
            raise self.cursor.error(f"a reference to group {number}, which is not closed before it, is not known here")
        if flags.any_case:
            raise self.cursor.error("a reference to a group without regard to case is not known here")
        return _Part(f"(?:\\{number})", may_be_empty=True)

    def _group(self, flags: _Flags, depth: int) -> _Part:
        cursor = self.cursor
        number = 0
        opening = "("
        if cursor.takes("?"):
            if cursor.peek() == "<" and cursor.peek(1) not in ("=", "!"):
                cursor.take()
                number = self._begin_named()
            else:
                opening, flags = self._opening(flags)
        else:
            number = self._begin()
        before = set(self.closed)
        within = self._alternation(flags, depth + 1)
        if not cursor.takes(")"):
            raise cursor.error("Unclosed group")
        if opening.endswith("!"):
            # What matched within it is not known outside.
            self.closed = before
        if number:
            self.closed.add(number)
        looks = opening not in ("(", "(?:", "(?>")
        return _Part(f"{opening}{within.text})", looks or within.may_be_empty, number > 0 or within.captures)

    def _opening(self, flags: _Flags) -> tuple[str, _Flags]:
        for look in _LOOKS:
            if self.cursor.takes(look):
                return f"(?{look}", flags
        flags = self._read_flags(flags)
        if not self.cursor.takes(":"):
            raise self.cursor.error("Unknown group type")
        return "(?:", flags

    def _begin(self) -> int:
        self.groups += 1
        return self.groups

    def _begin_named(self) -> int:
        name = self.cursor.until(">")
        if not (name.isascii() and name.isalnum() and name[0].isalpha()):
            raise self.cursor.error("capturing group name does not start with a Latin letter or has other characters")
        if name in self.names:
            raise self.cursor.error(f"Named capturing group <{name}> is already defined")
        self.names[name] = number = self._begin()
        return number

    # Quantifiers

    def _quantified(self, atom: _Part) -> _Part:
        cursor = self.cursor
        if cursor.peek() in ("?", "*", "+"):
            how_often = cursor.take()
        elif cursor.peek() == "{":
            how_often = self._counts()
        else:
            return atom
        kind = cursor.take() if cursor.peek() in ("?", "+") else ""
        if cursor.peek() == "{":
            raise cursor.error("a repetition of a repetition is not known here")
        if atom.captures and (kind == "+" or (atom.may_be_empty and how_often != "?")):
            raise cursor.error("what a group has after such a repetition of it is not known here")
        # A possessive repetition of Java's does not go back into what it repeats, either.
        opening = "?>" if kind == "+" else "?:"
        may_be_empty = atom.may_be_empty or how_often in ("?", "*") or how_often.startswith(("{0,", "{0}"))
        return _Part(f"({opening}{atom.text}){how_often}{kind}", may_be_empty, atom.captures)

    def _counts(self) -> str:
        cursor = self.cursor
        cursor.take()
        text = cursor.until("}") if "}" in cursor.text[cursor.at :] else ""
        least, comma, most = text.partition(",")
        for each in (least, most) if most else (least,):
            if not (each.isascii() and each.isdigit()):
                raise cursor.error("Illegal repetition")
            if int(each) > _MOST_REPEATED:
                raise cursor.error("Illegal repetition range")
        if most and int(most) < int(least):
            raise cursor.error("Illegal repetition range")
        return f"{{{int(least)}{comma}{int(most) if most else ''}}}"


def _character(char: int, flags: _Flags) -> _Part:
    return _Part(written(in_both_cases(single(char)) if flags.any_case else single(char)))


def translated(pattern: str) -> tuple[str, int]:
    """The pattern for the package `regex`, and how many capturing groups it has.  JavaPatternError."""
    try:
        translation = Translation(Cursor(pattern))
        return translation.read(), translation.groups
    except RecursionError:
        raise JavaPatternError("the pattern is nested too deeply") from None
