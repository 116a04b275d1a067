"""How an executor sends whole columns: no Python object per record, and without the GIL.

`_fast/replay/replay_producer` calls the librdkafka of confluent-kafka from C.  It waits for each row's time, passes the
record to librdkafka, and counts the acknowledgement or failure in the same cells as `operations.Sender`.  `Sender`
remains for transactions, and for logins for which librdkafka calls Python.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError, cimpl

from kbroker._fast.replay.delivery_client import ClientError
from kbroker._fast.replay.librdkafka import Library, LibraryError
from kbroker._fast.replay.replay_producer import NOT_PRODUCED, ReplayProducer
from kbroker._fast.replay.replay_rows import ReplayRows
from kbroker.replay.player.operations import READY_SECONDS, Sender, Totals
from kbroker.replay.player.outcome import Cells
from kbroker.replay.player.plan import ID_HEADER
from kbroker.replay.player.settings import Delivery, Job, ReplayError
from kbroker.replay.rows import bytes_parts, header_parts
from kbroker.replay.trace_schema import PRODUCE

SLICE_S = 0.02
"""How long C works at a time: so late may a stop be heard of, and so old are the counts that the driver sees."""

_PURGE_S = 5.0
_SUMS = {"sent": "sent", "acknowledged": "acknowledged", "sent_bytes": "bytes", "late": "late",
         "queue_full_us": "queue_full_us"}  # fmt: skip
"""What is reported to the driver, by its name in C."""
_log = logging.getLogger(__name__)


def open_sender(job: Job, executor: int, cells: Cells, totals: Totals) -> Sender | ColumnSender:
    """The sender of an executor: by columns where that can be done."""
    library = library_for(job.delivery)
    return Sender(job, executor, cells, totals) if library is None else ColumnSender(library, job, cells, totals)


def library_for(delivery: Delivery) -> Library | None:
    """What sends columns; None where records are sent one by one."""
    if not delivery.by_columns or not by_columns(delivery):
        return None
    try:
        return Library(cimpl.__file__)
    except LibraryError as error:
        _log.warning("records are sent one by one, which is slower: %s", error)
        return None


def by_columns(delivery: Delivery) -> bool:
    """Whether these settings need nothing of Python while records are sent."""
    mechanisms = {delivery.client.get(name, "").upper() for name in ("sasl.mechanism", "sasl.mechanisms")}
    return delivery.transaction_records is None and "OAUTHBEARER" not in mechanisms


class ColumnSender:
    """The producer of an executor.  Used by one thread; acknowledgements are counted within `play` and `finish`."""

    def __init__(self, library: Library, job: Job, cells: Cells, totals: Totals) -> None:
        self._cells, self._totals = cells, totals
        self._noted = dict.fromkeys(_SUMS, 0)
        self._topics = pa.array(job.topics, pa.string())
        try:
            self._producer = ReplayProducer(library, _texts(job.delivery.producer(job.bootstrap, None)), job.topics)
        except ClientError as error:
            raise ReplayError(f"the client refuses its settings: {error}") from None
        self._producer.describe(ID_HEADER.encode(), round(job.delivery.late_ms * 1000))
        for number in range(len(job.topics)):
            # Leaders are known before the first record is due.
            code = self._producer.know_topic(number, int(READY_SECONDS * 1000))
            if code:
                raise ReplayError(f"{job.bootstrap} does not answer an executor: {KafkaError(code).str()}")

    def begin(self, start: float) -> None:
        """The start of the replay, in seconds of `time.monotonic()`."""
        self._producer.begin(int(start * 1e9))

    def hold(self, batch: pa.RecordBatch) -> int:
        """Takes up a batch of prepared rows: the slot by which it is played and released."""
        return self._producer.hold(self._rows(batch))

    def play(self, slot: int, row: int) -> tuple[int, bool]:
        """Sends rows from `row` on at their times, for a short while.

        Returns the number of the next row, and whether that row is due and is an operation of a consumer.
        """
        why, row = self._producer.play(slot, row, int(SLICE_S * 1e9))
        self._note_totals()
        return row, why == NOT_PRODUCED

    def release(self, slot: int) -> None:
        """No more rows of this batch are played."""
        self._producer.release(slot)

    def finish(self, stopped: Callable[[], bool], stop_patience_s: float) -> None:
        """Waits until each record is acknowledged or has failed; after a stop, no longer than `stop_patience_s`."""
        deadline: float | None = None
        while self._producer.serve(int(SLICE_S * 1e9)):
            self._note_totals()
            if deadline is None and stopped():
                deadline = time.monotonic() + stop_patience_s
            if deadline is not None and time.monotonic() > deadline:
                self._producer.purge()
                self._producer.serve(int(_PURGE_S * 1e9))
                break
        self.collect()
        self._producer.close()

    def collect(self) -> None:
        """Puts what has been counted into the executor's cells."""
        self._note_totals()
        topics = self._topics.to_pylist()
        for second, topic, partition, counts, sent_error, latency in self._producer.take_cells():
            cell = self._cells.at(second, PRODUCE, topics[topic], partition)
            offered, sent, acknowledged, late, size, queue_full_us = counts
            cell.offered += offered
            cell.sent += sent
            cell.acknowledged += acknowledged
            cell.late += late
            cell.bytes += size
            cell.queue_full_us += queue_full_us
            for own, more in ((cell.sent_error, sent_error), (cell.latency, latency)):
                for bucket, count in more:
                    own[bucket] = own.get(bucket, 0) + count
        for second, rows, row, code in self._producer.take_failures():
            topic, source, sequence = (rows.batch.column(name)[row].as_py() for name in ("topic", "source", "sequence"))
            self._cells.at(second, PRODUCE, topic).fail(source, sequence, KafkaError(code).name())
            self._totals.failed += 1
        for second, code in self._producer.take_events():
            self._cells.at(second, PRODUCE, "").note_event(KafkaError(code).name())

    def _note_totals(self) -> None:
        for name, before in self._noted.items():
            now = getattr(self._producer, name)
            total = _SUMS[name]
            setattr(self._totals, total, getattr(self._totals, total) + now - before)
            self._noted[name] = now

    def _rows(self, batch: pa.RecordBatch) -> ReplayRows:
        kinds = pc.equal(batch.column("kind"), PRODUCE)
        partitions = batch.column("partition")
        topics = pc.index_in(batch.column("topic"), value_set=self._topics)
        for name, column in (("topic", topics), ("due_us", batch.column("due_us")), ("kind", kinds)):
            if column.null_count:
                raise ReplayError(f"a row has no {name}, or one that the plan does not know")
        every = kinds.true_count == len(kinds)
        return ReplayRows(
            batch,
            batch.num_rows,
            bytes_parts(batch.column("key")),
            bytes_parts(batch.column("value")),
            header_parts(batch.column("headers")),
            bytes_parts(batch.column("id")),
            _numbers(batch.column("due_us")),
            _numbers(topics),
            None if partitions.null_count == len(partitions) else _numbers(partitions.fill_null(-1)),
            None if every else _numbers(kinds.cast(pa.uint8())),
        )


def _numbers(column: pa.Array) -> pa.Buffer:
    width = column.type.bit_width // 8
    data = column.buffers()[1]
    return data.slice(column.offset * width) if data is not None else pa.py_buffer(b"")


def _texts(settings: Mapping[str, object]) -> dict[str, str]:
    """Settings as librdkafka takes them."""
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in settings.items()}
