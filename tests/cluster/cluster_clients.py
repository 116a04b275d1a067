"""Clients of a cluster of real processes: what a test creates, writes and reads there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kbroker.testing.security import Security
from tests.compat.waiting import wait_for

PATIENCE = 180
"""Seconds for what takes some on a machine that is not busy."""


class HasPort(Protocol):
    """A broker on loopback."""

    @property
    def port(self) -> int: ...


class ClusterClients:
    """See the module; `brokers()` are those that clients are told of at the beginning."""

    security: Security | None = None

    def brokers(self) -> Iterable[HasPort]:
        raise NotImplementedError

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{each.port}" for each in self.brokers())

    def client(self, user: str = "admin") -> dict[str, str]:
        """What a client takes."""
        secured: dict[str, str] = {}
        if self.security is not None:
            assert self.security.directory is not None
            secured = self.security.client_settings(self.security.directory, user)
        return {"bootstrap.servers": self.bootstrap, **secured}

    def admin(self) -> AdminClient:
        return AdminClient({**self.client(), "socket.timeout.ms": 20000})

    def wait_known(self, wanted: set[int]) -> None:
        """The controller has seen who is registered, and brokers tell clients."""
        admin = self.admin()

        def known() -> bool:
            try:
                return set(admin.list_topics(timeout=10).brokers) == wanted
            except KafkaException:
                return False

        wait_for(known, f"brokers {wanted} to be known", seconds=60)

    def create(self, topic: str, assignment: list[list[int]], config: Mapping[str, str] | None = None) -> None:
        new = NewTopic(topic, len(assignment), replica_assignment=assignment, config=dict(config or {}))
        admin = self.admin()
        admin.create_topics([new])[topic].result(30)

    def produce(self, topic: str, values: Sequence[str], partition: int | None = None) -> None:
        """With acks=all; each must be acknowledged."""
        producer = Producer({**self.client(), "acks": "all", "message.timeout.ms": 60000})
        failed: list[KafkaError] = []

        def delivered(error: KafkaError | None, _message: object) -> None:
            if error is not None:
                failed.append(error)

        for value in values:
            where = {} if partition is None else {"partition": partition}
            producer.produce(topic, value, on_delivery=delivered, **where)
        assert producer.flush(60) == 0
        assert not failed

    def consume(self, topic: str, partitions: int, count: int) -> list[str]:
        consumer = Consumer({**self.client(), "group.id": "reader", "enable.auto.commit": False})
        consumer.assign([TopicPartition(topic, each, 0) for each in range(partitions)])
        found: list[str] = []

        def enough() -> bool:
            message = consumer.poll(1)
            if message is not None and message.error() is None:
                found.append(message.value().decode())
            return len(found) >= count

        wait_for(enough, f"{count} records of {topic}, {len(found)} came", seconds=PATIENCE)
        consumer.close()
        return found
