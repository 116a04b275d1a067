"""Roles that new metadata give to partitions, and that are not taken yet.

A broker that is gone changes every partition that it had a replica of.  In a turn whose slice is used up a topic is set
down as a whole, before and after, and one of very many partitions in any turn.  Which of its partitions have changed is
seen when its turn comes, COMPARED_AT_ONCE at a time, and of a partition that a request asks for, then.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from kbroker.metadata.image import is_altered_at, is_altered_whole
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.metadata.image import PartitionImage, TopicImage

Role = tuple["TopicImage", "PartitionImage"]

# Some 0.2 ms.
COMPARED_AT_ONCE = 256
OF_NO_TOPIC = b""


@dataclass(slots=True)
class _Comparison:
    """Of a topic with what it was; of the partitions below `at` and of those `asked` it is done."""

    before: TopicImage
    topic: TopicImage
    at: int = 0
    asked: set[int] = field(default_factory=set)

    @property
    def is_over(self) -> bool:
        return self.at >= len(self.topic.partitions)

    def is_done(self, index: int) -> bool:
        return index < self.at or index in self.asked or index >= len(self.topic.partitions)

    def is_altered(self, index: int) -> bool:
        before, topic = self.before, self.topic
        return is_altered_whole(before, topic) or is_altered_at(before, topic, index)

    def take(self, index: int) -> bool:
        """Compare a partition by itself; whether it has changed."""
        if self.is_done(index):
            return False
        self.asked.add(index)
        return self.is_altered(index)

    def take_some(self) -> list[PartitionImage]:
        """Compare the next partitions; those that have changed."""
        assert not self.is_over, f"{self.topic.name} is compared already"
        start, self.at = self.at, min(self.at + COMPARED_AT_ONCE, len(self.topic.partitions))
        done, images = self.asked, self.topic.partitions
        return [images[at] for at in range(start, self.at) if at not in done and self.is_altered(at)]

    def so_far(self) -> TopicImage:
        """The topic as its partitions are known to be: as now where they were compared, else as before."""
        if self.at == 0 and not self.asked:
            return self.before
        if is_altered_whole(self.before, self.topic):
            # Some partitions have the settings of before and some those of now: the next role alters all.
            return replace(self.before, topic_id=OF_NO_TOPIC)
        now = self.topic.partitions
        partitions = [*now[: self.at], *self.before.partitions[self.at :]]
        for index in self.asked:
            if index < len(partitions):
                partitions[index] = now[index]
        return replace(self.before, partitions=tuple(partitions))


class PendingRoles:
    """By partition, in the order of their coming.  A newer role takes the place of an older one."""

    def __init__(self) -> None:
        self._roles: dict[TopicPartition, Role] = {}
        self._topics: dict[str, _Comparison] = {}

    def __bool__(self) -> bool:
        return bool(self._roles or self._topics)

    def __contains__(self, name: TopicPartition) -> bool:
        """Whether a partition may have another role to take."""
        comparison = self._topics.get(name.topic)
        return name in self._roles or (comparison is not None and not comparison.is_done(name.partition))

    def put(self, topic: TopicImage, image: PartitionImage) -> None:
        """A partition's role, for later."""
        self._roles[TopicPartition(topic.name, image.partition)] = topic, image

    def put_topic(self, before: TopicImage, topic: TopicImage) -> None:
        """All that has changed of a topic, for later."""
        assert before.name == topic.name, (before.name, topic.name)
        self._topics[topic.name] = _Comparison(self.before(before), topic)

    def before(self, topic: TopicImage) -> TopicImage:
        """The topic image whose roles have been taken, which is older than `topic` where a change is pending; removes
        that change."""
        comparison = self._topics.pop(topic.name, None)
        return topic if comparison is None else comparison.so_far()

    def pop(self, name: TopicPartition) -> Role | None:
        """A partition's role, None where it has the newest."""
        comparison, older = self._topics.get(name.topic), self._roles.pop(name, None)
        if comparison is None or not comparison.take(name.partition):
            return older
        image = comparison.topic.partitions[name.partition]
        assert older is None or older[1].leader_epoch <= image.leader_epoch, (name, older, image)
        return comparison.topic, image

    def pop_first(self) -> Role | None:
        """The newest role of the partition that came first; None where what came first has changed nothing."""
        if not self._roles and self._topics:
            self._compare_some(next(iter(self._topics)))
        return self.pop(next(iter(self._roles))) if self._roles else None

    def _compare_some(self, name: str) -> None:
        comparison = self._topics[name]
        for image in comparison.take_some():
            self.put(comparison.topic, image)
        if comparison.is_over:
            del self._topics[name]

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
