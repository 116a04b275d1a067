"""A random walk of administrative requests through brokers of both kinds: after each, all describe the same cluster.

Also of `kbroker.metadata.record_deltas`, `kbroker.cluster.kraft.cluster_metadata`.
"""

from __future__ import annotations

import os
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kbroker.schemas import wire
from tests.broker_process import answers_api_versions
from tests.cluster.kraft.administrative_steps import (
    GROUP,
    METRICS,
    OF_BROKER,
    TOPIC,
    TOPICS,
    Steps,
    creation,
    described,
)
from tests.cluster.kraft.asking import ask, shown
from tests.cluster.kraft.processes import Cluster, Kafka, Kbroker, running
from tests.compat.waiting import Waited, wait_for

STEPS = int(os.environ.get("KBROKER_WALK_STEPS", "60"))
SEED = int(os.environ.get("KBROKER_WALK_SEED", "20261"))
pytestmark = [pytest.mark.compat, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(300 + 15 * STEPS)]

OURS, THEIRS, COMES_AND_GOES = 1, 2, 3
OF_DEFAULT = 3
OF_ALL = {1, OF_DEFAULT, 7, 8}
"""Sources of settings: a topic, all brokers, client metrics, a group.  A broker's own (2) are its own affair."""
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "auto.create.topics.enable": "false",
}
QUORUM = wire.DescribeQuorumRequest
ACLS = wire.DescribeAclsRequest(
    resource_type_filter=1,
    pattern_type_filter=1,
    operation=1,
    permission_type=1,
    resource_name_filter=None,
    principal_filter=None,
    host_filter=None,
)
ASKED: dict[str, tuple[Any, int]] = {
    "metadata": (wire.MetadataRequest(topics=None), 13),
    "cluster": (wire.DescribeClusterRequest(include_fenced_brokers=True), 2),
    "partitions": (
        wire.DescribeTopicPartitionsRequest(
            topics=[wire.DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in TOPICS]
        ),
        0,
    ),
    "resources": (wire.ListConfigResourcesRequest(resource_types=[TOPIC, METRICS, GROUP]), 1),
    "quotas": (wire.DescribeClientQuotasRequest(components=[], strict=False), 1),
    "users": (wire.DescribeUserScramCredentialsRequest(users=None), 0),
    "acls": (ACLS, 3),
    "moves": (wire.ListPartitionReassignmentsRequest(topics=None), 0),
}
RESOURCES = [
    *((TOPIC, name) for name in TOPICS),
    (OF_BROKER, ""),
    *((METRICS, name) for name in ("m1", "m2")),
    *((GROUP, name) for name in ("g1", "g2")),
]


def settings_of(answer: Any) -> list[tuple[Any, ...]]:
    """What the log says of all brokers, not what one has by itself."""
    found = []
    for row in answer.results:
        for each in row.configs:
            said = [(other.name, other.value, other.source) for other in each.synonyms if other.source in OF_ALL]
            if each.config_source in OF_ALL - {OF_DEFAULT}:
                said.insert(0, (each.name, each.value, each.config_source))
            if said:
                found.append(
                    (row.resource_type, row.resource_name, row.error_code, each.name, list(dict.fromkeys(said)))
                )
    return sorted(found)


def image(cluster: Cluster, number: int) -> dict[str, Any]:
    """What a broker says of the cluster."""
    found: dict[str, Any] = {
        what: shown(ask(cluster, number, request, version)) for what, (request, version) in ASKED.items()
    }
    found["settings"] = settings_of(ask(cluster, number, described(RESOURCES), 4))
    features = ask(cluster, number, wire.ApiVersionsRequest(client_software_name="a", client_software_version="b"), 4)
    found["features"] = sorted(map(repr, features.finalized_features))
    return found


def differences(cluster: Cluster, numbers: tuple[int, ...]) -> dict[str, dict[int, Any]]:
    """What brokers describe otherwise than the first of them."""
    images = {number: image(cluster, number) for number in numbers}
    first = images[numbers[0]]
    return {
        what: {
            number: sorted(set(map(repr, each[what])) - set(map(repr, other[what])))
            for number, each in images.items()
            for other in images.values()
            if each[what] != other[what]
        }
        for what in first
        if any(each[what] != first[what] for each in images.values())
    }


