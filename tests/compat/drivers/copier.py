"""Copies a topic with transactions: `python -m tests.compat.drivers.copier CLIENT BOOTSTRAP SOURCE COPY GROUP COUNT`.

Each transaction consumes some records of SOURCE's one partition, writes them to COPY and commits the consumer's
offsets; each third one writes `aborted` and is aborted.  It ends with 0 when COUNT records are committed as consumed;
with an error that its client does not get over, it ends with 1, and is to be run again.
"""

from __future__ import annotations

import asyncio
import faulthandler
import sys
from typing import Any

ABORTED = b"aborted"
RECORDS = 20


def confluent(bootstrap: str, source: str, copy: str, group: str, count: int) -> None:
    """librdkafka."""
    from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

    place = TopicPartition(source, 0)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"copier-{group}"})
    producer.init_transactions(60)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "session.timeout.ms": 10_000,
        }
    )
    consumer.subscribe([source])

    def attempt(step: Any, *arguments: Any) -> None:
        while True:
            try:
                step(*arguments)
                return
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise

    def committed() -> int:
        while True:
            try:
                (found,) = consumer.committed([place], 10)
                return max(found.offset, 0)
            except KafkaException:
                pass  # The coordinator is not there yet.

    def rewind() -> None:
        consumer.seek(TopicPartition(source, 0, committed()))

    number = 0
    while True:
        messages = [message for message in consumer.consume(RECORDS, 0.5) if message.error() is None]
        if not messages:
            if committed() == count:
                break
            continue
        number += 1
        try:
            producer.begin_transaction()
            for message in messages:
                producer.produce(copy, ABORTED if number % 3 == 0 else message.value())
            if number % 3 == 0:
                producer.flush(60)
                attempt(producer.abort_transaction, 60)
                rewind()
                continue
            offsets = [TopicPartition(source, 0, messages[-1].offset() + 1)]
            # librdkafka 2.16 whose coordinator went away never sends them, neither to Kafka 4.3.1, and waits for ever.
            faulthandler.dump_traceback_later(8, exit=True)
            producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 60)
            faulthandler.cancel_dump_traceback_later()
            attempt(producer.commit_transaction, 60)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            attempt(producer.abort_transaction, 60)
            rewind()
    consumer.close()


def kafka_python(bootstrap: str, source: str, copy: str, group: str, count: int) -> None:
    """kafka-python."""
    from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition

    place = TopicPartition(source, 0)
    producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=f"copier-{group}")
    producer.init_transactions()
    consumer = KafkaConsumer(
        source,
        bootstrap_servers=bootstrap,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    number = 0
    while True:
        records = consumer.poll(timeout_ms=1_000, max_records=RECORDS).get(place, [])
        if not records:
            if consumer.committed(place) == count:
                break
            continue
        number += 1
        producer.begin_transaction()
        for record in records:
            producer.send(copy, ABORTED if number % 3 == 0 else record.value)
        if number % 3 == 0:
            producer.flush()
            producer.abort_transaction()
            consumer.seek(place, records[0].offset)
            continue
        after = {place: OffsetAndMetadata(records[-1].offset + 1, "", -1)}
        producer.send_offsets_to_transaction(after, consumer.group_metadata())
        producer.commit_transaction()
    consumer.close(autocommit=False)
    producer.close()


def aiokafka(bootstrap: str, source: str, copy: str, group: str, count: int) -> None:
    """aiokafka."""
    asyncio.run(_aiokafka(bootstrap, source, copy, group, count))


async def _aiokafka(bootstrap: str, source: str, copy: str, group: str, count: int) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

    place = TopicPartition(source, 0)
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=f"copier-{group}")
    await producer.start()
    consumer = AIOKafkaConsumer(
        source,
        bootstrap_servers=bootstrap,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    await consumer.start()
    number = 0
    while True:
        records = (await consumer.getmany(timeout_ms=500, max_records=RECORDS)).get(place, [])
        if not records:
            if await consumer.committed(place) == count:
                break
            continue
        number += 1
        await producer.begin_transaction()
        sent = [await producer.send(copy, ABORTED if number % 3 == 0 else record.value) for record in records]
        if number % 3 == 0:
            await asyncio.gather(*sent)
            await producer.abort_transaction()
            consumer.seek(place, records[0].offset)
            continue
        await producer.send_offsets_to_transaction({place: records[-1].offset + 1}, group)
        await producer.commit_transaction()
    await consumer.stop()
    await producer.stop()


CLIENTS = {each.__name__: each for each in (confluent, kafka_python, aiokafka)}

if __name__ == "__main__":
    CLIENTS[sys.argv[1]](*sys.argv[2:6], int(sys.argv[6]))
