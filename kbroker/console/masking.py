"""Fields of records that are hidden from viewers without a right: `kbroker.console.masks`.

    orders:value.card.number     `number` of `card` in each value of the topic `orders`, of each item of lists, too
    app-*:header.token           a header of all topics whose names begin so
    people:key                   the whole key

A value that its schema or JSON does not open is hidden as a whole, as the field may be anywhere in it; so is one of
more than `MOST_JSON_BYTES`.  What is hidden is hidden from searches, filters and files as well: they see what is shown.

The right is ALTER on the topic.  A viewer who has proved nothing has no rights here, and sees what rules leave.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kbroker.records.batch import Record
    from kbroker.registry.display import Shown

    Decode = Callable[[Record, bool], Shown | None]

MASK = "***"
MOST_JSON_BYTES = 1 << 20
"""As `decoded_record` has it: what is larger is not read as JSON."""
KEY, VALUE, HEADER = "key", "value", "header"


@dataclass(frozen=True, slots=True)
class Rule:
    """Of topics with this name, or, where it ends in `*`, of those that begin so; `path` is empty for the whole."""

    topic: str
    part: str
    path: tuple[str, ...]

    def is_for(self, topic: str) -> bool:
        """Whether it holds for that topic."""
        return topic.startswith(self.topic[:-1]) if self.topic.endswith("*") else topic == self.topic


@dataclass(frozen=True, slots=True)
class Mask:
    """The rules for one topic."""

    keys: Sequence[tuple[str, ...]]
    values: Sequence[tuple[str, ...]]
    headers: frozenset[str]

    def record(self, record: Record) -> Record:
        """With what is hidden in the place of its bytes."""
        headers = tuple(
            (name, MASK.encode() if value is not None and self._hides(name) else value)
            for name, value in record.headers
        )
        return record._replace(
            key=_hidden(record.key, self.keys), value=_hidden(record.value, self.values), headers=headers
        )

    def decode(self, decode: Decode | None, original: Record) -> Decode | None:
        """What decodes the bytes that came, and hides fields of what they say."""
        if decode is None:
            return None

        def hiding(_: Record, is_key: bool) -> Shown | None:
            shown = decode(original, is_key)
            paths = self.keys if is_key else self.values
            if shown is None or not paths:
                return shown
            if not shown.is_decoded:
                return replace(shown, problem="It is masked, and was not decoded.")
            # What it breaks of its schema may quote it.
            return replace(shown, value=_masked(shown.value, paths), problem="It is masked." if shown.problem else "")

        return hiding

    def _hides(self, header: str) -> bool:
        return header in self.headers or "" in self.headers


class Masks:
    """All rules.  ValueError."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._rules = [_rule(text) for text in texts]

    def of(self, topic: str) -> Mask | None:
        """What is hidden in a topic; None where nothing is."""
        rules = [rule for rule in self._rules if rule.is_for(topic)]
        if not rules:
            return None
        return Mask(
            [rule.path for rule in rules if rule.part == KEY],
            [rule.path for rule in rules if rule.part == VALUE],
            frozenset(".".join(rule.path) for rule in rules if rule.part == HEADER),
        )


def _rule(text: str) -> Rule:
    topic, colon, field = text.rpartition(":")
    part, *path = field.split(".")
    if not colon or not topic or "*" in topic[:-1] or part not in (KEY, VALUE, HEADER) or not all(path):
        raise ValueError(f"{text} is no rule: topic:value.field, topic:key or topic:header.name")
    return Rule(topic, part, tuple(path))


def _hidden(data: bytes | None, paths: Sequence[tuple[str, ...]]) -> bytes | None:
    if data is None or not paths:
        return data
    if () not in paths and len(data) <= MOST_JSON_BYTES:
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, (dict, list)):
            return json.dumps(_masked(value, paths), ensure_ascii=False).encode("utf-8", "surrogatepass")
    return MASK.encode()


def _masked(value: object, paths: Sequence[tuple[str, ...]]) -> object:
    for path in paths:
        value = _without(value, path)
    return value


def _without(value: object, path: tuple[str, ...]) -> object:
    if not path:
        return value if value is None else MASK
    if isinstance(value, list):
        return [_without(each, path) for each in value]
    if not isinstance(value, dict):
        # No field is there to be hidden: what stands in its place may be what the rule means.
        return value if value is None else MASK
    return {name: _without(each, path[1:]) if name == path[0] else each for name, each in value.items()}
