"""Replicas are spread over brokers and racks, and manual assignments are checked."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.cluster.placement import (
    check_assignment,
    first_place,
    new_partition,
    place,
    rack_alternated,
    to_balance,
)
from kbroker.errors import InvalidReplicaAssignmentError, InvalidReplicationFactorError
from kbroker.metadata.image import NO_LEADER, BrokerImage


def brokers(*racks: str | None) -> list[BrokerImage]:
    return [BrokerImage(node_id, {}, rack) for node_id, rack in enumerate(racks)]


@given(st.integers(1, 6), st.integers(1, 40), st.data())
def test_every_partition_gets_distinct_brokers_and_leaders_are_even(
    broker_count: int, partition_count: int, data: st.DataObject
) -> None:
    """One broker would lead most partitions, or hold a partition twice."""
    replication_factor = data.draw(st.integers(1, broker_count))
    start = data.draw(st.integers(0, 100))
    placed = place(brokers(*[None] * broker_count), partition_count, replication_factor, start)
    assert len(placed) == partition_count
    assert all(len(set(replicas)) == replication_factor for replicas in placed)
    leaders = Counter(replicas[0] for replicas in placed)
    assert max(leaders.values()) - min(leaders.get(node, 0) for node in range(broker_count)) <= 1


def test_replicas_are_in_different_racks() -> None:
    """Losing one rack would lose all copies of a partition."""
    nodes = brokers("a", "a", "b", "b")
    assert rack_alternated(nodes) == [0, 2, 1, 3]
    for replicas in place(nodes, 8, 2):
        assert {nodes[node].rack for node in replicas} == {"a", "b"}


@given(st.lists(st.sampled_from("abcd"), min_size=1, max_size=9), st.integers(0, 50), st.data())
def test_no_rack_has_two_replicas_more_than_another_that_has_room(
    racks: list[str], start: int, data: st.DataObject
) -> None:
    """Racks of different sizes: losing one would lose all copies of a partition, or its minimum of in-sync replicas."""
    factor = data.draw(st.integers(1, len(racks)))
    for replicas in place(brokers(*racks), 12, factor, start):
        assert len(set(replicas)) == factor
        used = Counter(racks[node] for node in replicas)
        for rack, size in Counter(racks).items():
            assert used[rack] == size or max(used.values()) - used[rack] <= 1


def test_the_leaders_of_a_broker_that_dies_go_to_all_others() -> None:
    """Its neighbour would have twice the load from then on."""
    placed = place(brokers(*[None] * 5), 100, 3)
    successors = Counter(replicas[1] for replicas in placed if replicas[0] == 2)
    assert successors == dict.fromkeys((0, 1, 3, 4), 5)
    assert set(Counter(node for replicas in placed for node in replicas).values()) == {60}


def test_growth_goes_on_where_the_topic_stopped() -> None:
    """One broker would lead the old partition and the new one, and another none."""
    nodes = brokers(*[None] * 4)
    (only,) = place(nodes, 1, 2, start=6)
    assert first_place(nodes, only) == 2
    assert [replicas[0] for replicas in place(nodes, 3, 2, first_place(nodes, only) + 1)] == [3, 0, 1]
    assert first_place(nodes, (17, 1)) == 0


def test_too_few_brokers_is_kafkas_error() -> None:
    """The user would not learn why the topic cannot be made."""
    with pytest.raises(InvalidReplicationFactorError) as caught:
        place(brokers(None), 1, 3)
    assert caught.value.message == (
        "Unable to replicate the partition 3 time(s): The target replication factor of 3 cannot be reached because "
        "only 1 broker(s) are registered or some brokers have all their log directories cordoned."
    )


@pytest.mark.parametrize(
    ("replicas", "factor", "text"),
    [
        ([], None, "The manual partition assignment includes an empty replica list."),
        ([1, 1], None, "The manual partition assignment includes the broker 1 more than once."),
        ([2, 9], None, "The manual partition assignment includes broker 9, but no such broker is registered."),
        (
            [1, 2],
            1,
            "The manual partition assignment includes a partition with 2 replica(s), but this is not consistent with "
            "previous partitions, which have 1 replica(s).",
        ),
    ],
)
def test_bad_assignments_are_refused_in_kafkas_words(replicas: list[int], factor: int | None, text: str) -> None:
    """A partition would be put on a broker that does not exist."""
    with pytest.raises(InvalidReplicaAssignmentError) as caught:
        check_assignment(replicas, frozenset({1, 2}), factor)
    assert caught.value.message == text


def test_a_dead_preferred_leader_does_not_lead() -> None:
    """A new partition would have a leader that is not there."""
    partition = new_partition(0, (1, 2), frozenset({2}))
    assert (partition.leader, partition.isr, partition.replicas) == (2, (2,), (1, 2))
    assert new_partition(0, (1,), frozenset()).leader == NO_LEADER


def test_a_broker_is_balanced_above_its_percentage_alone() -> None:
    """Leaders would be moved at each look for a broker that is just at what the settings allow."""
    at_ten = [(1, number == 0) for number in range(10)]
    above_ten = [(2, number < 2) for number in range(10)]
    assert to_balance([*at_ten, *above_ten], 10) == {2}
    assert to_balance([(1, False), (2, True)], 0) == {2}


def test_a_broker_that_is_named_twice_is_refused_with_others_in_between() -> None:
    """A partition would count one copy as two."""
    with pytest.raises(InvalidReplicaAssignmentError, match="broker 1 more than once"):
        check_assignment((1, 2, 1), frozenset({1, 2}), None)
