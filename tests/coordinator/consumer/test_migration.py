"""A live group between the protocols: what may happen, what may not, and that nobody is left waiting.

Also of `kbroker.coordinator.consumer.migration`, `kbroker.coordinator.consumer.embedded`.
"""

from __future__ import annotations

import pytest

from kbroker.coordinator.classic.messages import JoinResult, MemberProtocol
from kbroker.coordinator.consumer.draft import HeartbeatAnswer, HeartbeatRequest
from kbroker.coordinator.consumer.group import ConsumerGroup
from kbroker.errors import ErrorCode, KafkaError
from kbroker.records.legacy import iterate_stored_batches, iterate_stored_records
from kbroker.schemas import message
from tests.coordinator.consumer.beats import beat
from tests.coordinator.harness import T1_ID, World, subscription

ALL = {T1_ID: frozenset({0, 1, 2})}


def assignment(*partitions: int, user_data: bytes | None = None) -> bytes:
    value = message("ConsumerProtocolAssignment")
    row = value.TopicPartition(topic="t1", partitions=list(partitions))
    return b"\0\0" + bytes(value.program(0).encode(value(assigned_partitions=[row], user_data=user_data)))


def partitions_of(data: bytes) -> list[int]:
    read = message("ConsumerProtocolAssignment").program(0).decode(data, 2)
    return sorted(partition for row in read.assigned_partitions for partition in row.partitions)


def world_with(policy: str = "bidirectional") -> World:
    return World({"group.consumer.assignment.interval.ms": 0, "group.consumer.migration.policy": policy})


def classic(world: World, data: bytes, **fields: object) -> JoinResult:
    """A classic member that is alone in its group, and has these bytes as its assignment."""
    joined: JoinResult = world.join("g", **fields).answer
    world.sync("g", joined.member_id, joined.generation_id, {joined.member_id: data})
    return joined


def classic_records(world: World) -> list[bytes | None]:
    """What was stored of the classic group, in order."""
    batches = [batch for partition in world.log.partitions for _, batch in partition]
    stored = [
        record
        for batch in batches
        for info in iterate_stored_batches(batch)
        for record in iterate_stored_records(batch, info)
    ]
    return [record.value for record in stored if record.key is not None and record.key[:2] == b"\0\2"]


def kind(world: World) -> ConsumerGroup:
    return world.consumer_groups.describe("g")[0]


def code_of(world: World, member_id: str = "n") -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        beat(world, member_id, 0)
    return caught.value.code


@pytest.mark.parametrize("policy", ["downgrade", "disabled"])
def test_a_group_is_upgraded_only_where_the_policy_allows(policy: str) -> None:
    """An administrator could not keep groups on the protocol that all their members know."""
    world = world_with(policy)
    member = classic(world, assignment(0, 1, 2))
    assert code_of(world) is ErrorCode.GROUP_ID_NOT_FOUND
    assert world.heartbeat("g", member.member_id, member.generation_id) is ErrorCode.NONE


def test_a_group_with_an_assignor_of_its_own_is_not_upgraded() -> None:
    """What such an assignor keeps in the members' bytes would be lost."""
    world = world_with()
    classic(world, assignment(0, user_data=b"mine"))
    assert code_of(world) is ErrorCode.GROUP_ID_NOT_FOUND
    world = world_with()
    classic(world, b"", protocol_type="connect", protocols=(MemberProtocol("x", b""),))
    assert code_of(world) is ErrorCode.GROUP_ID_NOT_FOUND


def test_members_that_wait_in_a_rebalance_are_sent_to_join_the_new_group() -> None:
    """They would wait for a generation that never comes."""
    world = world_with()
    first = classic(world, assignment(0, 1, 2))
    second = world.join("g")
    assert second.waits
    answer = beat(world, "n", 0)
    assert second.answer.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert answer.member_epoch > first.generation_id
    assert world.heartbeat("g", first.member_id, first.generation_id) is ErrorCode.REBALANCE_IN_PROGRESS
    again = world.join("g", second.answer.member_id).answer
    assert again.error is ErrorCode.NONE and again.member_id == second.answer.member_id
    assert world.group("g").members == {}


