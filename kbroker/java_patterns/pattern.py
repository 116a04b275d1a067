"""A compiled pattern, whose matching takes a bounded time."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

from kbroker.java_patterns.syntax import JavaPatternError, PatternTimeoutError

if TYPE_CHECKING:
    import regex

MOST_SECONDS = 0.1
_KNOWN = 256
T = TypeVar("T")


class JavaPattern:
    """A pattern of Java's; `text` is as it was given.

    Methods raise PatternTimeoutError where matching takes longer than `MOST_SECONDS`."""

    __slots__ = ("_compiled", "groups", "text")

    def __init__(self, text: str, compiled: regex.Pattern[str], groups: int) -> None:
        self.text = text
        self.groups = groups
        self._compiled = compiled

    def fullmatch(self, text: str) -> regex.Match[str] | None:
        """Java's `matches()`: the match of the whole text."""
        return self._bounded(lambda: self._compiled.fullmatch(text, timeout=MOST_SECONDS))

    def search(self, text: str) -> regex.Match[str] | None:
        """Java's `find()`: the first match anywhere in the text."""
        return self._bounded(lambda: self._compiled.search(text, timeout=MOST_SECONDS))

    def sub(self, replaced: Callable[[regex.Match[str]], str], text: str, *, once: bool = False) -> str:
        """Java's `replaceAll()`, or `replaceFirst()`."""
        return self._bounded(lambda: self._compiled.sub(replaced, text, count=int(once), timeout=MOST_SECONDS))

    def _bounded(self, match: Callable[[], T]) -> T:
        try:
            return match()
        except TimeoutError:
            raise PatternTimeoutError(f"the pattern {self.text!r} takes longer than {MOST_SECONDS} s") from None


@lru_cache(_KNOWN)
def compile_java_pattern(text: str) -> JavaPattern:
    """The compiled pattern.  JavaPatternError."""
    # Much code, for brokers whose settings have a pattern.
    import regex

    from kbroker.java_patterns.translation import translated

    translation, groups = translated(text)
    try:
        compiled = regex.compile(translation, regex.VERSION0, cache_pattern=False)
    except (regex.error, OverflowError, MemoryError, RecursionError) as error:
        raise JavaPatternError(f"{text!r}: {error}") from None
    return JavaPattern(text, compiled, groups)
