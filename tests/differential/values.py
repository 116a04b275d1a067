"""Requests of any API in any version, made from the schema tables and a seed.

A field's name says what it may hold: topics that exist and that do not, partitions in and out of range, and so on; any
other field holds a value at the bounds of its type.  What would take a broker out of the comparison is left out: waits
of seconds, thousands of partitions, changes to settings of the broker itself.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from kbroker.protocol.schema import Field, MessageSchema, parse_versions
from tests.protocol.names import is_nullable
from tests.scenarios.batches import T0, Batch
from tests.scenarios.wire import struct_fields

INT16_MAX, INT32_MAX, INT64_MAX = 2**15 - 1, 2**31 - 1, 2**63 - 1
BOUNDS: dict[str, tuple[Any, ...]] = {
    "bool": (False, True),
    "int8": (0, 1, 2, 3, -1, 127, -128),
    "int16": (0, 1, -1, INT16_MAX, -INT16_MAX - 1),
    "uint16": (0, 1, 65535),
    "int32": (0, 1, 2, -1, -2, INT32_MAX, -INT32_MAX - 1),
    "uint32": (0, 1, 2**32 - 1),
    "int64": (0, 1, 3, -1, -2, INT64_MAX, -INT64_MAX - 1),
    "float64": (0.0, 1.0, -1.0, 1e9),
    "string": ("", "a", "some-name", "näme", "x" * 300),
    "bytes": (b"", b"a", bytes(40)),
}


class Values:
    """Makes the requests of one API in one version.

    `topics` exist, with two partitions of five records each; `topic_ids` are theirs; `groups` exist, too.
    """

    def __init__(
        self, rng: random.Random, topics: Sequence[str], topic_ids: Sequence[bytes], groups: Sequence[str]
    ) -> None:
        self._rng = rng
        self._topics = topics
        missing = f"{topics[0]}-missing"
        topic = (*topics, *topics, *topics, missing, "", ".", "bad/name", "x" * 250)
        group = (*groups, *groups, f"{groups[0]}-missing", "")
        partition = (0, 0, 0, 1, 1, 2, -1, INT32_MAX)
        offset = (0, 2, 5, 5, 6, -1, -2, INT64_MAX)
        timeout = (2000, 5000)
        self._pools: dict[str, tuple[Any, ...]] = {
            "topic": topic,
            "topic_name": topic,
            "topic_names": topic,
            "topic_id": (*topic_ids, *topic_ids, bytes(16), bytes(range(16))),
            "group_id": group,
            "groups": group,
            "groups_names": group,
            "group_ids": group,
            "key": group,
            "coordinator_keys": group,
            "partition": partition,
            "partition_index": partition,
            "partition_indexes": partition,
            "partitions": partition,
            "index": partition,
            "fetch_offset": offset,
            "committed_offset": offset,
            "offset": offset,
            "start_offset": offset,
            "timestamp": (-1, -2, -3, -4, -5, -6, -7, 0, T0, T0 + 2, T0 + 1_000_000, INT64_MAX),
            "current_leader_epoch": (-1, -1, -1, 0, 7),
            "leader_epoch": (0, 0, 1, -1, 7),
            "committed_leader_epoch": (-1, 0),
            "last_fetched_epoch": (-1, -1, 0, 7),
            "max_wait_ms": (0, 10),
            "timeout_ms": timeout,
            "timeout": timeout,
            "session_timeout_ms": (6000, 10_000, 1, INT32_MAX),
            "rebalance_timeout_ms": (500, 1000),
            "transaction_timeout_ms": (60_000, 0, -1, INT32_MAX),
            "num_partitions": (1, 2, 0, -1, -2),
            "count": (2, 3, 4, 1, 0, -1),
            "replication_factor": (1, 1, 1, -1, 0, 2, -2),
            "replica_id": (-1, -1, -1, -2),
            "max_bytes": (0, 1, 1 << 20, INT32_MAX),
            "partition_max_bytes": (0, 1, 1 << 20, INT32_MAX),
            "acks": (-1, 1, -1, 1, 2, -2),
            "broker_ids": (1, 0, -1),
            "replicas": (1, 1, 2, -1),
            "brokers": (1, 2),
            "isolation_level": (0, 1),
            "resource_type": (2, 2, 2, 0, 1, 3, 99, -1),
            "config_operation": (0, 1, 2, 3, 4, -1),
            "key_type": (0, 0, 0, 1, 2, 3, 99),
            "protocol_type": ("consumer", "consumer", "", "connect"),
            "client_software_name": ("apache-kafka-java", "bad name", ""),
            "transactional_id": (None,),
            "states_filter": ("Stable", "Empty", "stable", "NoSuchState", ""),
            "types_filter": ("classic", "consumer", "Classic", "nonsense"),
            "session_id": (0, 0, 0, 4711),
            "session_epoch": (-1, -1, 0, 3),
        }
        self._config_names = ("retention.ms", "cleanup.policy", "max.message.bytes", "no.such.setting", "")
        self._config_values = ("1000", "compact", "delete", "-1", "nonsense", "", None)

    def request(self, message_class: Any, version: int) -> Any:
        """A request; about one field in six is null where that may be, or at its default."""
        schema = message_class.schema
        return self._fill(schema, message_class, message_class, schema.fields, version, "")

    def _fill(
        self, schema: MessageSchema, owner: Any, struct_class: Any, fields: Sequence[Field], version: int, within: str
    ) -> Any:
        made = struct_class()
        for field in fields:
            if version in parse_versions(field.versions):
                setattr(made, field.name, self._field(schema, owner, field, version, within))
        return made

    def _field(self, schema: MessageSchema, owner: Any, field: Field, version: int, within: str) -> Any:
        if is_nullable(field, version) and field.item_type != "records" and self._rng.random() < 1 / 6:
            return None
        if not field.is_array:
            return self._one(schema, owner, field, version, within)
        # Kafka merges or leaves out what is named twice, and rows without content: a matter of its collections.
        count = self._rng.choice((1, 1, 2) if within else (1, 1, 1, 2, 0))
        items = [self._one(schema, owner, field, version, within) for _ in range(count)]
        return list({_identity(item): item for item in items}.values())

    def _one(self, schema: MessageSchema, owner: Any, field: Field, version: int, within: str) -> Any:
        if field.is_struct:
            struct_class = getattr(owner, field.item_type)
            return self._fill(schema, owner, struct_class, struct_fields(schema, field), version, field.name)
        if field.item_type == "records":
            return self._records()
        pool = self._pool(field, within)
        value = self._rng.choice(pool)
        return value if value is not None or is_nullable(field, version) else ""

    def _pool(self, field: Field, within: str) -> Sequence[Any]:
        if field.name == "name" and "config" in within:
            return self._config_names
        if field.name == "value" and field.item_type == "string":
            return self._config_values
        if field.name == "resource_name":
            return (*self._topics, f"{self._topics[0]}-missing", "", "1")
        if field.name == "name" and "topic" in within:
            return self._pools["topic"]
        if field.item_type == "uuid":
            return self._pools["topic_id"]
        pool = self._pools.get(field.name)
        if pool is not None and _holds(field.item_type, pool[0]):
            return pool
        return BOUNDS[field.item_type]

    def _records(self) -> bytes:
        batch = Batch([(b"k", b"v")]).encoded()
        # Kafka does not answer a Produce without records.
        choice = self._rng.randrange(6)
        if choice == 1:
            return b""
        if choice == 2:
            broken = bytearray(batch)
            broken[-1] ^= 1
            return bytes(broken)
        return bytes(batch)


def _identity(item: Any) -> Any:
    """What two items of a list must not have in common."""
    for name in ("topic_id", "name", "topic", "topic_name", "group_id", "transactional_id", "resource_name"):
        value = getattr(item, name, None)
        if value is not None and value != bytes(16):
            return value
    for name in ("partition_index", "partition", "index"):
        value = getattr(item, name, None)
        if value is not None:
            return value
    return item if isinstance(item, int | str | bytes) else id(item)


def _holds(kind: str, value: Any) -> bool:
    if kind == "string":
        return value is None or isinstance(value, str)
    return kind in ("int8", "int16", "int32", "int64") and isinstance(value, int)
