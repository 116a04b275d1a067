"""The same figures as JMX exporter names them without rules: `/metrics/kafka/raw`.

A bean `kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec,topic=t` with the attribute Count becomes
`kafka_server_BrokerTopicMetrics_Count{name="MessagesInPerSec",topic="t"}`.  Yammer's gauges have the attribute Value,
meters Count, histograms Count, Mean and percentiles.  One row each, `family|domain|type|name`; where there is a fifth
column it has the labels by their keys in the bean.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from kbroker.metrics.kafka_rows import Found, Summary
from kbroker.metrics.kafka_table import SECTIONS
from kbroker.metrics.maintenance import Family
from kbroker.metrics.percentiles import QUANTILES

if TYPE_CHECKING:
    from prometheus_client.core import Metric

_ROWS = """
kafka_server_brokertopicmetrics_messagesin|kafka_server|BrokerTopicMetrics|MessagesInPerSec
kafka_server_brokertopicmetrics_bytesin|kafka_server|BrokerTopicMetrics|BytesInPerSec
kafka_server_brokertopicmetrics_bytesout|kafka_server|BrokerTopicMetrics|BytesOutPerSec
kafka_server_brokertopicmetrics_totalproducerequests|kafka_server|BrokerTopicMetrics|TotalProduceRequestsPerSec
kafka_server_brokertopicmetrics_failedproducerequests|kafka_server|BrokerTopicMetrics|FailedProduceRequestsPerSec
kafka_server_brokertopicmetrics_totalfetchrequests|kafka_server|BrokerTopicMetrics|TotalFetchRequestsPerSec
kafka_server_brokertopicmetrics_failedfetchrequests|kafka_server|BrokerTopicMetrics|FailedFetchRequestsPerSec
kafka_server_brokertopicmetrics_replicationbytesin|kafka_server|BrokerTopicMetrics|ReplicationBytesInPerSec
kafka_server_brokertopicmetrics_replicationbytesout|kafka_server|BrokerTopicMetrics|ReplicationBytesOutPerSec
kafka_server_brokertopicmetrics_reassignmentbytesin|kafka_server|BrokerTopicMetrics|ReassignmentBytesInPerSec
kafka_server_brokertopicmetrics_reassignmentbytesout|kafka_server|BrokerTopicMetrics|ReassignmentBytesOutPerSec
kafka_server_brokertopicmetrics_producemessageconversions|kafka_server|BrokerTopicMetrics|ProduceMessageConversionsPerSec
kafka_server_brokertopicmetrics_fetchmessageconversions|kafka_server|BrokerTopicMetrics|FetchMessageConversionsPerSec
kafka_server_kafkaserver_brokerstate|kafka_server|KafkaServer|BrokerState
kafka_server_kafkaserver_linux_disk_read_bytes|kafka_server|KafkaServer|linux-disk-read-bytes
kafka_server_kafkaserver_linux_disk_write_bytes|kafka_server|KafkaServer|linux-disk-write-bytes
kafka_server_replicamanager_leadercount|kafka_server|ReplicaManager|LeaderCount
kafka_server_replicamanager_partitioncount|kafka_server|ReplicaManager|PartitionCount
kafka_server_replicamanager_offlinereplicacount|kafka_server|ReplicaManager|OfflineReplicaCount
kafka_server_replicamanager_underreplicatedpartitions|kafka_server|ReplicaManager|UnderReplicatedPartitions
kafka_server_replicamanager_underminisrpartitioncount|kafka_server|ReplicaManager|UnderMinIsrPartitionCount
kafka_server_replicamanager_atminisrpartitioncount|kafka_server|ReplicaManager|AtMinIsrPartitionCount
kafka_server_replicamanager_reassigningpartitions|kafka_server|ReplicaManager|ReassigningPartitions
kafka_server_replicamanager_isrshrinks|kafka_server|ReplicaManager|IsrShrinksPerSec
kafka_server_replicamanager_isrexpands|kafka_server|ReplicaManager|IsrExpandsPerSec
kafka_server_replicamanager_failedisrupdates|kafka_server|ReplicaManager|FailedIsrUpdatesPerSec
kafka_server_replicafetchermanager_maxlag|kafka_server|ReplicaFetcherManager|MaxLag|clientId
kafka_server_replicafetchermanager_minfetchrate|kafka_server|ReplicaFetcherManager|MinFetchRate|clientId
kafka_server_replicafetchermanager_failedpartitionscount|kafka_server|ReplicaFetcherManager|FailedPartitionsCount|clientId
kafka_server_fetchsessioncache_numincrementalfetchsessions|kafka_server|FetchSessionCache|NumIncrementalFetchSessions
kafka_server_fetchsessioncache_numincrementalfetchpartitionscached|kafka_server|FetchSessionCache|
    NumIncrementalFetchPartitionsCached
