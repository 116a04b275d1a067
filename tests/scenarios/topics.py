"""Topics: create, describe, grow, delete, and everything that may be wrong with such a request."""

from __future__ import annotations

from typing import Any

from tests.scenarios.normal import ZERO_UUID
from tests.scenarios.session import Session, scenario

BOGUS_ID = bytes(range(16))


def topic(name: str, partitions: int = 1, factor: int = 1, **values: Any) -> dict[str, Any]:
    """A topic to create."""
    configs = [{"name": key, "value": value} for key, value in values.pop("configs", {}).items()]
    return {"name": name, "num_partitions": partitions, "replication_factor": factor, "configs": configs, **values}


def create(s: Session, step: str, *topics: dict[str, Any], version: int = 7, **values: Any) -> Any:
    """Create topics and record the answer."""
    return s.ask(step, "CreateTopics", version, topics=list(topics), timeout_ms=30_000, **values)


@scenario
def create_in_each_version(s: Session) -> None:
    for version in range(2, 8):
        create(s, f"v{version}", topic(f"create-v{version}", 2), version=version)
        s.until_led(f"create-v{version}", 2)


@scenario
def create_with_configs(s: Session) -> None:
    configs = {"retention.ms": "3600000", "cleanup.policy": "compact,delete", "max.message.bytes": "2000"}
    create(s, "v7", topic("create-configured", 1, configs=configs))
    create(s, "v4 of another", topic("create-configured-v4", 1, configs=configs), version=4)


@scenario
def create_what_exists(s: Session) -> None:
    s.create("create-again")
    create(s, "again", topic("create-again"))
    create(s, "validated only", topic("create-again"), validate_only=True)
    create(s, "among others", topic("create-again"), topic("create-beside"))
    create(s, "twice in one request", topic("create-twice"), topic("create-twice"), topic("create-single"))
    create(s, "nothing")


@scenario
def create_with_bad_names(s: Session) -> None:
    names = ("", ".", "..", "a b", "ümlaut", "slash/es", "x" * 249, "x" * 250, "with.dot", "with_dot", "__ours", "-")
    for name in names:
        label = name if len(name) < 20 else f"{len(name)} letters"
        create(s, f"{label!r}", topic(name))
    s.until_led("with.dot", 1)
    create(s, "collides with a dot", topic("with_dot"))
    create(s, "collides, validated only", topic("with_dot"), validate_only=True)


@scenario
def create_with_bad_shapes(s: Session) -> None:
    for step, values in (
        ("partitions 0", {"partitions": 0}),
        ("partitions -2", {"partitions": -2}),
        ("partitions by default", {"partitions": -1}),
        ("factor 0", {"factor": 0}),
        ("factor -2", {"factor": -2}),
        ("factor by default", {"factor": -1}),
        ("factor beyond the brokers", {"factor": 3}),
        ("both by default", {"partitions": -1, "factor": -1}),
    ):
        create(s, step, topic(f"shape-{step.replace(' ', '-')}", **values))
    create(s, "defaults are not in v3", topic("shape-v3", -1, -1), version=3)


@scenario
def create_with_assignments(s: Session) -> None:
    def assigned(name: str, *brokers: list[int], first: int = 0, **values: Any) -> dict[str, Any]:
        rows = [{"partition_index": first + index, "broker_ids": ids} for index, ids in enumerate(brokers)]
        return topic(name, **{"partitions": -1, "factor": -1, **values}, assignments=rows)

    create(s, "good", assigned("assigned-good", [1], [1]))
    create(s, "unknown broker", assigned("assigned-unknown", [1], [9]))
    create(s, "no broker", assigned("assigned-empty", []))
    create(s, "same broker twice", assigned("assigned-double", [1, 1]))
    create(s, "does not start at 0", assigned("assigned-late", [1], first=1))
    create(s, "with a count too", assigned("assigned-count", [1], partitions=1))
    create(s, "with a factor too", assigned("assigned-factor", [1], factor=1))
    create(s, "unequal factors", assigned("assigned-unequal", [1], [1, 2]))


