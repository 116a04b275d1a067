"""The local controller: store, image and subscribers move together, and a failing store moves nothing.

Also of `kbroker.cluster.partition_updates`, `kbroker.cluster.topics`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from kbroker.cluster.config_changes import ConfigResourceType
from kbroker.cluster.requests import NewPartitions, NewTopic
from kbroker.config import BrokerConfig
from kbroker.errors import (
    ErrorCode,
    InvalidConfigError,
    PolicyViolationError,
    UnknownTopicOrPartitionError,
)
from kbroker.metadata.image import BrokerImage, MetadataDelta
from kbroker.metadata.local_store import LocalStore
from kbroker.metadata.producer_id_manager import ProducerIdManager
from kbroker.metadata.store import MetadataStoreError
from kbroker.metadata.topic_names import GROUP_METADATA_TOPIC, SHARE_GROUP_STATE_TOPIC, TRANSACTION_STATE_TOPIC
from tests.cluster.parts import Metadata
from tests.restarts import started_again
from tests.unbroken import finished


class Cluster:
    """A manager over a real store, with as many brokers as a test wants."""

    def __init__(self, directory: Path, broker_count: int = 1, **settings: object) -> None:
        named = {key.replace("_", "."): value for key, value in settings.items()}
        self.store = LocalStore.open(directory / "metadata.sqlite")
        brokers = [BrokerImage(node_id, {}) for node_id in range(1, broker_count + 1)]
        self.metadata = Metadata(self.store, BrokerConfig.from_mapping(named), brokers)
        self.cache, self.controller = self.metadata.cache, self.metadata.controller
        self.deltas: list[MetadataDelta] = []
        self.cache.subscribe(lambda _old, _new, delta: self.deltas.append(delta))

    def replace_configs(self, name: str, wanted: dict[str, str], *, validate_only: bool = False) -> None:
        self.metadata.replace_configs(ConfigResourceType.TOPIC, name, wanted, validate_only=validate_only)


Start = Callable[[], Cluster]


@pytest.fixture(name="start")
def _start(tmp_path: Path) -> Iterator[Start]:
    """Starts the manager, again each time."""
    yield from started_again(lambda: Cluster(tmp_path))


@pytest.fixture
def cluster(start: Start) -> Cluster:
    return start()


def test_a_created_topic_is_stored_visible_and_announced(cluster: Cluster, start: Start) -> None:
    """A topic would vanish with a restart, or have no logs."""
    (outcome,) = finished(cluster.controller.create_topics([NewTopic("a", 3, 1, configs={"retention.ms": "1"})]))
    assert outcome.topic is not None
    assert cluster.cache.topic("a") is outcome.topic
    assert cluster.deltas == [MetadataDelta(created=(outcome.topic,))]
    assert start().cache.topic("a") == outcome.topic


def test_validate_only_changes_nothing(cluster: Cluster) -> None:
    """A dry run would create topics."""
    finished(cluster.controller.create_topics([NewTopic("kept")]))
    cluster.deltas.clear()
    assert finished(cluster.controller.create_topics([NewTopic("a")], validate_only=True))[0].topic is not None
    grown = finished(cluster.controller.create_partitions([NewPartitions("kept", 9)], validate_only=True))
    assert grown[0].topic is not None
    cluster.replace_configs("kept", {"retention.ms": "1"}, validate_only=True)
    assert [image.name for image in cluster.store.topics()] == ["kept"]
    assert cluster.deltas == []


def test_a_failing_store_changes_nothing(cluster: Cluster) -> None:
    """A topic would be visible until the restart that forgets it."""
    cluster.store.close()
    with pytest.raises(MetadataStoreError) as caught:
        finished(cluster.controller.create_topics([NewTopic("a")]))
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert cluster.cache.topic("a") is None
    assert cluster.deltas == []


def test_one_bad_topic_does_not_keep_the_others(cluster: Cluster) -> None:
    """A typo in one name would fail a whole deployment's request."""
    outcomes = finished(
        cluster.controller.create_topics([NewTopic("good"), NewTopic("bad name"), NewTopic("also.good")])
    )
    assert [outcome.error is None for outcome in outcomes] == [True, False, True]
    assert len(cluster.deltas) == 1
    assert [topic.name for topic in cluster.deltas[0].created] == ["good", "also.good"]


