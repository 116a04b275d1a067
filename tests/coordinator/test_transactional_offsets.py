"""Offsets that transactions commit for groups: when they count, and what is left of them.

Also of `kbroker.coordinator.transactions.stable_offset`.
"""

from __future__ import annotations

import pytest

from kbroker.coordinator.classic.messages import PartitionCommit
from kbroker.coordinator.classic.offset_commits import Committer
from kbroker.coordinator.runtime.plan import TransactionalProducer
from kbroker.errors import ErrorCode, KafkaError
from tests.coordinator.harness import T1_ID, World, create_topics, delete_topic, topic_image

PRODUCER = TransactionalProducer(7, 0)


def commit(world: World, offset: int, group_id: str = "g", producer: TransactionalProducer = PRODUCER) -> ErrorCode:
    commits = [PartitionCommit("t1", 0, offset, topic_id=T1_ID)]
    try:
        return world.coordinator.commit_transactional_offsets(Committer(group_id), commits, producer, 3)[0]
    except KafkaError as error:
        return error.code


def end(world: World, committed: bool, group_id: str = "g", producer: TransactionalProducer = PRODUCER) -> None:
    world.coordinator.end_transaction(world.coordinator.partition_of(group_id), producer.producer_id, committed)


def test_offsets_count_from_the_marker_on() -> None:
    """A consumer would go on behind records whose transaction may still be aborted."""
    world = World()
    world.commit("g", 3)
    assert commit(world, 9) is ErrorCode.NONE
    assert world.committed("g") == 3
    assert world.group().offsets.has_pending("t1", 0)
    again = world.restarted()
    assert again.committed("g") == 3
    assert again.group().offsets.has_pending("t1", 0)
    end(again, True)
    assert again.committed("g") == 9
    assert not again.group().offsets.pending


def test_an_aborted_transaction_leaves_an_empty_group_until_it_expires() -> None:
    """A group would be Dead at once and Empty again after a restart, or be listed for ever because a transaction that
    was taken back once named it."""
    world = World()
    commit(world, 9)
    commit(world, 4, "other", TransactionalProducer(8, 0))
    end(world, False)
    assert world.state() == "Empty"
    assert not world.group().offsets
    again = world.restarted()
    end(again, False)
    assert again.state() == "Empty"
    again.coordinator.expire_offsets()
    assert [each.group_id for each in again.coordinator.list_groups((), ())] == ["other"]


def test_an_aborted_transaction_of_one_group_leaves_those_of_others() -> None:
    """The end of one transaction would decide about the offsets of another."""
    world = World()
    commit(world, 9)
    commit(world, 4, "other", TransactionalProducer(8, 0))
    end(world, False)
    assert world.committed("other") is None
    end(world, True, "other", TransactionalProducer(8, 0))
    assert world.committed("other") == 4


def test_a_deleted_group_takes_its_undecided_offsets_along() -> None:
    """The marker would bring the offsets of a deleted group back."""
    world = World()
    world.commit("g", 3)
    commit(world, 9)
    world.coordinator.delete_group("g")
    end(world, True)
    assert world.coordinator.offsets_of("g") is None
    again = world.restarted()
    assert again.coordinator.offsets_of("g") is None


@pytest.mark.parametrize("is_restarted", [False, True])
def test_staged_offsets_go_with_their_topic(is_restarted: bool) -> None:
    """A transaction that was open when its topic was deleted would give a consumer of the next topic of that name its
    place in an empty log."""
    world = World()
    world.commit("g", 3, topic="t2")
    commit(world, 9)
    delete_topic(world.cache, "t1")
    assert not world.group().offsets.has_pending("t1", 0)
    create_topics(world.cache, topic_image("t1", bytes(15) + b"9", 3))
    if is_restarted:
        world = world.restarted()
    assert not world.group().offsets.pending
    end(world, True)
    assert (world.committed("g"), world.committed("g", "t2")) == (None, 3)


def test_what_is_staged_for_the_next_topic_of_the_name_counts() -> None:
    """A transaction that goes on with the topic that was made anew would lose its offsets."""
    world = World()
    commit(world, 9)
    delete_topic(world.cache, "t1")
    create_topics(world.cache, topic_image("t1", bytes(15) + b"9", 3))
    commit(world, 2)
    end(world, True)
    assert world.committed("g") == 2


def test_offsets_can_be_deleted_while_they_are_staged() -> None:
    """The marker would bring an offset back that an administrator has removed."""
    world = World()
    commit(world, 9)
    assert world.coordinator.delete_offsets("g", [("t1", 0)]) == {("t1", 0): ErrorCode.NONE}
    end(world, True)
    assert world.committed("g") is None


def test_a_member_of_another_generation_is_refused() -> None:
    """A zombie of a group would commit what its successor has done (KIP-447)."""
    world = World()
    joined = world.stable_member()
    commits = [PartitionCommit("t1", 0, 5, topic_id=T1_ID)]
    for who, code in (
        (Committer("g", 1, joined.member_id), None),
        (Committer("g", 2, joined.member_id), ErrorCode.ILLEGAL_GENERATION),
        (Committer("g", 1, "another"), ErrorCode.UNKNOWN_MEMBER_ID),
        (Committer("g", 1, joined.member_id, "instance"), ErrorCode.UNKNOWN_MEMBER_ID),
        (Committer("never", 1, joined.member_id), ErrorCode.ILLEGAL_GENERATION),
        (Committer("g"), None),
    ):
        try:
            assert world.coordinator.commit_transactional_offsets(who, commits, PRODUCER, 3) == [ErrorCode.NONE]
            assert code is None
        except KafkaError as error:
            assert error.code is code
