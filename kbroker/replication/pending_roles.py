"""Roles that new metadata give to partitions, and that are not taken yet.

A broker that is gone changes every partition that it had a replica of.  In a turn whose slice is used up a topic is set
down as a whole, before and after; which of its partitions have changed is seen when its turn comes, or when a request
asks for one of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.metadata.image import altered
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.metadata.image import PartitionImage, TopicImage

Role = tuple["TopicImage", "PartitionImage"]


class PendingRoles:
    """By partition, in the order of their coming.  A newer role takes the place of an older one."""

    def __init__(self) -> None:
        self._roles: dict[TopicPartition, Role] = {}
        self._topics: dict[str, tuple[TopicImage, TopicImage]] = {}

    def __bool__(self) -> bool:
        return bool(self._roles or self._topics)

    def __contains__(self, name: TopicPartition) -> bool:
        """Whether a partition may have another role to take."""
        return name in self._roles or name.topic in self._topics

    def put(self, topic: TopicImage, image: PartitionImage) -> None:
        """A partition's role, for later."""
        self._roles[TopicPartition(topic.name, image.partition)] = topic, image

    def put_topic(self, before: TopicImage, topic: TopicImage) -> None:
        """All that has changed of a topic, for later."""
        self._topics[topic.name] = self.before(before), topic

    def before(self, topic: TopicImage) -> TopicImage:
        """The topic as the roles are that it has by now: older than the one given where that is still pending, and is
        not any more."""
        older, _ = self._topics.pop(topic.name, (topic, topic))
        return older

    def pop(self, name: TopicPartition) -> Role | None:
        """A partition's role, None where it has the newest."""
        if name.topic in self._topics:
            self._compare(name.topic)
        return self._roles.pop(name, None)

    def pop_first(self) -> Role | None:
        """The newest role of the partition that came first; None where what came first has changed nothing."""
        if not self._roles and self._topics:
            self._compare(next(iter(self._topics)))
        return self.pop(next(iter(self._roles))) if self._roles else None

    def _compare(self, name: str) -> None:
        before, topic = self._topics.pop(name)
        for image in altered(before, topic):
            self.put(topic, image)

    def discard(self, topic: TopicImage, image: PartitionImage) -> None:
        """The partition takes its newest role by itself."""
        self._roles.pop(TopicPartition(topic.name, image.partition), None)

    def forget(self, topic: TopicImage) -> None:
        """The topic is gone."""
        self._topics.pop(topic.name, None)
        if self._roles:
            for index in range(len(topic.partitions)):
                self._roles.pop(TopicPartition(topic.name, index), None)

    def clear(self) -> None:
        """Forget all."""
        self._roles.clear()
        self._topics.clear()
