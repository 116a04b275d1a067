"""A broker with quotas, and clients that measure what they get."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from kbroker.client.connection import Connection
from kbroker.schemas import wire
from tests.network import raw_client as raw
from tests.network.raw_client import RawClient

PAYLOAD = b"x" * 2_000
# A quota counts what is sent, whole batches or not: a fetch has room for eight of them, and little more.
EIGHT_BATCHES = 16_600


def set_quotas(port: int, entity: Mapping[str, str | None], **values: float | None) -> None:
    """Set quotas of an entity, None to remove one."""
    with Connection("127.0.0.1", port, client_id="quota-admin") as connection:
        alter_quotas(connection, entity, **values)


def alter_quotas(connection: Connection, entity: Mapping[str, str | None], **values: float | None) -> None:
    """The same on a connection that is there."""
    request = wire.AlterClientQuotasRequest
    entry = request.EntryData(
        entity=[request.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[request.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()],
    )
    (result,) = connection.send(request(entries=[entry])).entries
    assert result.error_code == 0, result.error_message


class Taken(NamedTuple):
    """What a client got through, and how often a broker had it wait."""

    size: int
    seconds: float
    throttles: int

    @property
    def per_second(self) -> float:
        return self.size / self.seconds


def produced(bootstrap: str, topic: str, client_id: str, seconds: float, most: int) -> Taken:
    """What a producer that sends as fast as it may gets acknowledged, in bytes of requests about, for so long or up to
    so many bytes."""
    from confluent_kafka import Producer

    acknowledged = 0
    throttles: list[Any] = []

    def delivered(error: Any, message: Any) -> None:
        nonlocal acknowledged
        assert error is None, error
        acknowledged += len(message.value())

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": client_id,
            "linger.ms": 1,
            "batch.size": 16_384,
            "queue.buffering.max.messages": 200,
            "max.in.flight.requests.per.connection": 1,
            "throttle_cb": throttles.append,
        }
    )
    begin = time.monotonic()
    while time.monotonic() - begin < seconds and acknowledged < most:
        try:
            producer.produce(topic, PAYLOAD, on_delivery=delivered)
        except BufferError:
            producer.poll(0.005)
        producer.poll(0)
    taken = Taken(acknowledged, time.monotonic() - begin, len(throttles))
    producer.purge()
    return taken


def fill(port: int, topic: str, count: int) -> None:
    """Make a topic of batches of one record each."""
    raw.create_topic(port, topic, 1)
    write(port, topic, count)


def write(port: int, topic: str, count: int) -> None:
    """The batches alone."""
    batch = raw.good_batch(1, PAYLOAD)
    with RawClient(port) as client:
        for _ in range(count):
            assert raw.produce_answer(client.ask(raw.produce(topic, 0, batch)))[0] == raw.NONE


def consumed(bootstrap: str, topic: str, client_id: str, seconds: float, most: int) -> Taken:
    """What a consumer that reads as fast as it may gets, for so long or up to so many bytes."""
    from confluent_kafka import Consumer, TopicPartition

    throttles: list[Any] = []
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": client_id,
            "group.id": client_id,
            "enable.auto.commit": False,
            "fetch.message.max.bytes": EIGHT_BATCHES,
            "queued.max.messages.kbytes": 64,
            "fetch.queue.backoff.ms": 1,
            "throttle_cb": throttles.append,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    begin = time.monotonic()
    received = 0
    while time.monotonic() - begin < seconds and received < most:
        received += sum(len(message.value()) for message in consumer.consume(500, 0.05) if message.error() is None)
    taken = Taken(received, time.monotonic() - begin, len(throttles))
    consumer.close()
    return taken
