"""The topology of a streams application, as the group's first member sends it.

A subtopology reads source topics (`source_topics` of others, `repartition_sources` of this application), writes
`repartition_sinks`, and keeps its state in `changelogs`.  It has a task for each partition of its sources.  A
co-partition group refers to topics of one subtopology by their indexes in its lists; these must have equally many
partitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from kbroker.errors import ErrorCode, KafkaError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """An internal topic; `partitions` and `replication_factor` are 0 where the broker is to decide."""

    name: str
    partitions: int = 0
    replication_factor: int = 0
    configs: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class CopartitionGroup:
    """Topics by their places in the lists of the subtopology."""

    source_topics: tuple[int, ...] = ()
    source_topic_regex: tuple[int, ...] = ()
    repartition_sources: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Subtopology:
    """See the module's docstring."""

    subtopology_id: str
    source_topics: tuple[str, ...] = ()
    source_topic_regex: tuple[str, ...] = ()
    changelogs: tuple[TopicInfo, ...] = ()
    repartition_sinks: tuple[str, ...] = ()
    repartition_sources: tuple[TopicInfo, ...] = ()
    copartition_groups: tuple[CopartitionGroup, ...] = ()

    @property
    def sources(self) -> list[str]:
        """All topics that it reads."""
        return [*self.source_topics, *(topic.name for topic in self.repartition_sources)]

    def copartitioned(self) -> list[frozenset[str]]:
        """The names of the topics in each co-partition group.  STREAMS_INVALID_TOPOLOGY for a place that is none."""
        try:
            return [
                frozenset(
                    [_at(self.source_topics, place) for place in group.source_topics]
                    + [_at(self.repartition_sources, place).name for place in group.repartition_sources]
                )
                for group in self.copartition_groups
            ]
        except IndexError:
            raise invalid_topology(
                f"A copartition group of subtopology {self.subtopology_id} names a topic that the subtopology has not."
            ) from None


@dataclass(frozen=True, slots=True)
class Topology:
    """All subtopologies, by id; `readers`: the id of the one that reads a topic."""

    epoch: int
    subtopologies: Mapping[str, Subtopology] = field(default_factory=dict)
    readers: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, epoch: int, subtopologies: Iterable[Subtopology]) -> Topology:
        """STREAMS_INVALID_TOPOLOGY for two of the same id."""
        by_id: dict[str, Subtopology] = {}
        for each in subtopologies:
            if by_id.setdefault(each.subtopology_id, each) is not each:
                raise invalid_topology(f"The topology has several subtopologies {each.subtopology_id}.")
        readers = {topic: each.subtopology_id for each in by_id.values() for topic in each.sources}
        return cls(epoch, by_id, readers)

    def required_topics(self) -> frozenset[str]:
        """All topics that tasks read or keep their state in."""
        return frozenset(
            name
            for each in self.subtopologies.values()
            for name in (*each.sources, *(topic.name for topic in each.changelogs))
        )

    def all_topics(self) -> frozenset[str]:
        """All topics that are read or written."""
        sinks = (name for each in self.subtopologies.values() for name in each.repartition_sinks)
        return self.required_topics().union(sinks)

    def subtopology_of(self, topic: str) -> str | None:
        """The id of the subtopology that reads a topic."""
        return self.readers.get(topic)


def invalid_topology(reason: str) -> KafkaError:
    """The error of a topology that cannot be run."""
    return KafkaError.of(ErrorCode.STREAMS_INVALID_TOPOLOGY, reason)


def _at(items: tuple[T, ...], place: int) -> T:
    if place < 0:
        raise IndexError
    return items[place]
