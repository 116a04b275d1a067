"""The largest requests that a client may send, of every API that a broker serves: one for each array of its schema.

The array named by a case has `count` items, the arrays around it one each, all others none; what else a field holds is
such that the request is not refused as a whole.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kbroker.handlers.dispatch import broker_rows
from kbroker.handlers.table import Handler
from kbroker.protocol.api import ApiKey
from kbroker.protocol.schema import NATURAL_DEFAULTS, Field, MessageSchema, parse_versions
from kbroker.schemas import request_message
from tests.scenarios.batches import Batch
from tests.scenarios.wire import struct_fields

TOPIC, GROUP, MEMBER, TRANSACTIONAL_ID = "wide", "large", "m", "large-transaction"
Values = dict[str, Any]
Path = tuple[str, ...]


def _id(number: int) -> bytes:
    return struct.pack(">QQ", 1, number)


# What a field holds, by its name, or by API and name; a function gets the number of its item.
VALUES: dict[str, Any] = {
    "group_id": GROUP,
    "member_id": MEMBER,
    "transactional_id": TRANSACTIONAL_ID,
    "v3_and_below_transactional_id": TRANSACTIONAL_ID,
    "acks": -1,
    "timeout_ms": 30_000,
    "max_wait_ms": 0,
    "replica_id": -1,
    "session_epoch": -1,
    "partition_max_bytes": 100,
    "max_bytes": 1 << 20,
    "max_records": 100,
    "batch_size": 100,
    "protocol_type": "consumer",
    "session_timeout_ms": 10_000,
    "rebalance_timeout_ms": 10_000,
    "generation_id": -1,
    "generation_id_or_member_epoch": -1,
    "resource_type": 2,
    "creations.resource_pattern_type": 3,
    "creations.principal": "User:x",
    "creations.operation": 3,
    "creations.permission_type": 3,
    "filters.resource_type_filter": 2,
    "filters.resource_name_filter": lambda number: f"no-{number}",
    "filters.pattern_type_filter": 3,
    "filters.operation": 3,
    "filters.permission_type": 3,
    "num_partitions": 1,
    "replication_factor": 1,
    "count": 3,
    "committed_offset": 1,
    "response_partition_limit": 2000,
    "retention_time_ms": -1,
    "timestamp": -1,
    "path": "/nowhere",
    "records": Batch().encoded(),
    "member_epoch": 0,
    "configs.value": "1",
    "ops.value": 1.0,
    "acknowledge_types": 1,
    "resource_types": lambda number: number % 100,
    "FETCH.rack_id": "",
    "copartition_groups.source_topics": 0,
    "copartition_groups.source_topic_regex": 0,
    "copartition_groups.repartition_source_topics": 0,
    "max_version_level": 1,
    "upgrade_type": 1,
    "match_type": 0,
    "producer_id": 7,
    "v3_and_below_producer_id": 7,
    "producer_epoch": 0,
    "v3_and_below_producer_epoch": 0,
    "name": lambda number: f"no-{number}",
    "topic": lambda number: f"no-{number}",
    "topic_name": lambda number: f"no-{number}",
    "topic_id": _id,
    "feature": lambda number: f"feature-{number}",
    "resource_name": lambda number: f"no-{number}",
    "entity_type": lambda number: f"kind-{number}",
    "partition_index": lambda number: number,
    "partition": lambda number: number,
    "index": lambda number: number,
    "instance_id": None,
    "group_instance_id": None,
    "rack_id": None,
    "validate_only": True,
}


def _number(number: int) -> int:
    return number % 2


def known_names(topic_id: bytes) -> Values:
    """What fields hold where all that is named is there."""
    return {
        **dict.fromkeys(("name", "topic", "topic_name", "topic_names", "resource_name"), TOPIC),
        **dict.fromkeys(("partition", "partition_index", "index", "partitions", "partition_indexes"), _number),
        "topic_id": topic_id,
        "topic_ids": topic_id,
    }


@dataclass(frozen=True, slots=True)
class LargeRequest:
    """A request of one API whose array at `path` is large.  `values` are those of other fields than usual."""

    api_key: ApiKey
    version: int
    path: Path
    values: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.api_key.name} v{self.version} {'.'.join(self.path)}"

    def build(self, count: int) -> Values:
        """The request, to be made of."""
        schema = request_message(self.api_key).schema
        return self._struct(schema, schema.fields, self.path, count, 0, "")

    def _struct(
        self, schema: MessageSchema, fields: Sequence[Field], path: Path, count: int, number: int, within: str
    ) -> Values:
        return {
            each.name: self._value(schema, each, path[1:] if path[:1] == (each.name,) else None, count, number, within)
            for each in fields
            if self.version in parse_versions(each.versions) and each.tagged == "none"
        }

    def _value(
        self, schema: MessageSchema, each: Field, path: Path | None, count: int, number: int, within: str
    ) -> Any:
        if each.is_array:
            if path is None:
                return []
            numbers = range(1 if path else count)
            if each.is_struct:
                nested = struct_fields(schema, each)
                return [self._struct(schema, nested, path, count, inner, each.name) for inner in numbers]
            return [self._scalar(each, inner, within) for inner in numbers]
        if each.is_struct:
            if path is None and each.nullable != "none":
                return None
            return self._struct(schema, struct_fields(schema, each), path or (), count, number, each.name)
        return self._scalar(each, number, within)

    def _scalar(self, each: Field, number: int, within: str) -> Any:
        default: Any = NATURAL_DEFAULTS[each.item_type]
        if each.is_array:
            default = {"string": f"no-{number}", "uuid": _id(number), "bytes": b""}.get(each.item_type, number)
        value = self.values.get(each.name, VALUES.get(each.name, default))
        for longer in (f"{within}.{each.name}", f"{self.api_key.name}.{each.name}"):
            value = VALUES.get(longer, value)
        return value(number) if callable(value) else value


def arrays(schema: MessageSchema, fields: Sequence[Field], version: int) -> Iterator[Path]:
    """The paths of all arrays in a version."""
    for each in fields:
        if version not in parse_versions(each.versions) or each.tagged != "none":
            continue
        if each.is_array:
            yield (each.name,)
        if each.is_struct:
            for path in arrays(schema, struct_fields(schema, each), version):
                yield (each.name, *path)


def large_requests() -> Iterator[LargeRequest]:
    """One for each array, in the newest version that has it."""
    for handler in broker_rows():
        yield from _of(handler)


def _of(handler: Handler) -> Iterator[LargeRequest]:
    api_key = ApiKey(handler.api_key)
    schema = request_message(api_key).schema
    seen: set[Path] = set()
    for version in range(handler.max_version, handler.min_version - 1, -1):
        for path in arrays(schema, schema.fields, version):
            if path not in seen:
                seen.add(path)
                yield LargeRequest(api_key, version, path)
