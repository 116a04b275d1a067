"""Broker settings of logs: segments, retention, flushing, compaction.

One row each, `name|type|default|dynamic scope|check|status|meaning`; an indented line continues the
row above it.  `kbroker.config.row` explains the columns.
"""

from __future__ import annotations

LOG_ROWS = """
min.insync.replicas|INT|1|cluster|>=1|+|replicas that must have a record before acks=all is answered
num.partitions|INT|1||>=1|+|partitions of topics that are made without saying how many
log.dir|LIST|null||distinct nonempty|+|the data directory, where log.dirs is not set
log.dirs|LIST|null||distinct nonempty|+|data directories, best one for each disk
cordoned.log.dirs|LIST||broker|distinct|+|data directories that get no new partitions; * for all
log.segment.bytes|INT|1073741824|cluster|>=1048576|+|size at which topics without segment.bytes begin a new segment
log.roll.ms|LONG|null|cluster||+|age at which topics without segment.ms begin a new segment
log.roll.hours|INT|168||>=1|+|the same in hours, where log.roll.ms is not set
log.roll.jitter.ms|LONG|null|cluster||+|
    most that is taken off that age at random, so that segments do not all begin at once
log.roll.jitter.hours|INT|0||>=0|+|the same in hours, where log.roll.jitter.ms is not set
log.retention.ms|LONG|null|cluster||+|how long topics without retention.ms keep records; -1 for ever
log.retention.minutes|INT|null|||+|the same in minutes, where log.retention.ms is not set
log.retention.hours|INT|168|||+|the same in hours, where neither of them is set
log.retention.bytes|LONG|-1|cluster||+|how much of each partition topics without retention.bytes keep; -1 for all
log.retention.check.interval.ms|LONG|300000||>=1|+|how often old segments are looked for
log.cleanup.policy|LIST|delete|cluster|each of compact, delete|+|
    what topics without cleanup.policy do with old records: delete or compact
log.index.size.max.bytes|INT|10485760|cluster|>=4|+|size of an index of topics without segment.index.bytes
log.index.interval.bytes|INT|4096|cluster|>=0|+|bytes between index entries of topics without index.interval.bytes
log.flush.interval.messages|LONG|9223372036854775807|cluster|>=1|+|
    records after which topics without flush.messages are fsynced
log.segment.delete.delay.ms|LONG|60000|cluster|>=0|+|how long deleted segments stay on disk under another name
log.flush.scheduler.interval.ms|LONG|9223372036854775807|||+|
    how often logs are looked for that are due for an fsync; flush.ms of topics where nothing else sets it
log.flush.interval.ms|LONG|null|cluster||+|time after which topics without flush.ms are fsynced
log.flush.offset.checkpoint.interval.ms|INT|60000||>=0|+|how often recovery points are saved
log.flush.start.offset.checkpoint.interval.ms|INT|60000||>=0|+|how often the first offsets of logs are saved
log.preallocate|BOOLEAN|false|cluster||+|whether topics without preallocate reserve the space of a segment at once
num.recovery.threads.per.data.dir|INT|2|cluster|>=1|+|
    threads for each data directory that recover logs at the start and flush them at the end
auto.create.topics.enable|BOOLEAN|true|||+|whether asking for a topic that is not there makes it
log.message.format.version|STRING|3.0-IV1||message format|+i|message format of topics without message.format.version
log.message.downconversion.enable|BOOLEAN|true|cluster||+i|whether old consumers are given records in their own format
log.message.timestamp.type|STRING|CreateTime|cluster|one of CreateTime, LogAppendTime|+|
    whose time records of topics without message.timestamp.type have: the producer's (CreateTime) or the broker's
log.message.timestamp.before.max.ms|LONG|9223372036854775807|cluster|>=0|+|
    how far the time of a record may lie in the past
log.message.timestamp.after.max.ms|LONG|3600000|cluster|>=0|+|how far the time of a record may lie in the future
create.topic.policy.class.name|CLASS|null|||x java|plugin that vets CreateTopics
alter.config.policy.class.name|CLASS|null|||x java|plugin that vets config changes
log.initial.task.delay.ms|LONG|30000||>=0|+i|how long after the start the first retention, flush and checkpoint run
log.cleaner.threads|INT|1|cluster|>=0|+|threads that compact logs
log.cleaner.io.max.bytes.per.second|DOUBLE|1.7976931348623157E308|cluster||+|
    most bytes a second that compaction reads and writes
log.cleaner.dedupe.buffer.size|LONG|134217728|cluster||+|
    memory for the keys of logs that are being compacted, for all threads together
log.cleaner.io.buffer.size|INT|524288|cluster|>=0|+|
    memory for reading and writing in compaction, for all threads together
log.cleaner.io.buffer.load.factor|DOUBLE|0.9|cluster||+|
    how full the map of keys may become; fuller takes more in one pass and is slower
log.cleaner.backoff.ms|LONG|15000|cluster|>=0|+|how often logs to compact are looked for
log.cleaner.min.cleanable.ratio|DOUBLE|0.5|cluster|0..1|+|part of a log that must be new before it is compacted
log.cleaner.enable|BOOLEAN|true|||+|whether logs are compacted at all
log.cleaner.delete.retention.ms|LONG|86400000|cluster|>=0|+|
    how long tombstones stay in logs of topics without delete.retention.ms
log.cleaner.min.compaction.lag.ms|LONG|0|cluster|>=0|+|time for which records are not compacted
log.cleaner.max.compaction.lag.ms|LONG|9223372036854775807|cluster|>=1|+|
    time after which records are compacted however clean the log is
"""