kafka_server_fetchsessioncache_incrementalfetchsessionevictions|kafka_server|FetchSessionCache|
    IncrementalFetchSessionEvictionsPerSec
kafka_server_delayedoperationpurgatory_purgatorysize|kafka_server|DelayedOperationPurgatory|PurgatorySize|delayedOperation
kafka_server_delayedoperationpurgatory_numdelayedoperations|kafka_server|DelayedOperationPurgatory|
    NumDelayedOperations|delayedOperation
kafka_controller_kafkacontroller_activecontrollercount|kafka_controller|KafkaController|ActiveControllerCount
kafka_controller_kafkacontroller_offlinepartitionscount|kafka_controller|KafkaController|OfflinePartitionsCount
kafka_controller_kafkacontroller_preferredreplicaimbalancecount|kafka_controller|KafkaController|
    PreferredReplicaImbalanceCount
kafka_controller_kafkacontroller_globaltopiccount|kafka_controller|KafkaController|GlobalTopicCount
kafka_controller_kafkacontroller_globalpartitioncount|kafka_controller|KafkaController|GlobalPartitionCount
kafka_controller_kafkacontroller_activebrokercount|kafka_controller|KafkaController|ActiveBrokerCount
kafka_controller_controllerstats_uncleanleaderelections|kafka_controller|ControllerStats|UncleanLeaderElectionsPerSec
kafka_log_logmanager_offlinelogdirectorycount|kafka_log|LogManager|OfflineLogDirectoryCount
kafka_log_logmanager_logdirectoryoffline|kafka_log|LogManager|LogDirectoryOffline|logDirectory
kafka_log_logmanager_remaininglogstorecover|kafka_log|LogManager|remainingLogsToRecover|dir
kafka_log_logmanager_remainingsegmentstorecover|kafka_log|LogManager|remainingSegmentsToRecover|threadNum
kafka_log_logcleaner_deadthreadcount|kafka_log|LogCleaner|DeadThreadCount
kafka_log_logcleaner_cleaner_recopy_percent|kafka_log|LogCleaner|cleaner-recopy-percent
kafka_log_logcleaner_max_buffer_utilization_percent|kafka_log|LogCleaner|max-buffer-utilization-percent
kafka_log_logcleaner_max_clean_time_secs|kafka_log|LogCleaner|max-clean-time-secs
kafka_log_logcleanermanager_max_dirty_percent|kafka_log|LogCleanerManager|max-dirty-percent
kafka_log_logcleanermanager_time_since_last_run_ms|kafka_log|LogCleanerManager|time-since-last-run-ms
kafka_log_logcleanermanager_uncleanable_partitions_count|kafka_log|LogCleanerManager|uncleanable-partitions-count|
    logDirectory
