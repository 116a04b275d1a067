"""The values of `metrics.cluster`: what this broker leads and follows, and what its controller knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.assembly.cluster_figures import STATES, add_cluster

if TYPE_CHECKING:
    from kbroker._fast.base.slices import Pace
    from kbroker.assembly.membership.replication_parts import ReplicationParts
    from kbroker.cluster.controller_stats import ControllerStats
    from kbroker.metadata.image import ClusterImage
    from kbroker.metrics.families import Values
    from kbroker.replication.replica_manager import ReplicaManager


async def own_controller_figures(image: ClusterImage, pace: Pace) -> Values:
    """The values of a broker that is its own controller; `image` has the topics of the cluster."""
    values: dict[str, float] = {}
    states = dict.fromkeys(STATES[:2], 0.0) | {"active": 1.0}
    await add_cluster(values, (each for topic in image.topics.values() for each in topic.partitions), pace)
    return {**values, "kbroker_controller_active": 1, "kbroker_controller_state": _by_label(states)}


async def member_figures(replication: ReplicationParts, stats: ControllerStats, pace: Pace) -> Values:
    """The values of a broker in a cluster; `stats` are those of the broker as controller, whenever it is elected."""
    values: dict[str, float] = {}
    if stats.partitions is not None:
        await add_cluster(values, stats.partitions(), pace)
    traffic, fetchers, isr = replication.traffic, replication.fetchers.figures(), replication.isr
    return {
        **values,
        "kbroker_controller_active": float(stats.state == "active"),
        "kbroker_controller_state": _by_label({state: float(state == stats.state) for state in STATES}),
        "kbroker_controller_changes_seconds": stats.busy_seconds,
        "kbroker_controller_changes": _by_label({kind: float(count) for kind, count in stats.changes.items()}),
        "kbroker_controller_change_wait_max_seconds": stats.longest_wait_seconds,
        "kbroker_controller_leader_elections": stats.leader_elections,
        "kbroker_controller_unclean_leader_elections": stats.unclean_elections,
        "kbroker_isr_shrinks": isr.shrink_count,
        "kbroker_isr_expands": isr.expand_count,
        "kbroker_isr_updates_failed": isr.failed_count,
        "kbroker_replication_bytes_in": traffic.bytes_in,
        "kbroker_replication_bytes_out": traffic.bytes_out,
        "kbroker_reassignment_bytes_in": traffic.reassignment_bytes_in,
        "kbroker_reassignment_bytes_out": traffic.reassignment_bytes_out,
        "kbroker_replica_fetchers": fetchers.fetchers,
        "kbroker_replica_fetcher_max_lag": fetchers.max_lag,
        "kbroker_replica_fetcher_failed_partitions": fetchers.failed_partitions,
    }


async def replica_figures(replicas: ReplicaManager, pace: Pace) -> Values:
    """What this broker leads and follows."""
    leaders = under_replicated = under_min = at_min = moving = 0
    for partition in list(replicas):
        await pace
        in_sync = len(partition.isr)
        leaders += 1
        under_replicated += in_sync < len(partition.replicas) - len(partition.adding_replicas)
        under_min += not partition.has_min_isr
        at_min += in_sync == partition.min_in_sync
        moving += partition.is_reassigning
    return {
        "kbroker_replica_leaders": leaders,
        "kbroker_replicas": leaders + len(replicas.followed),
        "kbroker_replicas_offline": replicas.offline_count,
        "kbroker_under_replicated_partitions": under_replicated,
        "kbroker_under_min_isr_partitions": under_min,
        "kbroker_at_min_isr_partitions": at_min,
        "kbroker_reassigning_partitions": moving,
    }


def _by_label(values: dict[str, float]) -> dict[tuple[str, ...], float]:
    return {(label,): value for label, value in values.items()}
