"""What an executor does for a row: hands a record to a producer, or an operation to a member of a consumer group.

Times are of `time.monotonic()`, in seconds; `due` is the time at which a row should be sent.  Latency runs from `due`
to the acknowledgement, so a record that waits in a queue because the broker is slow counts with all of its waiting.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from functools import partial

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from kbroker.replay.player.outcome import NOT_SENT, Cells, bucket_of
from kbroker.replay.player.settings import Job, ReplayError
from kbroker.replay.trace_schema import COMMIT, CONSUME, PRODUCE

JOIN_SECONDS = 30.0
READY_SECONDS = 15.0
_QUEUE_FULL_WAIT_S = 0.005
_IDLE_S = 0.2
Headers = list[tuple[str, str | bytes | None]]


class Totals:
    """What executors report to the driver while the replay runs."""

    def __init__(self) -> None:
        self.sent = self.acknowledged = self.failed = self.bytes = self.late = self.queue_full_us = 0

    def counts(self) -> dict[str, int]:
        """The counts by name."""
        return dict(vars(self))


class Sender:
    """The producer of an executor, one record at a time.

    Used by one thread; callbacks run within `wait_until`, `serve` and `finish`.
    """

    def __init__(self, job: Job, executor: int, cells: Cells, totals: Totals) -> None:
        self.start = 0.0
        self._cells, self._totals = cells, totals
        self._late_us = round(job.delivery.late_ms * 1000)
        self._batch = job.delivery.transaction_records
        transactional_id = f"kbroker-replay-{job.run_id}-{executor}" if self._batch else None
        settings = job.delivery.producer(job.bootstrap, transactional_id)
        self._producer = Producer({**settings, "error_cb": self._event})
        self._produce = self._producer.produce
        self._in_transaction = 0
        if transactional_id is not None:
            begin_transactions(self._producer, READY_SECONDS)
        for topic in job.topics:
            # Leaders are known before the first record is due.
            try:
                self._producer.list_topics(topic, timeout=READY_SECONDS)
            except KafkaException as error:
                raise ReplayError(f"{job.bootstrap} does not answer an executor: {error.args[0].str()}") from None

    def begin(self, start: float) -> None:
        """The start of the replay, in seconds of `time.monotonic()`."""
        self.start = start

    def send(
        self,
        due: float,
        source: str,
        sequence: int,
        topic: str,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        stopped: Callable[[], bool],
    ) -> None:
        """Hands the record over now.  While the local queue is full it waits, and counts how long."""
        now = time.monotonic()
        start = self.start
        second = int(due - start)
        cell = self._cells.at(second, PRODUCE, topic)
        cell.offered += 1
        waited = 0.0
        chosen = -1 if partition is None else partition
        while True:
            delivered = partial(self._delivered, due, now, topic, source, sequence)
            try:
                self._produce(topic, value, key, chosen, delivered, headers=headers)
                break
            except BufferError:
                self._producer.poll(_QUEUE_FULL_WAIT_S)
                waited, before = waited + time.monotonic() - now, now
                now = time.monotonic()
                self._totals.queue_full_us += int((now - before) * 1e6)
                if stopped():
                    cell.exceptions.append((source, sequence, NOT_SENT))
                    cell.offered -= 1
                    cell.unsent += 1
                    cell.queue_full_us += int(waited * 1e6)
                    return
            except KafkaException as error:
                self._failed(int(now - start), topic, source, sequence, error.args[0])
                return
        error_us = int((now - due) * 1e6)
        bucket = bucket_of(error_us)
        cell.sent_error[bucket] = cell.sent_error.get(bucket, 0) + 1
        if error_us > self._late_us:
            cell.late += 1
            self._totals.late += 1
        if waited:
            cell.queue_full_us += int(waited * 1e6)
        size = (len(value) if value is not None else 0) + (len(key) if key is not None else 0)
        at_send = int(now - start)
        if at_send != second:
            cell = self._cells.at(max(at_send, 0), PRODUCE, topic)
        cell.sent += 1
        cell.bytes += size
        totals = self._totals
        totals.sent += 1
        totals.bytes += size
        if self._batch:
            self._in_transaction += 1
            if self._in_transaction >= self._batch:
                self._commit(again=True)

    def wait_until(self, due: float, stopped: Callable[[], bool]) -> bool:
        """Serves acknowledgements until `due`; False when the replay was stopped meanwhile."""
        while (left := due - time.monotonic()) > 0:
            if stopped():
                return False
            if left > 0.003:
                self._producer.poll(min(left - 0.002, 0.1))
            else:
                self._producer.poll(0)
                time.sleep(max(min(left, due - time.monotonic()), 0))
        return True

    def serve(self) -> None:
        """Takes the acknowledgements that are there."""
        self._producer.poll(0)

    def finish(self, stopped: Callable[[], bool], stop_patience_s: float) -> None:
        """Waits until each record is acknowledged or has failed; after a stop, no longer than `stop_patience_s`."""
        if self._batch and self._in_transaction:
            self._commit(again=False)
        deadline: float | None = None
        while len(self._producer):
            self._producer.poll(0.1)
            if deadline is None and stopped():
                deadline = time.monotonic() + stop_patience_s
            if deadline is not None and time.monotonic() > deadline:
                self._producer.purge()
                self._producer.flush(5)
                return

    def _commit(self, *, again: bool) -> None:
        self._in_transaction = 0
        try:
            self._producer.commit_transaction()
            if again:
                self._producer.begin_transaction()
        except KafkaException as error:
            raise ReplayError(f"a transaction could not be committed: {error.args[0].str()}") from None

    def _delivered(
        self,
        due: float,
        sent: float,
        asked_topic: str,
        source: str,
        sequence: int,
        error: KafkaError | None,
        message: Message,
    ) -> None:
        start = self.start
        if error is not None:
            self._failed(int(time.monotonic() - start), asked_topic, source, sequence, error)
            return
        partition = message.partition()
        assert partition is not None
        latency = message.latency()
        at = sent + latency if latency is not None and latency >= 0 else time.monotonic()
        bucket = bucket_of(int((at - due) * 1e6))
        second = int(due - start)
        cell = self._cells.at(second, PRODUCE, asked_topic, partition)
        cell.latency[bucket] = cell.latency.get(bucket, 0) + 1
        done = int(at - start)
        if done != second:
            cell = self._cells.at(max(done, 0), PRODUCE, asked_topic, partition)
        cell.acknowledged += 1
        self._totals.acknowledged += 1

    def _failed(self, second: int, topic: str, source: str, sequence: int, error: KafkaError) -> None:
        self._cells.at(max(second, 0), PRODUCE, topic).fail(source, sequence, error.name())
        self._totals.failed += 1

    def _event(self, error: KafkaError) -> None:
        """What the client says of connections: no record has failed by it."""
        second = max(int(time.monotonic() - self.start), 0) if self.start else 0
        self._cells.at(second, PRODUCE, "").note_event(error.name())


def begin_transactions(producer: Producer, seconds: float) -> None:
    """Makes a transactional producer ready.  ReplayError where the cluster has no transactions."""
    try:
        producer.init_transactions(seconds)
        producer.begin_transaction()
    except KafkaException as error:
        raise ReplayError(
            f"the cluster refuses transactions ({error.args[0].name()}: {error.args[0].str()}): "
            "leave out --transaction-records; kbroker has none"
        ) from None


class Member:
    """A member of a consumer group in an executor: a thread of its own, which takes operations in order.

    A consume operation waits for one record; a commit commits what the member has consumed.  Operations that come
    while one is running wait for it, and their latency runs from when they were due.
    """

    def __init__(self, job: Job, group: str, executor: int, totals: Totals) -> None:
        self.group = group
        self.start = 0.0
        self._cells, self._totals = Cells(executor), totals
        self._late_us = round(job.delivery.late_ms * 1000)
        self._lock = threading.Lock()
        self._wait_s = job.delivery.consume_wait_ms / 1000
        self._operations: queue.SimpleQueue[tuple[float, str, str, int, str] | None] = queue.SimpleQueue()
        self._stopped = False
        self._consumer = Consumer(job.delivery.consumer(job.bootstrap, group))
        joined = threading.Event()
        self._consumer.subscribe(list(job.subscriptions[group]), on_assign=lambda *_: joined.set())
        self._held: Message | None = None
        self._join(joined)
        self._thread = threading.Thread(target=self._run, name=f"group-{group}", daemon=True)
        self._thread.start()

    def put(self, due: float, kind: str, source: str, sequence: int, topic: str) -> None:
        """Queue an operation that is due at `due`, in seconds of the replay's clock."""
        self._operations.put((due, kind, source, sequence, topic))

    def take(self) -> object:
        """The cells since the last call."""
        with self._lock:
            return self._cells.take()

    def finish(self, *, stopped: bool) -> None:
        """Ends after the operations that are there; after a stop, after the one that runs."""
        self._stopped = stopped
        self._operations.put(None)
        self._thread.join()
        self._consumer.close()

    def _join(self, joined: threading.Event) -> None:
        deadline = time.monotonic() + JOIN_SECONDS
        while not joined.is_set():
            self._held = self._consumer.poll(0.1) or self._held
            if time.monotonic() > deadline:
                self._consumer.close()
                raise ReplayError(f"group {self.group}: no assignment within {JOIN_SECONDS:g} s: does the broker have "
                                  "a coordinator for it?")  # fmt: skip

    def _run(self) -> None:
        while (operation := self._next()) is not None:
            if self._stopped:
                due, kind, _, _, topic = operation
                with self._lock:
                    self._cells.at(int(due - self.start), kind, topic).unsent += 1
                continue
            self._operate(*operation)

    def _next(self) -> tuple[float, str, str, int, str] | None:
        while True:
            try:
                return self._operations.get(timeout=_IDLE_S)
            except queue.Empty:
                # Rebalances are handled within `poll`; a record that it returns is kept for the next consume operation.
                if self._held is None:
                    self._held = self._consumer.poll(0)

    def _operate(self, due: float, kind: str, source: str, sequence: int, topic: str) -> None:
        begun = time.monotonic()
        partition, size, code = -1, 0, None
        try:
            if kind == COMMIT:
                self._commit()
            else:
                partition, size, code = self._consume()
        except KafkaException as error:
            code = error.args[0].name()
        done = time.monotonic()
        start = self.start
        error_us = int((begun - due) * 1e6)
        with self._lock:
            cell = self._cells.at(int(due - start), kind, topic, partition)
            cell.offered += 1
            cell.sent += 1
            bucket = bucket_of(error_us)
            cell.sent_error[bucket] = cell.sent_error.get(bucket, 0) + 1
            cell.late += error_us > self._late_us
            if code is not None:
                cell.fail(source, sequence, code)
            elif kind == CONSUME and partition < 0:
                cell.empty += 1
            else:
                bucket = bucket_of(int((done - due) * 1e6))
                cell.latency[bucket] = cell.latency.get(bucket, 0) + 1
                cell.acknowledged += 1
                cell.bytes += size

    def _consume(self) -> tuple[int, int, str | None]:
        message, self._held = self._held, None
        if message is None:
            message = self._consumer.poll(self._wait_s)
        if message is None:
            return -1, 0, None
        error = message.error()
        if error is not None:
            return -1, 0, error.name()
        partition = message.partition()
        assert partition is not None
        return partition, len(message), None

    def _commit(self) -> None:
        try:
            found: list[TopicPartition] | None = self._consumer.commit(asynchronous=False)
        except KafkaException as error:
            # Nothing consumed since the last commit: there is nothing to say to the broker.
            if error.args[0].code() != KafkaError._NO_OFFSET:
                raise
            return
        for one in found or ():
            if one.error is not None:
                raise KafkaException(one.error)
