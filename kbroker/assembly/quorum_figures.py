"""The values of `metrics.quorum`: what a node with the controller role shows of its quorum and of its controller."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from kbroker.assembly.cluster_figures import STATES, add_cluster
from kbroker.cluster.raft.election import RaftState
from kbroker.cluster.raft.voter_set import DYNAMIC
from kbroker.metadata.features import METADATA_VERSION
from kbroker.metrics.kafka_quorum import APPENDED, CHANGES_WAITED, CHANGES_WORKED, COMMITS, ELECTIONS, FETCHED

if TYPE_CHECKING:
    from kbroker._fast.base.slices import Pace
    from kbroker.cluster.client import NodeClient
    from kbroker.cluster.controller.active import ActiveController
    from kbroker.cluster.controller.election_counts import ElectionCounts
    from kbroker.cluster.kraft.cluster_metadata import ClusterMetadata
    from kbroker.cluster.raft.quorum_stats import QuorumStats
    from kbroker.cluster.raft.replica import RaftReplica
    from kbroker.metadata.image import ClusterImage
    from kbroker.metrics.families import Labelled, Values
    from kbroker.metrics.recent import Counters

NO_VERSION = -1
OBSERVER = "observer"
#: As Kafka numbers the states of a broker's registration.
FENCED, LEAVING, ACTIVE = 10.0, 20.0, 30.0
STATE_NAMES = (*(each.name.lower() for each in RaftState), OBSERVER)


def replica_figures(replica: RaftReplica, clients: Collection[NodeClient], observers: int | None) -> Values:
    """Of a replica.  `clients`: its connections to others; `observers`: how many a leader describes."""
    machine, stats, voters = replica.machine, replica.stats, replica.history.last.by_id
    state = machine.state.name.lower()
    if machine.state is RaftState.FOLLOWER and not machine.is_voter:
        state = OBSERVER
    snapshots = replica.log.snapshots
    is_dynamic = replica.history.kraft_version >= DYNAMIC
    return {
        "kbroker_metadata_leader": replica.leader_id,
        "kbroker_metadata_leader_epoch": machine.epoch,
        "kbroker_metadata_high_watermark": replica.high_watermark,
        "kbroker_metadata_log_end_offset": replica.quorum.end_offset,
        "kbroker_metadata_requests": sum(each.request_count for each in clients),
        "kbroker_metadata_request_bytes": sum(each.request_bytes for each in clients),
        "kbroker_metadata_answers": sum(each.answer_count for each in clients),
        "kbroker_metadata_answer_bytes": sum(each.answer_bytes for each in clients),
        "kbroker_metadata_snapshots_loaded": replica.parts.metadata.loaded_count,
        "kbroker_metadata_snapshot_age_seconds": snapshots.age_seconds,
        "kbroker_metadata_snapshot_bytes": snapshots.last_bytes,
        "kbroker_quorum_state": {(each,): float(each == state) for each in STATE_NAMES},
        "kbroker_quorum_vote": machine.voted_id,
        "kbroker_quorum_log_end_epoch": replica.quorum.last_epoch,
        "kbroker_quorum_voters": len(voters),
        "kbroker_quorum_unknown_voters": sum(replica.endpoint_of(each) is None for each in voters),
        "kbroker_quorum_ignored_static_voters": float(is_dynamic and bool(replica.parts.settings.voters)),
        "kbroker_quorum_leader_changes": stats.leader_changes,
        "kbroker_quorum_elections": stats.elections.count,
        "kbroker_quorum_election_seconds": stats.elections.seconds,
        "kbroker_quorum_election_max_seconds": stats.elections.largest,
        "kbroker_quorum_commits": stats.commits.count,
        "kbroker_quorum_commit_seconds": stats.commits.seconds,
        "kbroker_quorum_commit_max_seconds": stats.commits.largest,
        "kbroker_quorum_records_appended": stats.appended_count,
        "kbroker_quorum_records_fetched": stats.fetched_count,
        **_of_leader(replica, observers or 0),
    }


def _of_leader(replica: RaftReplica, observers: int) -> Values:
    progress = replica.machine.progress
    if progress is None:
        return {}
    now, end = replica.parts.loop.time(), replica.quorum.end_offset
    lags: dict[tuple[str, ...], float] = {}
    silences: dict[tuple[str, ...], float] = {}
    for node_id, key in replica.machine.voters.keys.items():
        if key.matches(replica.me):
            continue
        silences[str(node_id),] = max(0.0, now - progress.heard_at(key))
        known = progress.end_of(node_id)
        if known >= 0:
            lags[str(node_id),] = max(0, end - known)
    return {
        "kbroker_quorum_observers": observers,
        "kbroker_quorum_uncommitted_voters": float(replica.history.last_offset >= max(0, replica.high_watermark)),
        "kbroker_quorum_voter_lag": lags,
        "kbroker_quorum_voter_silence_seconds": silences,
    }


def replica_counters(replica: RaftReplica) -> Counters:
    """Of a replica."""
    stats = replica.stats
    return {
        COMMITS: (stats.commits.count, stats.commits.seconds),
        ELECTIONS: (stats.elections.count, stats.elections.seconds),
        APPENDED: (stats.appended_count,),
        FETCHED: (stats.fetched_count,),
    }


def controller_figures(
    deciding: ActiveController, elections: ElectionCounts, metadata: ClusterMetadata, stats: QuorumStats
) -> Values:
    """Of a controller, active or not, but for what takes a look at every partition."""
    queue, state = deciding.queue, "active" if deciding.is_active else "none"
    last = deciding.last_offset
    at_ms = metadata.applied_ms if last is None else max(metadata.applied_ms, stats.appended_ms)
    features = metadata.recorded.features
    chosen = METADATA_VERSION in features.chosen
    levels: Labelled = {(name,): level for name, level in features.levels().items()} if chosen else {}
    return {
        "kbroker_controller_active": float(deciding.is_active),
        "kbroker_controller_state": {(each,): float(each == state) for each in STATES},
        "kbroker_controller_changes": {("all",): queue.count},
        "kbroker_controller_changes_seconds": queue.worked.snapshot()[0] / 1e9,
        "kbroker_controller_change_waits_seconds": queue.waited.snapshot()[0] / 1e9,
        "kbroker_controller_change_wait_max_seconds": queue.longest_wait_ns / 1e9,
        "kbroker_controller_leader_elections": elections.elections,
        "kbroker_controller_unclean_leader_elections": elections.unclean,
        "kbroker_controller_eligible_leader_elections": elections.eligible,
        "kbroker_controller_broker_silence_seconds": {
            (str(node_id),): silence for node_id, silence in deciding.silences().items()
        },
        "kbroker_controller_errors": deciding.error_count,
        "kbroker_controller_last_offset": metadata.applied_offset if last is None else last,
        "kbroker_controller_last_record_timestamp_seconds": max(0, at_ms) / 1000,
        "kbroker_metadata_version": features.level(METADATA_VERSION) if chosen else NO_VERSION,
        "kbroker_metadata_feature_level": levels,
    }


def controller_counters(deciding: ActiveController) -> Counters:
    """Of a controller."""
    found: dict[tuple[str, ...], tuple[float, ...]] = {}
    for key, times in ((CHANGES_WAITED, deciding.queue.waited), (CHANGES_WORKED, deciding.queue.worked)):
        total_ns, buckets = times.snapshot()
        found[key] = (sum(buckets), total_ns, *buckets)
    return found


async def image_figures(image: ClusterImage, pace: Pace) -> Values:
    """What a controller's image says of the cluster."""
    values: dict[str, float] = {}
    await add_cluster(values, (each for topic in image.topics.values() for each in topic.partitions), pace)
    active = [each for each in image.brokers.values() if not each.is_fenced]
    leaving = sum(each.in_controlled_shutdown for each in active)
    brokers = {"active": len(active), "fenced": len(image.brokers) - len(active), "leaving": leaving}
    return {
        **values,
        "kbroker_controller_broker_state": {
            (str(each.node_id),): FENCED if each.is_fenced else LEAVING if each.in_controlled_shutdown else ACTIVE
            for each in image.brokers.values()
        },
        "kbroker_controller_brokers": {(state,): float(count) for state, count in brokers.items()},
        "kbroker_controller_topics": len(image.topics),
        "kbroker_controller_partitions": sum(len(each.partitions) for each in image.topics.values()),
    }
