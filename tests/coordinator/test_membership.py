"""Joining, syncing, beating and leaving: what one request gets for an answer."""

from __future__ import annotations

import pytest

from kbroker.coordinator.classic.messages import LeavingMember
from kbroker.errors import ErrorCode, KafkaError, NotEnoughReplicasError, RecordListTooLargeError
from tests.coordinator.harness import Waiting, World, protocols, subscription
from tests.coordinator.two_members import two_members


def test_the_first_member_leads_generation_one() -> None:
    """A lone consumer would never get its partitions."""
    world = World()
    result = world.join().answer
    assert (result.error, result.generation_id, result.protocol_name) == (ErrorCode.NONE, 1, "range")
    assert result.leader_id == result.member_id
    assert [member.member_id for member in result.members] == [result.member_id]
    synced = world.sync("g", result.member_id, 1, {result.member_id: b"x"}).answer
    assert (synced.assignment, synced.protocol_type, synced.protocol_name) == (b"x", "consumer", "range")
    assert world.state() == "Stable"


def test_a_new_client_is_sent_back_with_its_id_first() -> None:
    """A client that times out in its first join would leave a ghost member behind with each retry."""
    world = World()
    first = world.join(requires_known_member_id=True).answer
    assert first.error is ErrorCode.MEMBER_ID_REQUIRED
    assert first.member_id.startswith("client-")
    assert world.heartbeat("g", first.member_id, 0) is ErrorCode.UNKNOWN_MEMBER_ID
    second = world.join(member_id=first.member_id, requires_known_member_id=True).answer
    assert (second.error, second.member_id, second.generation_id) == (ErrorCode.NONE, first.member_id, 1)


def test_an_id_that_is_never_used_expires() -> None:
    """A client that died after its first request would stop every later rebalance."""
    world = World()
    member = world.stable_member()
    pending = world.join(requires_known_member_id=True, session_timeout_ms=7_000).answer
    world.join(member_id=member.member_id)
    assert world.state() == "PreparingRebalance"
    world.loop.advance(7.1)
    assert world.state() == "CompletingRebalance"
    assert world.join(member_id=pending.member_id).answer.error is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"session_timeout_ms": 5_999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"member_id": "stranger"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_a_refused_join_leaves_no_group_behind(fields: dict[str, object], code: ErrorCode) -> None:
    """Anybody could fill the broker's memory with names of groups."""
    world = World()
    values = {"group_id": "new", **fields}
    assert world.join(**values).answer.error is code  # type: ignore[arg-type]
    assert list(world.coordinator.list_groups((), ())) == []


@pytest.mark.parametrize("fields", [{"protocol_type": "connect"}, {"protocols": protocols("other")}])
def test_a_member_that_shares_no_protocol_is_refused(fields: dict[str, object]) -> None:
    """One misconfigured consumer would leave the whole group without an assignment."""
    world = World()
    world.stable_member()
    assert world.join(**fields).answer.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL  # type: ignore[arg-type]
    assert world.state() == "Stable"


def test_the_protocol_with_most_votes_among_the_common_ones_wins() -> None:
    """A rolling change of the assignor would break the group midway."""
    world = World({"group.initial.rebalance.delay.ms": 3_000})
    waiting = [
        world.join(protocols=protocols("a", "b", "c")),
        world.join(protocols=protocols("c", "b")),
        world.join(protocols=protocols("x", "b", "c")),
    ]
    world.loop.advance(30)
    assert {each.answer.protocol_name for each in waiting} == {"b"}


def test_more_members_than_the_limit_are_turned_away() -> None:
    """group.max.size would not protect the coordinator from a runaway deployment."""
    world = World({"group.max.size": 2})
    leader, follower, generation = two_members(world)
    assert world.join().answer.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert world.heartbeat("g", leader, generation) is ErrorCode.NONE
    assert world.heartbeat("g", follower, generation) is ErrorCode.NONE


def test_a_follower_that_joins_unchanged_is_told_its_generation() -> None:
    """A consumer whose answer was lost would disturb the whole group to get it again."""
    world = World()
    leader, follower, generation = two_members(world)
    result = world.join(member_id=follower).answer
    assert (result.generation_id, result.leader_id, result.members) == (generation, leader, ())
    assert world.state() == "Stable"


