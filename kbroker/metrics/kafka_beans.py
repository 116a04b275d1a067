"""Where JMX has the families of `kafka_table`: the beans, their attributes, and what each says.

A bean `kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec,topic=t` of Yammer's has the attribute Value where it
is a gauge, Count and OneMinuteRate where it is a meter, Count, Mean and percentiles where it is a histogram, and all of
these where it is a timer.  Beans of Kafka's own metrics have no name, and an attribute for each metric.  One row each,
`family|domain|type|name|keys|attribute`: the keys of the family's labels in the bean, where they differ, and the
attribute of a bean without a name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kbroker.metrics.families import Family, Labels
from kbroker.metrics.kafka_rows import Found, Summary
from kbroker.metrics.kafka_table import SECTIONS
from kbroker.metrics.percentiles import QUANTILES
from kbroker.metrics.recent_rates import RecentRates

_ROWS = """
kafka_server_brokertopicmetrics_messagesin|kafka.server|BrokerTopicMetrics|MessagesInPerSec||
kafka_server_brokertopicmetrics_bytesin|kafka.server|BrokerTopicMetrics|BytesInPerSec||
kafka_server_brokertopicmetrics_bytesout|kafka.server|BrokerTopicMetrics|BytesOutPerSec||
kafka_server_brokertopicmetrics_totalproducerequests|kafka.server|BrokerTopicMetrics|TotalProduceRequestsPerSec||
kafka_server_brokertopicmetrics_failedproducerequests|kafka.server|BrokerTopicMetrics|FailedProduceRequestsPerSec||
kafka_server_brokertopicmetrics_totalfetchrequests|kafka.server|BrokerTopicMetrics|TotalFetchRequestsPerSec||
kafka_server_brokertopicmetrics_failedfetchrequests|kafka.server|BrokerTopicMetrics|FailedFetchRequestsPerSec||
kafka_server_brokertopicmetrics_bytesrejected|kafka.server|BrokerTopicMetrics|BytesRejectedPerSec||
kafka_server_brokertopicmetrics_replicationbytesin|kafka.server|BrokerTopicMetrics|ReplicationBytesInPerSec||
kafka_server_brokertopicmetrics_replicationbytesout|kafka.server|BrokerTopicMetrics|ReplicationBytesOutPerSec||
kafka_server_brokertopicmetrics_reassignmentbytesin|kafka.server|BrokerTopicMetrics|ReassignmentBytesInPerSec||
kafka_server_brokertopicmetrics_reassignmentbytesout|kafka.server|BrokerTopicMetrics|ReassignmentBytesOutPerSec||
kafka_server_brokertopicmetrics_producemessageconversions|kafka.server|
    BrokerTopicMetrics|ProduceMessageConversionsPerSec||
kafka_server_brokertopicmetrics_fetchmessageconversions|kafka.server|BrokerTopicMetrics|FetchMessageConversionsPerSec||
kafka_server_kafkaserver_brokerstate|kafka.server|KafkaServer|BrokerState||
kafka_server_kafkaserver_linux_disk_read_bytes|kafka.server|KafkaServer|linux-disk-read-bytes||
kafka_server_kafkaserver_linux_disk_write_bytes|kafka.server|KafkaServer|linux-disk-write-bytes||
kafka_server_replicamanager_leadercount|kafka.server|ReplicaManager|LeaderCount||
kafka_server_replicamanager_partitioncount|kafka.server|ReplicaManager|PartitionCount||
kafka_server_replicamanager_offlinereplicacount|kafka.server|ReplicaManager|OfflineReplicaCount||
kafka_server_replicamanager_underreplicatedpartitions|kafka.server|ReplicaManager|UnderReplicatedPartitions||
kafka_server_replicamanager_underminisrpartitioncount|kafka.server|ReplicaManager|UnderMinIsrPartitionCount||
kafka_server_replicamanager_atminisrpartitioncount|kafka.server|ReplicaManager|AtMinIsrPartitionCount||
kafka_server_replicamanager_reassigningpartitions|kafka.server|ReplicaManager|ReassigningPartitions||
kafka_server_replicamanager_isrshrinks|kafka.server|ReplicaManager|IsrShrinksPerSec||
kafka_server_replicamanager_isrexpands|kafka.server|ReplicaManager|IsrExpandsPerSec||
kafka_server_replicamanager_failedisrupdates|kafka.server|ReplicaManager|FailedIsrUpdatesPerSec||
kafka_server_replicafetchermanager_maxlag|kafka.server|ReplicaFetcherManager|MaxLag|clientId|
kafka_server_replicafetchermanager_minfetchrate|kafka.server|ReplicaFetcherManager|MinFetchRate|clientId|
kafka_server_replicafetchermanager_failedpartitionscount|kafka.server|
    ReplicaFetcherManager|FailedPartitionsCount|clientId|
