"""Offsets that transactions commit for groups: when they count, and what is left of them."""

from __future__ import annotations

from kbroker.coordinator.classic.messages import PartitionCommit
from kbroker.coordinator.classic.offset_commits import Committer
from kbroker.coordinator.runtime.plan import TransactionalProducer
from kbroker.errors import ErrorCode, KafkaError
from tests.coordinator.harness import T1_ID, World

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


def test_an_aborted_transaction_leaves_nothing() -> None:
    """A group would be listed for ever because a transaction that was taken back once named it."""
    world = World()
    commit(world, 9)
    commit(world, 4, "other", TransactionalProducer(8, 0))
    end(world, False)
    assert world.coordinator.offsets_of("g") is None
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
