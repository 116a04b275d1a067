"""The writers of `format("kbroker")`, of batches and of streams: Arrow batches in, packed record batches out.

A task writes with an idempotent producer of its own: retries of the producer write no duplicates.  A task that Spark
runs again writes its rows again, as with Spark's own connector: the guarantee is at least once.

Rows with a `partition` go there; rows with a key go where Kafka's own clients put that key; the other rows of a batch
go to one partition together, those of the next batch to the next partition, beginning with a random one.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage

from kbroker._fast.records.record_packer import BatchPacker, RowColumns
from kbroker.client.cluster import Cluster
from kbroker.client.errors import PASSING, BrokerAnsweredError, ClientError
from kbroker.client.producer import Batch, BatchProducer
from kbroker.errors import ErrorCode
from kbroker.replay.rows import PARTITION, TOPIC, pack_rows, row_columns
from kbroker.replay.sources.workers import FromSpark
from kbroker.replay.sources.write_options import WriteOptions

if TYPE_CHECKING:
    import numpy.typing as npt

    Rows = npt.NDArray[np.int64]

NO_PARTITION = -1
RADIX_PARTITIONS = 1 << 15


class Written(WriterCommitMessage):
    """What a task wrote, as the brokers acknowledged it."""

    def __init__(self, records: int, size_bytes: int) -> None:
        self.records = records
        self.size_bytes = size_bytes


class RowWriter:
    """One task's rows on their way to their topics and partitions."""

    def __init__(self, cluster: Cluster, producer: BatchProducer, options: WriteOptions) -> None:
        self._cluster = cluster
        self._producer = producer
        self._options = options
        self._packers: dict[tuple[str, int], BatchPacker] = {}
        self._sticky: dict[str, int] = {}
        self._counts: dict[str, int] = {}

    def write(self, batch: pa.RecordBatch) -> None:
        """Packs a batch of rows and sends what is full.  ValueError for rows that cannot be written."""
        if not batch.num_rows:
            return
        columns = row_columns(batch, with_timestamp=self._options.include_timestamp)
        for topic, rows in self._by_topic(batch):
            self._write_topic(topic, batch, columns, rows)

    def finish(self) -> None:
        """Sends the rest and waits for all acknowledgements."""
        for topic_partition, packer in self._packers.items():
            self._send(topic_partition, packer)
        self._producer.flush()

    def _by_topic(self, batch: pa.RecordBatch) -> Iterator[tuple[str, Rows]]:
        if self._options.topic is not None:
            yield self._options.topic, np.arange(batch.num_rows, dtype=np.int64)
            return
        column = batch.column(TOPIC)
        if column.null_count:
            raise ValueError(
                "null topic present in the data: fill the column named topic, or give the option topic for all rows"
            )
        encoded = column.dictionary_encode()
        codes = encoded.indices.to_numpy(zero_copy_only=False)
        for code, topic in enumerate(encoded.dictionary.to_pylist()):
            yield topic, np.flatnonzero(codes == code).astype(np.int64)

    def _write_topic(self, topic: str, batch: pa.RecordBatch, columns: RowColumns, rows: Rows) -> None:
        count = self._partition_count(topic)
        partitions = self._given_partitions(topic, batch, count)
        if not self._options.ignore_keys:
            columns.fill_partitions(partitions.data, count)
        chosen = partitions[rows]
        chosen[chosen == NO_PARTITION] = self._sticky[topic]
        # Stable, so that rows of one partition stay in their order; numpy sorts 16 bits by radix, far quicker.
        order = np.argsort(chosen.astype(np.int16) if count <= RADIX_PARTITIONS else chosen, kind="stable")
        rows, chosen = np.ascontiguousarray(rows[order]), chosen[order]
        starts = np.flatnonzero(np.diff(chosen, prepend=chosen[0] - 1))
        for start, stop in zip(starts, [*starts[1:], len(rows)], strict=True):
            self._pack((topic, int(chosen[start])), columns, rows[start:stop])

    def _given_partitions(self, topic: str, batch: pa.RecordBatch, count: int) -> npt.NDArray[np.int32]:
        if PARTITION not in batch.schema.names:
            return np.full(batch.num_rows, NO_PARTITION, np.int32)
        column = batch.column(PARTITION).cast(pa.int32())
        found = np.array(column.fill_null(NO_PARTITION).to_numpy(zero_copy_only=False), dtype=np.int32)
        wrong = (found >= count) | (found < 0) & ~column.is_null().to_numpy(zero_copy_only=False)
        if wrong.any():
            raise ValueError(f"partition {int(found[wrong][0])} is not one of topic {topic}: it has 0 to {count - 1}")
        return found

    def _pack(self, topic_partition: tuple[str, int], columns: RowColumns, rows: Rows) -> None:
        packer = self._packers.get(topic_partition)
        if packer is None:
            packer = self._packers[topic_partition] = BatchPacker(self._options.batch_bytes)
        pack_rows(packer, columns, rows.data, lambda: self._send(topic_partition, packer))

    def _send(self, topic_partition: tuple[str, int], packer: BatchPacker) -> None:
        if not packer.count:
            return
        topic, partition = topic_partition
        self._producer.add(topic, partition, Batch.taken_from(packer))
        if partition == self._sticky[topic]:
            self._sticky[topic] = (partition + 1) % self._counts[topic]

    def _partition_count(self, topic: str) -> int:
        """Asked for once in a task, so that a key's records stay together."""
        count = self._counts.get(topic)
        if count is None:
            self._producer.flush()
            count = self._counts[topic] = _partition_count(self._cluster, topic)
            self._sticky[topic] = random.randrange(count)
        return count


def _partition_count(cluster: Cluster, topic: str) -> int:
    """Asks for the topic as Kafka's producers do, which makes it where the broker allows that.

    A broker says that it does not know the topic both while it makes it and when it never will, so the answer to a
    topic that cannot be made comes when the patience ends.
    """
    patience = cluster.patience(f"looking up topic {topic}")
    error: ClientError
    while True:
        try:
            info = cluster.find(topic, create=True)
            if info is not None and info.partitions:
                return len(info.partitions)
            error = (
                cluster.unknown(topic)
                if info is None
                else BrokerAnsweredError(ErrorCode.LEADER_NOT_AVAILABLE, f"looking up topic {topic}")
            )
        except PASSING as passing:
            error = passing
        patience.again(error)


class BatchWriter(FromSpark, DataSourceArrowWriter):
    """Writes a DataFrame.  What was written before a failure stays written: a log has no way back."""

    def __init__(self, options: WriteOptions) -> None:
        self.write_options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Writes the rows of one partition of Spark's."""
        options = self.write_options
        with (
            Cluster(options.bootstrap, options.client) as cluster,
            BatchProducer(cluster, options.producer) as producer,
        ):
            rows = RowWriter(cluster, producer, options)
            for batch in iterator:
                rows.write(batch)
            rows.finish()
            return Written(producer.acknowledged_records, producer.acknowledged_bytes)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing to do: what is acknowledged is written."""

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing can be taken back."""


class StreamWriter(FromSpark, DataSourceStreamWriter, DataSourceArrowWriter):
    """Writes the micro-batches of a stream, as Arrow batches like the other."""

    def __init__(self, options: WriteOptions) -> None:
        self.write_options = options

    write = BatchWriter.write

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # type: ignore[override]  # noqa: N803
        """Nothing to do: what is acknowledged is written."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # type: ignore[override]  # noqa: N803
        """Nothing can be taken back: Spark writes the micro-batch again."""
