"""The few admin calls that arranging and checking a test needs, through librdkafka's admin client."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.cimpl import NewTopic

_NUMBERS = count(1)


def unique(prefix: str) -> str:
    """A name that no other test of this run uses."""
    return f"{prefix}-{next(_NUMBERS)}"


class Admin:
    """An admin connection to one broker."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    @property
    def _client(self) -> AdminClient:
        """A client of its own for each call: tests restart the broker under it."""
        return AdminClient({"bootstrap.servers": self._bootstrap})

    def create_topic(self, prefix: str, partitions: int, config: Mapping[str, str] | None = None) -> str:
        """Create a topic under a name of its own; the name."""
        name = unique(prefix)
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(config or {}))
        client = self._client
        client.create_topics([topic], operation_timeout=90)[name].result(90)
        return name

    def committed(self, group: str, topic: str, partitions: int) -> dict[int, int]:
        """The offsets that a group has committed, by partition; partitions without one are left out."""
        places = [TopicPartition(topic, partition) for partition in range(partitions)]
        asked = [ConsumerGroupTopicPartitions(group, places)]
        client = self._client
        found = client.list_consumer_group_offsets(asked)[group].result(90)
        return {place.partition: place.offset for place in found.topic_partitions if place.offset >= 0}

    def end_offsets(self, topic: str, partitions: int) -> dict[int, int]:
        """The log end offsets of a topic."""
        spec: Any = OffsetSpec
        asked = {TopicPartition(topic, partition): spec.latest() for partition in range(partitions)}
        client = self._client
        futures = client.list_offsets(asked)
        return {place.partition: future.result(90).offset for place, future in futures.items()}

    def group_state(self, group: str) -> str:
        """The state of a group, as the broker tells it."""
        client = self._client
        described = client.describe_consumer_groups([group])[group].result(90)
        return str(described.state.name)