kafka_server_fetchsessioncache_numincrementalfetchsessions|kafka.server|FetchSessionCache|NumIncrementalFetchSessions||
kafka_server_fetchsessioncache_numincrementalfetchpartitionscached|kafka.server|
    FetchSessionCache|NumIncrementalFetchPartitionsCached||
kafka_server_fetchsessioncache_incrementalfetchsessionevictions|kafka.server|
    FetchSessionCache|IncrementalFetchSessionEvictionsPerSec||
kafka_server_delayedoperationpurgatory_purgatorysize|kafka.server|
    DelayedOperationPurgatory|PurgatorySize|delayedOperation|
kafka_server_delayedoperationpurgatory_numdelayedoperations|kafka.server|
    DelayedOperationPurgatory|NumDelayedOperations|delayedOperation|
kafka_controller_kafkacontroller_activecontrollercount|kafka.controller|KafkaController|ActiveControllerCount||
kafka_controller_kafkacontroller_offlinepartitionscount|kafka.controller|KafkaController|OfflinePartitionsCount||
kafka_controller_kafkacontroller_preferredreplicaimbalancecount|kafka.controller|
    KafkaController|PreferredReplicaImbalanceCount||
kafka_controller_kafkacontroller_globaltopiccount|kafka.controller|KafkaController|GlobalTopicCount||
kafka_controller_kafkacontroller_globalpartitioncount|kafka.controller|KafkaController|GlobalPartitionCount||
kafka_controller_kafkacontroller_activebrokercount|kafka.controller|KafkaController|ActiveBrokerCount||
kafka_controller_kafkacontroller_fencedbrokercount|kafka.controller|KafkaController|FencedBrokerCount||
kafka_controller_controllerstats_uncleanleaderelections|kafka.controller|ControllerStats|UncleanLeaderElectionsPerSec||
kafka_log_logmanager_offlinelogdirectorycount|kafka.log|LogManager|OfflineLogDirectoryCount||
kafka_log_logmanager_logdirectoryoffline|kafka.log|LogManager|LogDirectoryOffline|logDirectory|
kafka_log_logmanager_remaininglogstorecover|kafka.log|LogManager|remainingLogsToRecover|dir|
kafka_log_logmanager_remainingsegmentstorecover|kafka.log|LogManager|remainingSegmentsToRecover|threadNum|
kafka_log_logcleaner_deadthreadcount|kafka.log|LogCleaner|DeadThreadCount||
kafka_log_logcleaner_cleaner_recopy_percent|kafka.log|LogCleaner|cleaner-recopy-percent||
kafka_log_logcleaner_max_buffer_utilization_percent|kafka.log|LogCleaner|max-buffer-utilization-percent||
kafka_log_logcleaner_max_clean_time_secs|kafka.log|LogCleaner|max-clean-time-secs||
kafka_log_logcleanermanager_max_dirty_percent|kafka.log|LogCleanerManager|max-dirty-percent||
kafka_log_logcleanermanager_time_since_last_run_ms|kafka.log|LogCleanerManager|time-since-last-run-ms||
kafka_log_logcleanermanager_uncleanable_partitions_count|kafka.log|
    LogCleanerManager|uncleanable-partitions-count|logDirectory|
