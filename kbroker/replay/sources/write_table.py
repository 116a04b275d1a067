"""The table of what writing with `format("kbroker")` takes: names, meanings and defaults of Spark's Kafka connector."""

from __future__ import annotations

from collections.abc import Iterator

from kbroker.replay.sources.client_options import BARE, client_options
from kbroker.replay.sources.option_table import Option, OptionTable, idle, refused, taken

_BATCHES = "batches are as large as the rows of a task allow, and nothing waits"


def _options() -> Iterator[Option]:
    yield taken("topic", "", "for all rows; goes before a column `topic`")
    yield taken(
        "includeTimestamp", "`false`",
        "a column `timestamp` is the records' time, instead of the time of writing; not in Spark's connector",
    )  # fmt: skip
    yield taken("checkpointLocation", "required", "streams: Spark's own")
    yield taken("kafka.acks", "`all`", "with `1` or `0` there is no idempotence")
    yield taken("kafka.enable.idempotence", "`true`", "retries write no duplicates")
    yield taken("kafka.compression.type", "`none`", "`gzip`, `snappy`, `lz4`, `zstd`")
    for codec in ("gzip", "lz4", "zstd"):
        yield taken(f"kafka.compression.{codec}.level", "the codec's", f"where `kafka.compression.type` is `{codec}`")
    yield taken("kafka.batch.size", "262144", "the size of a record batch, before it is compressed")
    yield taken("kafka.max.request.size", "1048576", "the size of a request")
    yield taken("kafka.buffer.memory", "33554432", "what a task holds that is not acknowledged")
    yield taken("kafka.max.in.flight.requests.per.connection", "5", "5 at most")
    yield taken("kafka.delivery.timeout.ms", "120000", "how long a broker may be away within a task")
    yield taken("kafka.max.block.ms", "60000", "how long a task waits for a topic's partitions and leaders")
    yield taken("kafka.partitioner.ignore.keys", "`false`", "`true`: keys do not choose the partition")
    yield from client_options()
    yield from idle(_BATCHES, "kafka.linger.ms", "kafka.partitioner.adaptive.partitioning.enable",
                    "kafka.partitioner.availability.timeout.ms")  # fmt: skip
    yield from idle("`kafka.delivery.timeout.ms` bounds all retries", "kafka.retries")
    yield from idle("a task asks for the topics that it writes to", "kafka.metadata.max.idle.ms")
    yield from idle("there are no transactions", "kafka.transaction.timeout.ms")
    yield from idle("executors hold no producers between tasks", "kafka.producer.cache.timeout")
    yield from idle("headers are written where there is a column `headers`", "includeHeaders")
    yield from idle("the option `topic` and the column `topic` say where rows go", "path")
    yield from idle(BARE, "linger.ms", "batch.size", "key.serializer", "value.serializer")
    yield refused("kafka.transactional.id", "rows are written by idempotent producers, without transactions")
    yield refused(
        "kafka.partitioner.class", "give a column named partition, or keys, which are placed as Kafka's own clients do"
    )
    yield refused("kafka.key.serializer", "convert keys to string or binary with DataFrame operations")
    yield refused("kafka.value.serializer", "convert values to string or binary with DataFrame operations")


WRITING = OptionTable("writing with format kbroker", _options())
