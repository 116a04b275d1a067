"""kafka-python 1.4, run by a Python of its own: `produce`, `consume`, `share`, as `java/old/OldClient.java` has them.

The last argument, when there is one more, is the API version that it takes the broker for (0.8.2, 0.9, 0.10, …).
"""

from __future__ import annotations

import sys
import time
from typing import Any

from kafka import KafkaConsumer, KafkaProducer


def produce(values: dict[str, Any], topic: str, count: int, codec: str) -> None:
    """Write key-N, value-N."""
    kind = None if codec == "none" else codec
    producer = KafkaProducer(acks="all", linger_ms=20, compression_type=kind, **values)
    sent = [producer.send(topic, b"%s-value-%d" % (codec.encode(), i), b"key-%d" % i) for i in range(count)]
    for each in sent:
        each.get(20)
    producer.close()


def consume(values: dict[str, Any], topic: str, limit: int, group: str, share: bool) -> None:
    """Print what comes, and what is assigned."""
    consumer = KafkaConsumer(
        topic,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        **values,
    )
    end = time.time() + (limit if share else 60)
    count, assigned = 0, set()
    while time.time() < end and (share or count < limit):
        for rows in consumer.poll(200).values():
            for row in rows:
                print("record", row.partition, row.offset, row.key.decode(), row.value.decode())
                count += 1
        if consumer.assignment() != assigned:
            assigned = set(consumer.assignment())
            print("assigned", len(assigned))
        consumer.commit()
        sys.stdout.flush()
    consumer.close()


def main() -> None:
    """Run one command."""
    command, bootstrap, topic, count, last = sys.argv[1:6]
    values: dict[str, Any] = {"bootstrap_servers": bootstrap}
    if len(sys.argv) > 6:
        values["api_version"] = tuple(int(part) for part in sys.argv[6].split("."))
    if command == "produce":
        produce(values, topic, int(count), last)
    else:
        consume(values, topic, int(count), last, command == "share")
    print("done")


main()
