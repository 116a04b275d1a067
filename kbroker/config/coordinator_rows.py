"""Broker settings of group, share and transaction coordinators and their internal topics.

One row each, `name|type|default|dynamic scope|check|status|meaning`; an indented line continues the
row above it.  `kbroker.config.row` explains the columns.
"""

from __future__ import annotations

COORDINATOR_ROWS = """
group.coordinator.rebalance.protocols|LIST|classic,consumer,streams||each of classic, consumer, share, streams|+|
    enabled group protocols (deprecated)
group.coordinator.threads|INT|4||>=1|- threads|coordinator event-loop threads
group.coordinator.background.threads|INT|2||>=1|+|coordinator background pool (regex)
group.coordinator.append.linger.ms|INT|-1||>=-1|- linger|coordinator write batching; -1 adaptive
offsets.commit.timeout.ms|INT|5000||>=1|+|how long a write of a coordinator waits for replicas and fsync
offsets.load.buffer.size|INT|5242880||>=1|+|read size when loading __consumer_offsets
offsets.topic.replication.factor|SHORT|3||>=1|+|RF of __consumer_offsets
offsets.topic.num.partitions|INT|50||>=1|+|partitions of __consumer_offsets
offsets.topic.segment.bytes|INT|104857600||>=1|+|segment size of __consumer_offsets, at least 1 MiB
offsets.topic.compression.codec|INT|0|||+|codec id of __consumer_offsets
group.coordinator.cached.buffer.max.bytes|INT|1048588|cluster|>=524288|- buffers|max reusable write buffer
offset.metadata.max.bytes|INT|4096|||+|cap of commit metadata string
offsets.retention.minutes|INT|10080||>=1|+|keep offsets of empty group/unsubscribed topic
offsets.retention.check.interval.ms|LONG|600000||>=1|+|offset expiry scan
group.min.session.timeout.ms|INT|6000|||+|classic lower bound
group.max.session.timeout.ms|INT|1800000|||+|classic upper bound
group.initial.rebalance.delay.ms|INT|0|||+|wait for more members at first join
group.max.size|INT|2147483647||>=1|+|classic member cap
group.consumer.session.timeout.ms|INT|45000||>=1|+|KIP-848 session timeout
group.consumer.min.session.timeout.ms|INT|45000||>=1|+|lower bound of group override
group.consumer.max.session.timeout.ms|INT|60000||>=1|+|upper bound of group override
group.consumer.heartbeat.interval.ms|INT|5000||>=1|+|heartbeat period of members
group.consumer.min.heartbeat.interval.ms|INT|5000||>=1|+|lower bound
group.consumer.max.heartbeat.interval.ms|INT|15000||>=1|+|upper bound
group.consumer.max.size|INT|2147483647||>=1|+|KIP-848 member cap
group.consumer.assignors|LIST|uniform,range||some of uniform, range|+|server-side assignors, first is default
group.consumer.migration.policy|STRING|bidirectional||anycase of bidirectional, upgrade, downgrade, disabled|+|
    online classic<->consumer conversion
group.consumer.assignment.interval.ms|INT|1000|cluster|>=0|+|min gap between target-assignment computations (4.3+)
group.consumer.min.assignment.interval.ms|INT|0||>=0|+|lower bound
group.consumer.max.assignment.interval.ms|INT|15000||>=0|+|upper bound
group.consumer.regex.refresh.interval.ms|INT|600000||>=10000|+i|re-evaluate regex subscriptions
group.share.session.timeout.ms|INT|45000||>=1|+|share session timeout
group.share.min.session.timeout.ms|INT|45000||>=1|+|lower bound
group.share.max.session.timeout.ms|INT|60000||>=1|+|upper bound
group.share.heartbeat.interval.ms|INT|5000||>=1|+|share heartbeat
group.share.min.heartbeat.interval.ms|INT|5000||>=1|+|lower bound
group.share.max.heartbeat.interval.ms|INT|15000||>=1|+|upper bound
group.share.max.size|INT|200||1..1000|+|share member cap
group.share.assignors|LIST|simple||some of simple|+|assignors of share groups; there is one
group.share.assignment.interval.ms|INT|1000|cluster|>=0|+|least time between two assignments of a share group
group.share.min.assignment.interval.ms|INT|0||>=0|+|lower bound
group.share.max.assignment.interval.ms|INT|15000||>=0|+|upper bound
group.share.initialize.retry.interval.ms|INT|30000||>=1|-i retry|retry of state initialisation
group.streams.session.timeout.ms|INT|45000||>=1|+|streams session timeout
group.streams.min.session.timeout.ms|INT|45000||>=1|+|lower bound
group.streams.max.session.timeout.ms|INT|60000||>=1|+|upper bound
group.streams.heartbeat.interval.ms|INT|5000||>=1|+|streams heartbeat
group.streams.min.heartbeat.interval.ms|INT|5000||>=1|+|lower bound
group.streams.max.heartbeat.interval.ms|INT|15000||>=1|+|upper bound
group.streams.max.size|INT|2147483647||>=1|+|streams member cap
group.streams.num.standby.replicas|INT|0||>=0|+|standby tasks
group.streams.max.standby.replicas|INT|2||>=0|+|upper bound
group.streams.initial.rebalance.delay.ms|INT|3000||>=0|+|first-rebalance wait
group.streams.assignment.interval.ms|INT|1000|cluster|>=0|+|streams assignment gap
group.streams.min.assignment.interval.ms|INT|0||>=0|+|lower bound
group.streams.max.assignment.interval.ms|INT|15000||>=0|+|upper bound
group.share.delivery.count.limit|INT|5||2..10|+|delivery attempts before archive
group.share.max.delivery.count.limit|INT|10||5..25|+|upper bound
group.share.min.delivery.count.limit|INT|2||2..5|+|lower bound
group.share.record.lock.duration.ms|INT|30000||1000..3600000|+|acquisition lock
group.share.min.record.lock.duration.ms|INT|15000||1000..30000|+|lower bound
group.share.max.record.lock.duration.ms|INT|60000||30000..3600000|+|upper bound
group.share.partition.max.record.locks|INT|2000||100..10000|+|in-flight records per share-partition
group.share.max.partition.max.record.locks|INT|4000||2000..10000|+|upper bound
group.share.min.partition.max.record.locks|INT|100||100..2000|+|lower bound
share.fetch.purgatory.purge.interval.requests|INT|1000|||- purgatory|purge trigger
group.share.max.share.sessions|INT|2000||>=1|+|share sessions per broker
group.share.persister.class.name|STRING|DefaultStatePersister|||xi java|share state store plugin
share.coordinator.state.topic.num.partitions|INT|50||>=1|+|partitions of __share_group_state
share.coordinator.state.topic.replication.factor|SHORT|3||>=1|+|RF
share.coordinator.state.topic.min.isr|SHORT|2||>=1|+|min ISR
share.coordinator.state.topic.segment.bytes|INT|104857600||>=1|+|segment size
share.coordinator.threads|INT|1||>=1|- threads|threads
share.coordinator.snapshot.update.records.per.snapshot|INT|500||0..500|+|updates between snapshots
share.coordinator.load.buffer.size|INT|5242880||>=1|+|load read size
share.coordinator.state.topic.compression.codec|INT|0|||+|codec id
share.coordinator.append.linger.ms|INT|-1||>=-1|- linger|write batching
share.coordinator.write.timeout.ms|INT|5000||>=1|+|
    how long a write of the share coordinator waits for replicas and fsync
share.coordinator.state.topic.prune.interval.ms|INT|300000||>=1|+i|prune period
share.coordinator.cold.partition.snapshot.interval.ms|INT|300000||>=1|+i|snapshot idle partitions
share.coordinator.cached.buffer.max.bytes|INT|1048588|cluster|>=524288|- buffers|max reusable buffer
transaction.state.log.min.isr|INT|2||>=1|+|min ISR of __transaction_state
transaction.state.log.load.buffer.size|INT|5242880||>=1|+|load read size
transaction.state.log.replication.factor|SHORT|3||>=1|+|RF of __transaction_state
transaction.state.log.num.partitions|INT|50||>=1|+|partitions of __transaction_state
transaction.state.log.segment.bytes|INT|104857600||>=1|+|segment size
transaction.partition.verification.enable|BOOLEAN|true|cluster||+|
    leader asks coordinator that partition is in txn before append
producer.id.expiration.ms|INT|86400000|cluster|>=1|+|forget idle producer state per partition
producer.id.expiration.check.interval.ms|INT|600000||>=1|+i|scan period
transactional.id.expiration.ms|INT|604800000||>=1|+|forget idle transactional ids
transaction.max.timeout.ms|INT|900000||>=1|+|largest allowed client txn timeout
transaction.abort.timed.out.transaction.cleanup.interval.ms|INT|10000||>=1|+|scan for timed-out txns
transaction.remove.expired.transaction.cleanup.interval.ms|INT|3600000||>=1|+|scan for expired txn ids
transaction.two.phase.commit.enable|BOOLEAN|false|||- unreleased|allow external 2PC (KIP-939)
add.partitions.to.txn.retry.backoff.max.ms|INT|100||>=0|+|server-side retry cap
add.partitions.to.txn.retry.backoff.ms|INT|20||>=1|- polling|server-side retry step
"""
