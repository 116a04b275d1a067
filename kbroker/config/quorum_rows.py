"""Broker settings of the metadata log and of its quorum of controllers.

One row each, `name|type|default|dynamic scope|check|status|meaning`; an indented line continues the
row above it.  `kbroker.config.row` explains the columns.
"""

from __future__ import annotations

QUORUM_ROWS = """
metadata.log.max.record.bytes.between.snapshots|LONG|20971520||>=1|+|
    a broker of a KRaft cluster writes a snapshot of its metadata after so many bytes
metadata.log.max.snapshot.interval.ms|LONG|3600000||>=0|+|and after so long, 0 for never
metadata.log.dir|STRING|null|||+|where __cluster_metadata-0 is; unset: the first of log.dirs
metadata.log.segment.bytes|INT|1073741824||>=8388608|+|size of its segments
metadata.log.segment.ms|LONG|604800000|||+|age of its segments
metadata.max.retention.bytes|LONG|104857600|||+|bytes of it that are kept, with snapshots
metadata.max.retention.ms|LONG|604800000|||+|age of what is kept of it
metadata.max.idle.interval.ms|INT|500||>=0|+|
    the active controller writes a record after so long at the latest, which shows brokers that it lives
controller.quorum.voters|LIST||||+|the controllers, id@host:port each, of a quorum whose voters do not change
controller.quorum.bootstrap.servers|LIST||||+|where a broker of a KRaft cluster finds its controllers
controller.quorum.election.timeout.ms|INT|1000||>=0|+|
    a voter without a leader stands for election after this time, and up to as much again
controller.quorum.fetch.timeout.ms|INT|2000||>=0|+|
    a controller that does not answer a fetch in this time is left for another
controller.quorum.election.backoff.max.ms|INT|1000||>=0|+|
    longest wait of a voter for another one to stand, after the leader has resigned
controller.quorum.append.linger.ms|INT|25||>=0|- batches|wait of the leader for more records
controller.quorum.request.timeout.ms|INT|2000||>=0|+|
    longest wait for an answer of a controller to the follower of its log
controller.quorum.retry.backoff.ms|INT|20||>=0|+|pause between such requests that fail
controller.quorum.auto.join.enable|BOOLEAN|false|||+|
    a node with the controller role that is no voter asks to become one
controller.quorum.fetch.snapshot.max.bytes|INT|1048576||>=1|+|bytes of a snapshot asked for at once
controller.quorum.fetch.max.bytes|INT|1048576||>=1|+|bytes of the metadata log asked for at once
"""
