"""Heartbeats of streams groups, where Kafka's answers do not show it: delays, large groups, time-outs, lost topics."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kbroker.coordinator.streams import records
from kbroker.coordinator.streams.configuration import Status
from kbroker.coordinator.streams.draft import Draft, HeartbeatAnswer, TimerKind
from kbroker.coordinator.streams.member import MemberState
from kbroker.coordinator.streams.tasks import NO_TASKS
from kbroker.errors import ErrorCode, GroupMaxSizeReachedError, InvalidRequestError, KafkaError
from tests.coordinator.streams.harness import PureWorld, facts, settings, told


def statuses(answer: HeartbeatAnswer) -> list[Status]:
    return [line.status for line in answer.status]


def settle(world: PureWorld, members: str) -> None:
    """Heartbeats of members that give up at once what they are asked to."""
    for _ in range(4):
        for member_id in members:
            assert world.group is not None
            member = world.group.members[member_id]
            world.beat(member_id, member.member_epoch, tasks=member.assigned.as_tasks())


def test_the_first_assignment_waits_for_more_members() -> None:
    """The first instance of many would be given all tasks, and give most of them up at once."""
    world = PureWorld(settings=settings(group_streams_initial_rebalance_delay_ms=3_000))
    answers = {member: world.beat(member, 0) for member in "ab"}
    assert all(Status.ASSIGNMENT_DELAYED in statuses(answer) for answer in answers.values())
    world.beat("a", answers["a"].member_epoch)
    assert world.group is not None and not world.group.targets
    world.pass_time(3_000)
    assert world.group.assignment_epoch == world.group.epoch
    assert len(told(world.beat("a", answers["a"].member_epoch)).active) == 2  # type: ignore[union-attr]
    # A group that has members does not wait again.
    assert Status.ASSIGNMENT_DELAYED not in statuses(world.beat("c", 0))


def test_assignments_keep_their_distance() -> None:
    """A thousand members that join at once would have a thousand assignments made."""
    world = PureWorld(settings=settings(group_streams_assignment_interval_ms=1_000))
    world.beat("a", 0)
    assert world.group is not None
    made_for = world.group.assignment_epoch
    answer = world.beat("b", 0)
    assert Status.ASSIGNMENT_DELAYED in statuses(answer)
    assert world.group.assignment_epoch == made_for
    world.pass_time(1_000)
    assert Status.ASSIGNMENT_DELAYED not in statuses(world.beat("b", answer.member_epoch))
    assert world.group.assignment_epoch == world.group.epoch


def test_a_large_assignment_is_made_by_a_thread() -> None:
    """The loop would stand still while the tasks of a large application are assigned."""
    world = PureWorld()
    world.grow_topic("a", 400)
    epoch = world.beat("a", 0).member_epoch
    answer = world.beat("a", epoch)
    assert Status.ASSIGNMENT_DELAYED in statuses(answer)
    world.beat("a", epoch)
    assert len(world.works) == 1, "it is computed once"
    world.beat("b", 0)
    world.compute()
    assert world.group is not None
    assert set(world.group.targets) == {"a"}, "b has joined since"
    answer = world.beat("a", epoch)
    assert world.works and told(answer) is not None
    world.compute()
    assert set(world.group.targets) == {"a", "b"}


def test_a_member_that_does_not_give_up_its_tasks_is_removed() -> None:
    """One stuck thread would keep tasks from all others for ever."""
    world = PureWorld()
    epoch = world.beat("a", 0).member_epoch
    epoch = world.beat("a", epoch).member_epoch
    world.beat("b", 0)
    world.beat("a", epoch)
    assert world.group is not None
    assert world.group.members["a"].state is MemberState.UNREVOKED_TASKS
    assert (TimerKind.REBALANCE, "a") in world.timers
    for _ in range(4):
        world.pass_time(10_000)
        world.beat("b", world.group.members["b"].member_epoch)
    assert "a" not in world.group.members
    assert len(list(world.group.members["b"].assigned.active)) == 2


def test_a_silent_member_is_removed() -> None:
    """The tasks of a dead instance would never run again."""
    world = PureWorld()
    world.beat("a", 0)
    world.pass_time(45_000)
    assert world.state == "Empty"


def test_a_topic_that_is_lost_stops_the_application_until_it_is_back() -> None:
    """An application would run on tasks whose topics are gone, or never again after they are back."""
    world = PureWorld()
    epoch = world.beat("a", 0).member_epoch
    epoch = world.beat("a", epoch).member_epoch
    assert world.state == "Stable"
    world.delete_topic("a")
    answer = world.beat("a", epoch)
    assert statuses(answer) == [Status.MISSING_SOURCE_TOPICS]
    assert world.state == "NotReady"
    answer = world.beat("a", answer.member_epoch, tasks=NO_TASKS)
    world.create_topic("a", 3)
    answer = world.beat("a", answer.member_epoch)
    assert not answer.status and len(told(answer).active) == 2  # type: ignore[union-attr]
    assert world.state == "Stable"


def test_a_change_of_standby_replicas_makes_a_new_assignment() -> None:
    """A group's new setting would have no effect until a member comes or goes."""
    world = PureWorld()
    world.beat("a", 0)
    world.beat("b", 0)
    settle(world, "ab")
    world.settings = settings(group_streams_num_standby_replicas=1)
    settle(world, "ab")
    assert world.group is not None
    assert sum(len(each) for member in world.group.members.values() for each in member.assigned.standby.values()) == 3
    assert facts(world.reloaded()) == facts(world.group)


def test_a_full_group_takes_no_more_members() -> None:
    """`group.streams.max.size` would not protect the broker."""
    world = PureWorld(settings=settings(group_streams_max_size=1))
    world.beat("a", 0)
    world.beat("a", 0)
    with pytest.raises(GroupMaxSizeReachedError):
        world.beat("b", 0)


def test_a_refused_heartbeat_changes_nothing() -> None:
    """A member would be half in the group after a request that was refused."""
    world = PureWorld()
    epoch = world.beat("a", 0).member_epoch
    before, written = facts(world.group), len(world.log)
    with pytest.raises(InvalidRequestError):
        world.beat("b", 0, topology=world.topology.__class__(0, {}))
    assert (facts(world.group), len(world.log)) == (before, written)
    assert world.beat("a", epoch).member_id == "a"


def test_a_member_in_an_unknown_state_begins_anew() -> None:
    """After a downgrade a member whose state only a newer broker knows would keep its tasks from all others."""
    world = PureWorld()
    epoch = world.beat("a", 0).member_epoch
    epoch = world.beat("a", epoch).member_epoch
    assert world.group is not None
    has = world.group.members["a"].assigned.as_tasks()
    strange = replace(world.group.members["a"], state=MemberState.UNKNOWN)
    world.write(Draft([records.current_assignment("g", strange)]))
    with pytest.raises(KafkaError) as refused:
        world.beat("a", epoch, tasks=has)
    assert refused.value.code is ErrorCode.FENCED_MEMBER_EPOCH
    answer = world.beat("a", 0)
    assert told(answer) == has
    assert world.group.members["a"].state is MemberState.STABLE
