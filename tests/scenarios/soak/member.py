"""A member of a soaked group as a process.

    python -m tests.scenarios.soak.member KIND BOOTSTRAP TOPIC GROUP SETTING=VALUE …

It says what happens to it, one line for each, nanoseconds of CLOCK_MONOTONIC first (one clock for all processes, of
Java, too): `owns` and its partitions, `got` a partition's records from .. to, `committed` a partition's offset as the
broker has acknowledged it, `accepted` records of a share group from .. to, `failed` and why, `left`.  SIGTERM: it
leaves in order.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Iterable
from typing import Any

stopping = False


def say(line: str) -> None:
    """One line at once: a member that is killed has said all that it did."""
    os.write(1, f"{time.monotonic_ns()} {line}\n".encode())


def say_owned(partitions: Iterable[int]) -> None:
    say(" ".join(["owns", *map(str, sorted(partitions))]))


def say_runs(word: str, partition: int, offsets: Iterable[int]) -> int:
    """Offsets in order, one line for each run; the offset behind the last."""
    first = last = -1
    for offset in offsets:
        if first >= 0 and offset != last + 1:
            say(f"{word} {partition} {first} {last}")
            first = -1
        first = offset if first < 0 else first
        last = offset
    if first >= 0:
        say(f"{word} {partition} {first} {last}")
    return last + 1


def by_partition(messages: Iterable[Any]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for message in messages:
        if message.error() is None:
            found.setdefault(message.partition(), []).append(message.offset())
        else:
            say(f"failed {message.error()}")
    return found


def confluent(bootstrap: str, topic: str, group: str, settings: dict[str, str]) -> None:
    """librdkafka, classic or consumer protocol."""
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    fixed = {"enable.auto.commit": False, "auto.offset.reset": "earliest", "group.id": group}
    consumer = Consumer({"bootstrap.servers": bootstrap, **fixed, **settings})
    owned: set[int] = set()

    def assigned(_consumer: Any, places: list[Any]) -> None:
        owned.update(place.partition for place in places)
        say_owned(owned)

    def taken(_consumer: Any, places: list[Any]) -> None:
        owned.difference_update(place.partition for place in places)
        say_owned(owned)

    consumer.subscribe([topic], on_assign=assigned, on_revoke=taken, on_lost=taken)
    while not stopping:
        places = {
            partition: say_runs("got", partition, offsets)
            for partition, offsets in by_partition(consumer.consume(500, 0.2)).items()
        }
        if not places:
            continue
        try:
            asked = [TopicPartition(topic, partition, offset) for partition, offset in places.items()]
            for place in consumer.commit(offsets=asked, asynchronous=False):
                say(f"failed {place.error}" if place.error else f"committed {place.partition} {place.offset}")
        except KafkaException as error:
            say(f"failed commit: {error}")
    consumer.close()


def confluent_share(bootstrap: str, topic: str, group: str, settings: dict[str, str]) -> None:
    """librdkafka's member of a share group."""
    from confluent_kafka import KafkaException, ShareConsumer

    consumer = ShareConsumer({"bootstrap.servers": bootstrap, "group.id": group, **settings})
    consumer.subscribe([topic])
    say_owned([])
    while not stopping:
        try:
            found = by_partition(consumer.poll(0.2))
            if not found:
                continue
            for partition, offsets in found.items():
                say_runs("got", partition, sorted(offsets))
            for place, error in consumer.commit_sync(10.0).items():
                if error is None:
                    say_runs("accepted", place.partition, sorted(found.get(place.partition, ())))
                else:
                    say(f"failed {place.partition} {error}")
        except KafkaException as error:
            say(f"failed {error}")
    consumer.close()


def kafka_python(bootstrap: str, topic: str, group: str, settings: dict[str, str]) -> None:
    """kafka-python, classic protocol."""
    from kafka import ConsumerRebalanceListener, KafkaConsumer, OffsetAndMetadata, TopicPartition
    from kafka.errors import KafkaError

    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=200,
        **{name: int(value) for name, value in settings.items()},
    )

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
            say_owned(place.partition for place in assigned)

        def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
            say_owned([])

    consumer.subscribe([topic], listener=Listener())
    while not stopping:
        try:
            # A poll that ends while kafka-python 3.0 rejoins for new metadata loses the outcome of that rejoin: as long
            # as it has nothing, it gets the time to finish.
            polled = consumer.poll(timeout_ms=200 if consumer.assignment() else 3_000)
            offsets = {
                place: OffsetAndMetadata(say_runs("got", place.partition, (each.offset for each in records)), "", -1)
                for place, records in polled.items()
            }
            if offsets:
                consumer.commit(offsets)
                for place, after in offsets.items():
                    say(f"committed {place.partition} {after.offset}")
        except KafkaError as error:
            say(f"failed {error!r}")
    consumer.close(autocommit=False)


def aiokafka(bootstrap: str, topic: str, group: str, settings: dict[str, str]) -> None:
    """aiokafka, classic protocol."""
    asyncio.run(_aiokafka(bootstrap, topic, group, settings))


async def _aiokafka(bootstrap: str, topic: str, group: str, settings: dict[str, str]) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
    from aiokafka.errors import KafkaError

    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        fetch_max_wait_ms=200,
        **{name: int(value) for name, value in settings.items()},
    )

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
            say_owned(place.partition for place in assigned)

        def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
            say_owned([])

    consumer.subscribe([topic], listener=Listener())
    await consumer.start()
    while not stopping:
        try:
            polled = await consumer.getmany(timeout_ms=200)
            offsets = {
                place: say_runs("got", place.partition, (each.offset for each in records))
                for place, records in polled.items()
            }
            if offsets:
                await consumer.commit(offsets)
                for place, offset in offsets.items():
                    say(f"committed {place.partition} {offset}")
        except KafkaError as error:
            say(f"failed {error!r}")
    await consumer.stop()


KINDS = {each.__name__: each for each in (confluent, confluent_share, kafka_python, aiokafka)}


def stop(_number: int, _frame: object) -> None:
    """Leave in order, soon."""
    global stopping
    stopping = True


def main() -> None:
    """See the module."""
    signal.signal(signal.SIGTERM, stop)
    kind, bootstrap, topic, group, *settings = sys.argv[1:]
    KINDS[kind](bootstrap, topic, group, dict(setting.split("=", 1) for setting in settings))
    say_owned([])
    say("left")


if __name__ == "__main__":
    main()