def test_collisions_are_found_again_after_deletion_and_restart(cluster: Cluster, start: Start) -> None:
    """A name would stay taken after its rival is gone, or be given away after a restart."""
    (first,) = finished(cluster.controller.create_topics([NewTopic("a.b")]))
    assert first.topic is not None
    for controller in (cluster.controller, start().controller):
        error = finished(controller.create_topics([NewTopic("a_b")]))[0].error
        assert error is not None
        assert error.message == "Topic 'a_b' collides with existing topic: a.b"
    finished(cluster.controller.delete_topics([first.topic.topic_id]))
    assert finished(cluster.controller.create_topics([NewTopic("a_b")]))[0].error is None


def test_growing_keeps_the_old_partitions(cluster: Cluster, start: Start) -> None:
    """Records of the existing partitions would become unreachable."""
    (before,) = finished(cluster.controller.create_topics([NewTopic("a", 2, 1)]))
    (after,) = finished(cluster.controller.create_partitions([NewPartitions("a", 4)]))
    assert before.topic is not None
    assert after.topic is not None
    assert after.topic.partitions[:2] == before.topic.partitions
    assert after.topic.topic_id == before.topic.topic_id
    ((change,),) = [delta.changed for delta in cluster.deltas if delta.changed]
    assert (len(change.old.partitions), len(change.new.partitions)) == (2, 4)
    assert start().cache.topic("a") == after.topic


def test_configs_are_replaced_as_a_whole(cluster: Cluster, start: Start) -> None:
    """A removed setting would stay in force after a restart."""
    finished(cluster.controller.create_topics([NewTopic("a", configs={"retention.ms": "1", "segment.ms": "5"})]))
    cluster.replace_configs("a", {"retention.ms": "2"})
    changed = cluster.cache.image.topics["a"]
    assert dict(changed.configs) == {"retention.ms": "2"}
    assert start().cache.topic("a") == changed
    with pytest.raises(InvalidConfigError, match="Unknown topic config name: nope"):
        cluster.replace_configs("a", {"nope": "1"})
    with pytest.raises(UnknownTopicOrPartitionError):
        cluster.replace_configs("b", {})


def test_deleting_twice_is_an_error_the_second_time(cluster: Cluster) -> None:
    """A client would believe that it deleted a topic which somebody made anew."""
    (outcome,) = finished(cluster.controller.create_topics([NewTopic("a")]))
    assert outcome.topic is not None
    topic_id = outcome.topic.topic_id
    first, second = finished(cluster.controller.delete_topics([topic_id, topic_id]))
    assert first.topic == outcome.topic
    assert second.error is not None
    assert second.error.code is ErrorCode.UNKNOWN_TOPIC_ID
    assert cluster.cache.topic("a") is None
    assert cluster.store.topics() == []


def test_too_many_partitions_in_a_request_are_refused(cluster: Cluster) -> None:
    """One request would stall the broker for minutes and use up its files."""
    with pytest.raises(PolicyViolationError, match="Excessively large number of partitions per request"):
        finished(cluster.controller.create_topics([NewTopic("a", 6000), NewTopic("b", 6000)]))
    finished(cluster.controller.create_topics([NewTopic("a", 1)]))
    error = finished(cluster.controller.create_partitions([NewPartitions("a", 10_002)]))[0].error
    assert isinstance(error, PolicyViolationError)
    assert cluster.cache.topic("b") is None


