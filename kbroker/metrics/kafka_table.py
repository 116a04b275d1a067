"""The metrics under the names of Kafka's exporters: JMX exporter as Strimzi and Confluent configure it, kafka_exporter.

Rows as in `families`.  The kind `both` is a counter as Strimzi names it (`_total`), and the same number as
Confluent's stack does (`persec`, of no type); a `summary` has quantiles of about the last five minutes, and count and
sum since the start.  A series without the label `topic` is the sum over all topics.

Where one of kbroker's own families has the figure, the source is that one's name, with what to multiply it by; behind
`or 0` it has none where a broker is its own cluster, and then stands for 0.  `kafka_values` works out the others.
"""

from __future__ import annotations

from kbroker.metrics.families import table

_TRAFFIC = """
kafka_server_brokertopicmetrics_messagesin|both|topic|Messages appended by leaders (MessagesInPerSec).
kafka_server_brokertopicmetrics_bytesin|both|topic|Bytes of record batches appended by leaders (BytesInPerSec).
kafka_server_brokertopicmetrics_bytesout|both|topic|Bytes of records sent to consumers (BytesOutPerSec).
kafka_server_brokertopicmetrics_totalproducerequests|both|topic|
    Batches that were to be appended, each partition of a request (TotalProduceRequestsPerSec).
kafka_server_brokertopicmetrics_failedproducerequests|both|topic|
    Those among them that were refused, but for what Kafka expects (FailedProduceRequestsPerSec).
kafka_server_brokertopicmetrics_totalfetchrequests|both|topic|
    Partitions that fetches have asked for, those of followers included (TotalFetchRequestsPerSec).
kafka_server_brokertopicmetrics_failedfetchrequests|both|topic|
    Those among them that failed, but for what Kafka expects (FailedFetchRequestsPerSec).
kafka_server_brokertopicmetrics_bytesrejected|both|topic|
    Bytes of records refused for a batch above max.message.bytes (BytesRejectedPerSec).
kafka_server_brokertopicmetrics_replicationbytesin|both||Bytes copied from leaders.|kbroker_replication_bytes_in or 0
kafka_server_brokertopicmetrics_replicationbytesout|both||Bytes sent to followers.|kbroker_replication_bytes_out or 0
kafka_server_brokertopicmetrics_reassignmentbytesin|both||
    Those of replicas that a reassignment adds here.|kbroker_reassignment_bytes_in or 0
kafka_server_brokertopicmetrics_reassignmentbytesout|both||
    Those sent to replicas that a reassignment adds.|kbroker_reassignment_bytes_out or 0
kafka_server_brokertopicmetrics_producemessageconversions|both||Records converted for the log, all topics.
kafka_server_brokertopicmetrics_fetchmessageconversions|both||Records converted for consumers, all topics.
"""

