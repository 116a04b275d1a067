"""Which node coordinates a group or a transactional id: the leader of the partition with its state, by the image."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.coordinator.runtime.partitioner import partition_for
from kbroker.metadata.image import NO_LEADER

if TYPE_CHECKING:
    from kbroker.metadata.image import ClusterImage


def coordinator_node(image: ClusterImage, state_topic: str, key: str) -> int:
    """The node's id; `NO_LEADER` while the topic is not there, or no broker leads the partition."""
    topic = image.topics.get(state_topic)
    if topic is None:
        return NO_LEADER
    partition = topic.partitions[partition_for(key, len(topic.partitions))]
    return NO_LEADER if partition.leader in partition.offline_replicas else partition.leader