kafka_log_logcleanermanager_uncleanable_bytes|kafka.log|LogCleanerManager|uncleanable-bytes|logDirectory|
kafka_log_logflushstats_logflushrateandtimems|kafka.log|LogFlushStats|LogFlushRateAndTimeMs||
kafka_log_log_size|kafka.log|Log|Size||
kafka_log_log_numlogsegments|kafka.log|Log|NumLogSegments||
kafka_log_log_logstartoffset|kafka.log|Log|LogStartOffset||
kafka_log_log_logendoffset|kafka.log|Log|LogEndOffset||
kafka_cluster_partition_replicascount|kafka.cluster|Partition|ReplicasCount||
kafka_cluster_partition_insyncreplicascount|kafka.cluster|Partition|InSyncReplicasCount||
kafka_cluster_partition_underreplicated|kafka.cluster|Partition|UnderReplicated||
kafka_cluster_partition_underminisr|kafka.cluster|Partition|UnderMinIsr||
kafka_cluster_partition_atminisr|kafka.cluster|Partition|AtMinIsr||
kafka_cluster_partition_laststableoffsetlag|kafka.cluster|Partition|LastStableOffsetLag||
kafka_network_requestmetrics_requests|kafka.network|RequestMetrics|RequestsPerSec||
kafka_network_requestmetrics_errors|kafka.network|RequestMetrics|ErrorsPerSec||
kafka_network_requestmetrics_totaltimems|kafka.network|RequestMetrics|TotalTimeMs||
kafka_network_requestmetrics_localtimems|kafka.network|RequestMetrics|LocalTimeMs||
kafka_network_requestmetrics_remotetimems|kafka.network|RequestMetrics|RemoteTimeMs||
kafka_network_requestmetrics_requestqueuetimems|kafka.network|RequestMetrics|RequestQueueTimeMs||
kafka_network_requestmetrics_throttletimems|kafka.network|RequestMetrics|ThrottleTimeMs||
kafka_network_requestmetrics_responsequeuetimems|kafka.network|RequestMetrics|ResponseQueueTimeMs||
kafka_network_requestmetrics_responsesendtimems|kafka.network|RequestMetrics|ResponseSendTimeMs||
kafka_network_requestmetrics_requestbytes|kafka.network|RequestMetrics|RequestBytes||
kafka_network_requestchannel_requestqueuesize|kafka.network|RequestChannel|RequestQueueSize||
kafka_network_requestchannel_responsequeuesize|kafka.network|RequestChannel|ResponseQueueSize||
kafka_network_socketserver_networkprocessoravgidlepercent|kafka.network|SocketServer|NetworkProcessorAvgIdlePercent||
kafka_network_acceptor_acceptorblockedpercent|kafka.network|Acceptor|AcceptorBlockedPercent||
kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent|kafka.server|
    KafkaRequestHandlerPool|RequestHandlerAvgIdlePercent||
kafka_coordinator_group_groupmetadatamanager_numgroups|kafka.coordinator.group|GroupMetadataManager|NumGroups||
kafka_coordinator_group_groupmetadatamanager_numgroupsstable|kafka.coordinator.group|
    GroupMetadataManager|NumGroupsStable||
kafka_coordinator_group_groupmetadatamanager_numgroupsempty|kafka.coordinator.group|
    GroupMetadataManager|NumGroupsEmpty||
kafka_coordinator_group_groupmetadatamanager_numgroupspreparingrebalance|kafka.coordinator.group|
    GroupMetadataManager|NumGroupsPreparingRebalance||
kafka_coordinator_group_groupmetadatamanager_numgroupscompletingrebalance|kafka.coordinator.group|
    GroupMetadataManager|NumGroupsCompletingRebalance||
kafka_coordinator_group_groupmetadatamanager_numgroupsdead|kafka.coordinator.group|GroupMetadataManager|NumGroupsDead||
kafka_server_produce_byte_rate|kafka.server|Produce||user,client-id|byte-rate
kafka_server_produce_throttle_time|kafka.server|Produce||user,client-id|throttle-time
kafka_server_fetch_byte_rate|kafka.server|Fetch||user,client-id|byte-rate
kafka_server_fetch_throttle_time|kafka.server|Fetch||user,client-id|throttle-time
kafka_server_request_request_time|kafka.server|Request||user,client-id|request-time
kafka_server_request_throttle_time|kafka.server|Request||user,client-id|throttle-time
kafka_server_socketservermetrics_connection_count|kafka.server|
    socket-server-metrics||listener,networkProcessor|connection-count
kafka_server_socketservermetrics_connection_creation_rate|kafka.server|
    socket-server-metrics||listener,networkProcessor|connection-creation-rate
kafka_server_socketservermetrics_connection_close_rate|kafka.server|
    socket-server-metrics||listener,networkProcessor|connection-close-rate
