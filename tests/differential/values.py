"""What a field holds in a sound request, and what else it is given: other names, bounds of its type and beyond.

A `Live` value is known only when the request is sent: a topic's id, a member's epoch.  What would take a broker out of
the comparison is left out: waits of seconds, thousands of partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from kbroker.protocol.schema import Field
from kbroker.records.batch import Record
from tests.protocol.names import is_nullable
from tests.records.stored import encode_messages
from tests.scenarios.batches import T0, Batch


@dataclass(frozen=True, slots=True)
class Live:
    """An attribute of the request's place, changed by `change` where one is given; `name` says both."""

    name: str
    attribute: str
    change: Callable[[Any], Any] | None = None

    def __repr__(self) -> str:
        return f"<{self.name}>"


def live(attribute: str) -> Live:
    """The attribute as it is."""
    return Live(attribute, attribute)


TOPIC, TOPIC_ID, OTHER_TOPIC = live("topic"), live("topic_id"), live("other_topic")
PARTITION, GROUP = live("partition"), live("group")
MISSING_TOPIC = "no-such-topic"
UNKNOWN_ID = bytes(range(16))

# By field, or API and field.
SOUND: dict[str | tuple[str, str], Any] = {
    "topic": TOPIC,
    "topic_name": TOPIC,
    "topic_names": TOPIC,
    "topics": TOPIC,
    "name": TOPIC,
    "topic_id": TOPIC_ID,
    "subscribed_topic_names": TOPIC,
    "resource_name": TOPIC,
    "resource_type": 2,
    "resource_types": 2,
    "partition": PARTITION,
    "partition_index": PARTITION,
    "partition_indexes": PARTITION,
    "partitions": PARTITION,
    "index": PARTITION,
    "group_id": GROUP,
    "group_ids": GROUP,
    "groups": GROUP,
    "groups_names": GROUP,
    "key": GROUP,
    "coordinator_keys": GROUP,
    "configs.name": "retention.ms",
    "configs.value": "100000000",
    "configuration_keys": "retention.ms",
    "transactional_id": live("transactional_id"),
    "transactional_ids": live("transactional_id"),
    "v3_and_below_transactional_id": live("transactional_id"),
    "producer_id": live("producer_id"),
    "v3_and_below_producer_id": live("producer_id"),
    "producer_epoch": live("producer_epoch"),
    "v3_and_below_producer_epoch": live("producer_epoch"),
    "producer_id_filters": 1 << 40,
    "duration_filter": -1,
    "state_filters": "Ongoing",
    "states_filter": "Stable",
    "types_filter": "classic",
    "member_id": live("member_id"),
    "generation_id": live("generation"),
    "generation_id_or_member_epoch": -1,
    "member_epoch": live("member_epoch"),
    "share_session_epoch": live("share_session_epoch"),
    "instance_id": None,
    "group_instance_id": None,
    "rack_id": "",
    "acks": -1,
    "timeout_ms": 5000,
    "max_wait_ms": 0,
    "min_bytes": 1,
    "max_bytes": 1 << 20,
    "max_records": 100,
    "batch_size": 100,
    "partition_max_bytes": 1 << 20,
    "max_num_offsets": 5,
    "timestamp": -1,
    "replica_id": -1,
    "committed_offset": 2,
    "committed_leader_epoch": -1,
    "current_leader_epoch": -1,
    "last_fetched_epoch": -1,
    "session_epoch": -1,
    "log_start_offset": -1,
    "retention_time_ms": -1,
    "commit_timestamp": -1,
    "offset": 1,
    "first_offset": 0,
    "last_offset": 4,
    "acknowledge_types": 1,
    "delivery_state": 2,
    "delivery_count": 1,
    "num_partitions": 1,
    "count": 3,
    "replication_factor": 1,
    "broker_ids": 1,
    "broker_id": 99,
    "replicas": 1,
    "session_timeout_ms": 6000,
    "rebalance_timeout_ms": 1000,
    "transaction_timeout_ms": 60_000,
    "protocol_type": "consumer",
    "protocol_name": "range",
    "protocols.name": "range",
    "assignments": [],
    "reason": "why",
    "response_partition_limit": 2000,
    "cursor": None,
    "transactional_id_pattern": None,
    "server_assignor": None,
    "subscribed_topic_regex": None,
    "client_software_name": "client",
    "client_software_version": "1.0",
    "endpoint_type": 1,
    "path": "/no/such/directory",
    "feature": "no.such.feature",
    "max_version_level": 1,
    "upgrade_type": 1,
    "entity_type": "user",
    "entity_name": GROUP,
    "match": GROUP,
    "ops.key": "consumer_byte_rate",
    "ops.value": 1e9,
    "metrics": b"",
    "client_instance_id": live("client_instance_id"),
    "subscription_id": live("subscription_id"),
    ("Produce", "transactional_id"): None,
    ("CreateTopics", "name"): live("new_topic"),
    ("CreateTopics", "configs"): [],
    ("CreatePartitions", "assignments"): None,
    ("AddPartitionsToTxn", "partitions"): PARTITION,
    ("TxnOffsetCommit", "generation_id"): -1,
    ("TxnOffsetCommit", "member_id"): "",
    ("OffsetCommit", "member_id"): "",
    ("OffsetFetch", "member_id"): None,
    ("OffsetFetch", "member_epoch"): -1,
    ("InitProducerId", "producer_id"): -1,
    ("InitProducerId", "producer_epoch"): -1,
    ("JoinGroup", "member_id"): "",
    ("SyncGroup", "assignments"): "one",
    ("DeleteTopics", "topic_id"): bytes(16),
    ("Metadata", "topic_id"): bytes(16),
    ("ConsumerGroupHeartbeat", "topic_partitions"): [],
    ("ConsumerGroupHeartbeat", "rack_id"): None,
    ("ShareGroupHeartbeat", "rack_id"): None,
    ("ShareFetch", "acknowledgement_batches"): [],
    ("ShareFetch", "forgotten_topics_data"): [],
    ("Fetch", "forgotten_topics_data"): [],
    ("InitializeShareGroupState", "start_offset"): 1,
    ("AlterShareGroupOffsets", "start_offset"): 1,
    ("UnregisterBroker", "broker_id"): 99,
    ("WriteTxnMarkers", "producer_id"): 1 << 40,
    ("WriteTxnMarkers", "producer_epoch"): 0,
}

