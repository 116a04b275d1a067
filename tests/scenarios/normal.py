"""Answers as plain JSON with everything taken out that differs between two runs of the same broker.

Ids are replaced by the order of their first appearance in the scenario (`topic-id-1`, `producer-1`, `member-1`), wall
clock times by `now`, the port and the cluster id by their names.  Fields that a version does not carry are left out.
Arrays of structs are sorted: Kafka answers many of them in hash order.
"""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Sequence
from typing import Any

from kbroker.protocol.schema import Field, MessageSchema, parse_versions
from tests.scenarios.batches import summary
from tests.scenarios.wire import struct_fields

ZERO_UUID = bytes(16)
NEAR_MS = 50 * 86_400_000
MEMBER = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
LONG_NUMBER = re.compile(r"\b\d{13}\b")
# The lowest time minus now, which is how Kafka names an open lower bound.
LONG_AGO = re.compile(r"-92233\d{14}\b")
PRODUCER = re.compile(r"(?i)(producer(?:[ _]?id)?[ =:]+)(\d+)\b")
PRODUCER_FIELDS = frozenset({"producer_id"})

# What tells the structs of an array apart; they are sorted by it.
IDENTITY: tuple[str, ...] = (
    "name",
    "topic",
    "topic_id",
    "group_id",
    "key",
    "resource_type",
    "resource_name",
    "topic_name",
)
IDENTITY += ("partition_index", "partition", "index", "batch_index", "node_id", "broker_id", "member_id")


def _identity(item: dict[str, Any]) -> tuple[str, str]:
    known = [f"{value:09}" if isinstance(value, int) else str(value) for value in map(item.get, IDENTITY)]
    return "|".join(known), json.dumps(item, sort_keys=True)


class Normaliser:
    """The names given so far within one scenario."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._names: dict[tuple[str, Any], str] = {}

    def name(self, kind: str, value: Any) -> str:
        """The stable name of a value of this kind."""
        key = (kind, value)
        if key not in self._names:
            number = sum(1 for known, _ in self._names if known == kind) + 1
            self._names[key] = f"{kind}-{number}"
        return self._names[key]

    def answer(self, message_class: Any, version: int, struct: Any) -> Any:
        """A response as JSON."""
        return self._struct(message_class.schema, message_class.schema.fields, version, struct)

    def _struct(self, schema: MessageSchema, fields: Sequence[Field], version: int, struct: Any) -> dict[str, Any]:
        found = {}
        for field in fields:
            if version in parse_versions(field.versions):
                found[field.name] = self._field(schema, field, version, getattr(struct, field.name))
        return found

    def _field(self, schema: MessageSchema, field: Field, version: int, value: Any) -> Any:
        if value is None:
            return None
        if field.is_struct:
            fields = struct_fields(schema, field)
            if not field.is_array:
                return self._struct(schema, fields, version, value)
            items = [self._struct(schema, fields, version, item) for item in value]
            return sorted(items, key=_identity)
        if field.is_array:
            return [self._scalar(field.name, field.item_type, item) for item in value]
        return self._scalar(field.name, field.type, value)

    def _scalar(self, name: str, kind: str, value: Any) -> Any:
        match kind:
            case "uuid":
                return "zero" if value == ZERO_UUID else self.name("topic-id", bytes(value))
            case "records":
                return [self.plain(batch) for batch in summary(value)]
            case "bytes":
                return bytes(value).hex()
            case "string":
                return self.text(name, value)
        return self._number(name, value)

    def plain(self, values: dict[str, Any]) -> dict[str, Any]:
        """A dictionary of numbers, normalised by their names."""
        return {name: self._number(name, value) for name, value in values.items()}

    def _number(self, name: str, value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, int):
            return value
        if name in PRODUCER_FIELDS and value >= 0:
            return self.name("producer", value)
        if name == "port" and value == self._port:
            return "port"
        if name == "session_id" and value > 0:
            return self.name("session", value)
        return "now" if self._is_now(value) else value

    @staticmethod
    def _is_now(value: int) -> bool:
        return abs(value - time.time() * 1000) < NEAR_MS

    def _producer(self, value: int) -> str:
        return self._names.get(("producer", value), str(value))

    def text(self, name: str, value: str) -> str:
        """A string with the ids in it replaced."""
        if name == "cluster_id":
            return "cluster"
        for (kind, known), alias in list(self._names.items()):
            if kind == "topic-id":
                value = value.replace(base64.urlsafe_b64encode(known).decode().rstrip("="), alias)
        value = PRODUCER.sub(lambda match: match.group(1) + self._producer(int(match.group(2))), value)
        value = MEMBER.sub(lambda match: self.name("member", match.group()), value)
        value = LONG_AGO.sub("long-ago", value)
        return LONG_NUMBER.sub(lambda match: "now" if self._is_now(int(match.group())) else match.group(), value)
