"""Directories that Kafka and kbroker open in turn."""

from __future__ import annotations

from typing import Any, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from tests.compat.waiting import wait_for


class Read(NamedTuple):
    """A record as a consumer got it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    leader_epoch: int | None


def consume(bootstrap: str, topic: str, isolation: str = "read_uncommitted") -> list[Read]:
    """Everything from the start to the end that this isolation level sees."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "reader",
        "enable.auto.commit": False,
        "isolation.level": isolation,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
    }
    consumer = Consumer(settings)
    found: list[Read] = []
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])

        def ended() -> bool:
            for message in consumer.consume(500, timeout=0.2):
                if message.error() is not None:
                    assert message.error().name() == "_PARTITION_EOF", message.error()
                    return True
                headers: Any = message.headers() or ()
                found.append(
                    Read(
                        message.offset() or 0,
                        message.timestamp()[1],
                        message.key(),
                        message.value(),
                        tuple(headers),
                        message.leader_epoch(),
                    )
                )
            return False

        wait_for(ended, f"the end of {topic}")
    finally:
        consumer.close()
    return found


def transact(bootstrap: str, topic: str, name: str, *, commit: bool, end: bool = True) -> Producer:
    """A transaction of 20 records, ended or left open; its producer."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "linger.ms": 1})
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in range(20):
        producer.produce(topic, key=name.encode(), value=f"{name} {number}".encode())
    assert producer.flush(30) == 0
    if end and commit:
        producer.commit_transaction(30)
    elif end:
        producer.abort_transaction(30)
    return producer
