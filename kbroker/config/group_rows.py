"""Settings of groups (GroupConfig): columns as for topics, with the broker setting behind each."""

from __future__ import annotations

GROUP_ROWS = """
consumer.session.timeout.ms|INT|45000|group.consumer.session.timeout.ms|>=1|+|
    a member that is silent for so long is taken for dead
consumer.heartbeat.interval.ms|INT|5000|group.consumer.heartbeat.interval.ms|>=1|+|heartbeat period of members
consumer.assignment.interval.ms|INT|1000|group.consumer.assignment.interval.ms|>=0|+|
    least time between two assignments of a group
share.session.timeout.ms|INT|45000|group.share.session.timeout.ms|>=1|+|
    a member that is silent for so long is taken for dead
share.heartbeat.interval.ms|INT|5000|group.share.heartbeat.interval.ms|>=1|+|heartbeat period of members
share.record.lock.duration.ms|INT|30000|group.share.record.lock.duration.ms|>=1000|+|
    how long a member may hold a record before others get it
share.delivery.count.limit|INT|5|group.share.delivery.count.limit|>=2|+|deliveries of a record before it is given up
share.partition.max.record.locks|INT|2000|group.share.partition.max.record.locks|>=100|+|
    records under way in one partition
share.auto.offset.reset|STRING|latest|||+|
    where a share group begins in a partition: latest, earliest or by_duration:<duration>
share.isolation.level|STRING|read_uncommitted||one of read_committed, read_uncommitted|+|
    whether a share group is given records of transactions before they are committed
share.renew.acknowledge.enable|BOOLEAN|true|||+|whether a member may renew its hold on a record
share.assignment.interval.ms|INT|1000|group.share.assignment.interval.ms|>=0|+|
    least time between two assignments of a group
streams.session.timeout.ms|INT|45000|group.streams.session.timeout.ms|>=1|+|
    a member that is silent for so long is taken for dead
streams.heartbeat.interval.ms|INT|5000|group.streams.heartbeat.interval.ms|>=1|+|heartbeat period of members
streams.num.standby.replicas|INT|0|group.streams.num.standby.replicas|>=0|+|standby tasks for each task
streams.initial.rebalance.delay.ms|INT|3000|group.streams.initial.rebalance.delay.ms|>=0|+|
    wait for more members before a new group's first assignment
streams.assignment.interval.ms|INT|1000|group.streams.assignment.interval.ms|>=0|+|
    least time between two assignments of a group
"""
