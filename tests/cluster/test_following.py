"""Deltas hold all that changes: who applies them comes to the controller's image, and so does a restart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker.cluster.config_changes import ConfigResourceType
from kbroker.cluster.requests import (
    BrokerEpoch,
    ConfigAlteration,
    ConfigEdit,
    EditOperation,
    ElectionType,
    IsrChange,
    NewPartitions,
    NewTopic,
    Reassignment,
    ReplicaReport,
)
from kbroker.cluster.stored_image import stored_image
from kbroker.config import BrokerConfig
from kbroker.errors import BrokerIdNotRegisteredError, KafkaError, StaleBrokerEpochError
from kbroker.metadata.cache import MetadataCache
from kbroker.metadata.features import ELIGIBLE_LEADER_REPLICAS, FeatureUpdate, UpgradeType
from kbroker.metadata.image import BrokerImage, ClusterImage, ConfigResource, PartitionImage
from kbroker.metadata.local_store import LocalStore
from kbroker.metadata.store import MetadataStoreError
from kbroker.types import TopicPartition
from tests.cluster.parts import Metadata
from tests.unbroken import finished

FILE = "metadata.sqlite"
CONFIG = BrokerConfig.from_mapping({"default.replication.factor": "2"})
BROKERS = [BrokerImage(node_id, {}, epoch=7) for node_id in (1, 2, 3)]
names = st.sampled_from("abc")
nodes = st.sampled_from((1, 2, 3))
kinds = st.sampled_from((ConfigResourceType.GROUP, ConfigResourceType.BROKER, ConfigResourceType.TOPIC))
SETTINGS = {
    ConfigResourceType.GROUP: "consumer.session.timeout.ms",
    ConfigResourceType.BROKER: "log.retention.ms",
    ConfigResourceType.TOPIC: "retention.ms",
}
steps = st.one_of(
    st.tuples(st.just("create"), names, st.integers(1, 3)),
    st.tuples(st.just("grow"), names, st.integers(1, 5)),
    st.tuples(st.just("delete"), names),
    st.tuples(st.just("alter"), kinds, names, st.sampled_from(EditOperation), st.integers(45_000, 45_002)),
    st.tuples(st.just("fail"), nodes, names, st.integers(0, 2)),
    st.tuples(st.just("return"), nodes, names, st.integers(0, 2), st.integers(-1, 5), st.booleans()),
    st.tuples(st.just("shrink"), nodes, names, st.integers(0, 2), st.sets(nodes)),
    st.tuples(st.just("elect"), st.sampled_from(ElectionType), st.booleans()),
    st.tuples(st.just("move"), names, st.integers(0, 2), st.one_of(st.none(), st.permutations((1, 2, 3)))),
    st.tuples(st.just("unregister"), nodes),
    st.tuples(st.just("features"), st.integers(0, 1)),
)


def take(metadata: Metadata, step: tuple[Any, ...]) -> None:
    """Ask the controller for one change; it may refuse."""
    controller, cache = metadata.controller, metadata.cache
    match step:
        case ("create", name, count):
            finished(controller.create_topics([NewTopic(name, count)]))
        case ("grow", name, count):
            finished(controller.create_partitions([NewPartitions(name, count)]))
        case ("delete", name):
            topic = cache.topic(name)
            finished(controller.delete_topics([] if topic is None else [topic.topic_id]))
        case ("alter", kind, name, operation, value):
            resource = ConfigResource(kind, "1" if kind == ConfigResourceType.BROKER else name)
            edit = ConfigEdit(SETTINGS[kind], operation, str(value))
            finished(controller.alter_configs([ConfigAlteration(resource, [edit])]))
        case ("fail", node_id, name, index):
            report = ReplicaReport(offline=frozenset({TopicPartition(name, index)}))
            finished(controller.report_replicas(BrokerEpoch(node_id), report))
        case ("return", node_id, name, index, epoch, unclean):
            partition = TopicPartition(name, index)
            report = ReplicaReport(online={partition: epoch}, unclean=frozenset({partition} if unclean else ()))
            finished(controller.report_replicas(BrokerEpoch(node_id), report))
        case ("shrink", node_id, name, index, isr):
            known = cache.image.topics.get(name)
            if known is None or index >= len(known.partitions):
                return
            image = known.partitions[index]
            change = IsrChange(
                TopicPartition(name, index),
                image.leader_epoch,
                image.partition_epoch,
                [(each, 7) for each in image.replicas if each in isr],
            )
            finished(controller.alter_partitions(BrokerEpoch(node_id, 7), [change]))
        case ("elect", election, every):
            finished(controller.elect_leaders(election, None if every else [TopicPartition("a", 0)]))
        case ("move", name, index, replicas):
            finished(controller.alter_reassignments([Reassignment(TopicPartition(name, index), replicas)]))
        case ("unregister", node_id):
            finished(controller.unregister_broker(node_id))
        case ("features", level):
            updates = [FeatureUpdate(ELIGIBLE_LEADER_REPLICAS, level, UpgradeType(1 if level else 2))]
            finished(controller.update_features(updates))


def comparable(image: ClusterImage) -> ClusterImage:
    """An image without the count of images before it."""
    return replace(image, version=0)


def stored_fields(image: ClusterImage) -> dict[str, tuple[PartitionImage, ...]]:
    return {
        name: tuple(replace(each, offline_replicas=()) for each in topic.partitions)
        for name, topic in image.topics.items()
    }


@settings(max_examples=60, deadline=None)
@given(st.lists(steps, max_size=12))
def test_a_follower_and_a_restart_come_to_the_same_image(taken: list[tuple[Any, ...]]) -> None:
    """Another broker of the cluster, or the next start, would serve other metadata than this one."""
    with TemporaryDirectory() as directory:
        store = LocalStore.open(Path(directory) / FILE)
        metadata = Metadata(store, CONFIG, BROKERS)
        follower = MetadataCache(metadata.cache.image)
        metadata.cache.subscribe(lambda _old, _new, delta: follower.apply(delta))
        for step in [("create", "a", 2), *taken]:
            try:
                take(metadata, step)
            except KafkaError:
                continue
        image = metadata.cache.image
        assert comparable(follower.image) == comparable(image)
        again = stored_image(store, CONFIG, 1)
        store.close()
        assert stored_fields(again) == stored_fields(image)
        assert {name: dict(topic.configs) for name, topic in again.topics.items()} == {
            name: dict(topic.configs) for name, topic in image.topics.items()
        }
        assert again.configs == image.configs
        assert (again.features.epoch, again.features.levels()) == (image.features.epoch, image.features.levels())


@pytest.fixture
def metadata(tmp_path: Path) -> Any:
    store = LocalStore.open(tmp_path / FILE)
    yield Metadata(store, CONFIG, BROKERS)
    store.close()


def test_a_broker_of_another_epoch_is_refused(metadata: Metadata) -> None:
    """A broker that was taken for dead would go on changing ISRs, or take producer ids, beside its successor."""
    with pytest.raises(StaleBrokerEpochError):
        finished(metadata.controller.alter_partitions(BrokerEpoch(1, 6), []))
    with pytest.raises(BrokerIdNotRegisteredError):
        finished(metadata.controller.allocate_producer_ids(BrokerEpoch(9, 7)))


def test_a_store_that_fails_changes_nothing(metadata: Metadata) -> None:
    """Levels, settings and leaders would be in force until the restart that forgets them."""
    finished(metadata.controller.create_topics([NewTopic("a", 1)]))
    before = metadata.cache.image
    metadata.store.close()
    with pytest.raises(MetadataStoreError):
        take(metadata, ("features", 0))
    with pytest.raises(MetadataStoreError):
        take(metadata, ("unregister", 2))
    for kind, name in ((ConfigResourceType.GROUP, "g"), (ConfigResourceType.TOPIC, "a")):
        with pytest.raises(MetadataStoreError):
            metadata.replace_configs(kind, name, {SETTINGS[kind]: "45001"})
    assert metadata.cache.image is before


def test_topics_with_and_without_errors_are_one_request(metadata: Metadata) -> None:
    """A setting that one topic can't have would keep a whole request from its topics, groups and brokers."""
    finished(metadata.controller.create_topics([NewTopic("a", 1), NewTopic("b", 1)]))
    edits = [
        ConfigEdit("retention.ms", EditOperation.SET, "1"),
        ConfigEdit("consumer.session.timeout.ms", EditOperation.SET, "45001"),
    ]
    alterations = [
        ConfigAlteration(ConfigResource(ConfigResourceType.TOPIC, "a"), edits[:1]),
        ConfigAlteration(ConfigResource(ConfigResourceType.TOPIC, "b"), edits),
        ConfigAlteration(ConfigResource(ConfigResourceType.TOPIC, "c"), edits[:1]),
        ConfigAlteration(ConfigResource(ConfigResourceType.GROUP, "g"), edits[1:]),
        ConfigAlteration(ConfigResource(77, "g"), edits[1:]),
    ]
    errors = finished(metadata.controller.alter_configs(alterations))
    assert [None if error is None else error.code.name for error in errors] == [
        None,
        "INVALID_CONFIG",
        "UNKNOWN_TOPIC_OR_PARTITION",
        None,
        "INVALID_REQUEST",
    ]
    assert dict(metadata.cache.image.topics["a"].configs) == {"retention.ms": "1"}
    assert metadata.cache.image.configs[ConfigResource(32, "g")] == {"consumer.session.timeout.ms": "45001"}
