"""Broker settings of group, share and transaction coordinators and their internal topics.

One row each, `name|type|default|dynamic scope|check|status|meaning`; an indented line continues the
row above it.  `kbroker.config.row` explains the columns.
"""

from __future__ import annotations

COORDINATOR_ROWS = """
group.coordinator.rebalance.protocols|LIST|classic,consumer,streams||each of classic, consumer, share, streams|+|
    kinds of groups that are served
group.coordinator.threads|INT|4||>=1|- threads|coordinator event-loop threads
group.coordinator.background.threads|INT|2||>=1|+|threads that match topics against the regular expressions of groups
group.coordinator.append.linger.ms|INT|-1||>=-1|- linger|coordinator write batching; -1 adaptive
offsets.commit.timeout.ms|INT|5000||>=1|+|how long a write of a coordinator waits for replicas and fsync
offsets.load.buffer.size|INT|5242880||>=1|+|bytes that are read at a time where groups are loaded
offsets.topic.replication.factor|SHORT|3||>=1|+|
    replicas of __consumer_offsets; without ZooKeeper no more than there are brokers
offsets.topic.num.partitions|INT|50||>=1|+|partitions of __consumer_offsets; never changed once it is there
offsets.topic.segment.bytes|INT|104857600||>=1|+|segment size of __consumer_offsets, at least 1 MiB
offsets.topic.compression.codec|INT|0|||+|how the state of groups is compressed: 0 not, 1 gzip, 2 snappy, 3 lz4, 4 zstd
group.coordinator.cached.buffer.max.bytes|INT|1048588|cluster|>=524288|- buffers|max reusable write buffer
offset.metadata.max.bytes|INT|4096|||+|largest text that a client may commit beside an offset
offsets.retention.minutes|INT|10080||>=1|+|how long offsets stay that no member of a group uses any more
offsets.retention.check.interval.ms|LONG|600000||>=1|+|how often such offsets are looked for
group.min.session.timeout.ms|INT|6000|||+|shortest session that a classic member may ask for
group.max.session.timeout.ms|INT|1800000|||+|longest session that a classic member may ask for
group.initial.rebalance.delay.ms|INT|0|||+|how long a new classic group waits for more members
group.max.size|INT|2147483647||>=1|+|members of a classic group
group.consumer.session.timeout.ms|INT|45000||>=1|+|how long a silent member of a consumer group stays
group.consumer.min.session.timeout.ms|INT|45000||>=1|+|shortest that a group may set for it
group.consumer.max.session.timeout.ms|INT|60000||>=1|+|longest that a group may set for it
group.consumer.heartbeat.interval.ms|INT|5000||>=1|+|how often members of consumer groups say that they are there
group.consumer.min.heartbeat.interval.ms|INT|5000||>=1|+|shortest that a group may set for it
group.consumer.max.heartbeat.interval.ms|INT|15000||>=1|+|longest that a group may set for it
group.consumer.max.size|INT|2147483647||>=1|+|members of a consumer group
group.consumer.assignors|LIST|uniform,range||some of uniform, range|+|
    assignors that consumer groups may choose; the first is the default
group.consumer.migration.policy|STRING|bidirectional||anycase of bidirectional, upgrade, downgrade, disabled|+|
    which way a live group may go between the classic and the consumer protocol
group.consumer.assignment.interval.ms|INT|1000|cluster|>=0|+|least time between two assignments of a consumer group
group.consumer.min.assignment.interval.ms|INT|0||>=0|+|shortest that a group may set for it
group.consumer.max.assignment.interval.ms|INT|15000||>=0|+|longest that a group may set for it
group.consumer.regex.refresh.interval.ms|INT|600000||>=10000|+i|
    how often the regular expressions of a group are matched anew
group.share.session.timeout.ms|INT|45000||>=1|+|how long a silent member of a share group stays
group.share.min.session.timeout.ms|INT|45000||>=1|+|shortest that a group may set for it
group.share.max.session.timeout.ms|INT|60000||>=1|+|longest that a group may set for it
group.share.heartbeat.interval.ms|INT|5000||>=1|+|how often members of share groups say that they are there
group.share.min.heartbeat.interval.ms|INT|5000||>=1|+|shortest that a group may set for it
group.share.max.heartbeat.interval.ms|INT|15000||>=1|+|longest that a group may set for it
group.share.max.size|INT|200||1..1000|+|members of a share group
group.share.assignors|LIST|simple||some of simple|+|assignors of share groups; there is one
group.share.assignment.interval.ms|INT|1000|cluster|>=0|+|least time between two assignments of a share group
group.share.min.assignment.interval.ms|INT|0||>=0|+|shortest that a group may set for it
group.share.max.assignment.interval.ms|INT|15000||>=0|+|longest that a group may set for it
group.share.initialize.retry.interval.ms|INT|30000||>=1|+|when states of share groups that take so long are begun again
group.streams.session.timeout.ms|INT|45000||>=1|+|how long a silent member of a streams group stays
group.streams.min.session.timeout.ms|INT|45000||>=1|+|shortest that a group may set for it
group.streams.max.session.timeout.ms|INT|60000||>=1|+|longest that a group may set for it
group.streams.heartbeat.interval.ms|INT|5000||>=1|+|how often members of streams groups say that they are there
group.streams.min.heartbeat.interval.ms|INT|5000||>=1|+|shortest that a group may set for it
group.streams.max.heartbeat.interval.ms|INT|15000||>=1|+|longest that a group may set for it
group.streams.max.size|INT|2147483647||>=1|+|members of a streams group
group.streams.num.standby.replicas|INT|0||>=0|+|standby tasks for each task of a streams group
group.streams.max.standby.replicas|INT|2||>=0|+|most that a group may set for it
group.streams.initial.rebalance.delay.ms|INT|3000||>=0|+|how long a new streams group waits for more members
group.streams.assignment.interval.ms|INT|1000|cluster|>=0|+|least time between two assignments of a streams group
group.streams.min.assignment.interval.ms|INT|0||>=0|+|shortest that a group may set for it
group.streams.max.assignment.interval.ms|INT|15000||>=0|+|longest that a group may set for it
group.share.delivery.count.limit|INT|5||2..10|+|how often a record is delivered before a share group gives it up
group.share.max.delivery.count.limit|INT|10||5..25|+|most that a group may set for it
group.share.min.delivery.count.limit|INT|2||2..5|+|least that a group may set for it
group.share.record.lock.duration.ms|INT|30000||1000..3600000|+|how long a member may hold a record before others get it
group.share.min.record.lock.duration.ms|INT|15000||1000..30000|+|shortest that a group may set for it
group.share.max.record.lock.duration.ms|INT|60000||30000..3600000|+|longest that a group may set for it
group.share.partition.max.record.locks|INT|2000||100..10000|+|
    records of a partition that a share group may have under way
group.share.max.partition.max.record.locks|INT|4000||2000..10000|+|most that a group may set for it
group.share.min.partition.max.record.locks|INT|100||100..2000|+|least that a group may set for it
share.fetch.purgatory.purge.interval.requests|INT|1000|||- purgatory|purge trigger
group.share.max.share.sessions|INT|2000||>=1|+|members of share groups whose fetch sessions are remembered
group.share.persister.class.name|STRING|org.apache.kafka.server.share.persister.DefaultStatePersister|||
    xi class|share state store plugin
share.coordinator.state.topic.num.partitions|INT|50||>=1|+|
    partitions of __share_group_state; never changed once it is there
share.coordinator.state.topic.replication.factor|SHORT|3||>=1|+|
    replicas of __share_group_state; without ZooKeeper no more than there are brokers
share.coordinator.state.topic.min.isr|SHORT|2||>=1|+|in-sync replicas that a write to __share_group_state needs
share.coordinator.state.topic.segment.bytes|INT|104857600||>=1|+|segment size of __share_group_state, at least 1 MiB
share.coordinator.threads|INT|1||>=1|- threads|threads
share.coordinator.snapshot.update.records.per.snapshot|INT|500||0..500|+|
    changes of a share-partition's state between two snapshots of it
share.coordinator.load.buffer.size|INT|5242880||>=1|+|bytes that are read at a time where share state is loaded
share.coordinator.state.topic.compression.codec|INT|0|||+|
    how the share state is compressed: 0 not, 1 gzip, 2 snappy, 3 lz4, 4 zstd
share.coordinator.append.linger.ms|INT|-1||>=-1|- linger|write batching
share.coordinator.write.timeout.ms|INT|5000||>=1|+|
    how long a write of the share coordinator waits for replicas and fsync
share.coordinator.state.topic.prune.interval.ms|INT|300000||>=1|+i|
    how often share state that is no longer needed is deleted
share.coordinator.cold.partition.snapshot.interval.ms|INT|300000||>=1|+i|
    how often share-partitions without readers get a snapshot
share.coordinator.cached.buffer.max.bytes|INT|1048588|cluster|>=524288|- buffers|max reusable buffer
transaction.state.log.min.isr|INT|2||>=1|+|in-sync replicas that a write to __transaction_state needs
transaction.state.log.load.buffer.size|INT|5242880||>=1|+|bytes that are read at a time where transactions are loaded
transaction.state.log.replication.factor|SHORT|3||>=1|+|
    replicas of __transaction_state; without ZooKeeper no more than there are brokers
transaction.state.log.num.partitions|INT|50||>=1|+|partitions of __transaction_state; never changed once it is there
transaction.state.log.segment.bytes|INT|104857600||>=1|+|segment size of __transaction_state, at least 1 MiB
transaction.partition.verification.enable|BOOLEAN|true|cluster||+|
    whether a batch is taken only where its transaction is known to hold the partition
producer.id.expiration.ms|INT|86400000|cluster|>=1|+|how long a producer that is silent is remembered in each partition
producer.id.expiration.check.interval.ms|INT|600000||>=1|+i|how often silent producers are looked for
transactional.id.expiration.ms|INT|604800000||>=1|+|how long an unused transactional id is remembered
transaction.max.timeout.ms|INT|900000||>=1|+|longest transaction that a client may ask for
transaction.abort.timed.out.transaction.cleanup.interval.ms|INT|10000||>=1|+|
    how often transactions that have taken too long are looked for
transaction.remove.expired.transaction.cleanup.interval.ms|INT|3600000||>=1|+|
    how often unused transactional ids are looked for
transaction.two.phase.commit.enable|BOOLEAN|false|||- unreleased|allow external 2PC (KIP-939)
add.partitions.to.txn.retry.backoff.max.ms|INT|100||>=0|+|how long a batch waits for the transaction before it to end
add.partitions.to.txn.retry.backoff.ms|INT|20||>=1|- polling|server-side retry step
"""
