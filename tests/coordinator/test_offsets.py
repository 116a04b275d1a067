"""Committing, deleting and expiring offsets."""

from __future__ import annotations

import pytest

from kbroker.coordinator.classic.expiration import NOTHING, expired
from kbroker.coordinator.classic.group import Group
from kbroker.coordinator.classic.messages import PartitionCommit
from kbroker.coordinator.classic.offset_commits import Committer
from kbroker.coordinator.classic.offsets import CommittedOffset, OffsetTable
from kbroker.errors import ErrorCode, GroupIdNotFoundError, KafkaError, MessageTooLargeError, NonEmptyGroupError
from tests.coordinator.harness import STATE_ID, World, create_topics, delete_topic, protocols, subscription, topic_image

MINUTE = 60
WEEK = 7 * 24 * 60 * MINUTE


def test_consumers_without_a_group_commit_too() -> None:
    """Tools and consumers that assign partitions themselves could not store their place."""
    world = World()
    assert world.commit("simple", 42) is ErrorCode.NONE
    assert world.committed("simple") == 42
    assert world.state("simple") == "Empty"


def test_a_group_with_members_takes_commits_of_members_only() -> None:
    """A stray tool would move the offsets under running consumers."""
    world = World()
    joined = world.stable_member()
    member = {"member_id": joined.member_id}
    assert world.commit("g", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.commit("g", 1, generation_id=1, member_id="stranger") is ErrorCode.UNKNOWN_MEMBER_ID
    assert world.commit("g", 1, generation_id=2, **member) is ErrorCode.ILLEGAL_GENERATION
    assert world.commit("g", 1, generation_id=-1, **member) is ErrorCode.ILLEGAL_GENERATION
    assert world.committed("g") is None
    assert world.commit("g", 1, generation_id=1, **member) is ErrorCode.NONE
    assert world.committed("g") == 1


def test_commits_by_state_of_the_rebalance() -> None:
    """A consumer that gives up partitions in a rebalance could not save how far it got."""
    world = World()
    joined = world.join().answer
    who = {"generation_id": 1, "member_id": joined.member_id}
    assert world.commit("g", 1, **who) is ErrorCode.REBALANCE_IN_PROGRESS
    world.sync("g", joined.member_id, 1)
    world.join()
    assert world.state() == "PreparingRebalance"
    assert world.commit("g", 2, **who) is ErrorCode.NONE


def test_a_generation_of_a_group_that_does_not_exist() -> None:
    """Clients before and after OffsetCommit v9 know different errors for it."""
    world = World()
    who = Committer("none", 3, "m")
    for version, code in ((8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)):
        with pytest.raises(KafkaError) as failure:
            world.coordinator.commit_offsets(who, [PartitionCommit("t1", 0, 1)], version)
        assert failure.value.code is code


def test_metadata_has_a_limit_and_others_go_on() -> None:
    """One client could fill the broker's memory with remarks."""
    world = World({"offset.metadata.max.bytes": 10})
    commits = [PartitionCommit("t1", 0, 1, -1, "x" * 11), PartitionCommit("t1", 1, 2, -1, "x" * 10)]
    codes = world.coordinator.commit_offsets(Committer("g"), commits, 9)
    assert codes == [ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.NONE]
    assert (world.committed("g"), world.committed("g", partition=1)) == (None, 2)


def test_refused_commits_leave_no_group_behind() -> None:
    """Anybody could fill the broker's memory with names of groups."""
    world = World({"offset.metadata.max.bytes": 1})
    world.coordinator.commit_offsets(Committer("new"), [PartitionCommit("t1", 0, 1, -1, "xx")], 9)
    world.commit("old", 1)
    world.log.failure = MessageTooLargeError()
    world.commit("other", 1)
    assert [group.group_id for group in world.coordinator.list_groups((), ())] == ["old"]


def test_what_cannot_be_stored_does_not_count() -> None:
    """A consumer would go on from an offset that is gone after a restart."""
    world = World()
    world.commit("g", 1)
    world.log.failure = MessageTooLargeError()
    assert world.commit("g", 2) is ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    assert world.committed("g") == 1


def test_offsets_of_topics_that_members_read_cannot_be_deleted() -> None:
    """An administrator's slip would send running consumers back to the start."""
    world = World()
    joined = world.stable_member()
    who = {"generation_id": 1, "member_id": joined.member_id}
    world.commit("g", 1, **who)
    world.commit("g", 1, topic="t2", **who)
    codes = world.coordinator.delete_offsets("g", [("t1", 0), ("t2", 0), ("t2", 5)])
    assert codes == {
        ("t1", 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        ("t2", 0): ErrorCode.NONE,
        ("t2", 5): ErrorCode.NONE,
    }
    assert (world.committed("g"), world.committed("g", "t2")) == (1, None)


def test_offsets_of_groups_that_are_no_consumers_are_deleted_only_when_empty() -> None:
    """What members of such a group read is not known."""
    world = World()
    world.stable_member("connect", protocol_type="connect", protocols=protocols("a"))
    with pytest.raises(NonEmptyGroupError):
        world.coordinator.delete_offsets("connect", [("t1", 0)])
    with pytest.raises(GroupIdNotFoundError):
        world.coordinator.delete_offsets("none", [("t1", 0)])


def test_deleting_a_group_takes_its_offsets_along() -> None:
    """A group of the same name would start where the old one ended."""
    world = World()
    joined = world.stable_member()
    world.commit("g", 5, generation_id=1, member_id=joined.member_id)
    with pytest.raises(NonEmptyGroupError):
        world.coordinator.delete_group("g")
    world.leave("g", joined.member_id)
    world.coordinator.delete_group("g")
    with pytest.raises(GroupIdNotFoundError):
        world.coordinator.delete_group("g")
    assert world.committed("g") is None
    assert list(world.restarted().coordinator.list_groups((), ())) == []


def test_deleting_a_topic_takes_its_offsets_along() -> None:
    """A topic made anew would be read from the middle."""
    world = World()
    world.commit("g", 5)
    world.commit("g", 6, topic="t2")
    delete_topic(world.cache, "t1")
    assert (world.committed("g"), world.committed("g", "t2")) == (None, 6)
    assert world.restarted().committed("g") is None


def test_deleting_the_state_topic_forgets_all_groups() -> None:
    """The coordinator would answer from a memory that nothing backs."""
    world = World()
    world.stable_member()
    delete_topic(world.cache, "__consumer_offsets")
    assert list(world.coordinator.list_groups((), ())) == []
    world.log.partitions = [[] for _ in world.log.partitions]
    create_topics(world.cache, topic_image("__consumer_offsets", STATE_ID, 4))
    assert world.commit("g", 1) is ErrorCode.NONE


# Expiring


def test_offsets_of_an_empty_group_expire_after_it_became_empty() -> None:
    """A consumer that reads a quiet topic would lose its place while it runs."""
    world = World()
    joined = world.stable_member(session_timeout_ms=1_800_000)
    world.commit("g", 5, generation_id=1, member_id=joined.member_id)
    for _ in range(400):
        world.loop.advance(30 * MINUTE - 1)
        world.heartbeat("g", joined.member_id, 1)
    world.coordinator.expire_offsets()
    assert world.committed("g") == 5
    world.leave("g", joined.member_id)
    world.loop.advance(WEEK - 1)
    world.coordinator.expire_offsets()
    assert world.committed("g") == 5
    world.loop.advance(1)
    world.coordinator.expire_offsets()
    assert world.coordinator.expired_offset_count == 1
    assert list(world.coordinator.list_groups((), ())) == []
    assert list(world.restarted().coordinator.list_groups((), ())) == []


def test_offsets_of_simple_consumers_expire_one_by_one() -> None:
    """Offsets of tools would stay for ever, or go while they are in use."""
    world = World()
    world.commit("g", 1)
    world.loop.advance(WEEK / 2)
    world.commit("g", 2, partition=1)
    world.loop.advance(WEEK / 2)
    world.coordinator.expire_offsets()
    assert world.coordinator.expired_offset_count == 1
    assert (world.committed("g"), world.committed("g", partition=1)) == (None, 2)
    assert world.restarted().committed("g", partition=1) == 2


def test_a_running_group_loses_offsets_of_topics_it_left() -> None:
    """Lag of a topic that nobody reads any more would alarm for ever."""
    world = World()
    joined = world.stable_member(session_timeout_ms=1_800_000)
    who = {"generation_id": 1, "member_id": joined.member_id}
    world.commit("g", 1, **who)
    world.commit("g", 2, topic="t2", **who)
    for _ in range(400):
        world.loop.advance(30 * MINUTE - 1)
        world.heartbeat("g", joined.member_id, 1)
    world.coordinator.expire_offsets()
    assert (world.committed("g"), world.committed("g", "t2")) == (1, None)


def test_a_retention_time_of_the_commit_goes_first() -> None:
    """Old clients that ask for a short life of their offsets would not get it."""
    world = World()
    soon = world.loop.now_ms() + 1_000
    world.coordinator.commit_offsets(Committer("g"), [PartitionCommit("t1", 0, 1, expire_timestamp=soon)], 2)
    world.coordinator.expire_offsets()
    assert world.committed("g") == 1
    world.loop.advance(1)
    world.coordinator.expire_offsets()
    assert world.committed("g") is None


def test_nothing_expires_in_a_rebalance_or_with_unknown_subscriptions() -> None:
    """Offsets would vanish under consumers that are about to go on."""
    group = Group("g", 0, 0)
    group.protocol_type = "consumer"
    group.offsets.put("t1", 0, CommittedOffset(1, commit_timestamp=0))
    group.state = type(group.state).PREPARING_REBALANCE
    assert expired(group, 10**15, 1) == NOTHING
    group.state = type(group.state).STABLE
    assert expired(group, 10**15, 1) == NOTHING


@pytest.mark.parametrize("version", [1, 3, 9, -1])
def test_a_subscription_is_read_without_the_fields_that_its_version_adds(
    version: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Clients claim a version and leave its fields out: offsets of topics that the group dropped would never expire."""
    world = World()
    metadata = version.to_bytes(2, "big", signed=True) + subscription("t1")[2:]
    joined = world.stable_member(protocols=protocols("range", metadata=metadata))
    who = {"member_id": joined.member_id, "generation_id": 1}
    assert world.commit("g", 1, **who) is world.commit("g", 2, "t2", **who) is ErrorCode.NONE
    subscribed = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    codes = world.coordinator.delete_offsets("g", [("t1", 0), ("t2", 0)])
    assert codes == {("t1", 0): subscribed, ("t2", 0): ErrorCode.NONE}
    assert not [record for record in caplog.records if "cannot read the subscriptions" in record.message]


def test_subscriptions_that_cannot_be_read_are_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """The log would fill with one line per rebalance of such a group."""
    world = World()
    unreadable, readable = protocols("range", metadata=b"\0"), protocols("range", metadata=subscription("t1"))
    member_id = world.stable_member(protocols=unreadable).member_id
    for asked in (unreadable, readable, unreadable):
        world.join(member_id=member_id, protocols=asked)
    assert [record.message.count("cannot read the subscriptions") for record in caplog.records].count(1) == 2
    assert world.group().subscribed_topics is None


def test_an_undecided_offset_does_not_expire() -> None:
    """A transaction would commit on top of nothing."""
    group = Group("g", 0, 0)
    group.offsets.put("t1", 0, CommittedOffset(1, commit_timestamp=0))
    group.offsets.put_pending(7, "t1", 0, CommittedOffset(2))
    assert expired(group, 10**15, 1) == NOTHING


def test_expiry_of_many_groups_lets_the_loop_go_on() -> None:
    """Every ten minutes all clients would feel how many groups there are."""
    world = World(slice_us=0)
    for number in range(300):
        world.commit(f"g{number}", 1)
    world.loop.advance(WEEK)
    world.coordinator.expire_offsets()
    left = len(list(world.coordinator.list_groups((), ())))
    assert 0 < left < 300
    world.coordinator.delete_group("g299")
    world.loop.advance(0)
    assert list(world.coordinator.list_groups((), ())) == []


def test_expiry_that_cannot_be_stored_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    """After a restart expired groups would be back."""
    world = World()
    world.commit("g", 1)
    world.loop.advance(WEEK)
    world.log.failure = MessageTooLargeError()
    world.coordinator.expire_offsets()
    assert world.committed("g") == 1
    world.log.failure = None
    world.coordinator.expire_offsets()
    assert world.committed("g") is None


def test_transactions_decide_over_pending_offsets() -> None:
    """Offsets of an aborted transaction would count, or those of a committed one be lost."""
    table = OffsetTable()
    table.put_pending(1, "t", 0, CommittedOffset(10))
    table.put_pending(2, "t", 0, CommittedOffset(20))
    assert table.get("t", 0) is None and table.has_pending("t", 0) and table
    table.decide(1, committed=True)
    table.decide(2, committed=False)
    assert table.get("t", 0) == CommittedOffset(10) and not table.has_pending("t", 0)
    table.put_pending(3, "t", 0, CommittedOffset(30))
    table.remove("t", 0)
    assert not table
