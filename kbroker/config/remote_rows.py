"""Broker settings of tiered storage and of Kafka's own metadata quorum.

One row each, `name|type|default|dynamic scope|check|status|meaning`; an indented line continues the
row above it.  `kbroker.config.row` explains the columns.
"""

from __future__ import annotations

REMOTE_ROWS = """
remote.log.storage.system.enable|BOOLEAN|false|||x tiered|tiered storage on
remote.log.storage.manager.class.name|STRING|null||nonempty|- tiered|RemoteStorageManager plugin
remote.log.metadata.manager.class.name|STRING|
    org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager||nonempty|- tiered|
    metadata manager plugin
remote.log.metadata.manager.listener.name|STRING|null||nonempty|- tiered|listener for it
remote.log.metadata.custom.metadata.max.bytes|INT|128||>=0|- tiered|custom segment metadata cap
remote.log.index.file.cache.total.size.bytes|LONG|1073741824|cluster|>=1|- tiered|local cache of remote indexes
remote.log.manager.copier.thread.pool.size|INT|10|cluster|>=1|- tiered|upload threads
remote.log.manager.expiration.thread.pool.size|INT|10|cluster|>=1|- tiered|remote delete threads
remote.log.manager.follower.thread.pool.size|INT|2|cluster|>=1|- tiered|follower threads
remote.log.manager.task.interval.ms|LONG|30000||>=1|- tiered|RLM task period
remote.log.reader.threads|INT|10|cluster|>=1|- tiered|remote read threads
remote.log.reader.max.pending.tasks|INT|100||>=1|- tiered|remote read queue
log.local.retention.ms|LONG|-2|cluster|>=-2|- tiered|broker default of local.retention.ms
log.local.retention.bytes|LONG|-2|cluster|>=-2|- tiered|broker default of local.retention.bytes
remote.log.manager.copy.max.bytes.per.second|LONG|9223372036854775807|cluster|>=1|- tiered|upload quota
remote.log.manager.fetch.max.bytes.per.second|LONG|9223372036854775807|cluster|>=1|- tiered|remote read quota
remote.fetch.max.wait.ms|INT|500|cluster|>=1|- tiered|remote fetch wait
remote.list.offsets.request.timeout.ms|LONG|30000|cluster|>=1|- tiered|remote list-offsets wait
metadata.log.max.record.bytes.between.snapshots|LONG|20971520||>=1|+|
    a broker of a KRaft cluster writes a snapshot of its metadata after so many bytes
metadata.log.max.snapshot.interval.ms|LONG|3600000||>=0|+|and after so long, 0 for never
metadata.log.dir|STRING|null|||+|where __cluster_metadata-0 is; unset: the first of log.dirs
metadata.log.segment.bytes|INT|1073741824||>=8388608|+|size of its segments
metadata.log.segment.ms|LONG|604800000|||+|age of its segments
metadata.max.retention.bytes|LONG|104857600|||+|bytes of it that are kept, with snapshots
metadata.max.retention.ms|LONG|604800000|||+|age of what is kept of it
metadata.max.idle.interval.ms|INT|500||>=0|- quorum|no-op record period
controller.quorum.voters|LIST||||+|the controllers, id@host:port each, of a quorum whose voters do not change
controller.quorum.bootstrap.servers|LIST||||+|where a broker of a KRaft cluster finds its controllers
controller.quorum.election.timeout.ms|INT|1000||>=0|- quorum|no leader fetch before election
controller.quorum.fetch.timeout.ms|INT|2000||>=0|+|
    a controller that does not answer a fetch in this time is left for another
controller.quorum.election.backoff.max.ms|INT|1000||>=0|- quorum|election backoff cap
controller.quorum.append.linger.ms|INT|25||>=0|- quorum|metadata write batching
controller.quorum.request.timeout.ms|INT|2000||>=0|+|
    longest wait for an answer of a controller to the follower of its log
controller.quorum.retry.backoff.ms|INT|20||>=0|+|pause between such requests that fail
controller.quorum.auto.join.enable|BOOLEAN|false|||- quorum|controller joins voters itself
controller.quorum.fetch.snapshot.max.bytes|INT|1048576||>=1|+|bytes of a snapshot asked for at once
controller.quorum.fetch.max.bytes|INT|1048576||>=1|+|bytes of the metadata log asked for at once
remote.log.manager.copy.quota.window.num|INT|11||>=1|- tiered|samples kept for the upload quota
remote.log.manager.copy.quota.window.size.seconds|INT|1||>=1|- tiered|width of a sample of the upload quota
remote.log.manager.fetch.quota.window.num|INT|11||>=1|- tiered|samples kept for the remote read quota
remote.log.manager.fetch.quota.window.size.seconds|INT|1||>=1|- tiered|width of a sample of the remote read quota
remote.log.manager.thread.pool.size|INT|2||>=1|- tiered|threads for remote log tasks
remote.log.metadata.manager.class.path|STRING|null|||- tiered|class path of the metadata manager plugin
remote.log.metadata.manager.impl.prefix|STRING|rlmm.config.||nonempty|- tiered|
    prefix of settings handed to the metadata manager
remote.log.storage.manager.class.path|STRING|null|||- tiered|class path of the storage manager plugin
remote.log.storage.manager.impl.prefix|STRING|rsm.config.||nonempty|- tiered|
    prefix of settings handed to the storage manager
"""
