"""Broker settings of logs: segments, retention, flushing, compaction.

One row each, `name|type|default|dynamic scope|check|status|meaning`; an indented line continues the
row above it.  `kbroker.config.row` explains the columns.
"""

from __future__ import annotations

LOG_ROWS = """
min.insync.replicas|INT|1|cluster|>=1|+|ISR size needed for acks=all writes; also gates HW with ELR
num.partitions|INT|1||>=1|+|partitions for auto-created topics and -1 in CreateTopics
log.dir|LIST|null||distinct nonempty|+|single data dir (fallback of log.dirs)
log.dirs|LIST|null||distinct nonempty|+|JBOD data dirs
cordoned.log.dirs|LIST||broker|distinct|+|dirs that receive no new partitions (4.3+)
log.segment.bytes|INT|1073741824|cluster|>=1048576|+|broker default of segment.bytes
log.roll.ms|LONG|null|cluster||+|broker default of segment.ms
log.roll.hours|INT|168||>=1|+|same in hours (lower priority)
log.roll.jitter.ms|LONG|null|cluster||+|broker default of segment.jitter.ms
log.roll.jitter.hours|INT|0||>=0|+|same in hours
log.retention.ms|LONG|null|cluster||+|broker default of retention.ms
log.retention.minutes|INT|null|||+|same in minutes
log.retention.hours|INT|168|||+|same in hours
log.retention.bytes|LONG|-1|cluster||+|broker default of retention.bytes
log.retention.check.interval.ms|LONG|300000||>=1|+|how often retention scans run
log.cleanup.policy|LIST|delete|cluster|each of compact, delete|+|broker default of cleanup.policy
log.index.size.max.bytes|INT|10485760|cluster|>=4|+|broker default of segment.index.bytes
log.index.interval.bytes|INT|4096|cluster|>=0|+|broker default of index.interval.bytes
log.flush.interval.messages|LONG|9223372036854775807|cluster|>=1|+|broker default of flush.messages
log.segment.delete.delay.ms|LONG|60000|cluster|>=0|+|broker default of file.delete.delay.ms
log.flush.scheduler.interval.ms|LONG|9223372036854775807|||+|how often the flusher looks for logs to fsync
log.flush.interval.ms|LONG|null|cluster||+|broker default of flush.ms
log.flush.offset.checkpoint.interval.ms|INT|60000||>=0|+|how often recovery-point checkpoint is written
log.flush.start.offset.checkpoint.interval.ms|INT|60000||>=0|+|how often log-start-offset checkpoint is written
log.preallocate|BOOLEAN|false|cluster||+|broker default of preallocate
num.recovery.threads.per.data.dir|INT|2|cluster|>=1|+|threads per dir for start-up recovery and shutdown flush
auto.create.topics.enable|BOOLEAN|true|||+|create topics on metadata lookup
log.message.format.version|STRING|3.0-IV1||message format|+i|broker default of message.format.version
log.message.downconversion.enable|BOOLEAN|true|cluster||+i|broker default of message.downconversion.enable
log.message.timestamp.type|STRING|CreateTime|cluster|one of CreateTime, LogAppendTime|+|broker default
log.message.timestamp.before.max.ms|LONG|9223372036854775807|cluster|>=0|+|broker default
log.message.timestamp.after.max.ms|LONG|3600000|cluster|>=0|+|broker default
create.topic.policy.class.name|CLASS|null|||x java|plugin that vets CreateTopics
alter.config.policy.class.name|CLASS|null|||x java|plugin that vets config changes
log.initial.task.delay.ms|LONG|30000||>=0|+i|delay before first background log tasks
log.cleaner.threads|INT|1|cluster|>=0|+|compaction threads
log.cleaner.io.max.bytes.per.second|DOUBLE|1.7976931348623157E308|cluster||+|compaction read+write throttle
log.cleaner.dedupe.buffer.size|LONG|134217728|cluster||+|total memory of key-offset map
log.cleaner.io.buffer.size|INT|524288|cluster|>=0|+|total compaction I/O buffers
log.cleaner.io.buffer.load.factor|DOUBLE|0.9|cluster||+|max fill of the dedupe map
log.cleaner.backoff.ms|LONG|15000|cluster|>=0|+|sleep when nothing to compact
log.cleaner.min.cleanable.ratio|DOUBLE|0.5|cluster|0..1|+|broker default of min.cleanable.dirty.ratio
log.cleaner.enable|BOOLEAN|true|||+|run compaction (deprecated switch)
log.cleaner.delete.retention.ms|LONG|86400000|cluster|>=0|+|broker default of delete.retention.ms
log.cleaner.min.compaction.lag.ms|LONG|0|cluster|>=0|+|broker default
log.cleaner.max.compaction.lag.ms|LONG|9223372036854775807|cluster|>=1|+|broker default
"""
