"""Settings of topics, in the order in which Kafka checks them.

One row each, `name|type|default|broker settings behind it|check|status|meaning`; an indented line continues the
row above it.  `kbroker.config.row` explains the columns.
"""

from __future__ import annotations

TOPIC_ROWS = """
segment.bytes|INT|1073741824|log.segment.bytes|>=1048576|+|roll the active segment at this size
segment.ms|LONG|604800000|log.roll.ms>log.roll.hours|>=1|+|roll the active segment at this age
segment.jitter.ms|LONG|0|log.roll.jitter.ms>log.roll.jitter.hours|>=0|+|random reduction of segment.ms to spread rolls
segment.index.bytes|INT|10485760|log.index.size.max.bytes|>=4|+|
    preallocated size of offset/time index; full index forces a roll
flush.messages|LONG|9223372036854775807|log.flush.interval.messages|>=1|+|fsync after this many records
flush.ms|LONG|9223372036854775807|log.flush.interval.ms>log.flush.scheduler.interval.ms|>=0|+|
    fsync at this time interval
retention.bytes|LONG|-1|log.retention.bytes||+|per-partition size cap for delete policy; -1 none
retention.ms|LONG|604800000|log.retention.ms>log.retention.minutes>log.retention.hours|>=-1|+|
    age cap for delete policy; -1 none
max.message.bytes|INT|1048588|message.max.bytes|>=0|+|largest accepted (compressed) batch
index.interval.bytes|INT|4096|log.index.interval.bytes|>=0|+|bytes between sparse index entries
delete.retention.ms|LONG|86400000|log.cleaner.delete.retention.ms|>=0|+|
    how long tombstones and txn markers survive compaction
min.compaction.lag.ms|LONG|0|log.cleaner.min.compaction.lag.ms|>=0|+|records younger than this are not compacted
max.compaction.lag.ms|LONG|9223372036854775807|log.cleaner.max.compaction.lag.ms|>=1|+|
    force compaction once the oldest dirty record is this old
file.delete.delay.ms|LONG|60000|log.segment.delete.delay.ms|>=0|+|
    wait between renaming a segment to .deleted and unlinking it
min.cleanable.dirty.ratio|DOUBLE|0.5|log.cleaner.min.cleanable.ratio|0..1|+|
    dirty/total ratio that makes a log eligible for compaction
cleanup.policy|LIST|delete|log.cleanup.policy|each of compact, delete|+|
    delete, compact, both, or (newer) empty = keep forever
unclean.leader.election.enable|BOOLEAN|false|unclean.leader.election.enable||+|
    permit non-ISR replica as leader (data-loss risk)
min.insync.replicas|INT|1|min.insync.replicas|>=1|+|ISR size needed for acks=all writes; also gates HW with ELR
compression.type|STRING|producer|compression.type|one of uncompressed, zstd, lz4, snappy, gzip, producer|+|
    final codec: producer (keep), uncompressed, gzip, snappy, lz4, zstd
compression.gzip.level|INT|-1|compression.gzip.level|1..9 or -1|+|level used when broker recompresses with gzip
compression.lz4.level|INT|9|compression.lz4.level|1..17|+|level used when broker recompresses with lz4
compression.zstd.level|INT|3|compression.zstd.level|-131072..22|+|level used when broker recompresses with zstd
preallocate|BOOLEAN|false|log.preallocate||+|preallocate segment file
message.timestamp.type|STRING|CreateTime|log.message.timestamp.type|one of CreateTime, LogAppendTime|+|
    CreateTime or LogAppendTime
message.timestamp.before.max.ms|LONG|9223372036854775807|log.message.timestamp.before.max.ms|>=0|+|
    max age of record timestamp vs broker clock
message.timestamp.after.max.ms|LONG|3600000|log.message.timestamp.after.max.ms|>=0|+|
    max future skew of record timestamp
leader.replication.throttled.replicas|LIST|||replicas|+|partition:broker pairs (or *) throttled on leader
follower.replication.throttled.replicas|LIST|||replicas|+|partition:broker pairs (or *) throttled on follower
remote.storage.enable|BOOLEAN|false|||- tiered|turn on tiered storage for topic
local.retention.ms|LONG|-2|log.local.retention.ms|>=-2|- tiered|age kept locally when tiered; -2 means retention.ms
local.retention.bytes|LONG|-2|log.local.retention.bytes|>=-2|- tiered|
    bytes kept locally when tiered; -2 means retention.bytes
remote.log.copy.disable|BOOLEAN|false|||- tiered|stop uploading; tiered data read-only
remote.log.delete.on.disable|BOOLEAN|false|||- tiered|erase tiered data when tiering is switched off
message.format.version|STRING|3.0-IV1|log.message.format.version|message format|+i|
    Kafka release whose message format records are stored in: before 0.10 magic 0, before 0.11 magic 1, else batches
message.downconversion.enable|BOOLEAN|true|log.message.downconversion.enable||+i|
    whether consumers that know older formats only are given records in these; else they get UNSUPPORTED_VERSION
confluent.key.schema.validation|BOOLEAN|false|||+i|
    whether each key that is not null has to name a schema that the registry has (docs/schemas.md)
confluent.value.schema.validation|BOOLEAN|false|||+i|
    whether each value that is not null has to name a schema that the registry has (docs/schemas.md)
internal.segment.bytes|INT|null|||+i|test-only tiny segments
"""
