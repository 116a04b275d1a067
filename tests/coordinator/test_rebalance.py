"""What time does to groups: sessions, rebalance timeouts, the initial delay, and members that come back.

Also of `kbroker.coordinator.classic.group_members`, `kbroker.coordinator.classic.rebalance`.
"""

from __future__ import annotations

import pytest

from kbroker.errors import ErrorCode, NotEnoughReplicasError
from tests.coordinator.harness import World, protocols
from tests.coordinator.two_members import two_members


def test_a_member_without_heartbeats_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    """Partitions of a crashed consumer would never be read again."""
    world = World()
    leader, follower, generation = two_members(world)
    for _ in range(4):
        world.loop.advance(5)
        world.heartbeat("g", leader, generation)
        world.heartbeat("g", follower, generation)
    with caplog.at_level("INFO", "kbroker.groups"):
        world.loop.advance(6)
        world.heartbeat("g", leader, generation)
        world.loop.advance(4.1)
    assert f"removing member {follower} on heartbeat expiration." in caplog.text
    assert world.heartbeat("g", leader, generation) is ErrorCode.REBALANCE_IN_PROGRESS
    again = world.join(member_id=leader).answer
    assert [member.member_id for member in again.members] == [leader]


def test_commits_keep_a_member_alive() -> None:
    """A consumer that commits all the time would be thrown out for a late heartbeat."""
    world = World()
    joined = world.stable_member()
    for offset in range(5):
        world.loop.advance(8)
        who = {"member_id": joined.member_id, "generation_id": joined.generation_id}
        assert world.commit("g", offset, **who) is ErrorCode.NONE
    assert world.state() == "Stable"


def test_waiting_members_need_no_heartbeats() -> None:
    """A long rebalance would expire everybody that takes part in it."""
    world = World()
    first = world.join(session_timeout_ms=6_000).answer
    second = world.join(session_timeout_ms=6_000)
    for _ in range(4):
        world.loop.advance(5)
        world.heartbeat("g", first.member_id, first.generation_id)
    assert second.waits
    result = world.join(member_id=first.member_id, session_timeout_ms=6_000).answer
    follower = second.answer.member_id
    parked = world.sync("g", follower, result.generation_id)
    world.loop.advance(4)
    world.heartbeat("g", first.member_id, result.generation_id)
    world.loop.advance(4)
    world.sync("g", first.member_id, result.generation_id, {follower: b"f"})
    assert parked.answer.assignment == b"f"
    world.loop.advance(5)
    assert world.heartbeat("g", follower, result.generation_id) is ErrorCode.NONE


def test_members_that_do_not_join_in_time_are_dropped() -> None:
    """One stuck consumer would keep the whole group from working."""
    world = World()
    leader, follower, generation = two_members(world)
    newcomer = world.join()
    for _ in range(11):
        world.loop.advance(5)
        world.heartbeat("g", leader, generation)
        world.heartbeat("g", follower, generation)
    rejoined = world.join(member_id=follower)
    assert newcomer.waits
    world.loop.advance(5.1)
    assert rejoined.answer.generation_id == newcomer.answer.generation_id == generation + 1
    assert rejoined.answer.leader_id == follower
    assert world.heartbeat("g", leader, generation) is ErrorCode.UNKNOWN_MEMBER_ID


def test_members_that_never_sync_are_dropped(caplog: pytest.LogCaptureFixture) -> None:
    """A leader that hangs while it assigns, with heartbeats going on, would stop the group for ever."""
    world = World()
    first = world.join(rebalance_timeout_ms=20_000).answer
    with caplog.at_level("INFO", "kbroker.groups"):
        for _ in range(5):
            world.loop.advance(4.5)
            world.heartbeat("g", first.member_id, first.generation_id)
    assert "on pending sync request expiration" in caplog.text
    assert world.state() == "Empty"