def quorum(cluster: Cluster) -> Any:
    topic = QUORUM.TopicData(topic_name="__cluster_metadata", partitions=[QUORUM.PartitionData(partition_index=0)])
    return ask(cluster, THEIRS, QUORUM(topics=[topic]), 2).topics[0].partitions[0]


class Walk:
    """The cluster and what has been asked of it."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self._cluster = cluster
        self._random = random.Random(seed)
        self._steps = Steps(self._random, self._partitions)
        self.is_whole = True
        self.done: list[str] = []
        self.taken: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()

    def _partitions(self, name: str) -> int:
        request = wire.MetadataRequest(topics=[wire.MetadataRequest.MetadataRequestTopic(name=name)])
        (topic,) = ask(self._cluster, THEIRS, request, 12).topics
        return len(topic.partitions)

    def _living(self) -> tuple[int, ...]:
        return (OURS, THEIRS, COMES_AND_GOES) if self.is_whole else (OURS, THEIRS)

    def step(self) -> None:
        """One request through one broker, or one broker that goes or comes; then all are compared."""
        drawn = self._random.random()
        if drawn < 0.04:
            self._go_or_come()
        elif drawn < 0.08:
            name = self._random.choice([each for each in TOPICS if self._partitions(each)] or TOPICS)
            self._ask("delete", wire.DeleteTopicsRequest(topic_names=[name], timeout_ms=30_000), 5)
            self._ask("make again", creation(self._random, name), 7)
        else:
            self._ask(*self._steps.draw())
        self.compare()

    def _go_or_come(self) -> None:
        node = self._cluster.nodes[COMES_AND_GOES]
        if not self.is_whole:
            node.start()
        elif self._random.random() < 0.5:
            node.kill()
        else:
            node.stop()
        self.is_whole = not self.is_whole
        self.done.append(f"broker {COMES_AND_GOES} {'comes' if self.is_whole else 'goes'}")

    def _ask(self, what: str, request: Any, version: int) -> None:
        through = self._random.choice(self._living())
        answer = repr(ask(self._cluster, through, request, version))
        codes = {int(each) for each in re.findall(r"error_code=(\d+)", answer)} - {0}
        (self.refused if codes else self.taken)[what] += 1
        self.done.append(f"{what} through {through}: {sorted(codes) or 'taken'} {request!r}")

    def compare(self) -> None:
        """Until the brokers that live are where the active controller was, and describe the same."""
        target = quorum(self._cluster).high_watermark
        living = set(self._living())

        def are_there() -> bool:
            ends = {each.replica_id: each.log_end_offset for each in quorum(self._cluster).observers}
            return all(ends.get(number, -1) >= target for number in living)

        wait_for(are_there, f"brokers {living} to have the log up to {target}", seconds=60)
        last: dict[str, Any] = {}

        def are_equal() -> bool:
            nonlocal last
            last = differences(self._cluster, tuple(sorted(living)))
            return not last

        try:
            wait_for(are_equal, "the same descriptions", seconds=60)
        except Waited as error:
            raise AssertionError(f"seed {SEED}, after {self.done[-5:]}: {last}") from error


def test_brokers_of_both_kinds_describe_the_same_cluster_after_each_administrative_request(tmp_path: Path) -> None:
    """What a client learns of the cluster would depend on the broker that it asks, from some request on, for ever."""
    with running(tmp_path, (Kbroker, Kafka, Kbroker), settings=AUTHORIZER) as cluster:
        # Kafka's broker is registered, and shown to clients, before it takes connections.
        port = cluster.nodes[THEIRS].port
        wait_for(lambda: answers_api_versions(port), "Kafka's broker to answer", seconds=60)
        walk = Walk(cluster, SEED)
        for _ in range(STEPS):
            walk.step()
        if not walk.is_whole:
            cluster.nodes[COMES_AND_GOES].start()
            walk.is_whole = True
            walk.compare()
        # What a start reads from disk is the same, too.
        cluster.nodes[OURS].stop()
        cluster.nodes[OURS].start()
        walk.compare()
        print(f"taken: {dict(walk.taken)}; refused: {dict(walk.refused)}")
        assert walk.taken.total() > walk.refused.total(), (walk.taken, walk.refused)
