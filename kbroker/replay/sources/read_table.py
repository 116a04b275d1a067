"""The table of what reading with `format("kbroker")` takes: names, meanings and defaults of Spark's Kafka connector."""

from __future__ import annotations

from collections.abc import Iterator

from kbroker.replay.sources.client_options import BARE, client_options
from kbroker.replay.sources.option_table import Option, OptionTable, idle, refused, taken

CHOICES = ("assign", "subscribe", "subscribePattern")
STREAM_ONLY = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
BATCH_ONLY = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")

_GROUP = "offsets are kept in Spark's checkpoint, and no consumer group is joined"
_CACHE = "executors hold no consumers between tasks"


def _taken() -> Iterator[Option]:
    yield taken(
        "assign", "one of three", '`{"orders":[0,1]}`; one that is not there ends the job (the connector: no rows)'
    )
    yield taken("subscribe", "one of three", "names with commas")
    yield taken(
        "subscribePattern", "one of three", "a regular expression of Java that a name contains; internal topics never"
    )
    yield taken(
        "startingOffsets", "batch `earliest`, stream `latest`",
        'or JSON for every partition: `{"orders":{"0":23,"1":-2}}`, -2 earliest, -1 latest (streams alone); a stream '
        "that has a checkpoint goes on there",
    )  # fmt: skip
    yield taken("startingTimestamp", "", "milliseconds, for all partitions: the first record at or after")
    yield taken("startingOffsetsByTimestamp", "", "the same as JSON, for every partition")
    yield taken(
        "startingOffsetsByTimestampStrategy", "`error`", "`latest`: start at the end where no record is so late"
    )
    yield taken("endingOffsets", "`latest`", "batch: or JSON for every partition, -1 latest; refused for streams")
    yield taken("endingTimestamp", "", "batch: milliseconds; the end where no record is so late")
    yield taken("endingOffsetsByTimestamp", "", "batch: the same as JSON, for every partition")
    yield taken("failOnDataLoss", "`true`", "`false`: records that are gone are passed over, with a warning in the log")
    yield taken("minPartitions", "", "splits large ranges over about so many tasks")
    yield taken(
        "maxRecordsPerPartition",
        "",
        "splits ranges, so that no task has more offsets (the connector splits no batch by it)",
    )
    yield taken("maxOffsetsPerTrigger", "", "stream: the size of a batch, each partition its share; a batch ignores it")
    yield taken("minOffsetsPerTrigger", "", "stream: waits for so many offsets; a batch ignores it")
    yield taken("maxTriggerDelay", "`15m`", "stream: but waits not longer than this; a batch ignores it")
    yield taken("includeHeaders", "`false`", "with a column `headers`")
    yield taken("kafka.isolation.level", "`read_uncommitted`", "`read_committed` leaves aborted transactions out")
    yield taken("fetchOffset.numRetries", "3", "more tries to ask for offsets")
    yield taken("fetchOffset.retryIntervalMs", "10", "the time between them")
    yield taken(
        "kafkaConsumer.pollTimeoutMs", "120000", "how long a task goes on without progress: a broker may restart in it"
    )
    yield taken("kafka.max.partition.fetch.bytes", "4194304", "the size of a fetch; two are held at a time")
    yield taken("kafka.fetch.max.bytes", "as above", "the smaller of the two counts")
    yield taken("kafka.fetch.max.wait.ms", "500", "how long a broker may wait for `kafka.fetch.min.bytes`")
    yield taken("kafka.fetch.min.bytes", "1", "the least that a broker answers with at once")


def _idle() -> Iterator[Option]:
    yield from idle(
        _GROUP,
        "kafka.group.id",
        "groupIdPrefix",
        "kafka.group.instance.id",
        "kafka.group.protocol",
        "kafka.group.remote.assignor",
        "kafka.partition.assignment.strategy",
        "kafka.session.timeout.ms",
        "kafka.heartbeat.interval.ms",
        "kafka.auto.commit.interval.ms",
        "kafka.internal.leave.group.on.close",
        "kafka.internal.throw.on.fetch.stable.offset.unsupported",
    )
    yield from idle(
        "rows come in fetches of `kafka.max.partition.fetch.bytes`, and nothing polls",
        "kafka.max.poll.records",
        "kafka.max.poll.interval.ms",
    )
    yield from idle(_CACHE, "kafka.consumer.cache.capacity", "kafka.consumer.cache.timeout")
    yield from idle("checksums are always checked", "kafka.check.crcs")
    yield from idle("partitions are read from their leaders", "kafka.client.rack")
    yield from idle("reading makes no topic", "kafka.allow.auto.create.topics")
    yield from idle("a pattern never means internal topics", "kafka.exclude.internal.topics")
    yield from idle(
        "it is for DStreams; `maxOffsetsPerTrigger` limits a stream", "maxRatePerPartition", "minRatePerPartition"
    )
    yield from idle(BARE, "group.id", "auto.offset.reset", "enable.auto.commit", "key.deserializer",
                    "value.deserializer")  # fmt: skip


def _refused() -> Iterator[Option]:
    yield refused("kafka.auto.offset.reset", "set startingOffsets to earliest or latest instead")
    yield refused("kafka.key.deserializer", "keys come as binary; convert them with DataFrame operations")
    yield refused("kafka.value.deserializer", "values come as binary; convert them with DataFrame operations")
    yield refused("kafka.enable.auto.commit", "offsets are kept in Spark's checkpoint, nothing is committed")


READING = OptionTable("reading with format kbroker", (*_taken(), *client_options(), *_idle(), *_refused()))
