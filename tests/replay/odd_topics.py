"""Topics with everything that a record may have, for comparing readers."""

from __future__ import annotations

import random
from collections.abc import Callable

from confluent_kafka import Producer

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def produce_odd(bootstrap: str, topic: str, codec: str, partitions: int, count: int, seed: int = 1) -> None:
    """`count` records over the partitions: keys and values null, empty, short and random; headers of all kinds."""
    chance = random.Random(f"{seed}-{codec}")
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 20, "acks": "all"})
    for number in range(count):
        key = chance.choice((None, b"", b"key-%d" % (number % 7), chance.randbytes(chance.randrange(30))))
        value = chance.choice((None, b"", b"value %d " % number * 5, chance.randbytes(chance.randrange(200))))
        headers: list[tuple[str, bytes | None]] = [
            (
                chance.choice(("", "a", "trace-id", "größe", "dup", "dup")),
                chance.choice((None, b"", b"\x00\xff", b"x" * 40)),
            )
            for _ in range(chance.choice((0, 0, 0, 1, 3)))
        ]
        timestamp = 1_700_000_000_000 + number * 37 % 5000
        producer.produce(
            topic, key=key, value=value, partition=number % partitions, headers=headers, timestamp=timestamp
        )
        if number % 500 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0


def produce_transactions(bootstrap: str, topic: str, is_committed: Callable[[int], bool], count: int = 8) -> None:
    """Transactions of 20 records, by two producers that take turns; `is_committed(number)` decides how each ends."""
    producers = []
    for name in ("one", "two"):
        producer = Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": f"{topic}-{name}", "compression.type": "lz4"}
        )
        producer.init_transactions(60)
        producers.append(producer)
    plain = Producer({"bootstrap.servers": bootstrap})
    for number in range(count):
        producer = producers[number % 2]
        producer.begin_transaction()
        for record in range(20):
            producer.produce(topic, key=b"%d" % number, value=b"%d-%d" % (number, record), partition=0)
            if record == 10:
                # In between, so that the transaction's batches do not lie together.
                producer.flush(30)
                plain.produce(topic, key=b"plain", value=b"plain-%d" % number, partition=0)
                plain.flush(30)
        if is_committed(number):
            producer.commit_transaction(60)
        else:
            producer.flush(30)
            producer.abort_transaction(60)
