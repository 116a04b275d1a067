"""What a controller of any kind shows of the cluster's partitions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kbroker.cluster.reassignments import is_reassigning, target_replicas
from kbroker.metadata.image import NO_LEADER

if TYPE_CHECKING:
    from kbroker._fast.base.slices import Pace
    from kbroker.metadata.image import PartitionImage

STATES = ("none", "taking_over", "active")


async def add_cluster(values: dict[str, float], partitions: Iterable[PartitionImage], pace: Pace) -> None:
    """What a controller knows of the cluster's partitions."""
    offline = elsewhere = moving = 0
    for partition in list(partitions):
        await pace
        offline += partition.leader == NO_LEADER
        elsewhere += partition.leader != target_replicas(partition)[0]
        moving += is_reassigning(partition)
    values["kbroker_controller_offline_partitions"] = offline
    values["kbroker_controller_preferred_replica_imbalance"] = elsewhere
    values["kbroker_controller_reassigning_partitions"] = moving
