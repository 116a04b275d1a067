"""Topics of clusters that are older than topic ids (IBP 2.8) have none, until a newer controller gives them one."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

from kbroker.cluster.metadata_updates import MetadataUpdate, metadata_delta
from kbroker.error_codes import ErrorCode
from kbroker.metadata.difference import difference
from kbroker.metadata.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from kbroker.replication.leader_and_isr import ControllerRequests, ReplicaState, Sender
from kbroker.types import ZERO_UUID, TopicPartition

ROW = PartitionImage(0, 1, 3, (1, 2), (1, 2))
IDS = {"a": b"a" * 16, "b": b"b" * 16}
BROKERS = [BrokerImage(1, {})]


def updated(image: ClusterImage, ids: dict[str, bytes]) -> Any:
    update = MetadataUpdate(1, BROKERS, {(name, topic_id): [ROW] for name, topic_id in ids.items()})
    return metadata_delta(image, update, lambda _: {})


def without_ids() -> ClusterImage:
    topics = [TopicImage(name, ZERO_UUID, (ROW,)) for name in IDS]
    return ClusterImage.of("c", controller_id=1, brokers=BROKERS, topics=topics)


def test_topics_that_are_given_an_id_stay_the_topics_that_they_are() -> None:
    """In a rolling upgrade groups would lose their offsets, and brokers hear no more of the cluster."""
    before = without_ids()
    assert not before.topics_by_id
    delta = updated(before, IDS)
    assert not delta.created and not delta.deleted
    assert [(each.old.topic_id, each.new.topic_id) for each in delta.changed] == [
        (ZERO_UUID, IDS[name]) for name in IDS
    ]
    after = before.apply(delta)
    assert {topic_id: topic.name for topic_id, topic in after.topics_by_id.items()} == {IDS[name]: name for name in IDS}
    assert difference(before, after) == delta
    # A controller of an older release says nothing of ids, and takes none away.
    assert updated(after, dict.fromkeys(IDS, ZERO_UUID)).is_empty()


def test_topics_without_an_id_can_be_deleted_one_by_one() -> None:
    """The second one would stay for good."""
    before = without_ids()
    gone = MetadataUpdate(1, BROKERS, {("a", ZERO_UUID): [PartitionImage(0, -2, 3, (), ())]})
    after = before.apply(metadata_delta(before, gone, lambda _: {}))
    assert list(after.topics) == ["b"]
    assert difference(before, after).deleted == (before.topics["a"],)
    last = MetadataUpdate(1, BROKERS, {("b", ZERO_UUID): [PartitionImage(0, -2, 3, (), ())]})
    assert not after.apply(metadata_delta(after, last, lambda _: {})).topics


def test_a_topic_gets_its_id_in_the_epoch_that_is_in_force() -> None:
    """A controller that has just come to know ids changes no leaders: brokers would go on without the id."""
    name = TopicPartition("a", 0)
    log = Mock()
    log.assign_topic_id.side_effect = lambda topic_id: setattr(log, "topic_id", topic_id)
    known = SimpleNamespace(topic_id=ZERO_UUID, leader_id=1, leader_epoch=3, log=log, topic_partition=name)
    fetchers = Mock()
    replicas: Any = SimpleNamespace(
        is_offline=lambda _: False, given_up=(), hosted=lambda _: known, followed={name: known}, names={}
    )
    cache: Any = SimpleNamespace(image=without_ids())

    async def prepare(_topics: object) -> None:
        pass

    requests = ControllerRequests(2, cache, replicas, fetchers, lambda: 1, lambda _: {}, prepare)

    def told(topic_id: bytes) -> Any:
        state = ReplicaState("a", topic_id, ROW, is_new=False)
        return asyncio.run(requests.leader_and_isr(Sender(1, 1), [state], {}))

    assert told(ZERO_UUID) == [ErrorCode.STALE_CONTROLLER_EPOCH]
    assert told(IDS["a"]) == [ErrorCode.NONE]
    known.log.assign_topic_id.assert_called_once_with(IDS["a"])
    assert known.topic_id == IDS["a"] and replicas.names == {IDS["a"]: "a"}
    # What is asked of a leader is asked by id from now on.
    fetchers.forget.assert_called_once_with(name)
    fetchers.follow.assert_called_once_with(known)
    assert told(IDS["a"]) == [ErrorCode.STALE_CONTROLLER_EPOCH]
    assert told(IDS["b"]) == [ErrorCode.INCONSISTENT_TOPIC_ID]


def test_a_topic_that_was_made_again_is_another_one() -> None:
    """A broker that was away would go on with partitions and settings of the topic that was deleted."""
    before = without_ids()
    before = before.apply(updated(before, IDS))
    delta = updated(before, {"a": b"c" * 16})
    assert [topic.topic_id for topic in delta.deleted] == [IDS["a"]]
    assert [topic.topic_id for topic in delta.created] == [b"c" * 16]
    assert not delta.changed


def test_a_broker_keeps_its_epoch_when_a_controller_names_it_again() -> None:
    """UpdateMetadata has no epochs of brokers: who asks for them would see -1 from then on."""
    registered = {1: BrokerImage(1, {}, epoch=17)}
    before = ClusterImage.of("c", controller_id=1, brokers=tuple(registered.values()))
    update = MetadataUpdate(1, (BrokerImage(1, {}, rack="r"), BrokerImage(2, {})), {})
    after = before.apply(metadata_delta(before, update, lambda _: {}))
    assert {each.node_id: (each.epoch, each.rack) for each in after.brokers.values()} == {1: (17, "r"), 2: (-1, None)}
