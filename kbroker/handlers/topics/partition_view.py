"""Partitions as the client of one listener sees them, by the brokers that it can reach.

Shared by Metadata and DescribeTopicPartitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from kbroker.errors import ErrorCode
from kbroker.handlers.cluster.endpoints import reachable_brokers
from kbroker.types import MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY

if TYPE_CHECKING:
    from kbroker.handlers.services import RequestContext
    from kbroker.metadata.image import ClusterImage, PartitionImage

LISTENER_NOT_FOUND_FROM = 6
NOT_KNOWN = frozenset({MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY})
"""What a KRaft cluster's log has for the directory of a replica whose broker has not named it yet."""


class PartitionView(NamedTuple):
    """A partition as a client of one listener sees it."""

    error: ErrorCode
    leader: int
    replicas: Sequence[int]
    isr: Sequence[int]
    offline: Sequence[int]


def view(
    partition: PartitionImage, alive: frozenset[int], version: int, working: frozenset[bytes] = frozenset()
) -> PartitionView:
    """What to say of a partition, given the brokers that the client can reach; `working`: see `working_directories`.

    v0 knows no offline replicas: it leaves them out, with REPLICA_NOT_AVAILABLE.
    """
    replicas, isr, leader = partition.replicas, partition.isr, partition.leader
    failed = partition.offline_replicas
    offline: Sequence[int] = ()
    if failed or not alive.issuperset(replicas):
        offline = tuple(node_id for node_id in replicas if node_id not in alive or node_id in failed)
    if working and not working.issuperset(partition.directories):
        known = zip(replicas, partition.directories, strict=False)
        lost = {node_id for node_id, directory in known if directory not in working}
        offline = tuple(node_id for node_id in replicas if node_id in offline or node_id in lost)
    error = ErrorCode.NONE
    if leader not in alive or leader in failed:
        known_elsewhere = leader >= 0 and leader not in failed and version >= LISTENER_NOT_FOUND_FROM
        error = ErrorCode.LISTENER_NOT_FOUND if known_elsewhere else ErrorCode.LEADER_NOT_AVAILABLE
        leader = -1
    if version == 0 and offline:
        replicas = tuple(node_id for node_id in replicas if node_id in alive)
        isr = tuple(node_id for node_id in isr if node_id in alive)
        if error is ErrorCode.NONE:
            error = ErrorCode.REPLICA_NOT_AVAILABLE
    return PartitionView(error, leader, replicas, isr, offline)


def working_directories(image: ClusterImage) -> frozenset[bytes]:
    """The ids of the log directories in which a replica is not offline; empty where brokers do not name theirs."""
    named = [each.log_dirs for each in image.brokers.values()]
    return NOT_KNOWN.union(*named) if all(named) else frozenset()


def alive_for(ctx: RequestContext, image: ClusterImage) -> frozenset[int]:
    """The brokers that the client can reach."""
    return frozenset(broker.node_id for broker, _ in reachable_brokers(ctx, image))
