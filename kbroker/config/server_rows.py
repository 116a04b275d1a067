"""Broker settings of the node itself: listeners, connections, roles, quotas, metrics.

One row each, `name|type|default|dynamic scope|check|status|meaning`; an indented line continues the
row above it.  `kbroker.config.row` explains the columns.
"""

from __future__ import annotations

SERVER_ROWS = """
metrics.listener|STRING|http://127.0.0.1:9644||metrics listener|+|
    address of /metrics, /healthz and /readyz; none turns it off
kbroker.metrics.max.partitions|INT|2000||>=0|+|
    partitions up to which /metrics has series for each of them; beyond it sums by topic
socket.busy.poll.us|INT|50||0..1000|+|
    how long the loop looks for the next request before it sleeps, while requests follow each other so closely; 0: not
socket.tcp.congestion|STRING|null|||+|
    TCP congestion control of client connections; unset leaves the system's choice, but for connections from the same
    host where that is bbr: they use reno, since bbr's pacing halves their rate
socket.tcp.notsent.lowat|INT|524288||>=131072|+|
    bytes of answers that a connection leaves with the kernel beyond those that are on their way to the client
    (TCP_NOTSENT_LOWAT): what a slow consumer may take of the kernel's memory; 2147483647 for no bound
kbroker.log.format|STRING|text||one of text, json|+|log lines for people or for machines
kbroker.log.level|STRING|info||anycase of debug, info, warning, error|+|least severe log lines that are written
kbroker.api.versions|LIST|||distinct|+|
    APIs that are served in fewer versions than kbroker has, such as `Produce:3-13,Fetch:4-`; others in all
kbroker.fsync|STRING|os||one of os, interval, commit|+|
    when records are fsynced: os (by the system), interval, or commit (before they are acknowledged); docs/durability.md
kbroker.fsync.interval.ms|INT|1000||>=1|+|how long records wait for fsync at most with kbroker.fsync=interval
kbroker.disk.reserve.bytes|LONG|67108864|cluster|>=0|+|
    free space in a log directory below which produce is refused there until there is more; 0 turns the watch off
kbroker.max.open.segments|INT|null||>=16|+|
    segments open at a time, each with a file descriptor and up to two maps; the rest of the descriptors (ulimit -n) is
    for connections; unset: a third of the descriptors, and of the others what connections leave, as far as three
    quarters of vm.max_map_count go
kbroker.max.producers|LONG|1000000||>=0|+|
    idempotent producers remembered, at up to 200 bytes for each partition that they write to; beyond it a partition
    with more than 16 forgets the one it has not heard of for longest; 0 for no limit
kbroker.auto.create.answers.at.once|BOOLEAN|false|||+|
    the Metadata answer to the request that creates a topic has the topic, which saves a round trip; false:
    UNKNOWN_TOPIC_OR_PARTITION first, as Kafka answers and some tests of clients expect
listeners|LIST|PLAINTEXT://127.0.0.1:9092|broker|distinct nonempty|+|bind list name://host:port
advertised.listeners|LIST|null||distinct nonempty|+|addresses handed to clients
listener.security.protocol.map|STRING|
    SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT|broker||+|
    listener name to PLAINTEXT/SSL/SASL_*
socket.send.buffer.bytes|INT|-1|||+|SO_SNDBUF; -1 leaves the size to the system
socket.receive.buffer.bytes|INT|-1|||+|SO_RCVBUF; -1 leaves the size to the system
socket.request.max.bytes|INT|104857600||>=1|+|largest accepted request frame
socket.listen.backlog.size|INT|4096||>=1|+|listen backlog
max.connections.per.ip|INT|2147483647|cluster|>=0|+|per-IP connection cap
max.connections.per.ip.overrides|STRING||cluster|address counts|+|per-IP exceptions host:count
max.connections|INT|2147483647|cluster|>=0|+|connection cap (per listener possible)
max.connection.creation.rate|INT|2147483647|cluster|>=0|+|connections a second (per listener possible)
connections.max.idle.ms|LONG|600000|||+|close idle connections
connection.failed.authentication.delay.ms|INT|100||>=0|- security|delay close after auth failure
queued.max.requests|INT|500||>=1|- threads|request-queue length
queued.max.request.bytes|LONG|268435456|||+|request-queue bytes
num.network.threads|INT|3|cluster|>=1|+|
    threads per listener: the loop, and for large fetches, and batches that several clients send at once, up to 8 and 7
    others, as far as there are processors
compression.type|STRING|producer|cluster|one of uncompressed, zstd, lz4, snappy, gzip, producer|+|
    final codec: producer (keep), uncompressed, gzip, snappy, lz4, zstd
compression.gzip.level|INT|-1|cluster|1..9 or -1|+|level used when broker recompresses with gzip
compression.lz4.level|INT|9|cluster|1..17|+|level used when broker recompresses with lz4
compression.zstd.level|INT|3|cluster|-131072..22|+|level used when broker recompresses with zstd
broker.id|INT|-1|||+|legacy id
message.max.bytes|INT|1048588|cluster|>=0|+|broker default of max.message.bytes
num.io.threads|INT|8|cluster|>=1|- threads|request handler threads
num.replica.alter.log.dirs.threads|INT|null|||+|threads moving replicas between dirs
background.threads|INT|10|cluster|>=1|- threads|misc background pool
config.providers|LIST||cluster|distinct|x java|external config providers (file, env, dir)
authorizer.class.name|STRING||||!|ACL plugin (StandardAuthorizer in KRaft)
early.start.listeners|LIST|null||distinct|!|listeners opened before authorizer is ready
broker.rack|STRING|null|||+|rack id for placement and rack-aware fetch
delete.topic.enable|BOOLEAN|true|||+|permit DeleteTopics
max.incremental.fetch.session.cache.slots|INT|1000||>=0|+|fetch-session cache size
fetch.max.bytes|INT|57671680||>=1024|+|server cap of one fetch reply (55 MiB)
max.request.partition.size.limit|INT|2000||>=1|+|cap of partitions in DescribeTopicPartitions reply
unstable.api.versions.enable|BOOLEAN|false|||-i unreleased|advertise unreleased API versions
unstable.feature.versions.enable|BOOLEAN|false|||-i unreleased|allow unreleased feature levels
process.roles|LIST|broker,controller||each of broker, controller|+|broker, controller or both
node.id|INT|1||>=0|+|node id
controller.listener.names|LIST|||distinct nonempty|+|controller listeners
sasl.mechanism.controller.protocol|STRING|GSSAPI|||!|mechanism to controllers
unclean.leader.election.enable|BOOLEAN|false|cluster||+|permit non-ISR replica as leader (data-loss risk)
default.replication.factor|INT|1|||+|RF for auto-created topics and -1
replica.high.watermark.checkpoint.interval.ms|LONG|5000|||+|HW checkpoint interval
fetch.purgatory.purge.interval.requests|INT|1000|||- purgatory|purge trigger of fetch purgatory
producer.purgatory.purge.interval.requests|INT|1000|||- purgatory|purge trigger of produce purgatory
delete.records.purgatory.purge.interval.requests|INT|1|||- purgatory|purge trigger of delete-records purgatory
security.inter.broker.protocol|STRING|PLAINTEXT||one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL|!|
    protocol between brokers
follower.fetch.last.tiered.offset.enable|BOOLEAN|false|cluster||- tiered|empty follower starts at last tiered offset
quota.window.num|INT|11||>=1|+|samples kept for client quotas
alter.log.dirs.replication.quota.window.num|INT|11||>=1|- pace|samples kept for dir moves
controller.quota.window.num|INT|11||>=1|+|samples kept for mutation quota
quota.window.size.seconds|INT|1||>=1|+|sample width
alter.log.dirs.replication.quota.window.size.seconds|INT|1||>=1|- pace|sample width
controller.quota.window.size.seconds|INT|1||>=1|+|sample width
client.quota.callback.class|CLASS|null|||x java|quota plugin
replica.alter.log.dirs.io.max.bytes.per.second|LONG|9223372036854775807|cluster|>=0|+|bytes/s of dir moves
metrics.num.samples|INT|2||>=1|- metrics|samples per metric
metrics.sample.window.ms|LONG|30000||>=1|- metrics|sample window
metric.reporters|LIST|org.apache.kafka.common.metrics.JmxReporter|cluster|distinct|x java|reporter plugins
metrics.recording.level|STRING|INFO|||- metrics|INFO/DEBUG/TRACE
telemetry.max.bytes|INT|1048576||>=1|+|cap of pushed client telemetry
kafka.metrics.polling.interval.secs|INT|10||>=1|- metrics|period of the legacy metrics reporters
kafka.metrics.reporters|LIST||||x java|legacy metrics reporter plugins
"""