_BROKER = """
kafka_server_kafkaserver_brokerstate|gauge||1 starting, 3 running, 7 shutting down.
kafka_server_kafkaserver_linux_disk_read_bytes|gauge||Bytes that this process has had read from disks.
kafka_server_kafkaserver_linux_disk_write_bytes|gauge||Bytes that this process has had written to disks.
kafka_server_replicamanager_leadercount|gauge||Partitions led here.|kbroker_replica_leaders
kafka_server_replicamanager_partitioncount|gauge||Partitions led or followed here.|kbroker_replicas
kafka_server_replicamanager_offlinereplicacount|gauge||
    Replicas without a log because of a disk.|kbroker_replicas_offline
kafka_server_replicamanager_underreplicatedpartitions|gauge||
    Partitions led here that lack in-sync replicas.|kbroker_under_replicated_partitions
kafka_server_replicamanager_underminisrpartitioncount|gauge||
    Those with fewer than min.insync.replicas.|kbroker_under_min_isr_partitions
kafka_server_replicamanager_atminisrpartitioncount|gauge||
    Those with exactly min.insync.replicas.|kbroker_at_min_isr_partitions
kafka_server_replicamanager_reassigningpartitions|gauge||
    Those whose replicas are on the move.|kbroker_reassigning_partitions
kafka_server_replicamanager_isrshrinks|both||
    In-sync replicas that leaders here have asked to drop.|kbroker_isr_shrinks or 0
kafka_server_replicamanager_isrexpands|both||
    Replicas that leaders here have asked to take into the ISR.|kbroker_isr_expands or 0
kafka_server_replicamanager_failedisrupdates|both||
    Changes of an ISR that the controller did not grant.|kbroker_isr_updates_failed or 0
kafka_server_replicafetchermanager_maxlag|gauge|clientid|The most records that a follower here lacks.
kafka_server_replicafetchermanager_minfetchrate|gauge|clientid|
    Requests a second of the slowest connection to a leader, over a minute; 0 without one.
kafka_server_replicafetchermanager_failedpartitionscount|gauge|clientid|Partitions whose last fetch failed.
kafka_server_fetchsessioncache_numincrementalfetchsessions|gauge||Fetch sessions that are kept.
kafka_server_fetchsessioncache_numincrementalfetchpartitionscached|gauge||Their partitions.
kafka_server_fetchsessioncache_incrementalfetchsessionevictions|both||Sessions that gave way to others.
kafka_server_delayedoperationpurgatory_purgatorysize|gauge|delayedoperation|
    Partitions that waiting requests watch: Fetch and ShareFetch for records, Produce for the ISR, DeleteRecords for
     followers; 0 for what does not wait here: AlterAcls, RemoteFetch, RemoteListOffsets.
kafka_server_delayedoperationpurgatory_numdelayedoperations|gauge|delayedoperation|Those requests.
kafka_controller_kafkacontroller_activecontrollercount|gauge||
    1 on the broker that is the controller.|kbroker_controller_active
kafka_controller_kafkacontroller_offlinepartitionscount|gauge||
    Partitions without a leader; 0 on others than controllers.|kbroker_controller_offline_partitions
kafka_controller_kafkacontroller_preferredreplicaimbalancecount|gauge||
    Partitions that another than the preferred replica leads; 0 on others than controllers.
    |kbroker_controller_preferred_replica_imbalance
kafka_controller_kafkacontroller_globaltopiccount|gauge||Topics of the cluster; 0 on others than controllers.
kafka_controller_kafkacontroller_globalpartitioncount|gauge||Partitions of the cluster; 0 on others than controllers.
kafka_controller_kafkacontroller_activebrokercount|gauge||
    Brokers that are there and not fenced; 0 on others than controllers.
kafka_controller_kafkacontroller_fencedbrokercount|gauge||Brokers that are fenced; 0 on others than controllers.
kafka_controller_controllerstats_uncleanleaderelections|both||
    Elections that may have lost records.|kbroker_controller_unclean_leader_elections or 0
kafka_log_logmanager_offlinelogdirectorycount|gauge||Log directories that have failed.|kbroker_log_dirs_offline
kafka_log_logmanager_logdirectoryoffline|gauge|logdirectory|1 for a log directory that has failed, else 0.
kafka_log_logmanager_remaininglogstorecover|gauge|dir|
    Partitions that this start has still to recover.|kbroker_recovery_logs_left
kafka_log_logmanager_remainingsegmentstorecover|gauge|threadnum|
    Segments that a thread has still to recover.|kbroker_recovery_thread_segments_left
kafka_log_logcleaner_deadthreadcount|gauge||Threads of the cleaner that an error has ended.|kbroker_cleaner_dead_threads
kafka_log_logcleaner_cleaner_recopy_percent|gauge||
    Bytes written for 100 bytes read by the last compactions.|kbroker_cleaner_recopy_ratio * 100
kafka_log_logcleaner_max_buffer_utilization_percent|gauge||
    How full the offset map was at most.|kbroker_cleaner_max_buffer_use_ratio * 100
kafka_log_logcleaner_max_clean_time_secs|gauge||The longest of the last compactions.|kbroker_cleaner_max_clean_seconds
kafka_log_logcleanermanager_max_dirty_percent|gauge||
    The largest dirty share of a compacted partition.|kbroker_cleaner_max_dirty_ratio * 100
kafka_log_logcleanermanager_time_since_last_run_ms|gauge||Since the last compaction; not before the first one.
kafka_log_logcleanermanager_uncleanable_partitions_count|gauge|logdirectory|
    Partitions whose last compaction failed.|kbroker_cleaner_uncleanable_partitions
kafka_log_logcleanermanager_uncleanable_bytes|gauge|logdirectory|
    Bytes that wait for compaction in them.|kbroker_cleaner_uncleanable_bytes
kafka_log_logflushstats_logflushrateandtimems|summary||
    Milliseconds of fsyncs of logs, group commits included.
kafka_log_log_size|gauge|topic,partition|Bytes of a log.|partitions.size_bytes
kafka_log_log_numlogsegments|gauge|topic,partition|Its segments.|partitions.segment_count
kafka_log_log_logstartoffset|gauge|topic,partition|Its first offset.|partitions.log_start_offset
kafka_log_log_logendoffset|gauge|topic,partition|The offset of its next record.|partitions.log_end_offset
kafka_cluster_partition_replicascount|gauge|topic,partition|Replicas of a partition led here.
kafka_cluster_partition_insyncreplicascount|gauge|topic,partition|Those in sync.
kafka_cluster_partition_underreplicated|gauge|topic,partition|1 while it lacks in-sync replicas.
kafka_cluster_partition_underminisr|gauge|topic,partition|1 with fewer than min.insync.replicas in sync.
kafka_cluster_partition_atminisr|gauge|topic,partition|1 with exactly min.insync.replicas in sync.
kafka_cluster_partition_laststableoffsetlag|gauge|topic,partition|Records that open transactions hold back.
"""

