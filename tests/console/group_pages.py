"""Groups for the console's pages."""

from __future__ import annotations

from confluent_kafka import Consumer, TopicPartition

from tests.broker_process import BrokerProcess


def joined(broker: BrokerProcess, group_id: str, topic: str, protocol: str) -> Consumer:
    """A consumer that has its partitions and has committed offset 2 of partition 0."""
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "log_level": 0,
        "group.id": group_id,
        "client.id": f"of {protocol}",
    }
    consumer = Consumer({**settings, "group.protocol": protocol, "enable.auto.commit": False})
    consumer.subscribe([topic])
    while not consumer.assignment():
        consumer.poll(0.1)
    consumer.commit(offsets=[TopicPartition(topic, 0, 2)], asynchronous=False)
    return consumer