def test_a_member_that_waits_for_its_assignment_learns_of_the_next_rebalance() -> None:
    """It would wait for an assignment that never comes, and be dropped from the group for not joining again."""
    world = World()
    leader, follower, _ = two_members(world)
    rejoining = world.join(member_id=leader)
    generation = world.join(member_id=follower).answer.generation_id
    parked = world.sync("g", follower, generation)
    assert rejoining.answer.generation_id == generation and parked.waits
    newcomer = world.join()
    assert parked.answer.error is ErrorCode.REBALANCE_IN_PROGRESS
    again = [world.join(member_id=each) for each in (leader, follower)]
    assert {each.answer.generation_id for each in (newcomer, *again)} == {generation + 1}


def test_a_first_join_is_not_parked_for_ever() -> None:
    """Clients that retry with new ids would pile up behind a stuck rebalance."""
    world = World()
    first = world.join(rebalance_timeout_ms=900_000, session_timeout_ms=600_000).answer
    second = world.join(rebalance_timeout_ms=900_000, session_timeout_ms=600_000)
    world.loop.advance(301)
    assert second.answer.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert list(world.group().members) == [first.member_id]


@pytest.mark.parametrize("delay_ms", [0, 3_000])
def test_an_id_that_nobody_comes_back_with_holds_no_new_group_up(delay_ms: int) -> None:
    """A consumer that is stopped while it starts would keep all others of a new group waiting for its session time."""
    world = World({"group.initial.rebalance.delay.ms": delay_ms})
    here, away = (world.join(requires_known_member_id=True).answer.member_id for _ in range(2))
    joining = world.join(member_id=here)
    world.loop.advance(delay_ms / 1000)
    # A new member starts the delay once more, as in Kafka.
    world.loop.advance(delay_ms / 1000)
    joined = joining.answer
    assert (joined.error, [each.member_id for each in joined.members]) == (ErrorCode.NONE, [here])
    world.sync("g", here, joined.generation_id, {here: b"all"})
    late = world.join(member_id=away)
    assert late.waits
    assert world.heartbeat("g", here, joined.generation_id) is ErrorCode.REBALANCE_IN_PROGRESS
    again = world.join(member_id=here).answer
    assert [each.member_id for each in again.members] == [here, away]
    assert (late.answer.error, late.answer.generation_id) == (ErrorCode.NONE, again.generation_id)


def test_the_first_rebalance_waits_for_more_members() -> None:
    """Starting ten consumers would cause ten rebalances."""
    world = World({"group.initial.rebalance.delay.ms": 3_000})
    first = world.join()
    world.loop.advance(2)
    second = world.join()
    world.loop.advance(2)
    assert first.waits and second.waits
    third = world.join()
    world.loop.advance(2.5)
    assert third.waits
    world.loop.advance(3)
    assert {each.answer.generation_id for each in (first, second, third)} == {1}


def test_the_first_rebalance_waits_no_longer_than_the_rebalance_timeout() -> None:
    """A steady stream of new consumers would never get to work."""
    world = World({"group.initial.rebalance.delay.ms": 3_000})
    first = world.join(rebalance_timeout_ms=10_000)
    for _ in range(12):
        if not first.waits:
            break
        world.loop.advance(1)
        world.join(rebalance_timeout_ms=10_000)
    assert world.loop.time <= 1_010
    assert first.answer.generation_id == 1


def test_all_leaving_during_the_initial_delay_ends_in_empty() -> None:
    """A group of consumers that gave up early would stay in a rebalance for ever."""
    world = World({"group.initial.rebalance.delay.ms": 3_000})
    first = world.join()
    world.leave("g", *world.group().members)
    assert first.answer.error is ErrorCode.UNKNOWN_MEMBER_ID
    world.loop.advance(10)
    assert world.state() == "Empty"


# Static members


