"""Regular expressions that clients send, with the syntax and the guarantees of RE2, as in Kafka.

RE2 never backtracks: matching takes time in proportion to the text, for any expression, and what would need too
much memory to compile is refused.  The library is loaded with the first expression: most brokers never meet one.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Protocol, cast

_KNOWN = 1024
_MEMORY_BYTES = 1 << 20


class PatternError(ValueError):
    """An expression that RE2 does not take; says why."""


class Pattern(Protocol):
    """A compiled expression."""

    def fullmatch(self, text: str, /) -> object | None:
        """A match if the whole text is one."""


@lru_cache(_KNOWN)
def compile_pattern(expression: str) -> Pattern:
    """The compiled expression.  PatternError."""
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY_BYTES
    try:
        return cast(Pattern, re2.compile(expression, options))
    except (re2.error, UnicodeEncodeError) as error:
        reason = error.args[0] if error.args else ""
        raise PatternError(reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)) from error