def test_nothing_of_the_classic_group_goes_on_after_an_upgrade() -> None:
    """A timer of the old group would write its record over the new one, which would be gone after a restart."""
    world = world_with()
    member = classic(world, assignment(0, 1, 2))
    world.join("g", requires_known_member_id=True)
    epoch = beat(world, "n", 0).member_epoch
    world.leave("g", member.member_id)
    for _ in range(20):
        world.loop.advance(30)
        epoch = beat(world, "n", epoch).member_epoch
    assert kind(world).members.keys() == {"n"}
    assert classic_records(world)[-1] is None
    assert world.restarted().consumer_groups.describe("g")[0].members.keys() == {"n"}


def test_a_classic_member_that_does_not_join_again_is_removed() -> None:
    """Its partitions would be read by nobody."""
    world = world_with()
    member = classic(world, assignment(0, 1, 2), rebalance_timeout_ms=20_000, session_timeout_ms=30_000)
    epoch = beat(world, "n", 0).member_epoch
    assert world.heartbeat("g", member.member_id, member.generation_id) is ErrorCode.REBALANCE_IN_PROGRESS
    world.loop.advance(15)
    world.heartbeat("g", member.member_id, member.generation_id)
    assert member.member_id in kind(world).members
    world.loop.advance(6)
    assert kind(world).members.keys() == {"n"}
    answer = beat(world, "n", epoch)
    assert answer.assigned is not None and set(answer.assigned) == {T1_ID}


def test_a_static_member_that_goes_back_to_the_classic_protocol_takes_the_group_with_it() -> None:
    """A roll-back of the last instance would leave the group in a protocol that none of its members speaks."""
    world = world_with()
    both = ("range", subscription("t1"))
    member = classic(world, assignment(0, 1, 2), protocols=(MemberProtocol(*both),))
    beat(world, "n", 0, instance_id="i")
    world.heartbeat("g", member.member_id, member.generation_id)
    joined = world.join("g", member.member_id, protocols=(MemberProtocol(*both),)).answer
    has = partitions_of(world.sync("g", member.member_id, joined.generation_id).answer.assignment)
    answer: HeartbeatAnswer = beat(world, "n", kind(world).epoch, instance_id="i")
    assert answer.assigned is not None and len(has) + len(answer.assigned[T1_ID]) == 3
    back = world.join("g", group_instance_id="i").answer
    assert back.error is ErrorCode.NONE
    group = world.group("g")
    assert group.kind is None and group.members.keys() == {member.member_id, back.member_id}
    stored = {name: partitions_of(each.assignment) for name, each in group.members.items()}
    assert stored == {member.member_id: has, back.member_id: sorted({0, 1, 2} - set(has))}
    after = world.restarted()
    assert after.group("g").members.keys() == group.members.keys()
    assert after.group("g").kind is None and after.state("g") == "Stable"


def test_a_group_is_downgraded_only_where_the_policy_allows() -> None:
    """A group would go back to the old protocol against the administrator's will."""
    world = world_with("upgrade")
    classic(world, assignment(0, 1, 2))
    beat(world, "n", 0)
    beat(world, "n", -1)
    assert world.group("g").kind is not None and kind(world).classic_count == 1


def test_classic_members_may_not_join_where_migration_is_off() -> None:
    """A group would mix protocols although that is forbidden."""
    world = world_with("disabled")
    beat(world, "n", 0)
    assert world.join("g").answer.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_subscription_that_cannot_be_read_is_refused() -> None:
    """One client with broken bytes would break the group for all."""
    world = world_with()
    beat(world, "n", 0)
    broken = world.join("g", "x", protocols=(MemberProtocol("range", b"\0"),)).answer
    assert broken.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    request = HeartbeatRequest("g", "n", kind(world).members["n"].member_epoch, owned=ALL)
    assert world.consumer_groups.heartbeat(request).answer.member_id == "n"


def test_a_classic_member_that_leaves_gives_its_partitions_to_the_others() -> None:
    """A service would lose partitions during its migration."""
    world = world_with()
    member = classic(world, assignment(0, 1, 2))
    epoch = beat(world, "n", 0).member_epoch
    assert world.leave("g", member.member_id) == [ErrorCode.NONE]
    answer = beat(world, "n", epoch)
    assert answer.assigned is not None and len(answer.assigned[T1_ID]) == 3
