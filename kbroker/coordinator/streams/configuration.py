"""A topology over the topics that there are: how many tasks, which internal topics are missing, or what is wrong.

Pure.  Partition counts of internal topics are decided in this order (Kafka's InternalTopicManager):

    repartition topics  what the topology says; else the most partitions of what the subtopology that writes it reads
    co-partition groups repartition topics get as many as the source topics, which must agree; else the most of theirs
    changelogs          the most partitions of what their subtopology reads

A topic that exists has the partitions that it has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from kbroker.coordinator.streams.topology import Subtopology, TopicInfo, Topology, invalid_topology

# The partition count of a topic; None where there is no such topic.
CountOf = Callable[[str], int | None]
_NAMED = 3


class Status(IntEnum):
    """What a heartbeat's answer says of the group, as StreamsGroupHeartbeatResponse numbers it."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5


class StatusLine(NamedTuple):
    """A status and its detail."""

    status: Status
    detail: str


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """A repartition topic or a changelog; `replication_factor` is None where the broker decides."""

    name: str
    partitions: int
    replication_factor: int | None = None
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ConfiguredSubtopology:
    """A subtopology with as many tasks as its sources have partitions at most."""

    task_count: int
    source_topics: frozenset[str]
    repartition_sinks: frozenset[str]
    repartition_sources: Mapping[str, InternalTopic]
    changelogs: Mapping[str, InternalTopic]

    @property
    def is_stateful(self) -> bool:
        """Whether standby tasks make sense."""
        return bool(self.changelogs)

    @property
    def sources(self) -> frozenset[str]:
        """All topics that it reads."""
        return self.source_topics | self.repartition_sources.keys()


@dataclass(frozen=True, slots=True)
class ConfiguredTopology:
    """`subtopologies` by id, sorted; None where `problem` forbids to say.  `to_create`: internal topics by name."""

    epoch: int
    subtopologies: Mapping[str, ConfiguredSubtopology] | None
    to_create: Mapping[str, InternalTopic] = field(default_factory=dict)
    problem: StatusLine | None = None

    @property
    def is_ready(self) -> bool:
        """Whether tasks can be assigned."""
        return self.problem is None


class _Problem(Exception):
    def __init__(self, status: Status, detail: str) -> None:
        super().__init__(detail)
        self.line = StatusLine(status, detail)


def configure(topology: Topology, count_of: CountOf) -> ConfiguredTopology:
    """See the module.  STREAMS_INVALID_TOPOLOGY where no topic could make it run."""
    try:
        _check_sources(topology, count_of)
        decided = _decide(topology, count_of)
        subtopologies = {
            name: _configured(topology.subtopologies[name], count_of, decided)
            for name in sorted(topology.subtopologies)
        }
        missing = _missing(subtopologies, topology, count_of)
    except _Problem as problem:
        return ConfiguredTopology(topology.epoch, None, problem=problem.line)
    line = None
    if missing:
        line = StatusLine(Status.MISSING_INTERNAL_TOPICS, f"Internal topics are missing: {_summary(missing)}")
    return ConfiguredTopology(topology.epoch, subtopologies, missing, line)


def _check_sources(topology: Topology, count_of: CountOf) -> None:
    missing = {
        topic for each in topology.subtopologies.values() for topic in each.source_topics if count_of(topic) is None
    }
    if missing:
        raise _Problem(Status.MISSING_SOURCE_TOPICS, f"Source topics {_summary(missing)} are missing.")


def _decide(topology: Topology, count_of: CountOf) -> dict[str, int]:
    subtopologies = topology.subtopologies.values()
    infos = [topic for each in subtopologies for topic in each.repartition_sources]
    decided = _repartition_counts(topology, count_of)
    if any(topic.name not in decided for topic in infos):
        raise invalid_topology(
            "Failed to compute number of partitions for all repartition topics, because a repartition source topic is "
            "never used as a sink topic."
        )
    fixed = {topic.name for topic in infos if topic.partitions}
    flexible = {topic.name for topic in infos if not topic.partitions}

    def known(topic: str) -> int:
        count = count_of(topic)
        return decided[topic] if count is None else count

    for each in subtopologies:
        for group in each.copartitioned():
            if group:
                decided.update(_copartitioned(group, fixed, flexible, known))
    for each in subtopologies:
        if not each.sources:
            raise invalid_topology(f"No source topics found for subtopology {each.subtopology_id}")
        most = max(map(known, each.sources))
        decided.update((topic.name, most) for topic in each.changelogs)
    return decided