kafka_server_transaction_coordinator_metrics_partition_load_time_max|kafka.server|
    transaction-coordinator-metrics|||partition-load-time-max
kafka_server_transaction_coordinator_metrics_partition_load_time_avg|kafka.server|
    transaction-coordinator-metrics|||partition-load-time-avg
kafka_server_raftmetrics_current_leader|kafka.server|raft-metrics|||current-leader
kafka_server_raftmetrics_current_epoch|kafka.server|raft-metrics|||current-epoch
kafka_server_raftmetrics_current_vote|kafka.server|raft-metrics|||current-vote
kafka_server_raftmetrics_high_watermark|kafka.server|raft-metrics|||high-watermark
kafka_server_raftmetrics_log_end_offset|kafka.server|raft-metrics|||log-end-offset
kafka_server_raftmetrics_append_records_rate|kafka.server|raft-metrics|||append-records-rate
kafka_server_raftmetrics_fetch_records_rate|kafka.server|raft-metrics|||fetch-records-rate
kafka_server_raftchannelmetrics_incoming_byte|kafka.server|raft-channel-metrics|||incoming-byte-total
kafka_server_raftchannelmetrics_outgoing_byte|kafka.server|raft-channel-metrics|||outgoing-byte-total
kafka_server_raftchannelmetrics_request|kafka.server|raft-channel-metrics|||request-total
kafka_server_raftchannelmetrics_response|kafka.server|raft-channel-metrics|||response-total
kafka_server_brokermetadatametrics_last_applied_record_offset|kafka.server|
    broker-metadata-metrics|||last-applied-record-offset
kafka_server_brokermetadatametrics_last_applied_record_lag_ms|kafka.server|
    broker-metadata-metrics|||last-applied-record-lag-ms
kafka_controller_kafkacontroller_controlledshutdownbrokercount|kafka.controller|
    KafkaController|ControlledShutdownBrokerCount||
kafka_controller_kafkacontroller_brokerregistrationstate|kafka.controller|KafkaController|BrokerRegistrationState||
kafka_controller_kafkacontroller_timesincelastheartbeatreceivedms|kafka.controller|
    KafkaController|TimeSinceLastHeartbeatReceivedMs||
kafka_controller_kafkacontroller_metadataerrorcount|kafka.controller|KafkaController|MetadataErrorCount||
kafka_controller_kafkacontroller_lastappliedrecordoffset|kafka.controller|KafkaController|LastAppliedRecordOffset||
kafka_controller_kafkacontroller_lastappliedrecordtimestamp|kafka.controller|
    KafkaController|LastAppliedRecordTimestamp||
kafka_controller_kafkacontroller_lastappliedrecordlagms|kafka.controller|KafkaController|LastAppliedRecordLagMs||
kafka_controller_kafkacontroller_lastcommittedrecordoffset|kafka.controller|
    KafkaController|LastCommittedRecordOffset||
kafka_controller_kafkacontroller_newactivecontrollerscount|kafka.controller|
    KafkaController|NewActiveControllersCount||
kafka_controller_kafkacontroller_eventqueueoperationsstartedcount|kafka.controller|
    KafkaController|EventQueueOperationsStartedCount||
kafka_controller_kafkacontroller_eventqueueoperationstimedoutcount|kafka.controller|
    KafkaController|EventQueueOperationsTimedOutCount||
kafka_controller_kafkacontroller_timedoutbrokerheartbeatcount|kafka.controller|
    KafkaController|TimedOutBrokerHeartbeatCount||
kafka_controller_kafkacontroller_ignoredstaticvoters|kafka.controller|KafkaController|IgnoredStaticVoters||
kafka_controller_controllerstats_electionfromeligibleleaderreplicas|kafka.controller|
    ControllerStats|ElectionFromEligibleLeaderReplicasPerSec||
kafka_controller_controllereventmanager_eventqueuetimems|kafka.controller|ControllerEventManager|EventQueueTimeMs||
kafka_controller_controllereventmanager_eventqueueprocessingtimems|kafka.controller|
    ControllerEventManager|EventQueueProcessingTimeMs||