def test_the_leader_may_ask_for_a_rebalance_by_joining(caplog: pytest.LogCaptureFixture) -> None:
    """New partitions of a topic would never be assigned."""
    world = World()
    leader, _, _ = two_members(world)
    with caplog.at_level("INFO", "kbroker.groups"):
        assert world.join(member_id=leader, reason="topics changed").waits
    assert world.state() == "PreparingRebalance"
    assert f"(reason: Leader {leader} re-joining group during Stable; client reason: topics changed)" in caplog.text


def test_changed_subscriptions_start_a_rebalance(caplog: pytest.LogCaptureFixture) -> None:
    """A consumer that subscribes to another topic would not get it."""
    world = World()
    _, follower, _ = two_members(world)
    with caplog.at_level("INFO", "kbroker.groups"):
        assert world.join(member_id=follower, protocols=protocols("range", metadata=subscription("t2"))).waits
    assert f"Updating metadata for member {follower} during Stable" in caplog.text


def test_during_completing_rebalance_an_unchanged_join_gets_the_same_generation() -> None:
    """A lost answer to JoinGroup would cost another rebalance."""
    world = World()
    first = world.join().answer
    again = world.join(member_id=first.member_id).answer
    assert (again.generation_id, again.members) == (first.generation_id, first.members)


def test_a_second_join_of_the_same_member_answers_the_first() -> None:
    """A connection would hang for ever on a request that nobody remembers."""
    world = World()
    leader, follower, _ = two_members(world)
    first = world.join(member_id=follower, protocols=protocols("range", metadata=b"1"))
    second = world.join(member_id=follower, protocols=protocols("range", metadata=b"1"))
    assert first.answer.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert second.waits
    world.join(member_id=leader)
    assert second.answer.error is ErrorCode.NONE


