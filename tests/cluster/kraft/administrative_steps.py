"""Random administrative requests to a KRaft cluster: `Steps.draw` gives one, with the name of what it is.

Names come from small pools, so that most requests meet what others made; some are refused.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection
from typing import Any

from kbroker.schemas import wire

TOPICS = tuple(f"t{number}" for number in range(6))
USERS = ("alice", "bob")
BROKERS = (1, 2, 3)
TOPIC, OF_BROKER, METRICS, GROUP = 2, 4, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
MOST_PARTITIONS = 8
TIMEOUT_MS = 30_000
CONFIGS: dict[int, tuple[tuple[str, tuple[str, ...]], ...]] = {
    TOPIC: (
        ("retention.ms", ("100000", "777000", "-1", "none")),
        ("cleanup.policy", ("compact", "delete")),
        ("min.insync.replicas", ("1", "2")),
        ("max.message.bytes", ("100000", "2000000")),
        ("leader.replication.throttled.replicas", ("*", "0:1,1:2")),
        ("compression.type", ("zstd", "producer")),
    ),
    OF_BROKER: (
        ("log.cleaner.backoff.ms", ("16000", "17000")),
        ("min.insync.replicas", ("1", "2")),
        ("log.retention.ms", ("1000000", "2000000")),
        ("leader.replication.throttled.rate", ("1000000", "2000000")),
    ),
    METRICS: (
        ("interval.ms", ("60000", "70000", "1")),
        ("metrics", ("org.apache.kafka.producer", "*")),
        ("match", ("client_id=a.*",)),
    ),
    GROUP: (
        ("consumer.session.timeout.ms", ("46000", "50000", "1")),
        ("share.auto.offset.reset", ("earliest", "latest")),
        ("consumer.heartbeat.interval.ms", ("5000", "6000")),
    ),
}
LISTS = ("cleanup.policy", "metrics", "match")
FEATURES = ("share.version", "streams.version", "group.version", "eligible.leader.replicas.version")
Drawn = tuple[str, Any, int]


class Steps:
    """`partitions(topic)` says how many a topic has by now, 0: there is none."""

    def __init__(self, rng: random.Random, partitions: Callable[[str], int]) -> None:
        self._random = rng
        self._partitions = partitions
        self._kinds: tuple[tuple[int, Callable[[], Drawn]], ...] = (
            (6, self._create),
            (2, self._delete),
            (6, self._configure),
            (2, self._replace_configs),
            (3, self._add_partitions),
            (5, self._reassign),
            (2, self._call_off),
            (3, self._elect),
            (3, self._quota),
            (3, self._scram),
            (3, self._add_acl),
            (2, self._delete_acls),
            (1, self._features),
        )

    def draw(self) -> Drawn:
        """What it is, the request and its version."""
        weights = [weight for weight, _ in self._kinds]
        ((_, kind),) = self._random.choices(self._kinds, weights)
        return kind()

    def _topic(self) -> str:
        """Rarely one that is none."""
        there = [each for each in TOPICS if self._partitions(each)]
        return self._random.choice(there if there and self._random.random() < 0.9 else TOPICS)

    def _replicas(self) -> list[int]:
        return self._random.sample(BROKERS, self._random.randint(1, len(BROKERS)))

    def _create(self) -> Drawn:
        absent = [each for each in TOPICS if not self._partitions(each)]
        return "create", creation(self._random, self._random.choice(absent or TOPICS)), 7

    def _delete(self) -> Drawn:
        return "delete", wire.DeleteTopicsRequest(topic_names=[self._topic()], timeout_ms=TIMEOUT_MS), 5

    def _resource(self) -> tuple[int, str]:
        kind = self._random.choice((TOPIC, TOPIC, *CONFIGS))
        names = {TOPIC: (self._topic(),), OF_BROKER: ("", "1", "2"), METRICS: ("m1", "m2"), GROUP: ("g1", "g2")}
        return kind, self._random.choice(names[kind])

    def _configure(self) -> Drawn:
        request = wire.IncrementalAlterConfigsRequest
        kind, name = self._resource()
        configs = []
        for key, values in self._random.sample(CONFIGS[kind], self._random.randint(1, 2)):
            does = self._random.choice((SET, SET, DELETE, *((APPEND, SUBTRACT) if key in LISTS else ())))
            value = None if does == DELETE else self._random.choice(values)
            configs.append(request.AlterableConfig(name=key, config_operation=does, value=value))
        resource = request.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
        return "configure", request(resources=[resource]), 1

    def _replace_configs(self) -> Drawn:
        request = wire.AlterConfigsRequest
        kind, name = self._resource()
        rows = self._random.sample(CONFIGS[kind], self._random.randint(0, 2))
        configs = [request.AlterableConfig(name=key, value=self._random.choice(values)) for key, values in rows]
        resource = request.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
        return "replace configs", request(resources=[resource]), 2

    def _add_partitions(self) -> Drawn:
        request = wire.CreatePartitionsRequest
        name = self._topic()
        count = min(MOST_PARTITIONS, self._partitions(name) + self._random.randint(0, 2))
        topic = request.CreatePartitionsTopic(name=name, count=count, assignments=None)
        return "add partitions", request(topics=[topic], timeout_ms=TIMEOUT_MS), 3

    def _moved(self, draw: Callable[[], list[int] | None]) -> Any:
        request = wire.AlterPartitionReassignmentsRequest
        name = self._topic()
        partitions = [
            request.ReassignablePartition(partition_index=index, replicas=draw())
            for index in range(max(1, self._partitions(name)))
            if self._random.random() < 0.7
        ]
        return request(topics=[request.ReassignableTopic(name=name, partitions=partitions)], timeout_ms=TIMEOUT_MS)

    def _reassign(self) -> Drawn:
        return "reassign", self._moved(self._replicas), 0

    def _call_off(self) -> Drawn:
        return "call off", self._moved(lambda: None), 0

    def _elect(self) -> Drawn:
        request = wire.ElectLeadersRequest
        name = self._topic()
        rows = [request.TopicPartitions(topic=name, partitions=list(range(max(1, self._partitions(name)))))]
        everything = self._random.random() < 0.3
        unclean = self._random.random() < 0.3
        return (
            "elect",
            request(election_type=int(unclean), topic_partitions=None if everything else rows, timeout_ms=TIMEOUT_MS),
            2,
        )

    def _quota(self) -> Drawn:
        request = wire.AlterClientQuotasRequest
        kinds = self._random.choice((("user",), ("client-id",), ("user", "client-id"), ("ip",)))
        names: dict[str, tuple[str | None, ...]] = {
            "user": (*USERS, None),
            "client-id": ("c1", "c2", None),
            # Not of all addresses: the test's own connections would wait for it.
            "ip": ("10.0.0.1", "10.0.0.2"),
        }
        entity = [request.EntityData(entity_type=kind, entity_name=self._random.choice(names[kind])) for kind in kinds]
        keys = ("connection_creation_rate",) if kinds == ("ip",) else ("producer_byte_rate", "request_percentage")
        op = request.OpData(
            key=self._random.choice(keys),
            value=self._random.choice((50.0, 5000.0, 12.5)),
            remove=self._random.random() < 0.3,
        )
        return "quota", request(entries=[request.EntryData(entity=entity, ops=[op])]), 1

    def _scram(self) -> Drawn:
        request = wire.AlterUserScramCredentialsRequest
        user, mechanism = self._random.choice(USERS), self._random.choice((1, 2))
        if self._random.random() < 0.4:
            deletion = request.ScramCredentialDeletion(name=user, mechanism=mechanism)
            return "delete user", request(deletions=[deletion]), 0
        upsertion = request.ScramCredentialUpsertion(
            name=user,
            mechanism=mechanism,
            iterations=self._random.choice((4096, 8192, 1)),
            salt=self._random.randbytes(8),
            salted_password=self._random.randbytes(32 if mechanism == 1 else 64),
        )
        return "user", request(upsertions=[upsertion]), 0

    def _add_acl(self) -> Drawn:
        request = wire.CreateAclsRequest
        kind, operation = self._random.choice(((2, 3), (2, 4), (3, 3), (4, 12), (2, 2)))
        row = request.AclCreation(
            resource_type=kind,
            resource_name="kafka-cluster" if kind == 4 else self._random.choice(TOPICS),
            resource_pattern_type=3 if kind == 4 else self._random.choice((3, 4)),
            principal=f"User:{self._random.choice(USERS)}",
            host=self._random.choice(("*", "10.0.0.1")),
            operation=operation,
            permission_type=self._random.choice((2, 3)),
        )
        return "acl", request(creations=[row]), 3

    def _delete_acls(self) -> Drawn:
        request = wire.DeleteAclsRequest
        row = request.DeleteAclsFilter(
            resource_type_filter=self._random.choice((1, 2)),
            resource_name_filter=self._random.choice((None, *TOPICS)),
            pattern_type_filter=self._random.choice((1, 2, 3, 4)),
            principal_filter=f"User:{self._random.choice(USERS)}",
            host_filter=None,
            operation=1,
            permission_type=1,
        )
        return "delete acls", request(filters=[row]), 3

    def _features(self) -> Drawn:
        request = wire.UpdateFeaturesRequest
        level = self._random.choice((0, 1))
        row = request.FeatureUpdateKey(
            feature=self._random.choice(FEATURES), max_version_level=level, upgrade_type=1 if level else 2
        )
        return "feature", request(feature_updates=[row], timeout_ms=TIMEOUT_MS), 1


def creation(rng: random.Random, name: str) -> Any:
    """Of one topic, by number or by assignment, with or without settings."""
    request = wire.CreateTopicsRequest
    count = rng.randint(1, 4)
    configs = [
        request.CreatableTopicConfig(name=key, value=rng.choice(values))
        for key, values in rng.sample(CONFIGS[TOPIC][2:], rng.randint(0, 2))
    ]
    factor = rng.randint(1, len(BROKERS))
    if rng.random() < 0.5:
        rows = [
            request.CreatableReplicaAssignment(partition_index=index, broker_ids=rng.sample(BROKERS, factor))
            for index in range(count)
        ]
        topic = request.CreatableTopic(
            name=name, num_partitions=-1, replication_factor=-1, assignments=rows, configs=configs
        )
    else:
        topic = request.CreatableTopic(name=name, num_partitions=count, replication_factor=factor, configs=configs)
    return request(topics=[topic], timeout_ms=TIMEOUT_MS)


def described(names: Collection[tuple[int, str]]) -> Any:
    """A DescribeConfigsRequest of resources."""
    request = wire.DescribeConfigsRequest
    return request(
        resources=[
            request.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
            for kind, name in names
        ],
        include_synonyms=True,
    )
