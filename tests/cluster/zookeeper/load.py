"""Load on a cluster that is being changed: a producer that knows what was acknowledged, and a group that commits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

if TYPE_CHECKING:
    from confluent_kafka import Message

NETWORK = {
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,
    "topic.metadata.refresh.interval.ms": 1000,
    "topic.metadata.refresh.fast.interval.ms": 100,
}


class AcknowledgedProducer:
    """Writes numbers to all partitions in turn, with acks=all and idempotence, until it is stopped."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.acknowledged: dict[int, list[int]] = {each: [] for each in range(partitions)}
        self.failed: list[str] = []
        self.longest_pause = 0.0
        self._last = 0.0
        self._topic = topic
        self._stop = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.timeout.ms": 120_000,
                "retry.backoff.ms": 50,
                **NETWORK,
            }
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    @property
    def count(self) -> int:
        """How many are acknowledged."""
        return sum(map(len, self.acknowledged.values()))

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            partition = number % len(self.acknowledged)
            try:
                self._producer.produce(
                    self._topic, b"%d" % number, partition=partition, on_delivery=self._done(partition, number)
                )
                number += 1
            except BufferError:
                self._producer.poll(0.1)
            self._producer.poll(0.002)
        self._producer.flush(120)

    def _done(self, partition: int, number: int) -> Callable[[KafkaError | None, Message], None]:
        def done(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                self.failed.append(f"{number}: {error}")
                return
            now = time.monotonic()
            if self._last:
                self.longest_pause = max(self.longest_pause, now - self._last)
            self._last = now
            self.acknowledged[partition].append(number)

        return done

    def stop(self) -> None:
        """Write no more, and wait for what is under way."""
        self._stop.set()
        self._thread.join()


class GroupReader:
    """A consumer of a group that reads all partitions and commits what it has read, until it is stopped."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        self.found: set[int] = set()
        self.rows = 0
        self._stop = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 30_000,
                **NETWORK,
            }
        )
        self._consumer.subscribe([topic])
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            batch = [each for each in self._consumer.consume(500, 0.2) if each.error() is None]
            for each in batch:
                self.found.add(int(each.value() or b""))
            self.rows += len(batch)
            if batch:
                # A commit that fails, as its coordinator moves, is made again with the next one.
                self._consumer.commit(asynchronous=True)

    def committed(self, topic: str, partitions: int) -> list[int]:
        """What the group has committed, after one more commit where there is something to."""
        wanted = [TopicPartition(topic, each) for each in range(partitions)]
        try:
            self._consumer.commit(asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._NO_OFFSET:
                raise
        return [each.offset for each in self._consumer.committed(wanted, timeout=30)]

    def stop(self) -> None:
        """Read no more; it stays a member until `close`."""
        self._stop.set()
        self._thread.join()

    def close(self) -> None:
        """Leave the group."""
        self._consumer.close()


def read_partition(bootstrap: str, topic: str, partition: int) -> list[int]:
    """All values of a partition, in order."""
    settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "group.id": "x", "enable.partition.eof": True}
    consumer = Consumer({**settings, "enable.auto.commit": False, **NETWORK})
    consumer.assign([TopicPartition(topic, partition, 0)])
    found: list[int] = []
    try:
        while True:
            message = consumer.poll(60)
            assert message is not None, "the consumer gets nothing"
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                return found
            found.append(int(message.value() or b""))
    finally:
        consumer.close()
