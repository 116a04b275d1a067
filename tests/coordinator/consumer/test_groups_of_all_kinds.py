"""Consumer groups beside classic groups: one id, one table of offsets, and what both kinds have in common.

Also of `kbroker.coordinator.consumer.classic_members`.
"""

from __future__ import annotations

import pytest

from kbroker.coordinator.classic.messages import LeavingMember, PartitionCommit
from kbroker.coordinator.classic.offset_commits import Committer
from kbroker.coordinator.runtime.plan import TransactionalProducer
from kbroker.errors import ErrorCode, KafkaError, KafkaStorageError
from tests.coordinator.consumer.beats import beat
from tests.coordinator.harness import T1_ID, World

HOUR = 3_600.0


def in_transaction(world: World, **who: object) -> ErrorCode:
    commit = PartitionCommit("t1", 0, 9, topic_id=T1_ID)
    committer = Committer("g", **who)  # type: ignore[arg-type]
    try:
        return world.coordinator.commit_transactional_offsets(committer, [commit], TransactionalProducer(5, 0), 4)[0]
    except KafkaError as error:
        return error.code


def test_offsets_stay_when_a_classic_group_becomes_a_consumer_group_and_back() -> None:
    """Consumers would begin at the wrong place after a migration."""
    world = World()
    world.commit("g", 5)
    epoch = beat(world, "m", 0).member_epoch
    assert world.committed("g") == 5
    assert world.commit("g", 6, generation_id=epoch, member_id="m") is ErrorCode.NONE
    beat(world, "m", -1)
    # An empty group takes members of either protocol.
    joined = world.stable_member("g")
    assert joined.error is ErrorCode.NONE and world.committed("g") == 6
    again = world.restarted()
    assert again.committed("g") == 6 and again.group("g").members.keys() == {joined.member_id}


def test_an_offset_of_a_transaction_is_the_word_of_a_member_in_its_epoch() -> None:
    """Exactly-once with the consumer protocol would be refused, or a zombie's offsets would count."""
    world = World({"group.consumer.assignment.interval.ms": 0})
    epoch = beat(world, "m", 0).member_epoch
    assert in_transaction(world, generation_id=epoch, member_id="m") is ErrorCode.NONE
    assert in_transaction(world, generation_id=epoch + 1, member_id="m") is ErrorCode.ILLEGAL_GENERATION
    assert in_transaction(world, generation_id=epoch - 2, member_id="m") is ErrorCode.ILLEGAL_GENERATION
    assert in_transaction(world, generation_id=epoch, member_id="z") is ErrorCode.UNKNOWN_MEMBER_ID
    assert in_transaction(world) is ErrorCode.NONE


def test_a_transaction_that_names_a_member_commits_as_that_member_alone() -> None:
    """A zombie that names itself without its epoch would commit over the members of now."""
    world = World({"group.consumer.assignment.interval.ms": 0})
    beat(world, "m", 0)
    assert in_transaction(world, member_id="z") is ErrorCode.UNKNOWN_MEMBER_ID
    assert in_transaction(world, group_instance_id="i") is ErrorCode.UNKNOWN_MEMBER_ID
    assert in_transaction(world, member_id="m") is ErrorCode.ILLEGAL_GENERATION
    assert world.committed("g") is None
    assert not world.group("g").offsets.pending


def test_sessions_begin_anew_after_a_restart_and_end_when_nobody_comes_back() -> None:
    """Members of a broker that was down would be thrown out at once, or stay for ever."""
    world = World()
    epoch = beat(world, "m", 0).member_epoch
    world.loop.advance(40)
    again = world.restarted()
    again.loop.advance(40)
    assert beat(again, "m", epoch).member_epoch == epoch
    again.loop.advance(46)
    assert again.group("g").kind is not None and again.group("g").is_empty


def test_a_write_that_fails_changes_nothing_and_is_tried_again_for_sessions() -> None:
    """The state in memory would be ahead of the log, or a dead member keep its partitions when the disk is full."""
    world = World()
    epoch = beat(world, "m", 0).member_epoch
    world.log.failure = KafkaStorageError()
    with pytest.raises(KafkaStorageError):
        beat(world, "n", 0)
    assert world.consumer_groups.describe("g")[0].members.keys() == {"m"}
    assert beat(world, "m", epoch).member_epoch == epoch
    world.loop.advance(50)
    assert world.consumer_groups.describe("g")[0].members.keys() == {"m"}
    world.log.failure = None
    world.loop.advance(2)
    assert not world.consumer_groups.describe("g")[0].members


def test_offsets_of_read_topics_stay_and_an_empty_group_goes_with_its_last_offset() -> None:
    """Offsets of a live group would expire, or the records of groups nobody uses fill the state topic for ever."""
    world = World({"offsets.retention.minutes": 60, "group.consumer.assignment.interval.ms": 0})
    epoch = beat(world, "m", 0).member_epoch
    assert world.commit("g", 1, generation_id=epoch, member_id="m") is ErrorCode.NONE
    assert world.commit("g", 1, "t2", generation_id=epoch, member_id="m") is ErrorCode.NONE
    for _ in range(130):
        world.loop.advance(30)
        beat(world, "m", epoch)
    world.coordinator.expire_offsets()
    assert (world.committed("g"), world.committed("g", "t2")) == (1, None)
    beat(world, "m", -1)
    world.loop.advance(HOUR)
    world.coordinator.expire_offsets()
    assert "g" not in world.coordinator.registry.groups
    assert "g" not in world.restarted().coordinator.registry.groups


def test_an_administrator_removes_members_by_their_ids() -> None:
    """A member that hangs could not be removed from outside."""
    world = World()
    beat(world, "m", 0)
    beat(world, "s", 0, instance_id="i")
    results = world.coordinator.leave("g", [LeavingMember("m"), LeavingMember("", "i"), LeavingMember("q")])
    assert [each.error for each in results] == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    assert world.group("g").is_empty


def test_a_record_of_a_newer_version_is_skipped() -> None:
    """A directory that a newer broker has written could not be opened."""
    world = World()
    beat(world, "m", 0)
    shard = world.coordinator.registry.runtime.shard(world.group("g").partition_index)
    key = b"\0\3\0\1g"
    shard.append([(key, b"\0\7what"), (key, b"\0\0\0"), (b"\0\3\0\x09g", b"\0\0")])
    again = world.restarted()
    assert again.consumer_groups.describe("g")[0].members.keys() == {"m"}