SHARE_PARTITION = {"partition": PARTITION}
TOPICS = (MISSING_TOPIC, "__consumer_offsets")
GROUPS = ("no-such-group",)
OFFSETS = (0, 1, 5, 6, -1, -2)
EPOCHS = (0, 1, 7)
POOLS: dict[str, tuple[Any, ...]] = {
    "topic": TOPICS,
    "topic_name": TOPICS,
    "topic_names": TOPICS,
    "topics": TOPICS,
    "subscribed_topic_names": TOPICS,
    "fetch_offset": OFFSETS,
    "committed_offset": OFFSETS,
    "offset": OFFSETS,
    "start_offset": OFFSETS,
    "first_offset": (3, 5),
    "last_offset": (3, 5, 9),
    "acknowledge_types": (0, 2, 3, 4, 5),
    "delivery_state": (0, 1, 2, 3, 4),
    "timestamp": (-2, -3, -4, -5, -6, -7, T0, T0 + 2, T0 + 1_000_000),
    "current_leader_epoch": EPOCHS,
    "leader_epoch": EPOCHS,
    "last_fetched_epoch": EPOCHS,
    "session_epoch": (3,),
    "isolation_level": (2,),
    "resource_type": (3, 4, 8, 16, 32, 64),
    "resource_types": (3, 4, 8, 16, 32, 64),
    "config_operation": (2, 3, 4),
    "key_type": (2, 3),
    "acks": (1, 2),
    "member_id": ("m" * 36, "m" * 37),
    "protocol_type": ("connect",),
    "protocol_name": ("roundrobin",),
    "state_filters": ("Empty", "ongoing", "CompleteCommit"),
    "states_filter": ("Empty", "stable", "Dead", "PreparingRebalance"),
    "types_filter": ("consumer", "Classic", "share", "streams"),
    "transactional_id_pattern": ("no.*", "(", ".*"),
    "subscribed_topic_regex": ("no.*", "("),
    "server_assignor": ("uniform", "range"),
    "configs.name": ("cleanup.policy", "max.message.bytes", "min.insync.replicas"),
    "configs.value": ("-1", "1.5", "-2"),
    "configuration_keys": ("cleanup.policy",),
    "upgrade_type": (2, 3, 4),
    "max_version_level": (2, 3),
    "feature": ("metadata.version", "kraft.version"),
    "entity_type": ("client-id", "ip", "topic"),
    "match_type": (2, 3),
    "match": ("<default>",),
    "entity_name": ("127.0.0.1",),
    "ops.key": ("producer_byte_rate", "request_percentage", "controller_mutation_rate", "connection_creation_rate"),
    "ops.value": (0.0, -1.0, 0.5, 1e300),
    "replication_factor": (2,),
    "broker_ids": (2,),
    "replicas": (2,),
    "count": (2, 4),
    "compression_type": (2, 3, 4, 5),
    "share_acquire_mode": (2,),
    "endpoint_type": (2, 3),
    "election_type": (2,),
    "max_records": (2,),
    "batch_size": (2,),
    "transaction_timeout_ms": (900_000, 900_001),
    "session_timeout_ms": (1_800_000, 1_800_001),
    "client_software_name": ("bad name", "-a", "a-"),
    "client_software_version": ("bad version",),
}
BOUNDS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}
TEXTS = ("", "unknown-to-all", "not a name!", "näme", ".", "x" * 300)
# How long a request may take is not what is compared, nor what a broker does with thousands of partitions.
NEVER_ABOVE: dict[str, int] = {
    "max_wait_ms": 0,
    "timeout_ms": 0,
    "min_bytes": 1,
    "num_partitions": 3,
    "count": 5,
    "rebalance_timeout_ms": 1000,
}
# The broker itself must not leave, nor the topic in which coordinators keep what they know.
NEVER: dict[tuple[str, str], frozenset[Any]] = {
    ("UnregisterBroker", "broker_id"): frozenset({1}),
    **{
        (api, field): frozenset({"__consumer_offsets"})
        for api in ("DeleteTopics", "CreatePartitions", "WriteTxnMarkers", "AddPartitionsToTxn", "AlterConfigs")
        for field in ("name", "topic_names", "topics")
    },
    ("OffsetForLeaderEpoch", "topic"): frozenset({"__consumer_offsets"}),
}


