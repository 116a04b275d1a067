"""Metrics of a node with the controller role: what its controller knows and does, and its place in the quorum.

Rows as in `families`; in brackets what Kafka calls it.  Every controller shows the cluster by its own image, active or
not, as Kafka's do: take the largest over the nodes, not the sum.
"""

from __future__ import annotations

from kbroker.metrics.families import table

_ROWS = """
kbroker_controller_brokers|gauge|state|
    Brokers of the cluster by what they are: active, fenced, or leaving (active ones in controlled shutdown)
     (ActiveBrokerCount, FencedBrokerCount, ControlledShutdownBrokerCount).
kbroker_controller_broker_state|gauge|broker|
    Of each broker: 10 fenced, 20 in controlled shutdown, 30 active (BrokerRegistrationState).
kbroker_controller_broker_silence_seconds|gauge|broker|
    Since a broker with a session was heard of; the active controller alone (TimeSinceLastHeartbeatReceivedMs).
kbroker_controller_topics|gauge||Topics of the cluster (GlobalTopicCount).
kbroker_controller_partitions|gauge||Their partitions (GlobalPartitionCount).
kbroker_controller_eligible_leader_elections|counter||
    Leaders that were elected from the ELR (ElectionFromEligibleLeaderReplicasPerSec).
kbroker_controller_errors|counter||
    Errors of the controller's own while it decided or began to; each costs the lead (MetadataErrorCount).
kbroker_controller_last_offset|gauge||
    The last record that decisions stand on: of the active controller the last one appended (LastAppliedRecordOffset).
kbroker_controller_last_record_timestamp_seconds|gauge||Its time (LastAppliedRecordTimestamp).
kbroker_controller_change_waits_seconds|counter||Time that changes have waited for their turn (EventQueueTimeMs).
kbroker_quorum_state|gauge|state|
    1 for what this node is in its quorum: leader, follower, candidate, prospective, unattached, resigned, observer
     (current-state).
kbroker_quorum_vote|gauge||For whom it has voted in this epoch; -1: for none (current-vote).
kbroker_quorum_log_end_epoch|gauge||The epoch of the last record of its log (log-end-epoch).
kbroker_quorum_voters|gauge||Voters by the log's end (number-of-voters).
kbroker_quorum_unknown_voters|gauge||Those among them whose address is not known (number-unknown-voter-connections).
kbroker_quorum_ignored_static_voters|gauge||
    1 where controller.quorum.voters is set and does not count, since the log names the voters (IgnoredStaticVoters).
kbroker_quorum_observers|gauge||Observers that have fetched within five minutes; the leader alone (number-of-observers).
kbroker_quorum_uncommitted_voters|gauge||
    1 while a change of the voters is not committed; the leader alone (uncommitted-voter-change).
kbroker_quorum_voter_lag|gauge|voter|Records that a voter lacks of the leader's log; the leader alone.
kbroker_quorum_voter_silence_seconds|gauge|voter|
    Since a voter has fetched last, or since the lead began; the leader alone.
kbroker_quorum_leader_changes|counter||Leaders of new epochs that were heard of (NewActiveControllersCount).
kbroker_quorum_elections|counter||Elections that this node stood for, or was about to, until there was a leader.
kbroker_quorum_election_seconds|counter||Their time (election-latency-avg).
kbroker_quorum_election_max_seconds|gauge||The longest of the last half minute to a minute (election-latency-max).
kbroker_quorum_commits|counter||Batches that this node has appended as the leader, and a majority has.
kbroker_quorum_commit_seconds|counter||Time from the one to the other (commit-latency-avg).
kbroker_quorum_commit_max_seconds|gauge||The longest of the last half minute to a minute (commit-latency-max).
kbroker_quorum_records_appended|counter||Records appended as the leader (append-records-rate).
kbroker_quorum_records_fetched|counter||Records fetched from leaders (fetch-records-rate).
kbroker_metadata_version|gauge||The metadata.version by the log, -1: none yet (CurrentMetadataVersion).
kbroker_metadata_feature_level|gauge|feature|The levels of features above 0 (FinalizedLevel).
kbroker_metadata_snapshots_loaded|counter||
    Snapshots of the metadata that this process has applied, that at its start included (HandleLoadSnapshotCount).
kbroker_metadata_snapshot_age_seconds|gauge||
    Since this process has written one; before the first one since its start (LatestSnapshotGeneratedAgeMs).
kbroker_metadata_snapshot_bytes|gauge||Bytes of that one; 0: none yet (LatestSnapshotGeneratedBytes).
"""

FAMILIES = table(_ROWS)
