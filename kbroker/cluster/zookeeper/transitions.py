"""How a ZooKeeper controller changes the states of partitions: pure functions over an image, Kafka's rules.

They stand on the same decisions as those of the local controller (`cluster.partitions`, `cluster.reassignments`), with
what Kafka's controllers on ZooKeeper do otherwise than those of a quorum:

    epochs         followers take a state only with a larger leader epoch, so each change begins a new one, except an
                   ISR that the leader itself proposed
    ELR            there is none: the last members of an ISR stay in it
    reassignments  a second one gives up at once what the first was to add and it does not name; the end comes when the
                   ISR has all of the target, with a clean election; those that a new controller finds begin a new
                   epoch, as brokers may not have heard of them
    a broker that leaves in order
                   goes on leading what no other replica in sync can lead: no election for it is unclean

    NEW (no state)   → ONLINE     a replica is alive: it leads, and the living ones are in the ISR
    ONLINE           → OFFLINE    no member of the ISR is alive, and no other replica may lead: leader -1
    OFFLINE          → ONLINE     a member of the ISR is back, or an unclean election is allowed
    ONLINE, OFFLINE  → GONE       the topic is deleted
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from kbroker.cluster import partitions as decisions
from kbroker.cluster import reassignments as moves
from kbroker.cluster.partitions import PartitionContext
from kbroker.cluster.placement import new_partition
from kbroker.cluster.requests import ElectionType, IsrChange, Reassignment
from kbroker.cluster.zookeeper.context import lacks_state
from kbroker.errors import (
    ElectionNotNeededError,
    EligibleLeadersNotAvailableError,
    InvalidReplicaAssignmentError,
    UnknownTopicOrPartitionError,
)
from kbroker.metadata.image import NO_LEADER, PartitionImage
from kbroker.types import NO_LEADER_EPOCH


def announced(old: PartitionImage, new: PartitionImage) -> PartitionImage:
    """A change that followers will take: in a new leader epoch."""
    if new is old or new.leader_epoch > old.leader_epoch:
        return new
    epoch = old.partition_epoch + 1
    return replace(new, leader_epoch=old.leader_epoch + 1, partition_epoch=epoch)


def born(partition: PartitionImage, context: PartitionContext) -> PartitionImage:
    """A new partition's first state; the same object while none of its replicas is alive."""
    alive = frozenset(each for each in partition.replicas if decisions.is_alive(partition, context, each))
    first = new_partition(partition.partition, partition.replicas, alive)
    if first.leader == NO_LEADER:
        return partition
    return replace(partition, leader=first.leader, leader_epoch=first.leader_epoch, isr=first.isr, partition_epoch=0)


def settled(partition: PartitionImage, context: PartitionContext, leaving: Collection[int] = ()) -> PartitionImage:
    """A partition after brokers came, went or lost a directory; the same object where nothing has to change.

    `leaving` shut down in order, and are not among those of `context` that are alive.  They go on leading the
    partitions that no other replica can lead.
    """
    if lacks_state(partition):
        return born(partition, context)
    if partition.leader in partition.isr and all(
        each in partition.replicas and decisions.is_alive(partition, context, each) for each in partition.isr
    ):
        return partition
    if not leaving:
        return _settled(partition, context)
    there = replace(context, alive=frozenset(context.alive) | frozenset(leaving))
    for each in (_clean(context), _clean(there), context):
        result = _settled(partition, each)
        if result.leader != NO_LEADER:
            break
    return result


def _clean(context: PartitionContext) -> PartitionContext:
    return replace(context, is_unclean_allowed=False)


def _settled(partition: PartitionImage, context: PartitionContext) -> PartitionImage:
    isr = [
        each for each in partition.isr if each in partition.replicas and decisions.is_alive(partition, context, each)
    ]
    # A reassignment is completed by itself, with its own writes.
    changed = decisions.change(_without_reassignment(partition), context, isr=isr)
    return announced(partition, _moving(changed, partition))


def _without_reassignment(partition: PartitionImage) -> PartitionImage:
    if not partition.adding_replicas and not partition.removing_replicas:
        return partition
    return replace(partition, adding_replicas=(), removing_replicas=())


def _moving(changed: PartitionImage, partition: PartitionImage) -> PartitionImage:
    """`changed` with the reassignment of `partition`; the same as `partition` where nothing else changed."""
    if not partition.adding_replicas and not partition.removing_replicas:
        return partition if changed == partition else changed
    back = replace(changed, adding_replicas=partition.adding_replicas, removing_replicas=partition.removing_replicas)
    return partition if back == partition else back