def sound_value(api: str, version: int, field: Field, within: str) -> Any:
    """The value of a field that is neither a struct nor an array of structs; of an array, of its one item."""
    if field.item_type == "records":
        return records(version)
    for key in ((api, field.name), f"{within}.{field.name}", field.name):
        if key in SOUND:
            return SOUND[key]
    kind = field.item_type
    if kind == "string":
        return ""
    if kind == "uuid":
        return bytes(16)
    return b"" if kind == "bytes" else kind == "never" if kind == "bool" else 0


def other_values(api: str, version: int, field: Field, within: str, value: Any) -> Iterator[Any]:
    """What else a field that is no array is given."""
    kind = field.item_type
    if kind == "records":
        yield from other_records(version)
        return
    seen = [value]
    pool = POOLS.get(f"{within}.{field.name}", POOLS.get(field.name, ()))
    if within == "topics" and field.name == "name":
        pool = TOPICS
    allowed = NEVER.get((api, field.name), frozenset())
    for other in (*(each for each in pool if _fits(kind, each)), *_of_type(kind, value)):
        too_long = isinstance(other, int) and other > NEVER_ABOVE.get(field.name, 1 << 63)
        if other in seen or too_long or other in allowed:
            continue
        seen.append(other)
        yield other
    if value is not None and is_nullable(field, version):
        yield None


def _fits(kind: str, value: Any) -> bool:
    if kind == "float64":
        return isinstance(value, float)
    return isinstance(value, str) if kind == "string" else isinstance(value, int) and kind in BOUNDS


