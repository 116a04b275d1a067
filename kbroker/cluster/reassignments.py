"""Moves of replicas to other brokers: pure functions (Kafka's PartitionReassignmentReplicas, KIP-455).

A reassignment first adds the new replicas to those that are there; when they have caught up, the old ones go
(`partitions.change` completes it).  A second one while one is under way begins with all replicas that are there by
then: those that it does not name are removed at its end, also where the first one was to add them.  When a reassignment
is called off, the partition has the replicas again that it had when the last one was asked for.

Kafka keeps the former sets of adding and removing replicas where a second reassignment names just the replicas that are
there, and ends with those of the first; here the second counts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from kbroker.cluster.partitions import Election, PartitionContext, change
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
    check_target(partition, replicas, registered, allow_replication_factor_change)
    removing = sorted(set(partition.replicas) - set(replicas))
    adding = sorted(set(replicas) - set(partition.replicas))
    return change(
        partition,
        context,
        election=Election.CLEAN,
        replicas=(*replicas, *removing),
        adding=adding,
        removing=removing,
    )


def check_target(
    partition: PartitionImage,
    replicas: Sequence[int],
    registered: Collection[int],
    allow_replication_factor_change: bool,
) -> None:
    """Kafka's error where a partition cannot have these replicas.

    Raises InvalidReplicaAssignmentError, InvalidReplicationFactorError."""
    check_assignment(replicas, frozenset(registered), None)
    if not allow_replication_factor_change and len(replicas) != len(target_replicas(partition)):
        raise InvalidReplicationFactorError(
            f"The replication factor is changed from {len(target_replicas(partition))} to {len(replicas)}"
        )


def call_off(partition: PartitionImage, context: PartitionContext) -> PartitionImage:
    """The partition with its former replicas.  Kafka's error where none is on the move, or none of them is in sync
    and an unclean election is not allowed (PartitionReassignmentRevert).

    Raises InvalidReplicaAssignmentError, NoReassignmentInProgressError."""
    if not is_reassigning(partition):
        raise NoReassignmentInProgressError("")
    former = former_replicas(partition)
    isr = [each for each in partition.isr if each in former]
    if not isr and not (former and context.is_unclean_allowed):
        raise InvalidReplicaAssignmentError(
            "None of the replicas that the partition had before is in sync, so the reassignment can't be called off."
        )
    return change(partition, context, replicas=former, isr=isr or former[:1], adding=(), removing=())
