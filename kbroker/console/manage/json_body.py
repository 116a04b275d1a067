"""The JSON of a body, within bounds.  For a thread.

`json.loads` lets nothing else go on until it is through, which for megabytes of short lists takes half a second, and
makes tens of bytes of each.  So values are counted before; texts may be long, as files are.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NoReturn

from kbroker.console.parameters import BadParameterError

MOST_VALUES = 50_000
"""About so many objects, lists, texts, numbers and words."""
MOST_DEPTH = 100
"""Of lists and objects in each other.  Releases of Python differ in how deep they go."""


def read_body(body: bytes) -> dict[str, object]:
    """The object that a body is.  BadParameterError."""
    if values_of(body) > MOST_VALUES:
        raise BadParameterError(f"the body has more than {MOST_VALUES} values")
    try:
        found = json.loads(body.decode(), parse_constant=_refuse)
        if b"\\ud" in body.lower():
            # Half of a surrogate pair is text for JSON, but for nothing that this is going to.
            json.dumps(found, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise BadParameterError("the body has text that UTF-8 cannot carry") from None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise BadParameterError("the body must be an object of JSON")
    if not _is_flat(found):
        raise BadParameterError(f"the body is nested more than {MOST_DEPTH} deep")
    return found


def values_of(body: bytes) -> int:
    """How many values JSON has at most; it stops to count soon behind MOST_VALUES."""
    without_escapes = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    between_texts = b"".join(without_escapes.split(b'"', 2 * MOST_VALUES)[::2])
    return 1 + sum(between_texts.count(sign) for sign in (b",", b"[", b"{"))


def _is_flat(found: object) -> bool:
    level: list[object] = [found]
    for _ in range(MOST_DEPTH):
        level = [each for outer in level for each in _within(outer) if isinstance(each, (dict, list))]
        if not level:
            return True
    return False


def _within(outer: object) -> Iterable[object]:
    if isinstance(outer, dict):
        return outer.values()
    return outer if isinstance(outer, list) else ()


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON")