def _of_type(kind: str, value: Any) -> Iterator[Any]:
    if kind in BOUNDS:
        bits = BOUNDS[kind]
        yield from (-1, 0, 1, -2, 2**bits - 1, -(2**bits))
        if isinstance(value, Live):
            yield Live(f"{value.name} + 1", value.attribute, lambda number: number + 1)
            yield Live(f"{value.name} - 1", value.attribute, lambda number: number - 1)
    elif kind == "string" and isinstance(value, Live) and value.attribute in ("group", "transactional_id"):
        # What is made by these names must not be met by the next request.
        yield ""
        for text in TEXTS[1:]:
            yield Live(f"{text[:20]}…", "name", partial(_joined, text))
    elif kind == "string":
        yield from TEXTS
    elif kind == "bool":
        yield not value
    elif kind == "uuid":
        yield from (bytes(16), UNKNOWN_ID)
    elif kind == "bytes":
        yield b"garbage"
    elif kind == "float64":
        yield from (0.0, float("nan"), float("inf"))


def _joined(text: str, name: str) -> str:
    return text + name


def records(version: int) -> bytes:
    """Three records in the format of this version of Produce."""
    if version < 3:
        found = [Record(at, T0 + at, b"k%d" % at, b"v") for at in range(3)]
        return encode_messages(found, 0 if version < 2 else 1, 0)
    return Batch(PAIRS).encoded()


PAIRS = tuple((b"k%d" % at, b"v") for at in range(3))


def other_records(version: int) -> Iterator[bytes]:
    """Records that are broken in one way each."""
    good = records(version)
    yield from (b"", b"garbage", good[:-1], good[:20] + b"\xff" + good[21:], good * 2, good[:10], bytes(100))
    yield good[:-1] + bytes([good[-1] ^ 1])
    if version < 3:
        for magic, codec in ((0, 1), (1, 1), (1 if version < 2 else 0, 0), (0, 2), (0, 3)):
            yield encode_messages([Record(at, T0 + at, b"k%d" % at, b"v") for at in range(3)], magic, codec)
        yield Batch(PAIRS).encoded()
        return
    yield encode_messages([Record(0, T0, b"k", b"v")], 1, 0)
    for changes in BATCHES:
        yield Batch(PAIRS, **changes).encoded()


BATCHES: tuple[dict[str, Any], ...] = (
    {"codec": 1},
    {"codec": 4},
    {"codec": 5},
    {"codec": 1, "lies": {"payload": b"garbage"}},
    {"codec": 4, "lies": {"payload": b"garbage"}},
    {"magic": 3},
    {"magic": -1},
    {"attributes": 8},
    {"attributes": 16},
    {"attributes": 32},
    {"attributes": 48},
    {"attributes": 0x80},
    {"base_offset": 7},
    {"base_offset": -1},
    {"leader_epoch": 9},
    {"leader_epoch": -1},
    {"producer_id": 77, "producer_epoch": 0, "base_sequence": 0},
    {"producer_id": 78, "producer_epoch": 0, "base_sequence": 5},
    {"producer_id": 79, "producer_epoch": -1, "base_sequence": 0},
    {"producer_id": 80, "producer_epoch": 0, "base_sequence": -1},
    {"producer_id": -2, "producer_epoch": 0, "base_sequence": 0},
    {"producer_id": 81, "producer_epoch": 0, "base_sequence": 2**31 - 1},
    {"timestamps": (-1, -1, -1)},
    {"timestamps": (T0, T0 - 100, T0 + 5)},
    {"timestamps": (0, 1, 2)},
    {"timestamps": (1 << 60, 1 << 60, 1 << 60)},
    *({"lies": {name: value}} for name in ("records_count",) for value in (0, 1, 2, 4, -1, 2**31 - 1)),
    *({"lies": {"last_offset_delta": value}} for value in (0, 1, 3, -1, 2**31 - 1)),
    *({"lies": {"batch_length": value}} for value in (0, 48, 49, 50, -1, 2**31 - 1)),
    {"lies": {"max_timestamp": -1}},
    {"lies": {"max_timestamp": T0 + 1_000_000}},
    {"lies": {"crc": 0}},
    {"lies": {"offset_deltas": (1, 2, 3)}},
    {"lies": {"offset_deltas": (0, 0, 0)}},
    {"lies": {"records": b""}},
    {"lies": {"records": b"\x7f" * 30}},
)
