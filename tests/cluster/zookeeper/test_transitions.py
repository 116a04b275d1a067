"""What controllers on ZooKeeper decide otherwise than those of a quorum: reassignments, and brokers that leave."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kbroker.cluster.partitions import PartitionContext
from kbroker.cluster.requests import ElectionType, Reassignment
from kbroker.cluster.zookeeper.transitions import (
    announced,
    completed,
    elected,
    is_completable,
    reassigned,
    resumed,
    settled,
)
from kbroker.errors import InvalidReplicaAssignmentError, PreferredLeaderNotAvailableError
from kbroker.metadata.image import NO_LEADER, PartitionImage
from kbroker.types import TopicPartition

NODES = (1, 2, 3, 4)
NAME = TopicPartition("t", 0)
ALL = PartitionContext(alive=frozenset(NODES), min_insync_replicas=2, has_elr=False)


def partition(*replicas: int, isr: tuple[int, ...], leader: int | None = None) -> PartitionImage:
    return PartitionImage(0, isr[0] if leader is None else leader, 5, replicas, isr, 7)


def moved(before: PartitionImage, target: tuple[int, ...], context: PartitionContext = ALL) -> PartitionImage:
    return reassigned(before, Reassignment(NAME, target), NODES, context)


@pytest.mark.parametrize(
    ("replicas", "isr", "target", "joined"),
    [
        ((1, 2, 3), (1, 2), (1, 3), (1, 2, 3)),
        ((1, 2, 3, 4), (1, 2, 3), (1, 4), (1, 2, 3, 4)),
        ((1, 2, 3), (1,), (1, 2, 4), (1, 4, 2)),  # As many to add as to remove, and still all have to be in sync.
    ],
)
def test_a_reassignment_ends_when_the_whole_target_is_in_sync(
    replicas: tuple[int, ...], isr: tuple[int, ...], target: tuple[int, ...], joined: tuple[int, ...]
) -> None:
    """Acknowledged records would be on one broker alone, and gone with its disk, though two more had them."""
    moving = moved(partition(*replicas, isr=isr), target)
    for count in range(len(isr), len(joined)):
        caught_up = replace(moving, isr=joined[:count])
        assert not is_completable(caught_up) and completed(caught_up, ALL) is caught_up
    done = completed(replace(moving, isr=joined), ALL)
    assert (set(done.replicas), done.adding_replicas, done.removing_replicas) == (set(target), (), ())
    assert set(done.isr) == set(target)
    assert done.leader_epoch == moving.leader_epoch + 1


def test_a_reassignment_that_a_new_controller_finds_begins_a_new_epoch() -> None:
    """Leaders take no state of the epoch that they know: they would not hear of replicas that are on their way."""
    moving = moved(partition(1, 2, isr=(1, 2)), (1, 3))
    assert resumed(moving) == replace(
        moving, leader_epoch=moving.leader_epoch + 1, partition_epoch=moving.partition_epoch + 1
    )
    for other in (partition(1, 2, isr=(1, 2)), replace(moving, isr=(1, 2, 3))):
        assert resumed(other) is other


def test_a_reassignment_waits_though_it_adds_nothing() -> None:
    """A request that takes a replica away would take a copy of acknowledged records that no other replica has yet."""
    moving = moved(partition(1, 2, 3, isr=(1, 2)), (1, 3))
    assert (moving.replicas, moving.isr, moving.adding_replicas, moving.removing_replicas) == (
        (1, 3, 2),
        (1, 2),
        (),
        (2,),
    )


def test_a_second_reassignment_gives_up_what_the_first_was_to_add() -> None:
    """As Kafka 3.9 does: the first replicas are those from before both."""
    first = moved(partition(1, isr=(1,)), (1, 2, 3))
    second = moved(replace(first, isr=(1, 3)), (1, 2, 4))
    assert (second.replicas, second.isr, second.adding_replicas, second.removing_replicas) == (
        (1, 2, 4),
        (1,),
        (2, 4),
        (),
    )
    assert moved(second, (1, 2, 4)) is second
    with pytest.raises(InvalidReplicaAssignmentError, match="in sync"):
        moved(replace(first, isr=(3,), leader=3), (2, 4))


def test_a_broker_that_leaves_in_order_leads_on_rather_than_one_that_lacks_records() -> None:
    """A restart in order would lose records of topics that allow unclean elections for the case that nobody else is
    left."""
    alone = partition(1, 2, isr=(1,))
    allowed = replace(ALL, alive=frozenset({2}), is_unclean_allowed=True)
    assert settled(alone, allowed, leaving=(1,)).leader == 1
    assert settled(alone, allowed).leader == 2
    gone = replace(alone, leader=NO_LEADER)
    assert settled(gone, allowed, leaving=(3,)).leader == 2


def test_neither_a_preferred_election_nor_a_reassignment_is_unclean() -> None:
    """Who asks for one does not say that records may go."""
    allowed = replace(ALL, alive=frozenset({1, 3}), is_unclean_allowed=True)
    leaderless = partition(1, 2, isr=(2,), leader=NO_LEADER)
    with pytest.raises(PreferredLeaderNotAvailableError):
        elected(leaderless, ElectionType.PREFERRED, allowed)
    assert moved(leaderless, (1, 2, 3), allowed).leader == NO_LEADER


def test_a_change_that_is_announced_has_a_leader_epoch_and_a_version_of_its_own() -> None:
    """A leader would take an ISR that it has proposed before the change for the one after it."""
    before = partition(1, 2, isr=(1, 2))
    after = announced(before, replace(before, isr=(1,)))
    assert (after.leader_epoch, after.partition_epoch) == (before.leader_epoch + 1, before.partition_epoch + 1)
    assert announced(before, before) is before
    assert announced(before, after) is after
