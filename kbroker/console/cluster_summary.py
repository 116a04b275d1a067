"""One cluster in a line, as a broker of it sees it: what the page of all clusters shows of each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClusterSummary:
    """`under_replicated_count`: partitions with a replica that is not in sync; `lag`: of the groups that this broker
    coordinates, `group_count` of them; `health`: what is wrong with this broker."""

    cluster_id: str
    node_id: int
    version: str
    health: str
    broker_count: int
    missing_broker_count: int
    topic_count: int
    partition_count: int
    under_replicated_count: int
    leaderless_count: int
    group_count: int
    lag: int