def _repartition_counts(topology: Topology, count_of: CountOf) -> dict[str, int]:
    """Count by count, as a repartition topic may be fed by a subtopology that reads another one."""
    subtopologies = topology.subtopologies.values()
    counts = {
        topic.name: topic.partitions for each in subtopologies for topic in each.repartition_sources if topic.partitions
    }
    writers = {
        each.subtopology_id: [sink for sink in each.repartition_sinks if sink not in counts] for each in subtopologies
    }
    while any(writers.values()):
        left = {}
        for subtopology_id, sinks in writers.items():
            each = topology.subtopologies[subtopology_id]
            known = [counts.get(topic.name) for topic in each.repartition_sources] + list(
                map(count_of, each.source_topics)
            )
            most = max((count for count in known if count is not None), default=None)
            left[subtopology_id] = [] if most is not None else [sink for sink in sinks if sink not in counts]
            if most is not None:
                for sink in sinks:
                    counts.setdefault(sink, most)
        if left == writers:
            raise invalid_topology(
                "Failed to compute number of partitions for all repartition topics. There may be loops in the topology "
                "that cannot be resolved."
            )
        writers = left
    return counts


def _copartitioned(
    group: frozenset[str], fixed: set[str], flexible: set[str], known: Callable[[str], int]
) -> dict[str, int]:
    repartition = {topic: known(topic) for topic in group if topic in fixed or topic in flexible}
    others = {topic: known(topic) for topic in group if topic not in repartition}
    if others:
        count = _same(others)
    elif fixed:
        # As in Kafka, all fixed counts of the topology, not those of this group alone.
        count = _same({topic: known(topic) for topic in fixed}, repartition)
    else:
        count = max(repartition.values())
    for topic in sorted(repartition):
        if topic in fixed and repartition[topic] != count:
            raise _Problem(
                Status.INCORRECTLY_PARTITIONED_TOPICS,
                f"Number of partitions [{repartition[topic]}] of repartition topic [{topic}] doesn't match number of "
                f"partitions [{count}] of the source topic.",
            )
    return dict.fromkeys(repartition, count)


def _same(counts: Mapping[str, int], named: Mapping[str, int] | None = None) -> int:
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{topic}={count}" for topic, count in sorted((named or counts).items()))
        raise _Problem(
            Status.INCORRECTLY_PARTITIONED_TOPICS,
            f"Following topics do not have the same number of partitions: [{{{listed}}}]",
        )
    return next(iter(counts.values()))


def _configured(each: Subtopology, count_of: CountOf, decided: Mapping[str, int]) -> ConfiguredSubtopology:
    counts = [(count_of(topic), topic) for topic in each.sources]
    return ConfiguredSubtopology(
        max(decided[topic] if count is None else count for count, topic in counts),
        frozenset(each.source_topics),
        frozenset(each.repartition_sinks),
        {topic.name: _internal(topic, decided) for topic in each.repartition_sources},
        {topic.name: _internal(topic, decided) for topic in each.changelogs},
    )


def _internal(topic: TopicInfo, decided: Mapping[str, int]) -> InternalTopic:
    return InternalTopic(
        topic.name, topic.partitions or decided[topic.name], topic.replication_factor or None, dict(topic.configs)
    )


def _missing(
    subtopologies: Mapping[str, ConfiguredSubtopology], topology: Topology, count_of: CountOf
) -> dict[str, InternalTopic]:
    internal: dict[str, InternalTopic] = {}
    for each in subtopologies.values():
        internal.update(each.repartition_sources)
        internal.update(each.changelogs)
    for name in sorted(topology.required_topics()):
        count = count_of(name)
        expected = internal.pop(name, None) if count is not None else None
        if expected is not None and count != expected.partitions:
            raise _Problem(
                Status.INCORRECTLY_PARTITIONED_TOPICS,
                f"Existing topic {name} has different number of partitions: expected {expected.partitions}, found "
                f"{count}",
            )
    return internal


def _summary(topics: Iterable[str]) -> str:
    names = sorted(topics)
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} additional topics" if more > 0 else "")