BAD_CONFIGS: tuple[tuple[str, str | None], ...] = (
    ("no.such.config", "1"),
    ("retention.ms", "soon"),
    ("retention.ms", "-2"),
    ("retention.ms", ""),
    ("retention.ms", None),
    ("retention.bytes", "1.5"),
    ("segment.bytes", "100"),
    ("segment.bytes", "99999999999"),
    ("segment.ms", "0"),
    ("segment.jitter.ms", "-1"),
    ("segment.index.bytes", "3"),
    ("cleanup.policy", "shred"),
    ("cleanup.policy", "compact,shred"),
    ("cleanup.policy", ""),
    ("compression.type", "rar"),
    ("compression.gzip.level", "10"),
    ("compression.lz4.level", "0"),
    ("compression.zstd.level", "99"),
    ("max.message.bytes", "-1"),
    ("message.timestamp.type", "Never"),
    ("message.timestamp.before.max.ms", "-1"),
    ("message.timestamp.after.max.ms", "x"),
    ("min.insync.replicas", "0"),
    ("min.cleanable.dirty.ratio", "1.5"),
    ("min.compaction.lag.ms", "-1"),
    ("max.compaction.lag.ms", "0"),
    ("delete.retention.ms", "-1"),
    ("file.delete.delay.ms", "-1"),
    ("flush.messages", "0"),
    ("flush.ms", "-1"),
    ("index.interval.bytes", "-1"),
    ("preallocate", "maybe"),
    ("unclean.leader.election.enable", "yes"),
    ("log.retention.ms", "1"),
)