@pytest.mark.parametrize(
    ("member", "generation", "fields", "code"),
    [
        ("stranger", 1, {}, ErrorCode.UNKNOWN_MEMBER_ID),
        (None, 2, {}, ErrorCode.ILLEGAL_GENERATION),
        (None, 1, {"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (None, 1, {"protocol_name": "sticky"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (None, 1, {"group_instance_id": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_wrong_sync_is_refused(
    member: str | None, generation: int, fields: dict[str, object], code: ErrorCode
) -> None:
    """A consumer of a past generation would take partitions that are not its own."""
    world = World()
    joined = world.join().answer
    assert world.sync("g", member or joined.member_id, generation, {}, **fields).answer.error is code


def test_sync_of_an_unknown_or_nameless_group() -> None:
    """Clients could not tell a typing error from a restart of the broker."""
    world = World()
    assert world.sync("none", "m", 1).answer.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.sync("", "m", 1).answer.error is ErrorCode.INVALID_GROUP_ID


def test_members_that_the_leader_forgot_get_an_empty_assignment(caplog: pytest.LogCaptureFixture) -> None:
    """A consumer would wait for ever for partitions that nobody gave it."""
    world = World()
    joined = world.join().answer
    assert world.sync("g", joined.member_id, 1, {"somebody else": b"x"}).answer.assignment == b""
    assert "the leader left out" in caplog.text


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (NotEnoughReplicasError(), ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (RecordListTooLargeError(), ErrorCode.UNKNOWN_SERVER_ERROR),
        (KafkaError.of(ErrorCode.KAFKA_STORAGE_ERROR), ErrorCode.NOT_COORDINATOR),
    ],
)
def test_an_assignment_that_cannot_be_stored_is_not_handed_out(failure: KafkaError, code: ErrorCode) -> None:
    """After a restart two consumers would own the same partitions."""
    world = World()
    joined = world.join().answer
    world.log.failure = failure
    assert world.sync("g", joined.member_id, 1, {joined.member_id: b"x"}).answer.error is code
    assert world.state() == "PreparingRebalance"
    world.log.failure = None
    again = world.join(member_id=joined.member_id).answer
    assert world.sync("g", again.member_id, again.generation_id, {again.member_id: b"x"}).answer.assignment == b"x"


def test_heartbeats_tell_members_of_a_rebalance() -> None:
    """Running consumers would not make room for a new one."""
    world = World()
    leader, _, generation = two_members(world)
    world.join()
    assert world.heartbeat("g", leader, generation) is ErrorCode.REBALANCE_IN_PROGRESS
    assert world.heartbeat("g", leader, generation + 1) is ErrorCode.ILLEGAL_GENERATION
    assert world.heartbeat("g", "stranger", generation) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.heartbeat("", leader, generation) is ErrorCode.INVALID_GROUP_ID


def test_leaving_members_hand_over_at_once(caplog: pytest.LogCaptureFixture) -> None:
    """Partitions of a consumer that was shut down would stand still until its session ends."""
    world = World()
    leader, follower, _ = two_members(world)
    with caplog.at_level("INFO", "kbroker.groups"):
        assert world.leave("g", leader, "stranger") == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    assert f"explicit `LeaveGroup` request for ({leader}) members; client reason: not provided" in caplog.text
    result = world.join(member_id=follower).answer
    assert result.leader_id == follower


def test_a_leaving_id_that_was_never_used_disturbs_nobody() -> None:
    """Clients that give up early would cause rebalances for nothing."""
    world = World()
    world.stable_member()
    pending = world.join(requires_known_member_id=True).answer
    assert world.leave("g", pending.member_id) == [ErrorCode.NONE]
    assert world.state() == "Stable"


def test_the_last_one_to_leave_empties_the_group() -> None:
    """A tool could not reset the offsets of a group that was stopped."""
    world = World()
    joined = world.stable_member()
    world.leave("g", joined.member_id)
    assert world.state() == "Empty"
    assert world.join(member_id=joined.member_id).answer.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.leave("none", "x") == [ErrorCode.UNKNOWN_MEMBER_ID]
    with pytest.raises(KafkaError) as failure:
        world.leave("", "x")
    assert failure.value.code is ErrorCode.INVALID_GROUP_ID


def test_a_leaving_member_that_still_waits_is_answered() -> None:
    """A connection would hang on a request of a member that is gone."""
    world = World()
    first = world.stable_member()
    second = world.join()
    waiting = world.group().members
    second_id = next(member_id for member_id in waiting if member_id != first.member_id)
    world.leave("g", second_id)
    assert second.answer.error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_over_its_limit_drops_the_late(caplog: pytest.LogCaptureFixture) -> None:
    """Lowering group.max.size would have no effect on groups that are larger."""
    world = World()
    two_members(world)
    with caplog.at_level("INFO", "kbroker.groups"):
        smaller = world.restarted({"group.max.size": 1})
    assert "is over capacity 1" in caplog.text
    members = list(smaller.group().members)
    kept: list[Waiting] = [smaller.join(member_id=member_id) for member_id in members]
    assert kept[1].answer.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert kept[0].answer.error is ErrorCode.NONE


def test_static_members_are_removed_by_instance_id() -> None:
    """An administrator could not scale down a group of static members."""
    world = World()
    world.stable_member(group_instance_id="i1")
    results = world.coordinator.leave("g", [LeavingMember("", "i1"), LeavingMember("", "i2")])
    assert [(each.group_instance_id, each.error) for each in results] == [
        ("i1", ErrorCode.NONE),
        ("i2", ErrorCode.UNKNOWN_MEMBER_ID),
    ]
    assert world.state() == "Empty"


def test_a_protocol_named_twice_counts_once() -> None:
    """The first generation failed after the member was in: the group refused everybody for five minutes."""
    world = World()
    joined = world.join(protocols=(*protocols("range", metadata=b"first"), *protocols("range", "rr", metadata=b"x")))
    assert (joined.answer.error, joined.answer.protocol_name) == (ErrorCode.NONE, "range")
    assert [member.metadata for member in joined.answer.members] == [b"first"]
    world.sync("g", joined.answer.member_id, 1)
    other = world.join(protocols=protocols("rr", "rr"))
    again = world.join(member_id=joined.answer.member_id, protocols=protocols("rr", "range", "rr"))
    assert (again.answer.protocol_name, len(again.answer.members)) == ("rr", 2)
    assert world.leave("g", other.answer.member_id) == [ErrorCode.NONE]
    assert world.join(member_id=joined.answer.member_id, protocols=protocols("rr")).answer.error is ErrorCode.NONE


@pytest.mark.parametrize("instance", [None, "\u00fc" * 0x3FFF])
def test_a_member_id_fits_whatever_the_client_calls_itself(instance: str | None) -> None:
    """An id longer than a string may be cannot be answered or stored: the group would be stuck with the member."""
    world = World()
    joined = world.stable_member(client_id="x" * 0x7FFF, group_instance_id=instance)
    assert len(joined.member_id.encode()) <= 0x7FFF
    assert joined.member_id.startswith("x" * 0x7000 if instance is None else "\u00fc" * 0x3000)
    assert world.state() == "Stable"
    assert list(world.restarted().group().members) == [joined.member_id]
