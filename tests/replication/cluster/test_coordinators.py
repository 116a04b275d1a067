"""Groups and transactions whose state is on three brokers: it moves to another one when its broker is killed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import uvloop
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.replication.cluster.processes import Cluster, running, until

pytestmark = pytest.mark.slow

TOPIC = "data"
CLIENT = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "topic.metadata.refresh.interval.ms": 500}


def run(scenario: Any, directory: Path, **settings: str) -> None:
    async def main() -> None:
        async with running(directory, 3, settings) as cluster, asyncio.timeout(120):
            await scenario(cluster)

    uvloop.run(main())


def consumer(cluster: Cluster, **settings: Any) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
            **CLIENT,
            **settings,
        }
    )


def consume(member: Consumer, count: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < count:
        message = member.poll(30)
        assert message is not None, f"{len(found)} of {count} records came"
        value = message.value()
        assert message.error() is None and value is not None, message.error()
        found.append(value)
    return found


def produce(producer: Producer, values: list[bytes], partition: int = 0) -> None:
    errors: list[Any] = []
    for value in values:
        producer.produce(TOPIC, value, partition=partition, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(30) == 0 and not any(errors), errors


def test_a_group_outlives_its_coordinator(tmp_path: Path) -> None:
    """Every group would begin anew, or read everything again, with the loss of one machine."""

    async def scenario(cluster: Cluster) -> None:
        controller = cluster.controller
        await controller.create("__consumer_offsets", [(1, 2, 3)])
        await controller.create(TOPIC, [(2, 3, 1)])
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", **CLIENT})
        await asyncio.to_thread(produce, producer, [b"%d" % each for each in range(20)])
        member = consumer(cluster)
        member.subscribe([TOPIC])
        found = await asyncio.to_thread(consume, member, 10)
        position = TopicPartition(TOPIC, 0, 10)
        await asyncio.to_thread(member.commit, offsets=[position], asynchronous=False)
        await cluster.kill(1)
        # The same member goes on, with what it has committed.
        found += await asyncio.to_thread(consume, member, 10)
        position = TopicPartition(TOPIC, 0, 20)
        await asyncio.to_thread(member.commit, offsets=[position], asynchronous=False)
        assert found == [b"%d" % each for each in range(20)]
        await cluster.start(1)
        await until(lambda: len(controller.image("__consumer_offsets").isr) == 3, "1 does not come back")
        await cluster.kill(2)
        other = consumer(cluster, **{"group.id": "g"})
        (committed,) = await asyncio.to_thread(other.committed, [TopicPartition(TOPIC, 0)], 30)
        assert committed.offset == 20
        await asyncio.to_thread(member.close)
        await asyncio.to_thread(other.close)

    run(scenario, tmp_path)


def test_a_transaction_over_brokers_outlives_its_coordinator(tmp_path: Path) -> None:
    """Records of a transaction would stay invisible for good, or be there in part."""

    async def scenario(cluster: Cluster) -> None:
        controller = cluster.controller
        await controller.create("__transaction_state", [(1, 2, 3)])
        await controller.create("__consumer_offsets", [(2, 3, 1)])
        await controller.create(TOPIC, [(2, 3, 1), (3, 2, 1)])
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "x", **CLIENT})
        await asyncio.to_thread(producer.init_transactions, 30)

        def transaction(name: bytes, *, end: bool) -> None:
            producer.begin_transaction()
            for partition in (0, 1):
                produce(producer, [name], partition)
            if end:
                producer.commit_transaction(30)
            else:
                producer.abort_transaction(30)

        await asyncio.to_thread(transaction, b"one", end=True)
        await asyncio.to_thread(transaction, b"gone", end=False)
        producer.begin_transaction()
        for partition in (0, 1):
            await asyncio.to_thread(produce, producer, [b"two"], partition)
        await cluster.kill(1)
        await asyncio.to_thread(producer.commit_transaction, 60)
        await asyncio.to_thread(transaction, b"three", end=True)
        member = consumer(cluster, **{"isolation.level": "read_committed"})
        member.assign([TopicPartition(TOPIC, each, 0) for each in (0, 1)])
        found = await asyncio.to_thread(consume, member, 6)
        assert sorted(found) == sorted([b"one", b"two", b"three"] * 2)
        await asyncio.to_thread(member.close)

    run(scenario, tmp_path)
