"""Clients that go on while something happens to a cluster, and what they have seen is judged in the end."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import NewTopic

from tests.cluster.kraft.processes import Cluster
from tests.compat.waiting import wait_for

MORE = 50


class Life:
    """A producer that writes all the time and a group that reads it, from before something happens until after it."""

    def __init__(self, cluster: Cluster, topic: str, pause: float) -> None:
        self.acknowledged: set[str] = set()
        self.failures: list[KafkaError] = []
        self.read: list[str] = []
        self._topic = topic
        self._pause = pause
        self._stop = threading.Event()
        self._is_written = threading.Event()
        self._producer = Producer(
            {**cluster.client(), "enable.idempotence": True, "message.timeout.ms": 120000, "log_level": 0}
        )
        settings = {"group.id": f"of-{topic}", "auto.offset.reset": "earliest", "log_level": 0}
        self._consumer = Consumer({**cluster.client(), **settings})
        self._consumer.subscribe([topic])
        self._threads = [threading.Thread(target=each) for each in (self._write, self._read)]
        for each in self._threads:
            each.start()

    def _write(self) -> None:
        number = 0
        while not self._stop.is_set():
            self._producer.produce(self._topic, str(number), on_delivery=self._delivered)
            self._producer.poll(0)
            number += 1
            self._stop.wait(self._pause)
        self._producer.flush(120)
        self._is_written.set()

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged.add(message.value().decode())
        else:
            self.failures.append(error)

    def _read(self) -> None:
        while not self._is_written.is_set() or len(self.read) < len(self.acknowledged):
            message = self._consumer.poll(0.5)
            if message is not None and message.error() is None:
                self.read.append(message.value().decode())
            if self._is_written.is_set() and time.monotonic() > self._deadline:
                break
        self._consumer.close()

    def goes_on(self, seconds: float = 60.0) -> None:
        """Until more is acknowledged and read than by now."""
        written, read = len(self.acknowledged) + MORE, len(self.read) + MORE
        wait_for(
            lambda: len(self.acknowledged) > written and len(self.read) > read, "clients to go on", seconds=seconds
        )

    def end(self) -> None:
        """Everything is there, once."""
        self._deadline = time.monotonic() + 120
        self._stop.set()
        for each in self._threads:
            each.join(200)
        assert not self.failures, self.failures[:3]
        assert set(self.read) == self.acknowledged
        assert len(self.read) == len(self.acknowledged)


@contextmanager
def life(
    cluster: Cluster,
    topic: str,
    assignment: list[list[int]],
    configs: Mapping[str, str] | None = None,
    pause: float = 0.02,
) -> Iterator[Life]:
    """Over all of a block: a record each `pause` seconds to a new topic."""
    cluster.create(topic, assignment, configs)
    cluster.wait_isr(topic, {number for each in assignment for number in each})
    found = Life(cluster, topic, pause)
    try:
        found.goes_on()
        yield found
    finally:
        found.end()


def can_create(cluster: Cluster, through: int, topic: str) -> bool:
    """Whether a controller serves what a broker forwards; the topic may be there already, by a request before."""
    # It lives until it is answered.
    admin = cluster.admin_of(through)
    try:
        admin.create_topics([NewTopic(topic, 1, 1)], request_timeout=15)[topic].result(30)
    except KafkaException as error:
        return bool(error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS)
    return True
