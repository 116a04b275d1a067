"""confluent-kafka of an old release, run by a Python of its own: as `old_kafka_python.py`.

It runs under Python 3.7, too.
"""

from __future__ import annotations

import sys
import time

from confluent_kafka import Consumer, Producer


def produce(bootstrap: str, topic: str, count: int, codec: str) -> None:
    """Write key-N, value-N."""
    failed = []
    producer = Producer({"bootstrap.servers": bootstrap, "compression.codec": codec, "queue.buffering.max.ms": 20})
    for i in range(count):
        producer.produce(
            topic, f"{codec}-value-{i}", f"key-{i}", callback=lambda error, _: error and failed.append(error)
        )
    assert producer.flush(30) == 0
    assert not failed, failed


def consume(bootstrap: str, topic: str, limit: int, group: str, share: bool) -> None:
    """Print what comes, and what is assigned."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "partition.assignment.strategy": "range",
        }
    )
    consumer.subscribe([topic], on_assign=lambda _, found: print("assigned", len(found)))
    end = time.time() + (limit if share else 60)
    count = 0
    while time.time() < end and (share or count < limit):
        row = consumer.poll(0.2)
        if row is None:
            continue
        assert not row.error(), row.error()
        print("record", row.partition(), row.offset(), row.key().decode(), row.value().decode())
        count += 1
    if count:
        consumer.commit(asynchronous=False)
    consumer.close()


def main() -> None:
    """Run one command."""
    command, bootstrap, topic, count, last = sys.argv[1:6]
    if command == "produce":
        produce(bootstrap, topic, int(count), last)
    else:
        consume(bootstrap, topic, int(count), last, command == "share")
    print("done")


main()