kafka_log_logcleanermanager_uncleanable_bytes|kafka_log|LogCleanerManager|uncleanable-bytes|logDirectory
kafka_log_logflushstats_logflushrateandtimems|kafka_log|LogFlushStats|LogFlushRateAndTimeMs
kafka_log_log_size|kafka_log|Log|Size
kafka_log_log_numlogsegments|kafka_log|Log|NumLogSegments
kafka_log_log_logstartoffset|kafka_log|Log|LogStartOffset
kafka_log_log_logendoffset|kafka_log|Log|LogEndOffset
kafka_cluster_partition_replicascount|kafka_cluster|Partition|ReplicasCount
kafka_cluster_partition_insyncreplicascount|kafka_cluster|Partition|InSyncReplicasCount
kafka_cluster_partition_underreplicated|kafka_cluster|Partition|UnderReplicated
kafka_cluster_partition_underminisr|kafka_cluster|Partition|UnderMinIsr
kafka_cluster_partition_atminisr|kafka_cluster|Partition|AtMinIsr
kafka_cluster_partition_laststableoffsetlag|kafka_cluster|Partition|LastStableOffsetLag
kafka_network_requestmetrics_requests|kafka_network|RequestMetrics|RequestsPerSec
kafka_network_requestmetrics_errors|kafka_network|RequestMetrics|ErrorsPerSec
kafka_network_requestmetrics_totaltimems|kafka_network|RequestMetrics|TotalTimeMs
kafka_network_requestmetrics_localtimems|kafka_network|RequestMetrics|LocalTimeMs
kafka_network_requestmetrics_remotetimems|kafka_network|RequestMetrics|RemoteTimeMs
kafka_network_requestmetrics_requestqueuetimems|kafka_network|RequestMetrics|RequestQueueTimeMs
kafka_network_requestchannel_requestqueuesize|kafka_network|RequestChannel|RequestQueueSize
kafka_network_requestchannel_responsequeuesize|kafka_network|RequestChannel|ResponseQueueSize
kafka_network_socketserver_networkprocessoravgidlepercent|kafka_network|SocketServer|NetworkProcessorAvgIdlePercent
kafka_network_acceptor_acceptorblockedpercent|kafka_network|Acceptor|AcceptorBlockedPercent
kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent|kafka_server|KafkaRequestHandlerPool|
    RequestHandlerAvgIdlePercent
kafka_coordinator_group_groupmetadatamanager_numgroups|kafka_coordinator_group|GroupMetadataManager|NumGroups
kafka_coordinator_group_groupmetadatamanager_numgroupsstable|kafka_coordinator_group|GroupMetadataManager|NumGroupsStable
kafka_coordinator_group_groupmetadatamanager_numgroupsempty|kafka_coordinator_group|GroupMetadataManager|NumGroupsEmpty
kafka_coordinator_group_groupmetadatamanager_numgroupspreparingrebalance|kafka_coordinator_group|
    GroupMetadataManager|NumGroupsPreparingRebalance
kafka_coordinator_group_groupmetadatamanager_numgroupscompletingrebalance|kafka_coordinator_group|
    GroupMetadataManager|NumGroupsCompletingRebalance
kafka_coordinator_group_groupmetadatamanager_numgroupsdead|kafka_coordinator_group|GroupMetadataManager|NumGroupsDead
"""
_METERS = ("both", "counter")
_IDLE = "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent"
"""A meter in Kafka, whose rate over a minute is the share that dashboards show."""
_PERCENTILES = {quantile: f"{quantile.removeprefix('0.').rstrip('0'):0<2}thPercentile" for quantile in QUANTILES}


class Bean(NamedTuple):
    """Where JMX has a family; `labels` are its properties besides type and name."""

    family: Family
    metric: str
    name: str
    labels: tuple[str, ...]


def _beans() -> tuple[Bean, ...]:
    known = {family.name: family for _, rows in SECTIONS for family in rows}
    made = []
    for line in _ROWS.strip().replace("\n    ", "").split("\n"):
        family, domain, kind, name, *labels = line.split("|")
        made.append(Bean(known[family], f"{domain}_{kind}", name, tuple(labels) or known[family].labels))
    return tuple(made)


BEANS = _beans()


def bean_families(values: Found) -> Iterator[Metric]:
    """All families, each with the samples of every bean that has its type and attribute."""
    from prometheus_client.core import UnknownMetricFamily

    made: dict[str, Metric] = {}
    for bean in BEANS:
        for attribute, labels, value in _attributes(bean, values):
            name = f"{bean.metric}_{attribute}"
            if name not in made:
                made[name] = UnknownMetricFamily(name, f"Attribute {attribute} of beans of Kafka's {bean.metric}.")
            made[name].add_sample(name, {"name": bean.name, **labels}, value)
    yield from made.values()


def _attributes(bean: Bean, values: Found) -> Iterator[tuple[str, dict[str, str], float]]:
    for key, value in values.get(bean.family.name, {}).items():
        labels = dict(zip(bean.labels, key, strict=False))
        if isinstance(value, Summary):
            yield "Count", labels, value.number
            yield "Mean", labels, value.total / value.number if value.number else 0.0
            for quantile, milliseconds in zip(QUANTILES, value.quantiles, strict=False):
                yield _PERCENTILES[quantile], labels, milliseconds
        elif bean.family.name == _IDLE:
            yield "OneMinuteRate", labels, value
        else:
            yield "Count" if bean.family.kind in _METERS else "Value", labels, value