@scenario
def create_with_bad_configs(s: Session) -> None:
    for number, (name, value) in enumerate(BAD_CONFIGS):
        row = topic(f"bad-config-{number}", configs={name: value})
        create(s, f"{name}={value}", row, validate_only=True, version=4)
    lags = {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"}
    create(s, "lags the wrong way round", topic("bad-config-lags", configs=lags), validate_only=True, version=4)
    create(s, "good and padded", topic("ok-config", configs={"retention.ms": " 5 "}), validate_only=True, version=4)


@scenario
def create_validated_only(s: Session) -> None:
    create(s, "v7", topic("only-validated", 3), validate_only=True)
    s.ask("not there", "Metadata", 9, topics=[{"name": "only-validated"}], allow_auto_topic_creation=False)


@scenario
def metadata_in_each_version(s: Session) -> None:
    s.create("metadata", 2)
    for version in range(14):
        s.ask(f"v{version}", "Metadata", version, topics=[{"name": "metadata"}])


@scenario
def metadata_of_topics_that_are_not(s: Session) -> None:
    known = s.create("metadata-known")
    asked = {"allow_auto_topic_creation": False}
    s.ask("unknown name", "Metadata", 9, topics=[{"name": "metadata-unknown"}], **asked)
    s.ask("invalid name", "Metadata", 9, topics=[{"name": "not a name"}], **asked)
    s.ask("empty name", "Metadata", 9, topics=[{"name": ""}], **asked)
    s.ask("unknown id", "Metadata", 12, topics=[{"name": None, "topic_id": BOGUS_ID}], **asked)
    s.ask("known id", "Metadata", 12, topics=[{"name": None, "topic_id": known}], **asked)
    s.ask("id and name", "Metadata", 12, topics=[{"name": "metadata-known", "topic_id": known}], **asked)
    s.ask("id in v10", "Metadata", 10, topics=[{"name": "", "topic_id": known}], **asked)
    s.ask("known twice", "Metadata", 9, topics=[{"name": "metadata-known"}, {"name": "metadata-known"}], **asked)
    s.ask("none", "Metadata", 9, topics=[], **asked)
    s.ask("invalid name with creation", "Metadata", 9, topics=[{"name": "not a name"}])
    s.ask("operations", "Metadata", 8, topics=[{"name": "metadata-known"}], include_topic_authorized_operations=True)


@scenario
def metadata_of_all(s: Session) -> None:
    """Empty means all in v0; from v1 null means all and empty none."""
    s.create("metadata-all")
    for version, topics in ((0, []), (1, []), (1, None), (9, None), (12, None)):
        names = [found.name for found in s.quietly("Metadata", version, topics=topics).topics]
        s.record(f"v{version} {topics}", "metadata-all" in names)


@scenario
def metadata_creates_topics(s: Session) -> None:
    """A topic asked for by name is created, and led soon after; the first answer is without it."""
    for version in (0, 1, 4, 9, 12):
        name = f"metadata-creates-{version}"
        create = {"allow_auto_topic_creation": True} if version >= 4 else {}
        s.ask(f"first, v{version}", "Metadata", version, topics=[{"name": name}], **create)
        s.until_led(name, 1)
        s.ask(f"then, v{version}", "Metadata", version, topics=[{"name": name}], **create)


@scenario
def describe_cluster_in_each_version(s: Session) -> None:
    for version in range(3):
        s.ask(f"v{version}", "DescribeCluster", version)
    s.ask("operations", "DescribeCluster", 1, include_cluster_authorized_operations=True)
    s.ask("controllers", "DescribeCluster", 1, endpoint_type=2)
    s.ask("an endpoint type that is not", "DescribeCluster", 1, endpoint_type=9)


@scenario
def describe_topic_partitions(s: Session) -> None:
    s.create("described-a", 3)
    s.create("described-b", 2)
    both = [{"name": "described-a"}, {"name": "described-b"}]
    s.ask("both", "DescribeTopicPartitions", 0, topics=both)
    s.ask("limited", "DescribeTopicPartitions", 0, topics=both, response_partition_limit=2)
    cursor = {"topic_name": "described-a", "partition_index": 2}
    s.ask("from a cursor", "DescribeTopicPartitions", 0, topics=both, response_partition_limit=2, cursor=cursor)
    after = {"topic_name": "described-b", "partition_index": 9}
    s.ask("cursor past the end", "DescribeTopicPartitions", 0, topics=both, cursor=after)
    negative = {"topic_name": "described-b", "partition_index": -1}
    s.ask("cursor before the start", "DescribeTopicPartitions", 0, topics=both, cursor=negative)
    s.ask("unknown", "DescribeTopicPartitions", 0, topics=[{"name": "described-never"}])
    s.ask("invalid", "DescribeTopicPartitions", 0, topics=[{"name": "not a name"}])


@scenario
def delete_in_each_version(s: Session) -> None:
    for version in range(1, 7):
        name = f"delete-v{version}"
        s.create(name)
        if version < 6:
            s.ask(f"v{version}", "DeleteTopics", version, topic_names=[name], timeout_ms=30_000)
        else:
            s.ask(f"v{version}", "DeleteTopics", version, topics=[{"name": name}], timeout_ms=30_000)
        s.until_gone(name)


@scenario
def delete_what_is_not(s: Session) -> None:
    known = s.create("delete-known")
    asked = {"timeout_ms": 30_000}
    s.ask("unknown", "DeleteTopics", 5, topic_names=["delete-never"], **asked)
    s.ask("unknown v6", "DeleteTopics", 6, topics=[{"name": "delete-never"}], **asked)
    s.ask("unknown id", "DeleteTopics", 6, topics=[{"name": None, "topic_id": BOGUS_ID}], **asked)
    s.ask("neither", "DeleteTopics", 6, topics=[{"name": None, "topic_id": ZERO_UUID}], **asked)
    s.ask("both", "DeleteTopics", 6, topics=[{"name": "delete-known", "topic_id": known}], **asked)
    s.ask("twice", "DeleteTopics", 5, topic_names=["delete-known", "delete-known"], **asked)
    s.ask("by id", "DeleteTopics", 6, topics=[{"name": None, "topic_id": known}], **asked)
    s.until_gone("delete-known")
    s.ask("again", "DeleteTopics", 6, topics=[{"name": None, "topic_id": known}], **asked)
    s.ask("nothing", "DeleteTopics", 5, topic_names=[], **asked)
    fresh = s.create("delete-known")
    s.record("a new life has a new id", fresh != known)


@scenario
def create_partitions(s: Session) -> None:
    s.create("grow", 2)

    def grow(step: str, *rows: dict[str, Any], version: int = 3, **values: Any) -> None:
        topics = [{"assignments": None, **row} for row in rows]
        s.ask(step, "CreatePartitions", version, topics=topics, timeout_ms=30_000, **values)

    grow("same", {"name": "grow", "count": 2})
    grow("fewer", {"name": "grow", "count": 1})
    grow("none", {"name": "grow", "count": 0})
    grow("negative", {"name": "grow", "count": -1})
    grow("unknown", {"name": "grow-never", "count": 4})
    grow("twice", {"name": "grow", "count": 4}, {"name": "grow", "count": 5})
    grow("validated only", {"name": "grow", "count": 4}, validate_only=True)
    grow("wrong number of assignments", {"name": "grow", "count": 4, "assignments": [{"broker_ids": [1]}]})
    grow("unknown broker", {"name": "grow", "count": 3, "assignments": [{"broker_ids": [9]}]})
    grow("other factor", {"name": "grow", "count": 3, "assignments": [{"broker_ids": [1, 2]}]})
    grow("v0", {"name": "grow", "count": 3}, version=0)
    s.until_led("grow", 3)
    grow("assigned", {"name": "grow", "count": 4, "assignments": [{"broker_ids": [1]}]})
    s.until_led("grow", 4)


@scenario
def init_producer_id(s: Session) -> None:
    """Ids differ and start at epoch 0; what only transactions may ask is refused."""
    s.producer_id()
    for version in range(6):
        values: dict[str, Any] = {"transactional_id": None, "transaction_timeout_ms": 60_000}
        s.ask(f"v{version}", "InitProducerId", version, **values)
    values = {"transactional_id": None, "transaction_timeout_ms": 60_000}
    s.ask("an id without an epoch", "InitProducerId", 4, **values, producer_id=5, producer_epoch=-1)
    s.ask("an epoch without an id", "InitProducerId", 4, **values, producer_id=-1, producer_epoch=5)
    s.ask("both", "InitProducerId", 4, **values, producer_id=5, producer_epoch=5)
    s.ask("no timeout", "InitProducerId", 4, transactional_id=None, transaction_timeout_ms=0)
