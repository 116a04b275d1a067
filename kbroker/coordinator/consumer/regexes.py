"""Regular expressions that members subscribe by, with the syntax and the guarantees of RE2, as in Kafka.

RE2 never backtracks: matching takes time in proportion to the text, whatever the expression, and what would need too
much memory to compile is refused.  A whole topic name must match.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import re2

from kbroker.coordinator.consumer.records import ResolvedRegex
from kbroker.errors import ErrorCode, KafkaError

_KNOWN = 1024
_MEMORY_BYTES = 1 << 20


def _options() -> Any:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY_BYTES
    return options


_OPTIONS = _options()


@lru_cache(_KNOWN)
def compiled(regex: str) -> Any:
    """The compiled expression.  INVALID_REGULAR_EXPRESSION as a KafkaError."""
    try:
        return re2.compile(regex, _OPTIONS)
    except (re2.error, UnicodeEncodeError) as error:
        reason = error.args[0] if error.args else ""
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise KafkaError.of(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {text}.",
        ) from error


def resolve(
    regexes: Iterable[str], topic_names: Iterable[str], version: int, timestamp_ms: int
) -> Mapping[str, ResolvedRegex]:
    """The topics that each expression matches.  One that cannot be read, of another broker, matches none."""
    names = list(topic_names)
    found: dict[str, ResolvedRegex] = {}
    for regex in regexes:
        try:
            matches = compiled(regex).fullmatch
        except KafkaError:
            found[regex] = ResolvedRegex(frozenset(), version, timestamp_ms)
        else:
            topics = frozenset(name for name in names if matches(name) is not None)
            found[regex] = ResolvedRegex(topics, version, timestamp_ms)
    return found
