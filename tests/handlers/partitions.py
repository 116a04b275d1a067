"""Partitions that are led here, and what handlers find them by."""

from __future__ import annotations

from typing import Any

from kbroker.errors import UnknownTopicIdError, UnknownTopicOrPartitionError
from kbroker.metadata.image import PartitionImage
from kbroker.replication.partition import Partition


def led(isr: tuple[int, ...] = (1,)) -> PartitionImage:
    """The metadata of a partition whose leader is broker 1."""
    return PartitionImage(partition=0, leader=1, leader_epoch=0, replicas=isr, isr=isr)


class Manager:
    """What a handler asks of `ReplicaManager`."""

    def __init__(self, topics: dict[str, dict[int, Partition]], names: dict[bytes, str], purgatory: Any) -> None:
        self.topics = topics
        self.names = names
        self.purgatory = purgatory
        self.selector = None
        self.isr_changes = None
        self.traffic = None

    def replica(self, topic: str, index: int) -> Partition:
        return self.partition(topic, index)

    def partition(self, topic: str, index: int) -> Partition:
        try:
            return self.topics[topic][index]
        except KeyError:
            raise UnknownTopicOrPartitionError() from None

    def topic_name(self, topic_id: bytes) -> str:
        try:
            return self.names[topic_id]
        except KeyError:
            raise UnknownTopicIdError() from None
