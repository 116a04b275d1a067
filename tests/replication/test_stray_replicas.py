"""Which logs of a cluster's member are strays, and when they are set aside."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kbroker.metadata.image import ClusterImage, PartitionImage, TopicImage
from kbroker.replication.stray_replicas import StrayReplicas, stray_replicas
from kbroker.types import ZERO_UUID, TopicPartition

OURS = 1
ID, OTHER_ID = b"i" * 16, b"o" * 16


def test_only_what_the_metadata_give_to_others_is_a_stray() -> None:
    """A log would be set aside that its broker still has to serve, or fill the disk for good."""
    partitions = (PartitionImage(0, 2, 0, (2, 3), (2, 3)), PartitionImage(1, 2, 0, (2, OURS), (2, OURS)))
    image = ClusterImage.of("c", topics=[TopicImage("t", ID, partitions)])
    logs: dict[TopicPartition, Any] = {
        TopicPartition("t", 0): SimpleNamespace(topic_id=ID),
        TopicPartition("t", 1): SimpleNamespace(topic_id=ID),
        TopicPartition("t", 2): SimpleNamespace(topic_id=ZERO_UUID),
        TopicPartition("unknown", 0): SimpleNamespace(topic_id=ID),
    }
    assert dict(stray_replicas(image, OURS, logs, lambda _name: True)) == {}
    found = dict(stray_replicas(image, OURS, logs, lambda _name: False))
    assert sorted(found) == [("t", 0), ("t", 2)]
    logs[TopicPartition("t", 1)].topic_id = OTHER_ID
    assert ("t", 1) in dict(stray_replicas(image, OURS, logs, lambda _name: False))


def test_a_log_that_names_no_topic_is_a_stray_where_all_topics_have_ids() -> None:
    """After a power cut records of a topic that was deleted would be read in the one that has its name by now."""
    image = ClusterImage.of("c", topics=[TopicImage("t", ID, (PartitionImage(0, OURS, 0, (OURS,), (OURS,)),))])
    log = SimpleNamespace(topic_id=ZERO_UUID, partition_metadata=SimpleNamespace(path="/d/t-0/partition.metadata"))
    logs: dict[TopicPartition, Any] = {TopicPartition("t", 0): log}
    assert not dict(stray_replicas(image, OURS, logs, lambda _name: False))
    ((name, why),) = stray_replicas(image, OURS, logs, lambda _name: False, all_have_ids=True)
    assert name == ("t", 0)
    assert "/d/t-0/partition.metadata" in why


def test_a_stray_is_set_aside_when_it_was_one_before() -> None:
    """A replica at the end of a move, about to be deleted, would stay on the disk under another name."""
    aside: list[TopicPartition] = []
    strays = StrayReplicas(lambda name, _why: aside.append(name))
    first, second = TopicPartition("t", 0), TopicPartition("t", 1)
    strays.look(iter([(first, "")]))
    assert aside == []
    strays.look(iter([(second, "")]))
    assert aside == []
    strays.look(iter([(first, ""), (second, "")]))
    assert aside == [second]
    strays.look(iter([(first, "")]))
    assert aside == [second, first]
