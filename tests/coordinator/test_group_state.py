"""The table of states, the timers and the small pure functions under the groups."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.coordinator.classic.group import Group
from kbroker.coordinator.classic.group_state import PREDECESSORS, GroupState, IllegalTransitionError, can_rebalance
from kbroker.coordinator.classic.member import Member
from kbroker.coordinator.runtime.partitioner import java_string_hash, partition_for
from kbroker.coordinator.runtime.timers import Deadline
from tests.coordinator.harness import ManualLoop


def test_every_move_that_the_table_lacks_is_refused() -> None:
    """A group in an impossible state would hand out partitions twice."""
    for source in GroupState:
        for target in GroupState:
            group = Group("g", 0, 0)
            if target in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
                group.add(Member("m", None, "", "", 1000, 1000, "consumer", ()), None)
            group.state = source
            if source in PREDECESSORS[target]:
                group.transition_to(target, 5)
                assert (group.state, group.previous_state, group.state_timestamp) == (target, source, 5)
            else:
                with pytest.raises(IllegalTransitionError, match="cannot go from"):
                    group.transition_to(target, 5)


def test_a_dead_group_stays_dead_and_starts_no_rebalance() -> None:
    """A deleted group would come back without its offsets."""
    assert [state for state in GroupState if GroupState.DEAD in PREDECESSORS[state]] == [GroupState.DEAD]
    assert [state for state in GroupState if can_rebalance(state)] == [
        GroupState.EMPTY,
        GroupState.COMPLETING_REBALANCE,
        GroupState.STABLE,
    ]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("console-consumer-12345", 158455506),
        ("polygenelubricants", -(2**31)),
        ("gr\u00fcppe", -1233264812),
        ("\U0001f600", 1772899),
    ],
)
def test_group_ids_hash_as_in_java(text: str, value: int) -> None:
    """Groups of a directory that Kafka wrote would be looked for on the wrong partition."""
    assert java_string_hash(text) == value


def test_the_hash_without_positive_counterpart_counts_as_zero() -> None:
    """One group in four billion would crash its requests."""
    assert partition_for("polygenelubricants", 50) == 0


@given(st.text(), st.integers(1, 100))
def test_every_group_has_a_partition(group_id: str, partition_count: int) -> None:
    """A strange group id would crash its requests."""
    assert 0 <= partition_for(group_id, partition_count) < partition_count


def test_a_deadline_that_keeps_moving_costs_one_timer_per_period() -> None:
    """Heartbeats of thousands of members would flood the loop with timers."""
    loop = ManualLoop()
    expired: list[float] = []
    deadline = Deadline(loop, loop.call_later, lambda: expired.append(loop.time))
    start = loop.time
    deadline.move(10)
    for _ in range(100):
        loop.advance(1)
        deadline.move(10)
    assert loop.scheduled < 15
    loop.advance(100)
    assert expired == [start + 110]


def test_a_deadline_can_come_forward_and_be_called_off() -> None:
    """A member's short session would count from the long wait of its first join."""
    loop = ManualLoop()
    expired: list[float] = []
    deadline = Deadline(loop, loop.call_later, lambda: expired.append(loop.time))
    start = loop.time
    deadline.move(300)
    deadline.move(10)
    loop.advance(20)
    assert expired == [start + 10]
    deadline.move(10)
    assert deadline.armed
    deadline.cancel()
    loop.advance(400)
    assert len(expired) == 1
