"""Broker settings of the node itself: listeners, connections, roles, quotas, metrics.

One row each, `name|type|default|dynamic scope|check|status|meaning`; an indented line continues the
row above it.  `kbroker.config.row` explains the columns.
"""

from __future__ import annotations

SERVER_ROWS = """
metrics.listener|STRING|http://127.0.0.1:9644||metrics listener|+|
    address of /metrics, /healthz, /readyz and /console/, http:// or https://; none turns it off
kbroker.metrics.authentication|LIST|||distinct|+|
    how those who look at metrics.listener prove who they are: basic (a user with SCRAM credentials, or of PLAIN),
    bearer (the token below); none: not at all; unset: as none without security, and no viewer may look where clients
    authenticate or an authorizer is set
kbroker.metrics.bearer.token|PASSWORD|null|||+|the token of a bearer at metrics.listener, such as Prometheus
kbroker.metrics.bearer.principal|STRING|User:metrics|||+|the principal that the bearer is, for ACLs
kbroker.metrics.names|STRING|kbroker||one of kbroker, kafka, kafka-raw, kafka-raw-lower, kafka-raw-total, kafka-flat,
    kafka-flat-mixed, kafka-plain, kafka-plain-mixed, kafka-bitnami, kafka-cp-helm, kafka-sysdig|+|
    names of the metrics at /metrics: kbroker, kafka (those of Kafka's exporters, docs/metrics-kafka.md), or another
    naming of Kafka's (kafka-raw is JMX exporter without rules); all are at /metrics/kbroker, /metrics/kafka and
    /metrics/kafka/raw and so on
kbroker.metrics.max.partitions|INT|2000||>=0|+|
    partitions up to which /metrics has series for each of them; beyond it sums by topic
kbroker.console.enable|BOOLEAN|true|||+|web pages about the broker, /console/ at metrics.listener (docs/console.md)
kbroker.console.messages|STRING|loopback||one of loopback, published, always, never|+|
    where the console shows records: `loopback` only while metrics.listener is an address of this machine alone;
    `published`, in a container, to viewers on the container's own machine, for a port that is published to 127.0.0.1
    and nowhere else; the listener knows no users, so with `always` everybody who reaches it reads every topic
kbroker.console.manage|BOOLEAN|false|||+|
    whether the console also changes things, as the viewer's principal (docs/console.md); to those who prove nothing
    only while metrics.listener is an address of this machine alone and the broker has no authorizer
kbroker.console.links|LIST|||distinct|+|
    consoles of other clusters that this one links to and asks for one page of all of them, each
    `name=https://host:port/console/`
kbroker.console.hosts|LIST|||distinct|+|
    names under which /metrics, /logs and the console are asked for, besides addresses, localhost, names without a dot
    and the hosts of listeners; others are refused
kbroker.console.masks|LIST|||masks|+|
    fields of records that the console hides from viewers who may not ALTER the topic, and from those who prove nothing:
    topic:value.path.to.field, topic:key or topic:header.name; a topic that ends in * is the beginning of names
kbroker.schema.registry.url|LIST|||urls|+|
    the schema registry by which the console decodes records: its http:// or https:// URL, or several of the same one;
    unset: confluent.schema.registry.url
kbroker.schema.registry.user.info|PASSWORD|null|||+|user:password for the registry
kbroker.schema.registry.ca.file|STRING|null|||+|
    PEM file of the authorities that sign the registry's certificate; unset: those of the system
kbroker.schema.files|LIST|||schema files|+|
    schemas by which the console decodes records without a registry: topic/key=file or topic/value=file, the file ending
    in .avsc, .proto or .json (docs/schemas.md)
confluent.schema.registry.url|LIST|||urls|+|
    the schema registry that topics with confluent.key.schema.validation or confluent.value.schema.validation ask:
    its URL, or several of the same one
socket.busy.poll.us|INT|50||0..1000|+|
    how long the loop looks for the next request before it sleeps, while requests follow each other so closely; 0: not
socket.tcp.congestion|STRING|null|||+|
    TCP congestion control of client connections; unset leaves the system's choice, but for connections from the same
    host where that is bbr: they use reno, since bbr's pacing halves their rate
socket.tcp.notsent.lowat|INT|524288||>=131072|+|
    bytes of answers that a connection leaves with the kernel beyond those that are on their way to the client
    (TCP_NOTSENT_LOWAT): what a slow consumer may take of the kernel's memory; 2147483647 for no bound
kbroker.workers|STRING|1||workers|+|
    processes that serve as brokers of one cluster on this host, with ports and directories of their own, or auto: one
    for each core; docs/workers.md
kbroker.accept.strays|BOOLEAN|false|||+|
    whether a start may set aside more partitions as -stray than it keeps, for those are in no topic of the metadata
    store (kbroker start --accept-strays); for one start, docs/operations.md
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
kbroker.tls.kernel|STRING|auto||one of auto, off|+|
    whether the kernel encrypts records that are sent over TLS 1.3, by sendfile: auto where it has TLS (the module tls)
    and passes a trial at the start, which the log names; off: OpenSSL encrypts all
listeners|LIST|PLAINTEXT://127.0.0.1:9092|broker|distinct nonempty|+|
    where clients connect: name://host:port, …; an empty host means every interface
advertised.listeners|LIST|null||distinct nonempty|+|addresses that clients connect to; unset: the listeners
listener.security.protocol.map|STRING|
    SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT|broker||+|
    which protocol (PLAINTEXT, SSL, SASL_…) each listener name speaks
socket.send.buffer.bytes|INT|-1|||+|size of a connection's send buffer (SO_SNDBUF); -1 leaves it to the system
socket.receive.buffer.bytes|INT|-1|||+|size of a connection's receive buffer (SO_RCVBUF); -1 leaves it to the system
socket.request.max.bytes|INT|104857600||>=1|+|the largest request that is read; a connection that sends more is closed
socket.listen.backlog.size|INT|4096||>=1|+|connections that the system keeps until the broker accepts them
max.connections.per.ip|INT|2147483647|cluster|>=0|+|connections from one address at a time
max.connections.per.ip.overrides|STRING||cluster|address counts|+|
    exceptions to max.connections.per.ip, as address:number
max.connections|INT|2147483647|cluster|>=0|+|connections at a time; of a single listener beside that
max.connection.creation.rate|INT|2147483647|cluster|>=0|+|
    new connections a second; for one listener as listener.name.NAME.max.connection.creation.rate
connections.max.idle.ms|LONG|600000|||+|connections that ask for nothing for so long are closed
connection.failed.authentication.delay.ms|INT|100||>=0|+|delay close after auth failure
queued.max.requests|INT|500||>=1|- threads|request-queue length
queued.max.request.bytes|LONG|268435456|||+|
    memory for requests that are being read; connections wait until there is room again
num.network.threads|INT|3|cluster|>=1|+|
    threads per listener: the loop, and for large fetches, and batches that several clients send at once, up to 8 and 7
    others, as far as there are processors
compression.type|STRING|producer|cluster|one of uncompressed, zstd, lz4, snappy, gzip, producer|+|
    how records are stored: as the producer sent them (producer), or compressed anew
compression.gzip.level|INT|-1|cluster|1..9 or -1|+|level where the broker compresses with gzip
compression.lz4.level|INT|9|cluster|1..17|+|level where the broker compresses with lz4
compression.zstd.level|INT|3|cluster|-131072..22|+|level where the broker compresses with zstd
broker.id|INT|-1|||+|older name of node.id
message.max.bytes|INT|1048588|cluster|>=0|+|largest batch that a topic without max.message.bytes takes
num.io.threads|INT|8|cluster|>=1|- threads|request handler threads
num.replica.alter.log.dirs.threads|INT|null|||+|
    partitions that are moved between directories at a time; unset: one for each directory
background.threads|INT|10|cluster|>=1|- threads|misc background pool
config.providers|LIST||cluster|distinct|+|
    names of providers of values (`${name:path:key}`), each with a `.class` among Kafka's own for files, directories and
    the environment
authorizer.class.name|STRING|||authorizer class|+|
    the authorizer that looks at ACLs: org.apache.kafka.metadata.authorizer.StandardAuthorizer, or its names of Kafka
    with ZooKeeper; without one everybody may do everything
super.users|STRING|||principals|+|whom the authorizer lets do everything: User:alice;User:bob
allow.everyone.if.no.acl.found|BOOLEAN|false|||+|whether everybody may do everything to what no ACL is about
early.start.listeners|LIST|null||distinct|- authorizer|listeners opened before the authorizer is ready
broker.rack|STRING|null|||+|where this broker stands; replicas are spread over racks, and consumers may read nearby
delete.topic.enable|BOOLEAN|true|||+|whether topics may be deleted
max.incremental.fetch.session.cache.slots|INT|1000||>=0|+|
    consumers whose fetch sessions are remembered, so that they ask only for what changed
fetch.max.bytes|INT|57671680||>=1024|+|most bytes in one answer to a fetch, however much is asked for
max.request.partition.size.limit|INT|2000||>=1|+|
    most partitions in one answer to DescribeTopicPartitions; tools ask again for the rest
unstable.api.versions.enable|BOOLEAN|false|||-i unreleased|advertise unreleased API versions
unstable.feature.versions.enable|BOOLEAN|false|||-i unreleased|allow unreleased feature levels
process.roles|LIST|broker,controller||each of broker, controller|+|
    what a node is: its whole cluster, or with `broker` alone a broker of a KRaft cluster
node.id|INT|1||>=0|+|the broker's number in its cluster
controller.listener.names|LIST|||distinct nonempty|+|
    listeners of KRaft controllers, the first is how a broker reaches them
sasl.mechanism.controller.protocol|STRING|GSSAPI|||+|mechanism to controllers
unclean.leader.election.enable|BOOLEAN|false|cluster||+|
    whether a replica that lacks records may lead where no other is there; loses those records
default.replication.factor|INT|1|||+|replicas of topics that are made without saying how many
replica.high.watermark.checkpoint.interval.ms|LONG|5000|||+|how often the high watermarks are saved
fetch.purgatory.purge.interval.requests|INT|1000|||- purgatory|purge trigger of fetch purgatory
producer.purgatory.purge.interval.requests|INT|1000|||- purgatory|purge trigger of produce purgatory
delete.records.purgatory.purge.interval.requests|INT|1|||- purgatory|purge trigger of delete-records purgatory
security.inter.broker.protocol|STRING|PLAINTEXT||one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL|+|
    protocol between brokers
follower.fetch.last.tiered.offset.enable|BOOLEAN|false|cluster||- tiered|empty follower starts at last tiered offset
quota.window.num|INT|11||>=1|+|samples over which the rate of a client quota is measured
alter.log.dirs.replication.quota.window.num|INT|11||>=1|- pace|samples kept for dir moves
controller.quota.window.num|INT|11||>=1|+|samples over which the quota of controller mutations is measured
quota.window.size.seconds|INT|1||>=1|+|how long one sample of a client quota is
alter.log.dirs.replication.quota.window.size.seconds|INT|1||>=1|- pace|sample width
controller.quota.window.size.seconds|INT|1||>=1|+|how long one sample of that quota is
client.quota.callback.class|CLASS|null|||x java|quota plugin
replica.alter.log.dirs.io.max.bytes.per.second|LONG|9223372036854775807|cluster|>=0|+|
    most bytes a second that moves between directories copy
metrics.num.samples|INT|2||>=1|- metrics|samples per metric
metrics.sample.window.ms|LONG|30000||>=1|- metrics|sample window
metric.reporters|LIST|org.apache.kafka.common.metrics.JmxReporter|cluster|distinct|x class|reporter plugins
metrics.recording.level|STRING|INFO|||- metrics|INFO/DEBUG/TRACE
telemetry.max.bytes|INT|1048576||>=1|+|largest push of client metrics
kafka.metrics.polling.interval.secs|INT|10||>=1|- metrics|period of the legacy metrics reporters
kafka.metrics.reporters|LIST||||x java|legacy metrics reporter plugins
"""