_REQUESTS = """
kafka_network_requestmetrics_requests|both|request|Requests answered; Fetch is the sum of the two kinds of fetches.
kafka_network_requestmetrics_errors|both|request,error|
    Answers with an error of their own, and partitions of Produce with one; NONE: answers without.
kafka_network_requestmetrics_totaltimems|summary|request|
    Milliseconds from a request's last byte until the socket has all of its answer.
kafka_network_requestmetrics_localtimems|summary|request|Those of them in which it was worked on.
kafka_network_requestmetrics_remotetimems|summary|request|
    Those in which it waited: for records, for followers, for another broker.
kafka_network_requestmetrics_requestqueuetimems|summary|request|
    Those until it was begun: 0 but for requests that are answered with others at the end of a turn of the loop.
kafka_network_requestmetrics_responsequeuetimems|summary|request|
    Those in which its answer was ready: 0 but for answers that leave with others, or behind a request that waits.
kafka_network_requestmetrics_responsesendtimems|summary|request|
    Those from when its answer was first given to the socket until that had all of it.
kafka_network_requestmetrics_throttletimems|summary|request|Milliseconds for which a quota then muted its client.
kafka_network_requestmetrics_requestbytes|summary|request|Bytes of requests without their headers.
kafka_network_requestchannel_requestqueuesize|gauge||0: there is no queue.
kafka_network_requestchannel_responsequeuesize|gauge||Connections whose answers the socket has not taken.
kafka_network_socketserver_networkprocessoravgidle_percent|gauge||
    Share of the last minute, 0 to 1, that the event loop's thread used no processor.
kafka_network_socketserver_networkprocessoravgidlepercent|gauge||The same, as Confluent names it.
kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent|gauge||The same: the loop serves requests, too.
kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_total|gauge||The same, as Confluent names it.
kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent|gauge||The same, as many alerts name it.
kafka_network_acceptor_acceptorblockedpercent|gauge|listener|0: no thread waits to hand connections over.
kafka_server_socket_server_metrics_connection_count|gauge|listener,networkprocessor|Open connections.
kafka_server_socketservermetrics_connection_count|gauge|listener,network_processor|The same, as Confluent names it.
kafka_server_socketservermetrics_connection_creation_rate|gauge|listener,network_processor|
    Connections accepted a second, over half a minute.
kafka_server_socketservermetrics_connection_close_rate|gauge|listener,network_processor|
    Connections ended a second, over half a minute.
kafka_server_socketservermetrics_connections|gauge|client_software_name,client_software_version,listener|
    Open connections by what the client says that it is.
"""

_COORDINATORS = """
kafka_coordinator_group_groupmetadatamanager_numgroups|gauge||Groups coordinated here.
kafka_coordinator_group_groupmetadatamanager_numgroupsstable|gauge||Those in that state, of any protocol.
kafka_coordinator_group_groupmetadatamanager_numgroupsempty|gauge||As above.
kafka_coordinator_group_groupmetadatamanager_numgroupspreparingrebalance|gauge||As above.
kafka_coordinator_group_groupmetadatamanager_numgroupscompletingrebalance|gauge||As above.
kafka_coordinator_group_groupmetadatamanager_numgroupsdead|gauge||As above.
kafka_server_transaction_coordinator_metrics_transactional_id_count|gauge||Transactional ids coordinated here.
kafka_server_transaction_coordinator_metrics_transaction_timeout_count|gauge||Transactions aborted for their time.
kafka_server_transaction_coordinator_metrics_partition_load_time_max|gauge||
    Milliseconds that the state partitions coordinated here took to load, at most.
kafka_server_transaction_coordinator_metrics_partition_load_time_avg|gauge||On average.
kafka_server_produce_byte_rate|gauge|user,client_id|Bytes a second of the producers that share a quota.
kafka_server_produce_throttle_time|gauge|user,client_id|Milliseconds by which they were throttled, on average.
kafka_server_fetch_byte_rate|gauge|user,client_id|Bytes a second of the consumers that share a quota.
kafka_server_fetch_throttle_time|gauge|user,client_id|As above.
kafka_server_request_request_time|gauge|user,client_id|Percent of the loop's time of those that share a quota.
kafka_server_request_throttle_time|gauge|user,client_id|As above.
"""

