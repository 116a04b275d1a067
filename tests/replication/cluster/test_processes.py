"""Three kbroker processes with every partition on each of them, killed in turn under a producer with acks=all.

The test is their controller: it sends what a ZooKeeper controller sends.
"""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import uvloop
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from kbroker.errors import ErrorCode
from kbroker.testing.broker import answers_api_versions
from tests.broker.client import Batch, Client
from tests.replication.cluster.processes import Cluster, running, until

TOPIC = "replicated"


class Acknowledged:
    """A producer that writes numbers until it is stopped, and what was acknowledged."""

    def __init__(self, bootstrap: str, **settings: Any) -> None:
        self.values: list[int] = []
        self.failed: list[str] = []
        self._stop = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "linger.ms": 1,
                "message.timeout.ms": 60_000,
                "retry.backoff.ms": 20,
                "topic.metadata.refresh.interval.ms": 500,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                **settings,
            }
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            self._producer.produce(TOPIC, b"%d" % number, partition=0, on_delivery=self._done(number))
            number += 1
            self._producer.poll(0.002)
        self._producer.flush(60)

    def _done(self, number: int) -> Any:
        def done(error: Any, _message: Any) -> None:
            if error is None:
                self.values.append(number)
            else:
                self.failed.append(str(error))

        return done

    def stop(self) -> list[int]:
        self._stop.set()
        self._thread.join()
        return self.values


def read_all(bootstrap: str, topic: str = TOPIC) -> list[int]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "x", "enable.partition.eof": True, "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[int] = []
    try:
        while True:
            message = consumer.poll(60)
            assert message is not None, "the consumer gets nothing"
            error, value = message.error(), message.value()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                return found
            assert value is not None
            found.append(int(value))
    finally:
        consumer.close()


def run(scenario: Any, directory: Path, count: int = 3, **settings: str) -> None:
    async def main() -> None:
        async with running(directory, count, settings) as cluster, asyncio.timeout(120):
            await scenario(cluster)

    uvloop.run(main())


async def in_sync(cluster: Cluster, count: int, topic: str = TOPIC) -> None:
    await until(lambda: len(cluster.controller.image(topic).isr) == count, f"the ISR never had {count} replicas")


async def same_logs(cluster: Cluster, topic: str = TOPIC) -> None:
    def same() -> bool:
        found = cluster.segments(topic)
        return len(found) == len(cluster.members) and len(set(found.values())) == 1

    await until(same, f"the logs differ: { {k: len(v) for k, v in cluster.segments(topic).items()} }")


def test_nothing_acknowledged_is_lost_when_leaders_and_followers_are_killed(tmp_path: Path) -> None:
    """The one promise of replication."""

    async def scenario(cluster: Cluster) -> None:
        controller = cluster.controller
        await controller.create(TOPIC, [(1, 2, 3)])
        producer = Acknowledged(cluster.bootstrap)
        try:
            await until(lambda: len(producer.values) > 100, "nothing is acknowledged")
            await cluster.kill(3)
            before = len(producer.values)
            await until(lambda: len(producer.values) > before + 100, "not acknowledged without a follower")
            await cluster.start(3)
            await in_sync(cluster, 3)
            await cluster.kill(1)
            assert controller.image(TOPIC).leader == 2
            before = len(producer.values)
            await until(lambda: len(producer.values) > before + 100, "not acknowledged by the new leader")
            await cluster.start(1)
            await in_sync(cluster, 3)
            await cluster.kill(2)
            before = len(producer.values)
            await until(lambda: len(producer.values) > before + 100, "not acknowledged by the third leader")
            await cluster.start(2)
            await in_sync(cluster, 3)
        finally:
            acknowledged = await asyncio.to_thread(producer.stop)
        assert not producer.failed
        found = await asyncio.to_thread(read_all, cluster.bootstrap)
        assert set(acknowledged) <= set(found)
        await same_logs(cluster)

    run(scenario, tmp_path)


def test_a_replica_is_proposed_with_the_broker_epoch_of_the_process_that_fetches(tmp_path: Path) -> None:
    """One that has come back without the end of its log would be in the ISR for what its process before it had."""

    async def scenario(cluster: Cluster) -> None:
        controller = cluster.controller
        await controller.create(TOPIC, [(1, 2)])
        await cluster.kill(2)
        await cluster.start(2)
        await in_sync(cluster, 2)
        assert controller.named_epochs[-1][2] == controller.nodes[2].epoch

    run(scenario, tmp_path, count=2)


def test_metadata_wait_for_the_first_word_of_a_controller(tmp_path: Path) -> None:
    """Clients that ask a broker which has just started would take all topics for deleted."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.controller.create(TOPIC, [(1, 2)])
        await cluster.kill(2)
        member = cluster.members[2]
        member.launch(200)
        await until(lambda: answers_api_versions(member.port), "the broker never answered")
        with Client(member.port) as client, Client(member.port) as other:
            client.send("Metadata", 12, {"topics": None})
            written = await asyncio.to_thread(other.produce, TOPIC, Batch())
            assert written.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert client.silent()
            await cluster.controller.came(2, member.port, 200)
            found = await asyncio.to_thread(client.answer, "Metadata", 12)
        assert TOPIC in [each.name for each in found.topics]
        assert {1, 2} <= {each.node_id for each in found.brokers}

    run(scenario, tmp_path, count=2)
