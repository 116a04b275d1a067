"""Replacements with references to groups, as rules for principals have them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.java_patterns.pattern import JavaPattern

if TYPE_CHECKING:
    import regex

_DIGITS = tuple("0123456789")


def replaced(pattern: JavaPattern, replacement: str, text: str, *, once: bool = False) -> str:
    """Java's `replaceAll`, or `replaceFirst`: `$2` is a group, of as many digits as there are groups, and a backslash
    makes what follows plain.  A group that is not there is text, as Kafka has it.  PatternTimeoutError."""
    return pattern.sub(lambda match: _expanded(replacement, match, pattern.groups), text, once=once)


def _expanded(replacement: str, match: regex.Match[str], groups: int) -> str:
    made, at = [], 0
    while at < len(replacement):
        char = replacement[at]
        at += 1
        if char == "\\" and at < len(replacement):
            made.append(replacement[at])
            at += 1
        elif char == "$" and at < len(replacement) and replacement[at] in _DIGITS:
            number = int(replacement[at])
            at += 1
            while at < len(replacement) and replacement[at] in _DIGITS:
                further = number * 10 + int(replacement[at])
                if further > groups:
                    break
                number = further
                at += 1
            made.append(match[number] or "" if number <= groups else f"${number}")
        else:
            made.append(char)
    return "".join(made)
