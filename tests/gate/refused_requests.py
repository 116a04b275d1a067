"""Requests about things that their client may not see or change, beside things that it may, for every API.

The world: a client has no rights to topics, groups and transactional ids whose names begin with `secret`.  It may not
describe the settings of topics whose names begin with `blind`, nor create those that begin with `shown`.  Of the
cluster it has CLUSTER_ACTION alone, everything else is allowed.  A second client, at another address, has no rights at
all.  `$id:NAME` stands for a topic's id.

`ROWS` has the requests of the first client, `WITHOUT_RIGHTS` those of the second: mostly what brokers ask each other,
and what the first may do.  `refused_world` asks them, and Apache Kafka's answers are in `vectors`.  `FREE` are APIs
that Kafka serves to every client.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kbroker.protocol.api import ApiKey
from tests.scenarios.batches import T0, Batch

Values = Mapping[str, Any]
OPEN, SECRET, MISSING, SECRET_MISSING = "open", "secret", "missing", "secret-missing"
BLIND, SHOWN = "blind", "shown"
BOTH = (OPEN, SECRET)
UNSEEN = (SECRET, SECRET_MISSING)
NAMES = (OPEN, SECRET, MISSING, SECRET_MISSING)


class Row(NamedTuple):
    """A request; `note` tells it from others of the same API and version."""

    api: str
    version: int
    values: Values
    note: str = ""

    @property
    def name(self) -> str:
        """How the vector names it."""
        return f"{self.api} v{self.version} {self.note}".strip()


def _each(names: tuple[str, ...], key: str, **rest: Any) -> list[Values]:
    return [{key: name, **rest} for name in names]


def _ids(key: str = "topic_id", **rest: Any) -> list[Values]:
    return [{key: f"$id:{name}", **rest} for name in BOTH]


def _produce(name: Values) -> Values:
    batch = Batch([(b"k", b"v")], [T0]).encoded()
    rows = [{"index": 0, "records": batch}]
    return {"acks": -1, "timeout_ms": 5000, "topic_data": [{**each, "partition_data": rows} for each in name["names"]]}


def _fetch(names: list[Values], **rest: Any) -> Values:
    rows = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}]
    return {
        "max_wait_ms": 50,
        "min_bytes": 1,
        "max_bytes": 1000,
        "topics": [{**each, "partitions": rows} for each in names],
        **rest,
    }


_OFFSET = {"partition_index": 0, "committed_offset": 1, "committed_metadata": "m"}


def _commit(group: str, names: list[Values]) -> Values:
    topics = [{**each, "partitions": [_OFFSET]} for each in names]
    return {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "topics": topics}


def _join(group: str) -> Values:
    protocols = [{"name": "range", "metadata": b""}]
    times = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000}
    return {"group_id": group, "member_id": "", "protocol_type": "consumer", "protocols": protocols, **times}


def _heartbeat(group: str, topics: list[str]) -> Values:
    values = {"member_id": "of-a-test-AAAAAAAAAAAA", "member_epoch": 0, "rebalance_timeout_ms": 10_000}
    return {**values, "group_id": group, "subscribed_topic_names": topics, "topic_partitions": []}


def _streams(group: str, topic: str) -> Values:
    topology = {"epoch": 0, "subtopologies": [{"subtopology_id": "s", "source_topics": [topic]}]}
    tasks: Values = {role: [] for role in ("active_tasks", "standby_tasks", "warmup_tasks")}
    values = {"member_id": "of-a-test", "member_epoch": 0, "rebalance_timeout_ms": 10_000, "process_id": "p"}
    return {**values, **tasks, "group_id": group, "topology": topology}


def _txn_commit(group: str, transactional_id: str) -> Values:
    topics = [{"name": name, "partitions": [_OFFSET]} for name in NAMES]
    producer = {"transactional_id": transactional_id, "producer_id": 1, "producer_epoch": 0}
    return {**producer, "group_id": group, "generation_id": -1, "member_id": "", "topics": topics}


def _new_topics(*names: str) -> Values:
    topics = [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in names]
    return {"topics": topics, "timeout_ms": 5000, "validate_only": True}


def _described() -> list[Values]:
    kinds = [
        (2, OPEN),
        (2, SECRET),
        (2, SECRET_MISSING),
        (4, "1"),
        (4, ""),
        (8, "1"),
        (16, "m"),
        (32, "g"),
        (32, SECRET),
    ]
    return [{"resource_type": kind, "resource_name": name, "configuration_keys": ["no.such"]} for kind, name in kinds]


def _altered(operation: bool) -> list[Values]:
    rows = []
    for kind, name, key, value in (
        (2, OPEN, "retention.ms", "-1"),
        (2, SECRET, "retention.ms", "-1"),
        (2, SECRET_MISSING, "retention.ms", "-1"),
        (4, "1", "log.cleaner.threads", "1"),
        (16, "m", "interval.ms", "10000"),
        (32, "g", "consumer.session.timeout.ms", "45000"),
        (32, SECRET, "consumer.session.timeout.ms", "45000"),
    ):
        config = {"name": key, "value": value, **({"config_operation": 0} if operation else {})}
        rows.append({"resource_type": kind, "resource_name": name, "configs": [config]})
    if operation:
        config = {"name": "kafka", "value": "INFO", "config_operation": 0}
        rows.append({"resource_type": 8, "resource_name": "1", "configs": [config]})
    return rows


_PARTITION = {"partition_index": 0}
_SHARE_MEMBER = "AAAAAAAAAAAAAAAAAAAAAA"
_SHARED = [{"topic_id": f"$id:{name}", "partitions": [{"partition_index": 0}]} for name in BOTH]
_ACKNOWLEDGED = [
    {
        "topic_id": f"$id:{name}",
        "partitions": [
            {
                "partition_index": 0,
                "acknowledgement_batches": [{"first_offset": 0, "last_offset": 0, "acknowledge_types": [1]}],
            }
        ],
    }
    for name in BOTH
]
_SHARE_FETCH = {
    "member_id": _SHARE_MEMBER,
    "share_session_epoch": 0,
    "max_wait_ms": 10,
    "min_bytes": 1,
    "max_bytes": 1000,
    "max_records": 10,
    "batch_size": 10,
}


def _offsets(names: tuple[str, ...], **rest: Any) -> Values:
    return {"replica_id": -1, "topics": _each(names, "name", partitions=[{**_PARTITION, "timestamp": -1}]), **rest}


def _election(kind: int, topics: list[Values] | None) -> Values:
    return {"election_type": kind, "topic_partitions": topics, "timeout_ms": 5000}


_FEATURES: Values = {
    "timeout_ms": 5000,
    "feature_updates": [{"feature": "share.version", "max_version_level": 1, "upgrade_type": 1}],
    "validate_only": True,
}
_VOTER: Values = {"cluster_id": None, "voter_id": 7, "voter_directory_id": bytes(range(16))}
ROWS: tuple[Row, ...] = (
    Row("Produce", 9, _produce({"names": _each(NAMES, "name")})),
    Row("Produce", 13, _produce({"names": _ids()})),
    Row("Fetch", 4, _fetch(_each(NAMES, "topic"))),
    Row("Fetch", 12, _fetch(_each(NAMES, "topic"), session_id=0, session_epoch=0), "a session begins"),
    Row("Fetch", 16, _fetch(_ids(), session_id=0, session_epoch=-1)),
    Row("Fetch", 12, _fetch(_each(BOTH, "topic"), isolation_level=2, session_epoch=-1), "no isolation level"),
    Row("Fetch", 12, _fetch(_each(UNSEEN, "topic"), isolation_level=2, session_epoch=-1), "no level, nothing to read"),
    Row("Fetch", 16, _fetch(_ids(), isolation_level=3, session_epoch=-1), "no isolation level"),
    Row("Fetch", 16, _fetch(_ids()[1:], isolation_level=3, session_epoch=-1), "no level, nothing to read"),
    Row("ListOffsets", 7, _offsets(NAMES)),
    Row("ListOffsets", 7, _offsets(BOTH, isolation_level=2), "no isolation level"),
    Row("ListOffsets", 7, _offsets(UNSEEN, isolation_level=2), "no level, nothing to see"),
    Row("Metadata", 1, {"topics": None}, "all"),
    Row(
        "Metadata",
        9,
        {"topics": None, "include_cluster_authorized_operations": True, "include_topic_authorized_operations": True},
        "all",
    ),
    Row(
        "Metadata",
        9,
        {
            "topics": _each(NAMES, "name"),
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": True,
        },
        "named",
    ),
    Row(
        "Metadata",
        12,
        {"topics": [{"name": None, **each} for each in _ids()], "allow_auto_topic_creation": False},
        "by id",
    ),
    Row("DescribeTopicPartitions", 0, {"topics": [], "response_partition_limit": 100, "cursor": None}, "all"),
    Row("Metadata", 9, {"topics": [{"name": SHOWN}], "allow_auto_topic_creation": True}, "not to be created"),
    Row(
        "DescribeTopicPartitions",
        0,
        {"topics": _each(NAMES, "name"), "response_partition_limit": 100, "cursor": None},
        "named",
    ),
    Row("OffsetCommit", 8, _commit(OPEN, _each(NAMES, "name"))),
    Row("OffsetCommit", 8, _commit(SECRET, _each(NAMES, "name")), "group"),
    Row("OffsetCommit", 10, _commit(OPEN, _ids()), "by id"),
    Row("OffsetFetch", 2, {"group_id": SECRET, "topics": None}, "group"),
    Row("OffsetFetch", 1, {"group_id": SECRET, "topics": _each(NAMES, "name", partition_indexes=[0])}, "group"),
    Row("OffsetFetch", 7, {"group_id": OPEN, "topics": _each(NAMES, "name", partition_indexes=[0])}, "named"),
    Row("OffsetFetch", 7, {"group_id": OPEN, "topics": None}, "all"),
    Row(
        "OffsetFetch",
        9,
        {"groups": [{"group_id": group, "topics": _each(NAMES, "name", partition_indexes=[0])} for group in BOTH]},
        "groups",
    ),
    Row("OffsetFetch", 9, {"groups": [{"group_id": group, "topics": None} for group in BOTH]}, "all of groups"),
    Row("OffsetFetch", 10, {"groups": [{"group_id": OPEN, "topics": _ids(partition_indexes=[0])}]}, "by id"),
    Row("OffsetDelete", 0, {"group_id": SECRET, "topics": _each(NAMES, "name", partitions=[_PARTITION])}, "group"),
    Row("OffsetDelete", 0, {"group_id": "no-group", "topics": _each(NAMES, "name", partitions=[_PARTITION])}, "topics"),
    Row("FindCoordinator", 2, {"key": SECRET, "key_type": 0}, "group"),
    Row("FindCoordinator", 2, {"key": SECRET, "key_type": 1}, "transaction"),
    Row("FindCoordinator", 4, {"coordinator_keys": [SECRET], "key_type": 0}, "groups"),
    Row("FindCoordinator", 4, {"coordinator_keys": [SECRET], "key_type": 1}, "transactions"),
    Row("JoinGroup", 5, _join(SECRET)),
    Row("JoinGroup", 9, _join(SECRET)),
    Row(
        "SyncGroup",
        5,
        {
            "group_id": SECRET,
            "generation_id": 1,
            "member_id": "m",
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": [],
        },
    ),
    Row("Heartbeat", 4, {"group_id": SECRET, "generation_id": 1, "member_id": "m"}),
    Row("LeaveGroup", 1, {"group_id": SECRET, "member_id": "m"}),
    Row("LeaveGroup", 5, {"group_id": SECRET, "members": [{"member_id": "m"}]}),
    Row("DescribeGroups", 5, {"groups": [SECRET], "include_authorized_operations": True}),
    Row("DescribeGroups", 6, {"groups": [OPEN, SECRET], "include_authorized_operations": True}),
    Row("ListGroups", 5, {"states_filter": [], "types_filter": []}),
    Row("DeleteGroups", 2, {"groups_names": [SECRET, "no-group"]}),
    Row("ConsumerGroupHeartbeat", 1, _heartbeat(SECRET, [OPEN]), "group"),
    Row("ConsumerGroupHeartbeat", 1, _heartbeat("new", [OPEN, SECRET]), "topics"),
    Row("ConsumerGroupHeartbeat", 1, _heartbeat("new", [OPEN, SECRET_MISSING]), "missing topic"),
    Row("ConsumerGroupDescribe", 1, {"group_ids": [SECRET, "no-group"], "include_authorized_operations": True}),
    Row("ConsumerGroupDescribe", 1, {"group_ids": ["members"], "include_authorized_operations": True}, "topics"),
    Row(
        "ShareGroupHeartbeat",
        1,
        {"group_id": SECRET, "member_id": _SHARE_MEMBER, "member_epoch": 0, "subscribed_topic_names": [OPEN]},
        "group",
    ),
    Row(
        "ShareGroupHeartbeat",
        1,
        {"group_id": "share", "member_id": _SHARE_MEMBER, "member_epoch": 0, "subscribed_topic_names": [OPEN, SECRET]},
        "topics",
    ),
    Row("StreamsGroupHeartbeat", 0, _streams(SECRET, OPEN), "group"),
    Row("StreamsGroupHeartbeat", 0, _streams("new", SECRET), "topics"),
    Row("StreamsGroupDescribe", 0, {"group_ids": [SECRET, "no-group"], "include_authorized_operations": True}),
    Row("ShareGroupDescribe", 1, {"group_ids": [SECRET, "no-group"], "include_authorized_operations": True}),
    Row("ShareGroupDescribe", 1, {"group_ids": ["sharers"], "include_authorized_operations": True}, "topics"),
    Row("ShareFetch", 1, {**_SHARE_FETCH, "group_id": SECRET, "topics": _SHARED}, "group"),
    Row("ShareFetch", 1, {**_SHARE_FETCH, "group_id": "sharers", "topics": _SHARED}, "topics"),
    Row(
        "ShareAcknowledge",
        1,
        {"group_id": SECRET, "member_id": _SHARE_MEMBER, "share_session_epoch": 1, "topics": _ACKNOWLEDGED},
        "group",
    ),
    Row(
        "ShareAcknowledge",
        1,
        {"group_id": "sharers", "member_id": _SHARE_MEMBER, "share_session_epoch": 1, "topics": _ACKNOWLEDGED[1:]},
        "topics",
    ),
    Row(
        "DescribeShareGroupOffsets",
        1,
        {"groups": [{"group_id": group, "topics": None} for group in (SECRET, "sharers")]},
        "all",
    ),
    Row(
        "DescribeShareGroupOffsets",
        1,
        {
            "groups": [
                {
                    "group_id": "sharers",
                    "topics": _each((SECRET, SECRET_MISSING, MISSING), "topic_name", partitions=[0]),
                }
            ]
        },
        "named",
    ),
    Row(
        "AlterShareGroupOffsets",
        0,
        {
            "group_id": SECRET,
            "topics": _each(BOTH, "topic_name", partitions=[{"partition_index": 0, "start_offset": 0}]),
        },
        "group",
    ),
    Row(
        "AlterShareGroupOffsets",
        0,
        {
            "group_id": "idle",
            "topics": _each(
                (SECRET, SECRET_MISSING, MISSING), "topic_name", partitions=[{"partition_index": 0, "start_offset": 0}]
            ),
        },
        "topics",
    ),
    Row("DeleteShareGroupOffsets", 0, {"group_id": SECRET, "topics": _each(BOTH, "topic_name")}, "group"),
    Row(
        "DeleteShareGroupOffsets",
        0,
        {"group_id": "idle", "topics": _each((SECRET, SECRET_MISSING, MISSING), "topic_name")},
        "topics",
    ),
    Row("InitProducerId", 4, {"transactional_id": SECRET, "transaction_timeout_ms": 1000}),
    Row(
        "AddPartitionsToTxn",
        3,
        {
            "v3_and_below_transactional_id": SECRET,
            "v3_and_below_producer_id": 1,
            "v3_and_below_producer_epoch": 0,
            "v3_and_below_topics": _each(BOTH, "name", partitions=[0]),
        },
        "id",
    ),
    Row(
        "AddPartitionsToTxn",
        3,
        {
            "v3_and_below_transactional_id": "mine",
            "v3_and_below_producer_id": 1,
            "v3_and_below_producer_epoch": 0,
            "v3_and_below_topics": _each(NAMES, "name", partitions=[0]),
        },
        "topics",
    ),
    Row(
        "AddOffsetsToTxn",
        3,
        {"transactional_id": SECRET, "producer_id": 1, "producer_epoch": 0, "group_id": OPEN},
        "id",
    ),
    Row(
        "AddOffsetsToTxn",
        3,
        {"transactional_id": "mine", "producer_id": 1, "producer_epoch": 0, "group_id": SECRET},
        "group",
    ),
    Row("EndTxn", 3, {"transactional_id": SECRET, "producer_id": 1, "producer_epoch": 0, "committed": True}),
    Row("TxnOffsetCommit", 3, _txn_commit(OPEN, SECRET), "id"),
    Row("TxnOffsetCommit", 3, _txn_commit(SECRET, "mine"), "group"),
    Row("DescribeTransactions", 0, {"transactional_ids": [SECRET, "no-id", "mine"]}),
    Row("ListTransactions", 1, {"state_filters": [], "producer_id_filters": [], "duration_filter": -1}),
    Row("DescribeProducers", 0, {"topics": _each(NAMES, "name", partition_indexes=[0])}),
    Row("CreateTopics", 7, _new_topics("new", OPEN, SECRET, SECRET_MISSING)),
    Row("CreateTopics", 7, _new_topics(BLIND), "without a right to its settings"),
    Row(
        "CreatePartitions",
        3,
        {"topics": _each(NAMES, "name", count=2, assignments=None), "timeout_ms": 5000, "validate_only": True},
    ),
    Row("DeleteTopics", 5, {"topic_names": [SECRET, MISSING, SECRET_MISSING], "timeout_ms": 5000}),
    Row(
        "DeleteTopics",
        6,
        {"topics": [{"name": None, "topic_id": f"$id:{SECRET}"}, {"name": SECRET}], "timeout_ms": 5000},
    ),
    Row(
        "DeleteRecords",
        2,
        {"topics": _each(NAMES, "name", partitions=[{**_PARTITION, "offset": 0}]), "timeout_ms": 5000},
    ),
    Row("DescribeConfigs", 4, {"resources": _described()}),
    Row("AlterConfigs", 2, {"resources": _altered(False), "validate_only": True}),
    Row("IncrementalAlterConfigs", 1, {"resources": _altered(True), "validate_only": True}),
    Row("ListConfigResources", 1, {"resource_types": []}),
    Row("DescribeLogDirs", 1, {"topics": None}),
    Row("DescribeLogDirs", 4, {"topics": None}),
    Row("AlterReplicaLogDirs", 2, {"dirs": [{"path": "/nowhere", "topics": [{"name": OPEN, "partitions": [0]}]}]}),
    Row("ElectLeaders", 2, _election(0, [{"topic": OPEN, "partitions": [0]}]), "named"),
    Row("ElectLeaders", 2, _election(0, None), "all"),
    Row("ElectLeaders", 2, _election(0, []), "none"),
    Row("ElectLeaders", 2, _election(2, []), "none, of no type"),
    Row("ElectLeaders", 2, _election(2, [{"topic": OPEN, "partitions": []}]), "a topic without partitions, of no type"),
    Row(
        "AlterPartitionReassignments",
        0,
        {"timeout_ms": 5000, "topics": [{"name": OPEN, "partitions": [{**_PARTITION, "replicas": [1]}]}]},
    ),
    Row(
        "ListPartitionReassignments",
        0,
        {"timeout_ms": 5000, "topics": [{"name": OPEN, "partition_indexes": [0]}]},
        "named",
    ),
    Row("ListPartitionReassignments", 0, {"timeout_ms": 5000, "topics": None}, "all"),
    *(Row("UpdateFeatures", version, _FEATURES) for version in (1, 2)),
    Row("UnregisterBroker", 0, {"broker_id": 7}),
    Row("DescribeQuorum", 2, {"topics": []}),
    Row("AddRaftVoter", 1, {**_VOTER, "timeout_ms": 1000, "listeners": [], "ack_when_committed": True}),
    Row("RemoveRaftVoter", 0, _VOTER),
    Row("DescribeCluster", 1, {"include_cluster_authorized_operations": True, "endpoint_type": 1}),
    Row("DescribeClientQuotas", 1, {"components": [], "strict": False}),
    Row(
        "AlterClientQuotas",
        1,
        {
            "entries": [
                {
                    "entity": [{"entity_type": "user", "entity_name": "u"}],
                    "ops": [{"key": "producer_byte_rate", "value": 1.0, "remove": False}],
                }
            ],
            "validate_only": True,
        },
    ),
)

_STATE = [{"topic_id": f"$id:{OPEN}", "partitions": [{"partition": 0}]}]
WITHOUT_RIGHTS: tuple[Row, ...] = (
    Row("Fetch", 12, _fetch(_each(BOTH, "topic"), replica_id=2, session_id=0, session_epoch=-1), "follower"),
    Row(
        "OffsetForLeaderEpoch",
        4,
        {"replica_id": 2, "topics": _each(NAMES, "topic", partitions=[{"partition": 0, "leader_epoch": 0}])},
    ),
    Row("InitProducerId", 4, {"transactional_id": None, "transaction_timeout_ms": 1000}, "idempotent"),
    Row("DescribeCluster", 1, {"include_cluster_authorized_operations": True, "endpoint_type": 1}),
    Row("Metadata", 9, {"topics": None, "include_cluster_authorized_operations": True}),
    Row("ListGroups", 5, {"states_filter": [], "types_filter": []}),
    Row("FindCoordinator", 6, {"coordinator_keys": ["g:AAAAAAAAAAAAAAAAAAAAAA:0"], "key_type": 2}, "share"),
    Row("AddPartitionsToTxn", 5, {"transactions": []}),
    Row(
        "WriteTxnMarkers",
        1,
        {
            "markers": [
                {
                    "producer_id": 1,
                    "producer_epoch": 0,
                    "transaction_result": True,
                    "topics": [{"name": OPEN, "partition_indexes": [0]}],
                    "coordinator_epoch": 0,
                }
            ]
        },
    ),
    Row("InitializeShareGroupState", 0, {"group_id": "g", "topics": _STATE}),
    Row("ReadShareGroupState", 0, {"group_id": "g", "topics": _STATE}),
    Row("WriteShareGroupState", 0, {"group_id": "g", "topics": _STATE}),
    Row("DeleteShareGroupState", 0, {"group_id": "g", "topics": _STATE}),
    Row("ReadShareGroupStateSummary", 0, {"group_id": "g", "topics": _STATE}),
)

FREE = frozenset(
    {
        ApiKey.API_VERSIONS,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
        ApiKey.PUSH_TELEMETRY,
    }
)