def test_a_static_member_comes_back_without_a_rebalance() -> None:
    """A rolling restart of static members would stop the group once per restart."""
    world = World()
    first = world.stable_member(group_instance_id="i1")
    second = world.join(group_instance_id="i1").answer
    assert second.member_id != first.member_id
    assert (second.generation_id, second.leader_id) == (first.generation_id, first.member_id)
    assert world.state() == "Stable"
    assert world.sync("g", second.member_id, second.generation_id, group_instance_id="i1").answer.assignment == b"all"
    assert world.heartbeat("g", first.member_id, 1, "i1") is ErrorCode.FENCED_INSTANCE_ID
    assert world.heartbeat("g", first.member_id, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.commit("g", 1, generation_id=1, member_id=first.member_id, group_instance_id="i1") is (
        ErrorCode.FENCED_INSTANCE_ID
    )


def test_a_returning_static_leader_is_told_to_skip_the_assignment() -> None:
    """From JoinGroup v9 on a leader must know that it leads, or topic changes go unnoticed."""
    world = World()
    world.stable_member(group_instance_id="i1")
    result = world.join(group_instance_id="i1", supports_skipping_assignment=True).answer
    assert (result.leader_id, result.skip_assignment) == (result.member_id, True)
    assert len(result.members) == 1


def test_a_static_member_that_stays_away_keeps_its_place_until_its_session_ends() -> None:
    """Another member's restart would take partitions from a static member that is about to come back."""
    world = World()
    leader = world.stable_member(group_instance_id="i1", session_timeout_ms=100_000)
    newcomer = world.join(session_timeout_ms=100_000)
    world.loop.advance(60.1)
    result = newcomer.answer
    assert result.leader_id == result.member_id
    assert {member.member_id for member in result.members} == {leader.member_id, result.member_id}
    world.sync("g", result.member_id, result.generation_id)
    for _ in range(2):
        world.loop.advance(50)
        world.heartbeat("g", result.member_id, result.generation_id)
    assert world.state() == "PreparingRebalance"


def test_a_static_member_with_another_protocol_causes_a_rebalance(caplog: pytest.LogCaptureFixture) -> None:
    """Members of one group would work with different assignors."""
    world = World()
    world.stable_member(group_instance_id="i1", protocols=protocols("a", "b"))
    with caplog.at_level("INFO", "kbroker.groups"):
        result = world.join(group_instance_id="i1", protocols=protocols("b", "a")).answer
    assert (result.generation_id, result.protocol_name) == (2, "b")
    assert "Group's selectedProtocol will change" in caplog.text


def test_a_parked_static_member_is_fenced_by_its_successor() -> None:
    """Two processes with the same instance id would both believe that they are members."""
    world = World()
    world.stable_member()
    first = world.join(group_instance_id="i1")
    second = world.join(group_instance_id="i1")
    assert first.answer.error is ErrorCode.FENCED_INSTANCE_ID
    assert second.waits


def test_a_successor_during_assignment_starts_over() -> None:
    """The assignment would go to the id of a process that is gone."""
    world = World()
    joined = world.join(group_instance_id="i1").answer
    result = world.join(group_instance_id="i1").answer
    assert (result.generation_id, result.leader_id) == (2, result.member_id)
    assert world.sync("g", joined.member_id, 1, group_instance_id="i1").answer.error is ErrorCode.FENCED_INSTANCE_ID


def test_a_replacement_that_cannot_be_stored_is_undone() -> None:
    """After a restart of the broker the member would be unknown."""
    world = World()
    first = world.stable_member(group_instance_id="i1")
    world.log.failure = NotEnoughReplicasError()
    assert world.join(group_instance_id="i1").answer.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.log.failure = None
    assert world.heartbeat("g", first.member_id, 1, "i1") is ErrorCode.NONE
    assert world.group().awaiting_join_count == 0


def test_an_id_that_was_handed_out_cannot_become_a_static_member() -> None:
    """A made-up request could take over a place in the group."""
    world = World()
    pending = world.join(requires_known_member_id=True).answer
    result = world.join(member_id=pending.member_id, group_instance_id="i").answer
    assert result.error is ErrorCode.UNKNOWN_MEMBER_ID
