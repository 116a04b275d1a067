r"""JSON with its characters in the place of their escapes: `"M\u00fcller"` is shown, and found, as `"Müller"`."""

from __future__ import annotations

import re

_ESCAPE = re.compile(r"\\(?:u([dD][89abAB]..)\\u([dD][c-fC-F]..)|u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_BEGINNINGS = ("{", "[", '"')


def without_escapes(text: str) -> str:
    r"""A text that begins as JSON does, with letters and signs for what is escaped.

    What would end a string, break a line, or be seen as nothing stays escaped: `\"`, `\\`, `\n`, half a surrogate pair,
    and what Unicode has no picture for, such as marks that turn the direction of writing.
    """
    if ("\\u" not in text and "\\/" not in text) or not text.lstrip().startswith(_BEGINNINGS):
        return text
    return _ESCAPE.sub(_character, text)


def _character(found: re.Match[str]) -> str:
    high, low, single, sign = found.groups()
    if sign is not None:
        return "/" if sign == "/" else found[0]
    try:
        letter = (
            chr(int(single, 16))
            if single is not None
            else (bytes.fromhex(high) + bytes.fromhex(low)).decode("utf-16-be")
        )
    except ValueError:
        return found[0]
    return letter if letter.isprintable() and letter not in '"\\' else found[0]