def test_internal_topics_follow_their_own_settings(tmp_path: Path) -> None:
    """Offsets would be deleted by retention, or a single node could not keep any."""
    cluster = Cluster(tmp_path, offsets_topic_num_partitions=7)
    offsets = finished(cluster.controller.ensure_internal_topic(GROUP_METADATA_TOPIC))
    assert (len(offsets.partitions), offsets.replication_factor, offsets.is_internal) == (7, 1, True)
    assert dict(offsets.configs) == {
        "cleanup.policy": "compact",
        "segment.bytes": "104857600",
        "compression.type": "producer",
    }
    assert finished(cluster.controller.ensure_internal_topic(GROUP_METADATA_TOPIC)) is offsets
    transactions = finished(cluster.controller.ensure_internal_topic(TRANSACTION_STATE_TOPIC))
    assert len(transactions.partitions) == 50
    assert transactions.configs["min.insync.replicas"] == "1"
    assert transactions.configs["cleanup.policy"] == "compact"
    assert (
        finished(cluster.controller.auto_create_topics([SHARE_GROUP_STATE_TOPIC]))[SHARE_GROUP_STATE_TOPIC].error
        is None
    )
    cluster.store.close()


def test_small_segments_of_internal_topics_become_the_smallest_that_a_topic_may_have(tmp_path: Path) -> None:
    """No consumer group would work: the setting is taken at start and the topic cannot be made later."""
    cluster = Cluster(tmp_path, offsets_topic_segment_bytes=1000)
    assert finished(cluster.controller.ensure_internal_topic(GROUP_METADATA_TOPIC)).configs["segment.bytes"] == str(
        1 << 20
    )
    cluster.store.close()


def test_internal_topics_use_the_brokers_that_there_are(tmp_path: Path) -> None:
    """A cluster of several nodes would keep its offsets on one of them only."""
    cluster = Cluster(tmp_path, broker_count=5)
    offsets = finished(cluster.controller.ensure_internal_topic(GROUP_METADATA_TOPIC))
    assert offsets.replication_factor == 3
    assert {partition.leader for partition in offsets.partitions} == {1, 2, 3, 4, 5}
    assert (
        finished(cluster.controller.ensure_internal_topic(TRANSACTION_STATE_TOPIC)).configs["min.insync.replicas"]
        == "2"
    )
    cluster.store.close()


def test_automatic_creation_takes_the_brokers_defaults(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A client's first message would wait for a topic that nobody makes, and nobody would learn why."""
    cluster = Cluster(tmp_path, broker_count=2, num_partitions=3, default_replication_factor=4)
    with caplog.at_level(logging.WARNING, "kbroker.cluster"):
        outcomes = finished(cluster.controller.auto_create_topics(["a.b", "bad name", "a.b"]))
    topic = outcomes["a.b"].topic
    assert topic is not None
    assert (len(topic.partitions), topic.replication_factor) == (3, 2)
    assert outcomes["bad name"].error is not None
    assert "cannot create topic 'bad name' automatically: Topic name is invalid" in caplog.text
    cluster.store.close()


def test_topics_that_cannot_be_created_automatically_are_told_once_each(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Clients that start together would fill the log with false warnings, one with a bad name with the same line."""
    create = cluster.controller.auto_create_topics
    assert finished(create(["orders.a"]))["orders.a"].error is None
    with caplog.at_level(logging.WARNING, "kbroker.cluster"):
        for _ in range(20):
            assert finished(create(["orders.a"]))["orders.a"].error is not None, "another client was first"
        assert caplog.messages == []
        for _ in range(200):
            finished(create(["orders_a"]))
    (message,) = caplog.messages
    assert "cannot create topic 'orders_a' automatically" in message and "collides" in message


def test_producer_ids_are_unique_over_restarts(tmp_path: Path) -> None:
    """Two idempotent producers would be taken for one."""
    ids: list[int] = []
    for _ in range(3):
        store = LocalStore.open(tmp_path / "metadata.sqlite")
        metadata = Metadata(store, BrokerConfig.from_mapping({}))
        registered, _ = finished(metadata.controller.register_broker(BrokerImage(1, {})))
        manager = ProducerIdManager(partial(metadata.controller.allocate_producer_ids, registered))
        ids += [finished(manager.next_id()) for _ in range(1500)]
        store.close()
    assert len(set(ids)) == len(ids)
    assert ids[:1500] == list(range(1500))
    assert ids[1500] == 2000
