"""Broker settings of tiered storage.

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