_KRAFT = """
kafka_server_raftmetrics_current_state|gauge|current_state|
    1 for leader, follower, candidate, prospective(-voted) or unattached(-voted), or observer, which a broker is.
kafka_server_raftmetrics_current_leader|gauge||The active controller; -1 where none is known.|kbroker_metadata_leader
kafka_server_raftmetrics_current_epoch|gauge||Its epoch.|kbroker_metadata_leader_epoch
kafka_server_raftmetrics_current_vote|gauge||
    For whom this node has voted in this epoch; -1: for none, as an observer, which has no vote.|kbroker_quorum_vote
kafka_server_raftmetrics_high_watermark|gauge||
    Up to where the metadata log is committed.|kbroker_metadata_high_watermark
kafka_server_raftmetrics_log_end_offset|gauge||
    How far the copy of the metadata log goes.|kbroker_metadata_log_end_offset
kafka_server_raftmetrics_append_records_rate|gauge||
    Records appended a second, over half a minute: the leader alone appends.
kafka_server_raftmetrics_fetch_records_rate|gauge||Records fetched a second, over half a minute.
kafka_server_raftchannelmetrics_incoming_byte|counter||Bytes from the controllers.|kbroker_metadata_answer_bytes
kafka_server_raftchannelmetrics_outgoing_byte|counter||Bytes to the controllers.|kbroker_metadata_request_bytes
kafka_server_raftchannelmetrics_request|counter||Requests to the controllers.|kbroker_metadata_requests
kafka_server_raftchannelmetrics_response|counter||Their answers.|kbroker_metadata_answers
kafka_server_brokermetadatametrics_last_applied_record_offset|gauge||
    The last metadata record that this broker acts by.
kafka_server_brokermetadatametrics_last_applied_record_lag_ms|gauge||Its age in milliseconds.
"""

_CONTROLLER = """
kafka_controller_kafkacontroller_controlledshutdownbrokercount|gauge||Active brokers in controlled shutdown.
kafka_controller_kafkacontroller_brokerregistrationstate|gauge|broker|
    Of each broker: 10 fenced, 20 in controlled shutdown, 30 active.|kbroker_controller_broker_state
kafka_controller_kafkacontroller_timesincelastheartbeatreceivedms|gauge|broker|
    Milliseconds since a broker with a session was heard of; the active controller alone.
    |kbroker_controller_broker_silence_seconds * 1000
kafka_controller_kafkacontroller_metadataerrorcount|gauge||
    Errors of the controller's own while it decided or began to.|kbroker_controller_errors
kafka_controller_kafkacontroller_lastappliedrecordoffset|gauge||
    The last record that decisions stand on; of the active controller the last one appended.
    |kbroker_controller_last_offset
kafka_controller_kafkacontroller_lastappliedrecordtimestamp|gauge||Its time, in milliseconds since 1970.
kafka_controller_kafkacontroller_lastappliedrecordlagms|gauge||Its age in milliseconds.
kafka_controller_kafkacontroller_lastcommittedrecordoffset|gauge||The last record that is committed; -1: not known.
kafka_controller_kafkacontroller_newactivecontrollerscount|gauge||
    Leaders of new epochs that were heard of.|kbroker_quorum_leader_changes
kafka_controller_kafkacontroller_eventqueueoperationsstartedcount|gauge||Changes that the controller has begun.
kafka_controller_kafkacontroller_eventqueueoperationstimedoutcount|gauge||0: no change that waits is given up.
kafka_controller_kafkacontroller_timedoutbrokerheartbeatcount|gauge||0: no heartbeat that waits is given up.
kafka_controller_kafkacontroller_ignoredstaticvoters|gauge||
    1 where controller.quorum.voters is set and does not count.|kbroker_quorum_ignored_static_voters
kafka_controller_controllerstats_electionfromeligibleleaderreplicas|both||
    Leaders that were elected from the ELR.|kbroker_controller_eligible_leader_elections
kafka_controller_controllereventmanager_eventqueuetimems|summary||Milliseconds that changes waited for their turn.
kafka_controller_controllereventmanager_eventqueueprocessingtimems|summary||
    Milliseconds that changes took, without the wait until they are committed.
kafka_server_raftmetrics_log_end_epoch|gauge||The epoch of the last record of the log.|kbroker_quorum_log_end_epoch
kafka_server_raftmetrics_number_of_voters|gauge||Voters by the log's end.|kbroker_quorum_voters
kafka_server_raftmetrics_number_of_observers|gauge||
    Observers that have fetched within five minutes; the leader alone.|kbroker_quorum_observers
kafka_server_raftmetrics_uncommitted_voter_change|gauge||
    1 while a change of the voters is not committed; the leader alone.|kbroker_quorum_uncommitted_voters
kafka_server_raftmetrics_number_unknown_voter_connections|gauge||
    Voters whose address is not known.|kbroker_quorum_unknown_voters
kafka_server_raftmetrics_commit_latency_avg|gauge||
    Milliseconds from when the leader appended a batch until a majority had it, over half a minute; not without one.
kafka_server_raftmetrics_commit_latency_max|gauge||The longest.
kafka_server_raftmetrics_election_latency_avg|gauge||
    Milliseconds from when this node stood until there was a leader, over half a minute; not without one.
kafka_server_raftmetrics_election_latency_max|gauge||The longest.
kafka_server_raftmetrics_poll_idle_ratio_avg|gauge||
    Share of the last minute, 0 to 1, that the event loop's thread used no processor: it does the quorum's work, too.
kafka_server_metadataloader_currentcontrollerid|gauge||The active controller; -1 where none is known.
    |kbroker_metadata_leader
kafka_server_metadataloader_currentmetadataversion|gauge||The metadata.version by the log.|kbroker_metadata_version
kafka_server_metadataloader_finalizedlevel|gauge|featurename|
    The levels of features above 0 but for kraft.version, by names as eligibleLeaderReplicasVersion.
kafka_server_metadataloader_handleloadsnapshotcount|gauge||
    Snapshots of the metadata that were applied.|kbroker_metadata_snapshots_loaded
kafka_server_snapshotemitter_latestsnapshotgeneratedagems|gauge||
    Milliseconds since this process has written a snapshot of the metadata, or since its start.
    |kbroker_metadata_snapshot_age_seconds * 1000
kafka_server_snapshotemitter_latestsnapshotgeneratedbytes|gauge||
    Bytes of that one; 0: none yet.|kbroker_metadata_snapshot_bytes
"""

