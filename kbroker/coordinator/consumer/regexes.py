"""Regular expressions that members subscribe by (`kbroker.patterns`).  A whole topic name must match."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kbroker.coordinator.consumer.records import ResolvedRegex
from kbroker.errors import ErrorCode, KafkaError
from kbroker.patterns import Pattern, PatternError, compile_pattern


def compiled(regex: str) -> Pattern:
    """The compiled expression.  INVALID_REGULAR_EXPRESSION as a KafkaError."""
    try:
        return compile_pattern(regex)
    except PatternError as error:
        raise KafkaError.of(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {error}.",
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
