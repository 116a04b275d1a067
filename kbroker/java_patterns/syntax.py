"""The text of a pattern, read from left to right; quoted parts (`\\Q…\\E`) are resolved first, as Java does."""

from __future__ import annotations


class JavaPatternError(ValueError):
    """A pattern that Java does not compile, or that cannot keep its meaning here; says why."""


class PatternTimeoutError(Exception):
    """Matching was given up: the pattern backtracks for too long over this text."""


class Cursor:
    """A pattern's characters with a place among them.

    `quoted`: the places of characters that stood between `\\Q` and `\\E`, which mean themselves.
    """

    __slots__ = ("at", "quoted", "text")

    def __init__(self, pattern: str) -> None:
        self.text, self.quoted = _without_quoting(pattern)
        self.at = 0

    @property
    def at_end(self) -> bool:
        """Whether no character is left."""
        return self.at >= len(self.text)

    def peek(self, ahead: int = 0) -> str:
        """The character `ahead` of the place; empty behind the end, and for a quoted one (`is_quoted` tells)."""
        at = self.at + ahead
        return "" if at >= len(self.text) or at in self.quoted else self.text[at]

    @property
    def is_quoted(self) -> bool:
        """Whether the next character is quoted, so that it means itself."""
        return self.at in self.quoted

    def take(self) -> str:
        """The next character, quoted or not.  JavaPatternError at the end."""
        if self.at_end:
            raise self.error("the pattern ends too early")
        self.at += 1
        return self.text[self.at - 1]

    def takes(self, wanted: str) -> bool:
        """Whether `wanted` comes next, unquoted; it is read then."""
        if all(self.peek(ahead) == char for ahead, char in enumerate(wanted)):
            self.at += len(wanted)
            return True
        return False

    def until(self, end: str) -> str:
        """What stands before `end`, which is read as well.  JavaPatternError where it does not come."""
        start = self.at
        while not self.takes(end):
            self.take()
        return self.text[start : self.at - len(end)]

    def error(self, why: str) -> JavaPatternError:
        """An error that names the place."""
        return JavaPatternError(f"{why} near index {self.at} of {self.text!r}")


def _without_quoting(pattern: str) -> tuple[str, frozenset[int]]:
    made: list[str] = []
    quoted = set()
    at, in_quote = 0, False
    while at < len(pattern):
        pair = pattern[at : at + 2]
        if in_quote and pair == "\\E":
            at, in_quote = at + 2, False
        elif in_quote:
            quoted.add(len(made))
            made.append(pattern[at])
            at += 1
        elif pair == "\\Q":
            at, in_quote = at + 2, True
        elif pair[0] == "\\":
            made.extend(pair)
            at += len(pair)
        else:
            made.append(pattern[at])
            at += 1
    return "".join(made), frozenset(quoted)
