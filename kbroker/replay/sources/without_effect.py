"""Options that jobs on Spark's Kafka connector have, and that change nothing here: taken, and named once in the log.

Each is a setting of Java's clients, or of Spark's older streams, for something that these sources do not do.  An option
that would change what is read, written or trusted is not among them: it is refused with its reason.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from kbroker.replay.sources.option_values import OptionValues

logger = logging.getLogger("kbroker.replay")

_GROUP = "offsets are kept in Spark's checkpoint, and no consumer group is joined"
_POLL = "rows come in fetches of kafka.max.partition.fetch.bytes, and nothing polls"
_BARE = "without the prefix kafka. it is no setting of a Kafka client"
_CONNECTION = "connections are made for a task and end with it"
_METRICS = "Spark's own metrics and log say what a query does"
_BATCHES = "batches are as large as the rows of a task allow, and nothing waits"

_BOTH = {
    "kafka.client.dns.lookup": _CONNECTION,
    "kafka.connections.max.idle.ms": _CONNECTION,
    "kafka.reconnect.backoff.ms": _CONNECTION,
    "kafka.reconnect.backoff.max.ms": _CONNECTION,
    "kafka.send.buffer.bytes": _CONNECTION,
    "kafka.socket.connection.setup.timeout.max.ms": _CONNECTION,
    "kafka.metadata.max.age.ms": _CONNECTION,
    "kafka.metadata.recovery.strategy": _CONNECTION,
    "kafka.metadata.recovery.rebootstrap.trigger.ms": _CONNECTION,
    "kafka.metric.reporters": _METRICS,
    "kafka.metrics.num.samples": _METRICS,
    "kafka.metrics.recording.level": _METRICS,
    "kafka.metrics.sample.window.ms": _METRICS,
    "kafka.enable.metrics.push": _METRICS,
}
READING: Mapping[str, str] = {
    **_BOTH,
    "kafka.group.id": _GROUP,
    "groupIdPrefix": _GROUP,
    "kafka.group.instance.id": _GROUP,
    "kafka.group.protocol": _GROUP,
    "kafka.group.remote.assignor": _GROUP,
    "kafka.partition.assignment.strategy": _GROUP,
    "kafka.session.timeout.ms": _GROUP,
    "kafka.heartbeat.interval.ms": _GROUP,
    "kafka.auto.commit.interval.ms": _GROUP,
    "kafka.max.poll.records": _POLL,
    "kafka.max.poll.interval.ms": _POLL,
    "kafka.consumer.cache.capacity": "executors hold no consumers between tasks",
    "kafka.consumer.cache.timeout": "executors hold no consumers between tasks",
    "kafka.check.crcs": "checksums are always checked",
    "kafka.client.rack": "partitions are read from their leaders",
    "kafka.allow.auto.create.topics": "reading makes no topic",
    "kafka.exclude.internal.topics": "a pattern never means internal topics",
    "maxRatePerPartition": "it is for DStreams; maxOffsetsPerTrigger limits a stream",
    "group.id": _BARE,
    "auto.offset.reset": f"{_BARE}; startingOffsets says where to begin",
    "enable.auto.commit": _BARE,
    "key.deserializer": _BARE,
    "value.deserializer": _BARE,
}
WRITING: Mapping[str, str] = {
    **_BOTH,
    "kafka.linger.ms": _BATCHES,
    "kafka.retries": "kafka.delivery.timeout.ms bounds all retries",
    "kafka.max.block.ms": "kafka.default.api.timeout.ms bounds what is asked before rows are written",
    "kafka.metadata.max.idle.ms": _CONNECTION,
    "kafka.partitioner.adaptive.partitioning.enable": _BATCHES,
    "kafka.partitioner.availability.timeout.ms": _BATCHES,
    "kafka.producer.cache.timeout": "executors hold no producers between tasks",
    "linger.ms": _BARE,
    "batch.size": _BARE,
    "key.serializer": _BARE,
    "value.serializer": _BARE,
}

_named: set[str] = set()


def name_without_effect(values: OptionValues, options: Mapping[str, str]) -> Iterable[str]:
    """The names of all such options; those that are given are named in the log, each once for this process."""
    for name, reason in options.items():
        if values.has(name) and name not in _named:
            _named.add(name)
            logger.warning("option %s has no effect: %s", name, reason)
    return options.keys()
