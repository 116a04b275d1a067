"""Elections, reassignments and metadata of partitions whose replicas are on several brokers, asked of one of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kbroker.coordinator.runtime import coordinator_lookup
from kbroker.handlers.cluster import cluster, elections, reassignments
from kbroker.metadata.image import (
    NO_LEADER,
    BrokerImage,
    BrokersImage,
    Endpoint,
    MetadataDelta,
    PartitionImage,
    TopicImage,
)
from kbroker.types import random_uuid
from tests.handlers.admin_broker import HANDLERS, NODE_ID, AdminBroker

for _family in (elections, reassignments, cluster):
    HANDLERS.update({int(row.api_key): row for row in _family.HANDLERS})


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[AdminBroker]:
    """Broker 1 of three, with a topic whose partition 0 broker 2 leads, and partition 1 nobody."""
    started = AdminBroker.start(tmp_path)
    cache = started.services.metadata_cache
    known = {node_id: BrokerImage(node_id, {"PLAINTEXT": Endpoint("10.0.0.1", 9000 + node_id)}) for node_id in (2, 3)}
    cache.apply(MetadataDelta(brokers=BrokersImage({**cache.image.brokers, **known}, NODE_ID)))
    partitions = (
        PartitionImage(0, 2, 4, (1, 2), (1, 2), 6),
        PartitionImage(1, NO_LEADER, 4, (3, 2), (), 6, offline_replicas=(3,), elr=(3,)),
    )
    topic = TopicImage("t", random_uuid(), partitions)
    started.store.write(MetadataDelta(created=(topic,)))
    cache.apply(MetadataDelta(created=(topic,)))
    yield started
    started.stop()


def partition(broker: AdminBroker, index: int) -> PartitionImage:
    return broker.services.metadata_cache.image.topics["t"].partitions[index]


def elect(broker: AdminBroker, kind: int, *indexes: int) -> list[tuple[int, int]]:
    rows = [{"topic": "t", "partitions": list(indexes)}] if indexes else None
    answer = broker.ask("ElectLeaders", 2, {"election_type": kind, "topic_partitions": rows, "timeout_ms": 1000})
    return [
        (row["partition_id"], row["error_code"])
        for topic in answer["replica_election_results"]
        for row in topic["partition_result"]
    ]


def test_the_preferred_replica_leads_again(broker: AdminBroker) -> None:
    """After a restart all leaders would stay where they fled to."""
    assert elect(broker, 0) == [(0, 0), (1, 80)]
    image = partition(broker, 0)
    assert (image.leader, image.leader_epoch, image.isr) == (1, 5, (1, 2))
    assert elect(broker, 0, 0) == [(0, 84)]


@pytest.mark.parametrize(
    ("kind", "timeout_ms", "code", "of_partitions"),
    [(0, 1000, 0, [84, 3]), (2, 1000, 42, [42, 42]), (0, 0, 7, [7, 7])],
    ids=["", "of no type", "without time"],
)
def test_an_election_is_answered_for_each_topic_that_is_named(
    broker: AdminBroker, kind: int, timeout_ms: int, code: int, of_partitions: list[int]
) -> None:
    """A tool would not find a topic again that it has named, or be told of success where nothing was looked at."""
    assert elect(broker, 0) == [(0, 0), (1, 80)]
    rows = [{"topic": "t", "partitions": [0]}, {"topic": "other", "partitions": []}, {"topic": "t", "partitions": [7]}]
    values = {"election_type": kind, "topic_partitions": rows, "timeout_ms": timeout_ms}
    answer = broker.ask("ElectLeaders", 2, values)
    results = [
        (row["topic"], [each["error_code"] for each in row["partition_result"]])
        for row in answer["replica_election_results"]
    ]
    first, last = of_partitions
    assert (answer["error_code"], results) == (code, [("t", [first]), ("other", []), ("t", [last])])
    nothing = broker.ask("ElectLeaders", 2, {**values, "topic_partitions": []})
    assert (nothing["error_code"], nothing["replica_election_results"]) == (0, [])


def test_an_unclean_election_takes_any_replica_that_is_alive(broker: AdminBroker) -> None:
    """A partition whose in-sync replicas are lost for good could never be used again."""
    described = broker.ask("DescribeTopicPartitions", 0, {"topics": [{"name": "t"}], "response_partition_limit": 10})
    lost = described["topics"][0]["partitions"][1]
    assert (lost["leader_id"], lost["eligible_leader_replicas"]) == (NO_LEADER, [3])
    assert elect(broker, 1, 0, 1) == [(0, 84), (1, 0)]
    image = partition(broker, 1)
    assert (image.leader, image.isr) == (2, (2,))


def test_a_reassignment_is_begun_listed_and_called_off(broker: AdminBroker) -> None:
    """kafka-reassign-partitions could not move a replica, show that it moves, or stop it."""

    def ask(replicas: list[int] | None) -> dict[str, Any]:
        rows = [{"name": "t", "partitions": [{"partition_index": 0, "replicas": replicas}]}]
        answer = broker.ask("AlterPartitionReassignments", 1, {"topics": rows})
        row: dict[str, Any] = answer["responses"][0]["partitions"][0]
        return row

    def moving() -> list[dict[str, Any]]:
        answer = broker.ask("ListPartitionReassignments", 0, {"topics": None})
        return [row for topic in answer["topics"] for row in topic["partitions"]]

    assert moving() == []
    assert ask([3, 2])["error_code"] == 0
    (row,) = moving()
    assert (row["replicas"], row["adding_replicas"], row["removing_replicas"]) == ([3, 2, 1], [3], [1])
    assert ask(None)["error_code"] == 0
    assert moving() == []
    assert set(partition(broker, 0).replicas) == {1, 2}
    assert ask(None)["error_code"] == 85
    assert ask([9])["error_code"] == 39


def test_a_broker_that_is_unregistered_leads_nothing(broker: AdminBroker) -> None:
    """Clients would be sent to a machine that is gone, for good."""
    assert broker.ask("UnregisterBroker", 0, {"broker_id": 2})["error_code"] == 0
    assert 2 not in broker.services.metadata_cache.image.brokers
    assert (partition(broker, 0).leader, partition(broker, 0).isr) == (1, (1,))
    assert broker.ask("UnregisterBroker", 0, {"broker_id": 1})["error_code"] == 42
    answer = broker.ask("Metadata", 12, {"topics": None})
    assert [row["node_id"] for row in answer["brokers"]] == [1, 3]


def test_the_coordinator_is_the_leader_of_the_state(broker: AdminBroker) -> None:
    """Members would join a group at a broker that does not have its state."""
    image = broker.services.metadata_cache.image
    found = {coordinator_lookup.coordinator_node(image, "t", key) for key in "abcdef"}
    assert found == {2, NO_LEADER}
    assert coordinator_lookup.coordinator_node(image, "none", "a") == NO_LEADER


def test_there_is_no_quorum_to_describe(broker: AdminBroker) -> None:
    """An empty quorum would look like a broken one."""
    answer = broker.ask("DescribeQuorum", 2, {"topics": []})
    assert answer["error_code"] == 35 and "no quorum" in answer["error_message"]
