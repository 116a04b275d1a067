"""Metrics of a cluster's member: roles, in-sync replicas, replication, the controller.

Rows as in `families`; in brackets what Kafka calls it.  A broker that is a cluster of its own shows them, too: rules
of alerts have no gap where a cluster begins.
"""

from __future__ import annotations

from kbroker.metrics.families import table

_ROWS = """
kbroker_controller_active|gauge||1 on the broker that is the controller, 0 on the others (ActiveControllerCount).
kbroker_controller_state|gauge|state|1 for what its controller does: none, taking_over, active (ControllerState).
kbroker_controller_changes_seconds|counter||Time that its controller was busy with changes (ControllerState rates).
kbroker_controller_changes|counter|kind|
    Changes that its controller has dealt with, by kind (ControllerStats); in a quorum all are one kind.
kbroker_controller_change_wait_max_seconds|gauge||
    The longest that a change has waited for its controller, since it is one (EventQueueTimeMs).
kbroker_controller_leader_elections|counter||
    Leaders that its controller has elected, new partitions included; in a quorum of kbrokers those that each controller
     has seen in the log (LeaderElectionRateAndTimeMs).
kbroker_controller_unclean_leader_elections|counter||
    Those among them that may have lost records (UncleanLeaderElectionsPerSec).
kbroker_controller_offline_partitions|gauge||
    Partitions of the cluster without a leader, by this node's image; 0 on a broker that is no controller
     (OfflinePartitionsCount).
kbroker_controller_preferred_replica_imbalance|gauge||
    Partitions of the cluster that another than the preferred replica leads; 0 on a broker that is no controller
     (PreferredReplicaImbalanceCount).
kbroker_controller_reassigning_partitions|gauge||
    Partitions of the cluster whose replicas are on the move; 0 on other brokers (ReassigningPartitions of the cluster).
kbroker_broker_fenced|gauge||1 while the controllers of a KRaft cluster have fenced this broker (BrokerState).
kbroker_metadata_leader|gauge||The active controller of a KRaft cluster, -1 where none is known (current-leader).
kbroker_metadata_leader_epoch|gauge||Its epoch (current-epoch).
kbroker_metadata_high_watermark|gauge||Up to where the metadata log is committed, as known here (high-watermark).
kbroker_metadata_log_end_offset|gauge||How far the copy of the metadata log goes here (log-end-offset).
kbroker_metadata_applied_offset|gauge||The last record that this broker acts by (last-applied-record-offset).
kbroker_metadata_applied_lag_seconds|gauge||
    Age of that record, which a quorum renews every half second (last-applied-record-lag-ms).
kbroker_metadata_fetch_age_seconds|gauge||Time since a controller last answered a fetch of the metadata log.
kbroker_metadata_requests|counter||Requests for the metadata log to its controllers (request-total).
kbroker_metadata_request_bytes|counter||Their bytes (outgoing-byte-total).
kbroker_metadata_answers|counter||The controllers' answers (response-total).
kbroker_metadata_answer_bytes|counter||Their bytes (incoming-byte-total).
kbroker_replica_leaders|gauge||Partitions that this broker leads (LeaderCount).
kbroker_replicas|gauge||Partitions that this broker leads or follows (PartitionCount).
kbroker_replicas_offline|gauge||Replicas of this broker that have no log because of a disk (OfflineReplicaCount).
kbroker_under_replicated_partitions|gauge||
    Partitions led here whose in-sync replicas are fewer than their replicas (UnderReplicatedPartitions).
kbroker_under_min_isr_partitions|gauge||
    Partitions led here with fewer in-sync replicas than min.insync.replicas: acks=all is refused
     (UnderMinIsrPartitionCount).
kbroker_at_min_isr_partitions|gauge||
    Partitions led here with exactly min.insync.replicas in sync: the next one lost stops acks=all
     (AtMinIsrPartitionCount).
kbroker_reassigning_partitions|gauge||Partitions led here whose replicas are on the move (ReassigningPartitions).
kbroker_isr_shrinks|counter||In-sync replicas that leaders here have asked to drop (IsrShrinksPerSec).
kbroker_isr_expands|counter||Replicas that leaders here have asked to take into the ISR (IsrExpandsPerSec).
kbroker_isr_updates_failed|counter||Changes of an ISR that the controller did not grant (FailedIsrUpdatesPerSec).
kbroker_replication_bytes_in|counter||Bytes of records copied from leaders (ReplicationBytesInPerSec).
kbroker_replication_bytes_out|counter||Bytes of records sent to followers (ReplicationBytesOutPerSec).
kbroker_reassignment_bytes_in|counter||Those of replicas that a reassignment adds here (ReassignmentBytesInPerSec).
kbroker_reassignment_bytes_out|counter||Those sent to replicas that a reassignment adds (ReassignmentBytesOutPerSec).
kbroker_replica_fetchers|gauge||Connections that copy from leaders (ReplicaFetcherManager).
kbroker_replica_fetcher_max_lag|gauge||
    Committed records that the partition furthest behind its leader lacks here, by the last answers (MaxLag).
kbroker_replica_fetcher_failed_partitions|gauge||
    Partitions followed here whose last fetch failed, or whose leader cannot be reached (FailedPartitionsCount).
"""

FAMILIES = table(_ROWS)
