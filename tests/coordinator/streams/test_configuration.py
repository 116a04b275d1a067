"""A topology over the topics that there are: tasks, partition counts, what is missing and what is wrong."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kbroker.coordinator.streams.configuration import ConfiguredTopology, Status, configure
from kbroker.coordinator.streams.topology import CopartitionGroup, Subtopology, TopicInfo, Topology
from kbroker.errors import ErrorCode, KafkaError


def configured(counts: Mapping[str, int], *subtopologies: Subtopology) -> ConfiguredTopology:
    return configure(Topology.of(3, subtopologies), counts.get)


def counts_of(found: ConfiguredTopology) -> dict[str, int]:
    return {name: topic.partitions for name, topic in found.to_create.items()}


def test_partition_counts_follow_the_sources_through_chains() -> None:
    """A repartition topic would have fewer partitions than the topics behind it need, and records be joined wrongly."""
    found = configured(
        {"a": 4, "b": 6},
        Subtopology("2", repartition_sources=(TopicInfo("r2"),), changelogs=(TopicInfo("c2"),)),
        Subtopology("1", ("b",), repartition_sources=(TopicInfo("r1"),), repartition_sinks=("r2",)),
        Subtopology("0", ("a",), repartition_sinks=("r1",), changelogs=(TopicInfo("c0"),)),
    )
    assert counts_of(found) == {"r1": 4, "r2": 6, "c0": 4, "c2": 6}
    assert found.subtopologies is not None
    assert {name: each.task_count for name, each in found.subtopologies.items()} == {"0": 4, "1": 6, "2": 6}
    assert found.problem is not None
    assert found.problem.status is Status.MISSING_INTERNAL_TOPICS
    assert found.problem.detail == "Internal topics are missing: c0, c2, r1 and 1 additional topics"


def test_a_topology_whose_topics_are_there_is_ready() -> None:
    """An application would never be given tasks."""
    table = Subtopology("0", ("a",), changelogs=(TopicInfo("c"),))
    found = configured({"a": 4, "c": 4}, table)
    assert found.is_ready and not found.to_create
    assert found.subtopologies is not None and found.subtopologies["0"].is_stateful


def test_what_the_topology_says_of_an_internal_topic_counts() -> None:
    """Settings of changelogs, and partition counts that the application asks for, would be lost."""
    info = TopicInfo("r", 8, 3, (("cleanup.policy", "delete"),))
    found = configured({"a": 4}, Subtopology("0", ("a",), repartition_sources=(info,), repartition_sinks=("r",)))
    topic = found.to_create["r"]
    assert (topic.partitions, topic.replication_factor, topic.configs) == (8, 3, {"cleanup.policy": "delete"})


def test_missing_sources_are_named() -> None:
    """An operator would not learn which topic to make."""
    found = configured({}, Subtopology("0", ("d", "c", "b", "a")))
    assert found.problem == (Status.MISSING_SOURCE_TOPICS, "Source topics a, b, c and 1 additional topics are missing.")


def joined(group: CopartitionGroup, *repartition: TopicInfo) -> Subtopology:
    names = tuple(topic.name for topic in repartition)
    return Subtopology("0", ("a", "b"), (), (), names, repartition, (group,))


def test_copartitioned_sources_must_agree() -> None:
    """Records of the same key would be in different tasks, and a join silently find nothing."""
    found = configured({"a": 4, "b": 5}, joined(CopartitionGroup((0, 1))))
    assert found.problem == (
        Status.INCORRECTLY_PARTITIONED_TOPICS,
        "Following topics do not have the same number of partitions: [{a=4, b=5}]",
    )
    assert configured({"a": 4, "b": 4}, joined(CopartitionGroup((0, 1)))).is_ready


def test_a_copartitioned_repartition_topic_takes_the_count_of_its_group() -> None:
    """A topic that is joined with a source would have another partition count than the source."""
    found = configured({"a": 4, "b": 9}, joined(CopartitionGroup((0,), (), (0,)), TopicInfo("r")))
    assert counts_of(found) == {"r": 4}


def test_a_fixed_count_against_the_source_is_refused() -> None:
    """A topic that is joined with a source would have another partition count than the source."""
    found = configured({"a": 4, "b": 4}, joined(CopartitionGroup((0,), (), (0,)), TopicInfo("r", 2)))
    assert found.problem == (
        Status.INCORRECTLY_PARTITIONED_TOPICS,
        "Number of partitions [2] of repartition topic [r] doesn't match number of partitions [4] of the source topic.",
    )


def test_repartition_topics_alone_take_the_most_partitions() -> None:
    """Two repartition topics that are joined would have different partition counts."""
    group = CopartitionGroup(repartition_sources=(0, 1))
    found = configured(
        {"a": 4, "b": 6},
        Subtopology("0", ("a",), repartition_sinks=("r",)),
        Subtopology("1", ("b",), repartition_sinks=("s",)),
        Subtopology("2", repartition_sources=(TopicInfo("r"), TopicInfo("s")), copartition_groups=(group,)),
    )
    assert counts_of(found) == {"r": 6, "s": 6}


def test_an_internal_topic_with_other_partitions_is_refused() -> None:
    """State would be restored from a changelog that belongs to another topology."""
    found = configured({"a": 4, "c": 3}, Subtopology("0", ("a",), changelogs=(TopicInfo("c"),)))
    assert found.problem == (
        Status.INCORRECTLY_PARTITIONED_TOPICS,
        "Existing topic c has different number of partitions: expected 4, found 3",
    )
    assert found.subtopologies is None and not found.to_create


@pytest.mark.parametrize(
    "subtopology",
    [
        Subtopology("0"),
        Subtopology("0", ("a",), repartition_sources=(TopicInfo("r"),)),
        Subtopology("0", repartition_sources=(TopicInfo("r"),), repartition_sinks=("r",)),
        Subtopology("0", ("a",), copartition_groups=(CopartitionGroup((0, 1)),)),
        Subtopology("0", ("a",), copartition_groups=(CopartitionGroup((-1,)),)),
    ],
    ids=["no source", "no sink", "loop", "no such topic", "negative"],
)
def test_what_no_topic_could_make_run_is_refused(subtopology: Subtopology) -> None:
    """A broken request would end in an endless loop, or be answered as if the broker had failed."""
    with pytest.raises(KafkaError) as refused:
        configured({"a": 4}, subtopology)
    assert refused.value.code is ErrorCode.STREAMS_INVALID_TOPOLOGY


def test_two_subtopologies_of_one_id_are_refused() -> None:
    """One of them would be lost without a word."""
    with pytest.raises(KafkaError) as refused:
        Topology.of(0, [Subtopology("0", ("a",)), Subtopology("0", ("b",))])
    assert refused.value.code is ErrorCode.STREAMS_INVALID_TOPOLOGY
