"""Records of streams groups: what is written is read again as it was."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker.coordinator.streams import records
from kbroker.coordinator.streams.group import StreamsGroup
from kbroker.coordinator.streams.member import Endpoint, MemberState, StreamsMember
from kbroker.coordinator.streams.tasks import OwnedTasks, Tasks
from kbroker.coordinator.streams.topology import CopartitionGroup, Subtopology, TopicInfo, Topology

TEXT = st.text(max_size=5)
EPOCHS = st.integers(-2, 2**31 - 1)
PARTITIONS = st.dictionaries(TEXT, st.frozensets(st.integers(0, 99), max_size=4), max_size=3)
OWNED = st.builds(
    OwnedTasks,
    st.dictionaries(TEXT, st.dictionaries(st.integers(0, 99), EPOCHS, max_size=4), max_size=3),
    PARTITIONS,
    PARTITIONS,
)
MEMBERS = st.builds(
    StreamsMember,
    st.just("m"),
    EPOCHS,
    EPOCHS,
    st.sampled_from(MemberState),
    st.none() | TEXT,
    st.none() | TEXT,
    TEXT,
    TEXT,
    EPOCHS,
    EPOCHS,
    TEXT,
    st.none() | st.builds(Endpoint, TEXT, st.integers(0, 65_535)),
    st.dictionaries(TEXT, TEXT, max_size=3),
    OWNED,
    OWNED,
)


def tuples(items: st.SearchStrategy[object]) -> st.SearchStrategy[tuple[object, ...]]:
    return st.lists(items, max_size=3).map(tuple)


INFOS = tuples(
    st.builds(TopicInfo, TEXT, st.integers(0, 9), st.integers(0, 9), tuples(st.tuples(TEXT, TEXT)))  # type: ignore[arg-type]
)
PLACES = tuples(st.integers(0, 9))
GROUPS = tuples(st.builds(CopartitionGroup, PLACES, PLACES, PLACES))  # type: ignore[arg-type]
SUBTOPOLOGIES = st.builds(
    Subtopology,
    TEXT,
    tuples(TEXT),
    tuples(TEXT),
    INFOS,
    tuples(TEXT),
    INFOS,
    GROUPS,  # type: ignore[arg-type]
)


@settings(max_examples=60, deadline=None)
@given(MEMBERS, st.builds(Tasks, PARTITIONS, PARTITIONS, PARTITIONS))
def test_a_member_is_read_as_it_was_written(member: StreamsMember, target: Tasks) -> None:
    """After a restart a member would be another, or have other tasks, than it was told."""
    group = StreamsGroup("g")
    for key, value in (
        records.member_metadata("g", member),
        records.current_assignment("g", member),
        records.target_assignment("g", "m", target),
    ):
        group.replay(records.parse(key, value))
    assert group.members == {"m": member}
    assert group.targets == {"m": target}
    for key, value in records.removal("g", "m"):
        group.replay(records.parse(key, value))
    assert not group.members and not group.targets
    assert not group._active and not group._others


@settings(max_examples=60, deadline=None)
@given(EPOCHS, st.lists(SUBTOPOLOGIES, max_size=3, unique_by=lambda each: each.subtopology_id))
def test_a_topology_is_read_as_it_was_written(epoch: int, subtopologies: list[Subtopology]) -> None:
    """After a restart a member that joins with the same topology would be refused."""
    topology = Topology.of(epoch, subtopologies)
    group = StreamsGroup("g")
    group.replay(records.parse(*records.topology("g", topology)))
    assert group.topology == topology


@given(EPOCHS, st.integers(-(2**63), 2**63 - 1), EPOCHS, st.dictionaries(TEXT, TEXT, max_size=3))
def test_an_epoch_is_read_as_it_was_written(
    epoch: int, metadata_hash: int, validated: int, configs: dict[str, str]
) -> None:
    """After a restart every group would be rebalanced."""
    group = StreamsGroup("g")
    group.replay(records.parse(*records.group_epoch("g", epoch, metadata_hash, validated, configs)))
    group.replay(records.parse(*records.target_epoch("g", epoch, 7)))
    assert (group.epoch, group.metadata_hash, group.validated_topology_epoch) == (epoch, metadata_hash, validated)
    assert (dict(group.configs), group.assignment_epoch, group.assignment_timestamp) == (configs, epoch, 7)
