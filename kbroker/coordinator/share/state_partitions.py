"""Which share-partitions of a group have their state at the share coordinator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class TopicState:
    """Partitions of a topic whose state is initialized, or is about to be."""

    name: str
    partitions: frozenset[int]


@dataclass(frozen=True, slots=True)
class StatePartitions:
    """How far the state of the group's partitions is, by topic id.  What is initializing or deleting may be under way
    at the share coordinator, or have been left in a crash (`under_way`)."""

    initializing: Mapping[bytes, TopicState] = field(default_factory=dict)
    initialized: Mapping[bytes, TopicState] = field(default_factory=dict)
    deleting: Mapping[bytes, str] = field(default_factory=dict)

    def has(self, topic_id: bytes, partition: int) -> bool:
        """Whether the state of a partition is initialized."""
        return topic_id in self.initialized and partition in self.initialized[topic_id].partitions

    def is_known(self, topic_id: bytes) -> bool:
        """Whether anything is noted of a topic."""
        return any(topic_id in topics for topics in (self.initializing, self.initialized, self.deleting))

    def states(self) -> dict[bytes, TopicState]:
        """All partitions that may have a state, but for those that are being deleted."""
        return _joined(self.initialized, self.initializing)

    def began(self, topics: Mapping[bytes, TopicState]) -> StatePartitions:
        """With these under way."""
        assert self.deleting.keys().isdisjoint(topics), f"{topics}: their state is being deleted"
        return StatePartitions(_joined(self.initializing, topics), self.initialized, self.deleting)

    def done(self, topics: Mapping[bytes, TopicState]) -> StatePartitions:
        """With these initialized."""
        return StatePartitions(_without(self.initializing, topics), _joined(self.initialized, topics), self.deleting)

    def gave_up(self, topics: Mapping[bytes, TopicState]) -> StatePartitions:
        """With these to be begun another time."""
        return StatePartitions(_without(self.initializing, topics), self.initialized, self.deleting)

    def ending(self, topics: Mapping[bytes, TopicState]) -> StatePartitions:
        """With the state of these topics about to be deleted."""
        left = self.without(topics)
        assert not any(left.is_known(topic_id) for topic_id in topics), (left, topics)
        names = {topic_id: state.name for topic_id, state in topics.items()}
        return StatePartitions(left.initializing, left.initialized, {**left.deleting, **names})

    def without(self, topic_ids: Iterable[bytes]) -> StatePartitions:
        """Without these topics."""
        gone = set(topic_ids)
        return StatePartitions(
            {topic: state for topic, state in self.initializing.items() if topic not in gone},
            {topic: state for topic, state in self.initialized.items() if topic not in gone},
            {topic: name for topic, name in self.deleting.items() if topic not in gone},
        )


def _joined(known: Mapping[bytes, TopicState], more: Mapping[bytes, TopicState]) -> dict[bytes, TopicState]:
    joined = dict(known)
    for topic_id, state in more.items():
        before = joined[topic_id].partitions if topic_id in joined else frozenset()
        joined[topic_id] = TopicState(state.name, before | state.partitions)
    return joined


def _without(known: Mapping[bytes, TopicState], less: Mapping[bytes, TopicState]) -> dict[bytes, TopicState]:
    left = {}
    for topic_id, state in known.items():
        partitions = state.partitions - less[topic_id].partitions if topic_id in less else state.partitions
        if partitions:
            left[topic_id] = TopicState(state.name, partitions)
    return left
