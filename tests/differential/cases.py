"""The requests of one API in one version: sound ones, and each with one thing changed.

A case's values are plain dictionaries and lists, with `Live` ones in them until the request is sent.  Sizes are changed
in the frame itself: a null where none may be, a negative size, one beyond the request's end.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kbroker.protocol.schema import Field, MessageSchema, parse_versions
from kbroker.schemas import message
from tests.differential.places import Start, starts
from tests.differential.values import other_values, sound_value
from tests.scenarios.wire import struct_fields

Values = dict[str, Any]
SIZES = ("null", "size -2", "size beyond the end")
DAMAGES = ("cut in half", "cut by one", "longer", "a byte is 7f", "a byte is 00", "a byte is ff")
# A count of millions of partitions, which Kafka's controller sets out to make.
NEVER_DAMAGED = frozenset({("CreatePartitions", "a byte is 7f")})
PAIRS_OF_CHANGES = 6


@dataclass(frozen=True, slots=True)
class Resized:
    """Where a size is changed: at the first place in which the frames of `empty` and of `one` differ."""

    empty: Values
    one: Values
    is_text: bool
    how: str


@dataclass(frozen=True, slots=True)
class Case:
    """One request, asked at a place that `start` has prepared."""

    name: str
    start: Start
    values: Values
    resized: Resized | None = None
    damage: str = ""


def cases(api: str, version: int) -> list[Case]:
    """All requests of this API and version, each with a name of its own."""
    return list(_cases(api, version))


def _cases(api: str, version: int) -> Iterator[Case]:
    schema = message(f"{api}Request").schema
    for start in starts(api, version):
        tree = _Tree(api, version, schema, start)
        sound = tree.sound(schema.fields, "")
        label = f"{start.name}: " if start.name else ""
        yield Case(f"{label}sound", start, sound)
        yield Case(f"{label}sound again", start, sound)
        changes = list(tree.changes(schema.fields, "", sound))
        for name, values in changes:
            yield Case(f"{label}{name}", start, values)
        if not start.whole:
            continue
        for path, empty, one, is_text in tree.sized(schema.fields, "", sound):
            for how in SIZES:
                yield Case(f"{label}{path}: {how}", start, sound, Resized(empty, one, is_text, how))
        rng = random.Random(f"{api} {version} {start.name}")
        for number in range(PAIRS_OF_CHANGES if changes else 0):
            name, values = rng.choice(changes)
            again = list(tree.changes(schema.fields, "", values))
            if not again:
                continue  # The first has left nothing to change.
            second, values = rng.choice(again)
            yield Case(f"{label}two #{number}: {name}, {second}", start, values)
        for damage in DAMAGES:
            if (api, damage) in NEVER_DAMAGED:
                continue
            yield Case(f"{label}{damage}", start, sound, damage=damage)


class _Tree:
    """Walks the fields of one request."""

    def __init__(self, api: str, version: int, schema: MessageSchema, start: Start) -> None:
        self._api = api
        self._version = version
        self._schema = schema
        self._start = start

    def sound(self, fields: Sequence[Field], within: str) -> Values:
        """What a client would send."""
        return {
            field.name: self._sound_field(field, within)
            for field in fields
            if self._version in parse_versions(field.versions) and field.tagged == "none"
        }

    def _sound_field(self, field: Field, within: str) -> Any:
        if field.name in self._start.values:
            return self._start.values[field.name]
        if field.is_struct or field.is_array:
            value = sound_value(self._api, self._version, field, within)
            if value is None or value == []:
                return value
            if field.is_struct:
                made = self.sound(struct_fields(self._schema, field), field.name)
                return [made] if field.is_array else made
            return [value]
        return sound_value(self._api, self._version, field, within)

    def changes(self, fields: Sequence[Field], within: str, sound: Mapping[str, Any]) -> Iterator[tuple[str, Values]]:
        """The request with one field changed, in each way."""
        for field in fields:
            if field.name not in sound:
                continue
            value = sound[field.name]
            for shown, other in self._others(field, within, value):
                yield f"{field.name}={shown}", {**sound, field.name: other}
            if field.is_struct and value:
                inner = value[0] if field.is_array else value
                nested = struct_fields(self._schema, field)
                for path, made in self.changes(nested, field.name, inner):
                    yield f"{field.name}/{path}", {**sound, field.name: [made] if field.is_array else made}

    def _others(self, field: Field, within: str, value: Any) -> Iterator[tuple[str, Any]]:
        if field.is_array:
            if value is not None and self._version in parse_versions(field.nullable):
                yield "null", None
            if value or value is None:
                yield "[]", []
            if value:
                yield "twice", value * 2
            if not field.is_struct:
                for other in other_values(self._api, self._version, field, within, value[0] if value else None):
                    if other is None:
                        continue
                    yield f"[{_shown(other)}]", [other]
            elif not value:
                made = self.sound(struct_fields(self._schema, field), field.name)
                yield "one", [made]
                for path, changed in self.changes(struct_fields(self._schema, field), field.name, made):
                    yield f"one/{path}", [changed]
        elif field.is_struct:
            if value is None:
                yield "one", self.sound(struct_fields(self._schema, field), field.name)
            elif self._version in parse_versions(field.nullable):
                yield "null", None
        else:
            for number, other in enumerate(other_values(self._api, self._version, field, within, value)):
                text = f"#{number}" if field.item_type == "records" else ""
                yield _shown(other) + text, other

    def sized(
        self, fields: Sequence[Field], within: str, sound: Mapping[str, Any]
    ) -> Iterator[tuple[str, Values, Values, bool]]:
        """The request with each field that has a size empty, and with one byte or item."""
        for field in fields:
            if field.name not in sound:
                continue
            value = sound[field.name]
            if field.is_array or field.item_type in ("string", "bytes", "records"):
                if field.is_array:
                    empty, one = [], [self._item(field, within)]
                else:
                    empty, one = ("", "x") if field.item_type == "string" else (b"", b"x")
                is_text = field.item_type == "string" and not field.is_array
                yield field.name, {**sound, field.name: empty}, {**sound, field.name: one}, is_text
            if field.is_struct and value:
                nested = struct_fields(self._schema, field)
                inner = value[0] if field.is_array else value
                for path, less, more, is_text in self.sized(nested, field.name, inner):
                    both = [{**sound, field.name: [made] if field.is_array else made} for made in (less, more)]
                    yield f"{field.name}/{path}", both[0], both[1], is_text

    def _item(self, field: Field, within: str) -> Any:
        if field.is_struct:
            return self.sound(struct_fields(self._schema, field), field.name)
        value = sound_value(self._api, self._version, field, within)
        if value == [] or value is None:
            value = "x" if field.item_type == "string" else 0
        return value


def resized_frame(frames: tuple[bytes, bytes], resized: Resized, flexible: bool) -> bytes:
    """The frame of the empty field with its size changed."""
    empty, one = frames
    # The frame's own length, 4 bytes, differs, too.
    at = next(at for at in range(4, len(empty)) if empty[at] != one[at])
    width = 1 if flexible else 2 if resized.is_text else 4
    number = {"null": -1, "size -2": -2, "size beyond the end": 2 ** (8 * min(width, 4) - 1) - 1}[resized.how]
    if flexible:
        size = {"null": b"\0", "size -2": b"\xff\xff\xff\xff\x0f", "size beyond the end": b"\xff\x7f"}[resized.how]
    else:
        size = number.to_bytes(width, "big", signed=True)
    body = empty[4 : at - width + 1] + size + empty[at + 1 :]
    return len(body).to_bytes(4, "big") + body


def damaged_frame(frame: bytes, header: int, damage: str, seed: str) -> bytes:
    """The frame with its body changed; `header` counts the bytes before the body."""
    body = frame[header:]
    at = random.Random(f"{seed} {damage}").randrange(len(body)) if body else 0
    match damage:
        case "cut in half":
            body = body[: len(body) // 2]
        case "cut by one":
            body = body[:-1]
        case "longer":
            body += bytes(5)
        case _:
            body = body[:at] + bytes.fromhex(damage[-2:]) + body[at + 1 :]
    rest = frame[4:header] + body
    return len(rest).to_bytes(4, "big") + rest


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 40 else f"{text[:20]}… of {len(value)}"