_EXPORTER = """
kafka_brokers|gauge||Brokers of the cluster.
kafka_broker_info|gauge|id,address|1 for this broker.
kafka_exporter_build_info|gauge|version|1; the version is kbroker's.
kafka_topic_partitions|gauge|topic|Partitions of a topic, shown by the broker that shows its first one.
kafka_topic_partition_current_offset|gauge|topic,partition|Where consumers' records end: the high watermark.
kafka_topic_partition_oldest_offset|gauge|topic,partition|The first offset.
kafka_topic_partition_in_sync_replica|gauge|topic,partition|Replicas in sync.
kafka_topic_partition_leader|gauge|topic,partition|The leader's id.
kafka_topic_partition_leader_is_preferred|gauge|topic,partition|1 while the first replica leads.
kafka_topic_partition_replicas|gauge|topic,partition|Replicas.
kafka_topic_partition_under_replicated_partition|gauge|topic,partition|1 while it lacks in-sync replicas.
kafka_consumergroup_current_offset|gauge|consumergroup,topic,partition|Offset that a group has committed.|lags.committed
kafka_consumergroup_current_offset_sum|gauge|consumergroup,topic|Sum over the partitions of a topic.
kafka_consumergroup_lag|gauge|consumergroup,topic,partition|Records between that and the current offset.|lags.lag
kafka_consumergroup_lag_sum|gauge|consumergroup,topic|Sum over the partitions of a topic.
kafka_consumergroup_uncommitted_offsets|gauge|consumergroup,topic,partition|
    The lag, as older exporters name it.|lags.lag
kafka_consumergroup_uncommitted_offsets_sum|gauge|consumergroup,topic|Sum over the partitions of a topic.
kafka_consumergroup_members|gauge|consumergroup|Members of a group.|groups.member_count
"""

SECTIONS = tuple(
    (title, table(rows))
    for title, rows in (
        ("Topics", _TRAFFIC),
        ("The broker, its logs and partitions, the controller", _BROKER),
        ("Requests and connections", _REQUESTS),
        ("Coordinators and quotas", _COORDINATORS),
        ("A node of a KRaft cluster", _KRAFT),
        ("A node with the controller role", _CONTROLLER),
        ("kafka_exporter", _EXPORTER),
    )
)

EXPORTER = SECTIONS[-1][1]
SOURCED = tuple(family for _, rows in SECTIONS for family in rows if family.source)
