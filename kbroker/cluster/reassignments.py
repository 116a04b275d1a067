"""Moves of replicas to other brokers: pure functions (Kafka's PartitionReassignmentReplicas, KIP-455).

A reassignment first adds the new replicas to those that are there; when all of them are in the ISR, the old ones go
(`partitions.change` completes it).  When a reassignment is called off, the partition has its former replicas again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from kbroker.cluster.partitions import PartitionContext, change
from kbroker.cluster.placement import check_assignment
from kbroker.errors import (
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    NoReassignmentInProgressError,
)
from kbroker.metadata.image import ClusterImage, PartitionImage
from kbroker.types import TopicPartition


def is_reassigning(partition: PartitionImage) -> bool:
    """Whether replicas are on the move."""
    return bool(partition.adding_replicas or partition.removing_replicas)


def reassigning(image: ClusterImage) -> Iterator[tuple[TopicPartition, PartitionImage]]:
    """All partitions whose replicas are on the move."""
    for topic in image.topics.values():
        for partition in topic.partitions:
            if is_reassigning(partition):
                yield TopicPartition(topic.name, partition.partition), partition


def former_replicas(partition: PartitionImage) -> tuple[int, ...]:
    """The replicas that a partition had before its reassignment."""
    return tuple(each for each in partition.replicas if each not in partition.adding_replicas)


def target_replicas(partition: PartitionImage) -> tuple[int, ...]:
    """The replicas that a partition has in the end."""
    return tuple(each for each in partition.replicas if each not in partition.removing_replicas)


def reassign(
    partition: PartitionImage,
    replicas: Sequence[int],
    registered: Collection[int],
    context: PartitionContext,
    allow_replication_factor_change: bool,
) -> PartitionImage:
    """The partition on its way to `replicas`; the same object where it has them.  Kafka's error where it cannot be.

    Raises InvalidReplicaAssignmentError, InvalidReplicationFactorError."""
    check_assignment(replicas, frozenset(registered), None)
    if not allow_replication_factor_change and len(replicas) != len(target_replicas(partition)):
        raise InvalidReplicationFactorError(
            f"The replication factor is changed from {len(target_replicas(partition))} to {len(replicas)}"
        )
    former = former_replicas(partition)
    removing = [each for each in former if each not in replicas]
    adding = [each for each in replicas if each not in former]
    # Replicas of an earlier target that this one does not have are given up at once.
    given_up = [each for each in partition.adding_replicas if each not in replicas]
    isr = [each for each in partition.isr if each not in given_up]
    if not isr:
        raise InvalidReplicaAssignmentError("The new assignment has none of the replicas that are in sync.")
    return change(partition, context, replicas=(*replicas, *removing), isr=isr, adding=adding, removing=removing)


def call_off(partition: PartitionImage, context: PartitionContext) -> PartitionImage:
    """The partition with its former replicas.  Kafka's error where none is on the move, or none of them is in sync.

    Raises InvalidReplicaAssignmentError, NoReassignmentInProgressError."""
    if not is_reassigning(partition):
        raise NoReassignmentInProgressError("")
    former = former_replicas(partition)
    isr = [each for each in partition.isr if each in former]
    if not isr:
        raise InvalidReplicaAssignmentError(
            "None of the replicas that the partition had before is in sync, so the reassignment can't be called off."
        )
    return change(partition, context, replicas=former, isr=isr, adding=(), removing=())