kafka_server_raftmetrics_log_end_epoch|kafka.server|raft-metrics|||log-end-epoch
kafka_server_raftmetrics_number_of_voters|kafka.server|raft-metrics|||number-of-voters
kafka_server_raftmetrics_number_of_observers|kafka.server|raft-metrics|||number-of-observers
kafka_server_raftmetrics_uncommitted_voter_change|kafka.server|raft-metrics|||uncommitted-voter-change
kafka_server_raftmetrics_number_unknown_voter_connections|kafka.server|raft-metrics|||number-unknown-voter-connections
kafka_server_raftmetrics_commit_latency_avg|kafka.server|raft-metrics|||commit-latency-avg
kafka_server_raftmetrics_commit_latency_max|kafka.server|raft-metrics|||commit-latency-max
kafka_server_raftmetrics_election_latency_avg|kafka.server|raft-metrics|||election-latency-avg
kafka_server_raftmetrics_election_latency_max|kafka.server|raft-metrics|||election-latency-max
kafka_server_raftmetrics_poll_idle_ratio_avg|kafka.server|raft-metrics|||poll-idle-ratio-avg
kafka_server_metadataloader_currentcontrollerid|kafka.server|MetadataLoader|CurrentControllerId||
kafka_server_metadataloader_currentmetadataversion|kafka.server|MetadataLoader|CurrentMetadataVersion||
kafka_server_metadataloader_handleloadsnapshotcount|kafka.server|MetadataLoader|HandleLoadSnapshotCount||
kafka_server_metadataloader_finalizedlevel|kafka.server|MetadataLoader|FinalizedLevel|featureName|
kafka_server_snapshotemitter_latestsnapshotgeneratedagems|kafka.server|SnapshotEmitter|LatestSnapshotGeneratedAgeMs||
kafka_server_snapshotemitter_latestsnapshotgeneratedbytes|kafka.server|SnapshotEmitter|LatestSnapshotGeneratedBytes||
"""
_METERS = ("both", "counter")
_TIMERS = frozenset({"kafka_log_logflushstats_logflushrateandtimems"})
_IDLE = "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent"
"""A meter in Kafka, whose rate over a minute is the share that dashboards show."""
PERCENTILES = {quantile: f"{quantile.removeprefix('0.').rstrip('0'):0<2}thPercentile" for quantile in QUANTILES}


class Bean(NamedTuple):
    """Where JMX has a family; `keys` are its properties besides type and name."""

    family: Family
    domain: str
    kind: str
    name: str
    keys: tuple[str, ...]
    attribute: str


class Said(NamedTuple):
    """An attribute of a bean: `properties` are those besides type and name."""

    bean: Bean
    properties: tuple[tuple[str, str], ...]
    attribute: str
    value: float


def _beans() -> tuple[Bean, ...]:
    known = {family.name: family for _, rows in SECTIONS for family in rows}
    made = []
    for line in _ROWS.strip().replace("\n    ", "").split("\n"):
        family, domain, kind, name, keys, attribute = line.split("|")
        labels = tuple(keys.split(",")) if keys else known[family].labels
        made.append(Bean(known[family], domain, kind, name, labels, attribute))
    return tuple(made)


BEANS = _beans()


def said(values: Found, rates: RecentRates) -> Iterator[Said]:
    """What all beans say."""
    for bean in BEANS:
        for key, value in values.get(bean.family.name, {}).items():
            # A property without a value is left out of a bean's name.
            properties = tuple((name, text) for name, text in zip(bean.keys, key, strict=False) if text)
            for attribute, number in _attributes(bean, key, value, rates):
                yield Said(bean, properties, attribute, number)


def _attributes(bean: Bean, key: Labels, value: float | Summary, rates: RecentRates) -> Iterator[tuple[str, float]]:
    family = bean.family.name
    if isinstance(value, Summary):
        yield "Count", value.number
        yield "Mean", value.total / value.number if value.number else 0.0
        for quantile, number in zip(QUANTILES, value.quantiles, strict=False):
            yield PERCENTILES[quantile], number
        if family in _TIMERS:
            yield "OneMinuteRate", rates.rate((family, *key), value.number)
    elif bean.attribute:
        yield bean.attribute, value
    elif family == _IDLE:
        yield "OneMinuteRate", value
    elif bean.family.kind in _METERS:
        yield "Count", value
        yield "OneMinuteRate", rates.rate((family, *key), value)
    else:
        yield "Value", value