def is_unclean(old: PartitionImage, new: PartitionImage) -> bool:
    """Whether a change makes a leader of a replica that may lack committed records."""
    return (
        new.leader not in (NO_LEADER, old.leader)
        and old.leader_epoch != NO_LEADER_EPOCH
        and (new.leader not in old.isr)
    )


def failed_replica(partition: PartitionImage, node_id: int) -> PartitionImage:
    """A partition whose replica on a node has lost its log directory; `settled` then says who leads."""
    return decisions.unserved(partition, node_id)


def with_isr(
    partition: PartitionImage,
    node_id: int,
    request: IsrChange,
    context: PartitionContext,
    broker_epochs: dict[int, int],
) -> PartitionImage:
    """The partition with the ISR that its leader proposes, in the same leader epoch; else Kafka's error.

    The same object where that is its ISR already, at any partition epoch of the leader's: a request that is sent
    again succeeds.
    Raises UnknownTopicOrPartitionError.
    """
    if lacks_state(partition):
        raise UnknownTopicOrPartitionError
    is_own = request.leader_epoch == partition.leader_epoch and node_id == partition.leader
    if is_own and request.partition_epoch <= partition.partition_epoch:
        members = [member for member, _ in request.isr]
        if len(members) == len(partition.isr) and set(members) == set(partition.isr):
            return partition
    changed = decisions.take_isr(_without_reassignment(partition), node_id, request, context, broker_epochs)
    return _moving(changed, partition)


def elected(partition: PartitionImage, election: ElectionType, context: PartitionContext) -> PartitionImage:
    """The partition after an election that an administrator asks for; else Kafka's error (ElectLeaders).

    Raises ElectionNotNeededError, EligibleLeadersNotAvailableError."""
    if lacks_state(partition):
        raise EligibleLeadersNotAvailableError()
    if election is ElectionType.UNCLEAN and decisions.is_alive(partition, context, partition.leader):
        raise ElectionNotNeededError("Leader election not needed for topic partition.")
    changed = decisions.elect(_without_reassignment(partition), election, context)
    return announced(partition, _moving(changed, partition))


def is_imbalanced(partition: PartitionImage, context: PartitionContext) -> bool:
    """Whether the first replica could lead, and another one does."""
    first = moves.target_replicas(partition)[0]
    return (
        not lacks_state(partition)
        and not moves.is_reassigning(partition)
        and partition.leader != first
        and first in partition.isr
        and decisions.is_alive(partition, context, first)
    )


def reassigned(
    partition: PartitionImage,
    request: Reassignment,
    registered: Collection[int],
    context: PartitionContext,
    allow_replication_factor_change: bool = True,
) -> PartitionImage:
    """The partition on its way to other replicas, or back to those that it had; else Kafka's error.

    Raises InvalidReplicaAssignmentError, UnknownTopicOrPartitionError."""
    if lacks_state(partition):
        raise UnknownTopicOrPartitionError
    if request.replicas is None:
        return announced(partition, moves.call_off(partition, _clean(context)))
    moves.check_target(partition, request.replicas, registered, allow_replication_factor_change)
    former = moves.former_replicas(partition)
    removing = tuple(each for each in former if each not in request.replicas)
    adding = tuple(each for each in request.replicas if each not in former)
    # Replicas of an earlier target that this one does not have are given up at once.
    replicas = (*request.replicas, *removing)
    isr = [each for each in partition.isr if each in replicas]
    if not isr:
        raise InvalidReplicaAssignmentError("The new assignment has none of the replicas that are in sync.")
    # A reassignment is completed by itself, with its own writes.
    changed = decisions.change(_without_reassignment(partition), _clean(context), replicas=replicas, isr=isr)
    moving = replace(changed, adding_replicas=adding, removing_replicas=removing)
    return partition if moving == partition else announced(partition, moving)


def resumed(partition: PartitionImage) -> PartitionImage:
    """A reassignment that an earlier controller has begun, in a new leader epoch: of the one that it has, brokers may
    know other replicas.  The same object where nothing moves, or where it is at its end."""
    if lacks_state(partition) or not moves.is_reassigning(partition) or is_completable(partition):
        return partition
    return announced(partition, replace(partition))


def is_completable(partition: PartitionImage) -> bool:
    """Whether all replicas of a reassignment's target are in the ISR."""
    return (
        not lacks_state(partition)
        and moves.is_reassigning(partition)
        and set(moves.target_replicas(partition)) <= set(partition.isr)
    )


def completed(partition: PartitionImage, context: PartitionContext) -> PartitionImage:
    """A reassignment at its end: the target's replicas alone; the same object where it is not at its end."""
    if not is_completable(partition):
        return partition
    return announced(partition, decisions.change(partition, _clean(context)))
