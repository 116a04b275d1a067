"""ConsumerGroupHeartbeat, step by step: epochs, assignments, revocations, fencing, static members, topics, regexes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kbroker.coordinator.consumer import records
from kbroker.coordinator.consumer.draft import HeartbeatAnswer
from kbroker.coordinator.consumer.member import MemberState
from kbroker.errors import ErrorCode, KafkaError
from tests.coordinator.consumer.harness import A_ID, B_ID, C_ID, PureWorld, facts, owned, settings
from tests.coordinator.modern_world import GROUP

ALL_A = {A_ID: frozenset(range(4))}


def code_of(world: PureWorld, member_id: str, epoch: int, **fields: object) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        world.beat(member_id, epoch, **fields)
    return caught.value.code


def settled(world: PureWorld, *member_ids: str) -> dict[str, HeartbeatAnswer]:
    """The members joined, having confirmed whatever they were asked for."""
    answers = {member_id: world.beat(member_id, 0) for member_id in member_ids}
    for _ in range(4):
        for member_id, last in list(answers.items()):
            told = world.beat(member_id, last.member_epoch, owned=owned(last))
            answers[member_id] = last._replace(member_epoch=told.member_epoch) if told.assigned is None else told
    return answers


def test_a_first_member_gets_everything_at_once() -> None:
    """A single consumer would wait for a second heartbeat, seconds later, before it reads."""
    world = PureWorld()
    answer = world.beat("m", 0)
    assert (answer.member_epoch, owned(answer)) == (1, ALL_A) or (answer.member_epoch, owned(answer)) == (2, ALL_A)
    assert world.state == "Stable"
    assert world.beat("m", answer.member_epoch).assigned is None


def test_partitions_pass_from_one_member_to_another_when_given_up() -> None:
    """Two members would read a partition at the same time, or none for ever."""
    world = PureWorld()
    first = world.beat("m1", 0)
    second = world.beat("m2", 0)
    assert owned(second) == {} and world.state == "Reconciling"
    asked = world.beat("m1", first.member_epoch)
    kept = owned(asked)
    assert kept is not None and len(kept[A_ID]) == 2 and asked.member_epoch == first.member_epoch
    # It has not given anything up yet: neither does the other get it, nor is it asked again.
    assert world.beat("m2", second.member_epoch).assigned is None
    assert world.beat("m1", first.member_epoch, owned=ALL_A).assigned is None
    done = world.beat("m1", first.member_epoch, owned=kept)
    assert done.member_epoch == second.member_epoch
    gained = owned(world.beat("m2", second.member_epoch))
    assert gained == {A_ID: ALL_A[A_ID] - kept[A_ID]}
    assert world.state == "Stable"
    assert facts(world.reloaded()) == facts(world.group)


def test_epochs_that_do_not_fit_are_fenced() -> None:
    """A member that was thought dead would go on with partitions that others have."""
    world = PureWorld()
    epoch = world.beat("m", 0).member_epoch
    assert code_of(world, "m", epoch + 1) is ErrorCode.FENCED_MEMBER_EPOCH
    assert code_of(world, "m", epoch - 1) is ErrorCode.FENCED_MEMBER_EPOCH
    assert code_of(world, "other", epoch) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_whose_answer_was_lost_may_be_one_epoch_behind() -> None:
    """A lost answer would cost the member all its partitions."""
    world = PureWorld()
    epoch = world.beat("m", 0).member_epoch
    world.grow_topic("a", 6)
    assert world.beat("m", epoch).member_epoch == epoch + 1
    again = world.beat("m", epoch, owned=ALL_A)
    assert again.member_epoch == epoch + 1
    assert code_of(world, "m", epoch, owned={C_ID: frozenset({0})}) is ErrorCode.FENCED_MEMBER_EPOCH


def test_a_member_that_leaves_gives_everything_to_the_others() -> None:
    """Its partitions would be read by nobody until a session times out."""
    world = PureWorld()
    answers = settled(world, "m1", "m2")
    assert world.beat("m1", -1).member_epoch == -1
    answer = world.beat("m2", answers["m2"].member_epoch)
    assert owned(answer) == ALL_A and world.state == "Stable"
    world.beat("m2", -1)
    assert world.state == "Empty"


def test_a_silent_member_is_removed_when_its_session_ends() -> None:
    """Its partitions would be read by nobody."""
    world = PureWorld()
    answers = settled(world, "m1", "m2")
    for _ in range(3):
        world.pass_time(20_000)
        last = world.beat("m2", answers["m2"].member_epoch)
        answers["m2"] = last
    assert world.group is not None and world.group.members.keys() == {"m2"}
    assert world.group.target_of(world.group.members["m2"]) == ALL_A


def test_a_member_that_does_not_give_up_in_time_is_removed() -> None:
    """One stuck consumer would keep partitions from all others."""
    world = PureWorld()
    first = world.beat("m1", 0, rebalance_timeout_ms=10_000)
    second = world.beat("m2", 0)
    world.beat("m1", first.member_epoch)
    world.pass_time(9_000)
    assert "m1" in world.group.members
    world.pass_time(2_000)
    assert "m1" not in world.group.members
    assert owned(world.beat("m2", second.member_epoch)) == ALL_A


def test_a_member_gets_back_at_once_what_it_was_about_to_give_up() -> None:
    """It would wait for a partition that no other member has, and records lie unread until its next heartbeat."""
    world = PureWorld()
    first = world.beat("m1", 0)
    world.beat("m2", 0)
    kept = owned(world.beat("m1", first.member_epoch))
    assert kept is not None and len(kept[A_ID]) == 2
    world.beat("m2", -1)
    back = world.beat("m1", first.member_epoch, owned=kept)
    assert owned(back) == ALL_A and world.state == "Stable"
    assert facts(world.reloaded()) == facts(world.group)


def test_a_member_in_a_state_that_is_not_known_gives_everything_up() -> None:
    """What a newer broker has asked it to give up, and gives to others, it would go on reading."""
    world = PureWorld()
    epoch = world.beat("m", 0).member_epoch
    world.grow_topic("a", 6)
    assert world.group is not None
    newer = replace(world.group.members["m"], state=MemberState.UNKNOWN)
    world.replay([records.current_assignment(GROUP, newer)])
    assert world.group.members["m"].state is MemberState.UNKNOWN
    for reported in (ALL_A, None):
        assert code_of(world, "m", epoch, owned=reported) is ErrorCode.FENCED_MEMBER_EPOCH
    again = world.beat("m", epoch, owned={})
    assert owned(again) == {A_ID: frozenset(range(6))} and world.state == "Stable"


def test_targets_are_not_made_more_often_than_the_interval() -> None:
    """A thousand members that join one after the other would have a thousand assignments computed."""
    world = PureWorld(settings=settings(group_consumer_assignment_interval_ms=1_000))
    first = world.beat("m1", 0)
    assert owned(first) == ALL_A
    second = world.beat("m2", 0)
    assert owned(second) == {} and world.state == "Assigning"
    assert world.beat("m1", first.member_epoch).assigned is None
    world.pass_time(1_000)
    kept = owned(world.beat("m1", first.member_epoch))
    assert kept is not None and len(kept[A_ID]) == 2
    assert world.state == "Reconciling"


def test_a_topic_that_grows_or_goes_moves_the_group_to_a_new_epoch() -> None:
    """New partitions would never be read, and deleted ones kept in the assignment."""
    world = PureWorld()
    epoch = world.beat("m", 0, topic_names=frozenset({"a", "b", "c"})).member_epoch
    world.grow_topic("a", 6)
    answer = world.beat("m", epoch)
    assert owned(answer) == {A_ID: frozenset(range(6)), B_ID: frozenset(range(2))}
    world.create_topic("c", C_ID, 1)
    answer = world.beat("m", answer.member_epoch)
    assert owned(answer) == {A_ID: frozenset(range(6)), B_ID: frozenset(range(2)), C_ID: frozenset({0})}
    world.delete_topic("b")
    asked = world.beat("m", answer.member_epoch)
    assert B_ID not in (owned(asked) or {})
    done = world.beat("m", asked.member_epoch, owned=owned(asked))
    assert done.member_epoch > answer.member_epoch and world.state == "Stable"


def test_a_static_member_takes_its_place_again() -> None:
    """A restart of a static member would move partitions."""
    world = PureWorld()
    first = world.beat("m1", 0, instance_id="i")
    other = settled(world, "m2")["m2"]
    kept = owned(world.beat("m1", first.member_epoch, instance_id="i"))
    world.beat("m1", first.member_epoch, instance_id="i", owned=kept)
    world.beat("m2", other.member_epoch)
    assert code_of(world, "m3", 0, instance_id="i") is ErrorCode.UNRELEASED_INSTANCE_ID
    assert world.beat("m1", -2, instance_id="i").member_epoch == -2
    epoch = world.group.epoch
    back = world.beat("m3", 0, instance_id="i")
    assert owned(back) == kept and back.member_epoch == epoch == world.group.epoch
    assert code_of(world, "m1", back.member_epoch, instance_id="i") is ErrorCode.FENCED_INSTANCE_ID
    assert code_of(world, "m1", 1, instance_id="never") is ErrorCode.UNKNOWN_MEMBER_ID
    assert facts(world.reloaded()) == facts(world.group)


def test_regular_expressions_follow_new_topics() -> None:
    """A consumer of all topics of a kind would not read one that was made later."""
    world = PureWorld()
    answer = world.beat("m", 0, topic_names=None, topic_regex="[a-b]|extra.*")
    assert owned(answer) == {}
    answer = world.beat("m", answer.member_epoch)
    assert owned(answer) == {A_ID: frozenset(range(4)), B_ID: frozenset(range(2))}
    world.create_topic("extra-1", C_ID, 1)
    # DecodedRecord up at most every ten seconds.
    assert world.beat("m", answer.member_epoch).assigned is None
    world.pass_time(10_001)
    world.beat("m", answer.member_epoch)
    answer = world.beat("m", answer.member_epoch)
    assert C_ID in (owned(answer) or {})
    world.beat("m", answer.member_epoch, topic_regex="", topic_names=frozenset({"a"}))
    assert world.group is not None and not world.group.resolved
    assert facts(world.reloaded()) == facts(world.group)


def test_a_full_group_takes_no_more() -> None:
    """`group.consumer.max.size` would not hold."""
    world = PureWorld(settings=settings(group_consumer_max_size=1))
    answer = world.beat("m1", 0)
    assert code_of(world, "m2", 0) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert world.beat("m1", answer.member_epoch).member_epoch == answer.member_epoch


def test_the_assignor_that_most_members_ask_for_is_used() -> None:
    """A member's choice of assignor would be without effect."""
    world = PureWorld()
    world.create_topic("c", C_ID, 4)
    both = frozenset({"a", "c"})
    first = world.beat("m1", 0, server_assignor="range", topic_names=both)
    world.beat("m2", 0, server_assignor="range", topic_names=both)
    target = world.group.targets
    assert target["m1"] == {A_ID: frozenset({0, 1}), C_ID: frozenset({0, 1})}
    assert target["m2"] == {A_ID: frozenset({2, 3}), C_ID: frozenset({2, 3})}
    assert first.member_epoch


def test_a_large_target_is_computed_elsewhere_and_fits_the_group_it_comes_back_to() -> None:
    """The loop would stand still while an assignor runs, or members that left meanwhile would come back to life."""
    world = PureWorld()
    world.create_topic("large", C_ID, 1_000)
    large = frozenset({"large"})
    first = world.beat("m1", 0, topic_names=large)
    assert owned(first) == {C_ID: frozenset(range(1_000))}
    second = world.beat("m2", 0, topic_names=large)
    assert owned(second) == {} and second.member_epoch == first.member_epoch
    world.beat("m3", 0, topic_names=large)
    assert len(world.works) == 1
    world.beat("m2", -1)
    world.compute()
    assert world.group is not None
    assert world.group.targets.keys() == {"m1"}
    world.beat("m3", first.member_epoch)
    world.compute()
    assert sorted(len(each[C_ID]) for each in world.group.targets.values()) == [500, 500]
