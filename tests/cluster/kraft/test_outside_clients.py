"""Outside clients on a cluster of kbroker and Apache Kafka 4.3.1, while each broker is killed and comes back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from tests.cluster.kraft.processes import Cluster, Kafka, Kbroker, running
from tests.compat.streams_app import Feeder, Results, WordCountProcess
from tests.compat.waiting import wait_for

pytestmark = [pytest.mark.compat, pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(900)]

BOTH = [[1, 2], [2, 1]]
EVERYBODY = {1, 2}
SETTINGS = {
    "group.streams.min.session.timeout.ms": "2000",
    "group.streams.session.timeout.ms": "6000",
    "group.streams.min.heartbeat.interval.ms": "200",
    "group.streams.heartbeat.interval.ms": "500",
    "group.streams.initial.rebalance.delay.ms": "500",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}
EXACTLY_ONCE = {
    "processing.guarantee": "exactly_once_v2",
    "commit.interval.ms": "200",
    "replication.factor": "2",
    "producer.transaction.timeout.ms": "10000",
    "producer.max.block.ms": "120000",
    "default.api.timeout.ms": "120000",
}


def without_each(cluster: Cluster, *topics: str) -> Iterator[int]:
    """Each broker in turn is killed; it comes back when the caller goes on, and is in sync before the next one."""
    for number in EVERYBODY:
        cluster.nodes[number].kill()
        for topic in topics:
            cluster.wait_isr(topic, EVERYBODY - {number})
        yield number
        cluster.nodes[number].start()
        for topic in topics:
            cluster.wait_isr(topic, EVERYBODY)


def written(cluster: Cluster, topic: str) -> int:
    """How many offsets are used, asked by a client that knows of no broker that was there before."""
    settings = {**cluster.client(), "group.id": "ends", "log_level": 0}
    consumer = Consumer(settings)
    try:
        return sum(consumer.get_watermark_offsets(TopicPartition(topic, at), timeout=10)[1] for at in range(len(BOTH)))
    except KafkaException:
        return 0
    finally:
        consumer.close()


@pytest.mark.parametrize("protocol", ["classic", "streams"])
def test_counts_of_streams_are_exact_though_each_broker_is_killed(protocol: str, tmp_path: Path) -> None:
    """An application of Kafka Streams would lose words or count them twice when the other kind of broker takes over."""
    with running(tmp_path, (Kbroker, Kafka), settings=SETTINGS) as cluster:
        for topic in ("words", "counts"):
            cluster.create(topic, BOTH)
            cluster.wait_isr(topic, EVERYBODY)
        feeder = Feeder(cluster.bootstrap, "words")
        settings = {"group.protocol": protocol, **EXACTLY_ONCE}
        instance = WordCountProcess(cluster.bootstrap, "app", ("words", "counts"), tmp_path / "app", settings)
        try:
            feeder.feed(200)
            instance.wait_running(120)
            wait_for(lambda: written(cluster, "counts") > 0, "the first counts", seconds=120, every=0.1)
            internal = sorted(
                each for each in cluster.admin().list_topics(timeout=20).topics if each.startswith("app-")
            )
            assert internal
            for _ in without_each(cluster, "words", "counts", "__consumer_offsets", "__transaction_state", *internal):
                seen = written(cluster, "counts")
                feeder.feed(200)
                wait_for(lambda: written(cluster, "counts") > seen, "the application to go on", seconds=120, every=0.1)  # noqa: B023
            feeder.feed(100)
            feeder.finish()
            Results(cluster.bootstrap, "counts").wait_for(feeder.counts, 180)
        finally:
            instance.close()


class Copier:
    """A member of a group that copies `source` to `copy`, each record in one transaction with its offset."""

    def __init__(self, cluster: Cluster, protocol: str) -> None:
        self.seen: set[bytes] = set()
        settings = {"group.id": "copiers", "group.protocol": protocol, "isolation.level": "read_committed"}
        self._consumer = Consumer(
            {
                **cluster.client(),
                **settings,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        self._consumer.subscribe(["source"])
        self._producer = Producer(
            {**cluster.client(), "transactional.id": "copier", "transaction.timeout.ms": 120000, "log_level": 0}
        )
        self._producer.init_transactions(120)

    def copy(self, until: int) -> None:
        """Until so many different records are copied."""

        def is_copied() -> bool:
            messages = [each for each in self._consumer.consume(20, 0.5) if each.error() is None]
            if messages:
                self._transaction(messages)
            return len(self.seen) >= until

        wait_for(is_copied, f"{until} copies", seconds=240)

    def _transaction(self, messages: list[Message]) -> None:
        self._producer.begin_transaction()
        try:
            for each in messages:
                self._producer.produce("copy", each.value())
            places = self._consumer.position(self._consumer.assignment())
            self._producer.send_offsets_to_transaction(places, self._consumer.consumer_group_metadata(), 60)
            self._producer.commit_transaction(60)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            self._producer.abort_transaction(60)
            first: dict[tuple[str, int], int] = {}
            for each in messages:
                first.setdefault((each.topic(), each.partition()), each.offset())
            for (topic, partition), offset in first.items():
                if (topic, partition) in {(at.topic, at.partition) for at in self._consumer.assignment()}:
                    self._consumer.seek(TopicPartition(topic, partition, offset))
            return
        self.seen.update(each.value() for each in messages)

    def close(self) -> None:
        self._consumer.close()


def committed(cluster: Cluster, topic: str) -> list[bytes]:
    """All that a reader of committed records is given."""
    consumer = Consumer(
        {
            **cluster.client(),
            "group.id": "r",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, each, 0) for each in range(len(BOTH))])
    found: list[bytes] = []
    ended: set[int] = set()

    def is_read() -> bool:
        message = consumer.poll(1)
        if message is not None and message.error() is not None:
            ended.add(message.partition())
        elif message is not None:
            found.append(message.value())
        return len(ended) == len(BOTH)

    wait_for(is_read, f"the ends of {topic}", seconds=120)
    consumer.close()
    return found


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_copy_by_a_group_is_exact_though_each_broker_is_killed(protocol: str, tmp_path: Path) -> None:
    """A group or its transactions would not outlive a coordinator of one kind that one of the other follows."""
    with running(tmp_path, (Kbroker, Kafka)) as cluster:
        for topic in ("source", "copy"):
            cluster.create(topic, BOTH)
            cluster.wait_isr(topic, EVERYBODY)
        rounds = iter(range(10))

        def write() -> int:
            number = next(rounds)
            cluster.produce("source", [f"{number}-{each}" for each in range(200)])
            return 200 * (number + 1)

        copier = Copier(cluster, protocol)
        copier.copy(write())
        for _ in without_each(cluster, "source", "copy", "__consumer_offsets", "__transaction_state"):
            # Copies come later.  While the group's coordinator of before is away, librdkafka 2.16 sends
            # TxnOffsetCommit to nobody else, in a cluster of Apache Kafka alone as well, and waits for its return.
            write()
        total = write()
        copier.copy(total)
        copier.close()
        counts = Counter(committed(cluster, "copy"))
        assert len(counts) == total
        assert set(counts.values()) == {1}
