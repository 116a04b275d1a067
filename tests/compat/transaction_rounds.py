"""Transactions of real clients, in rounds."""

from __future__ import annotations

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic


def create(bootstrap: str, **topics: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(name, count) for name, count in topics.items()]).values():
        future.result(90)


def read_all(bootstrap: str, topic: str, partitions: int, isolation: str = "read_committed") -> list[bytes]:
    """The values of a topic up to its end, as it is for this kind of reader."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "isolation.level": isolation,
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    values: list[bytes] = []
    ends = 0
    try:
        while ends < partitions:
            message = consumer.poll(90)
            assert message is not None, "no end of the partition was told"
            if message.error() is None:
                values.append(message.value() or b"")
            else:
                ends += 1
    finally:
        consumer.close()
    return values
