"""The producer of executors against a real broker: order, once each, through crashes and refusals."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from kbroker._fast.records.record_codec import append_record
from kbroker.client.cluster import ClientSettings, Cluster
from kbroker.client.errors import BrokerUnreachableError, RetriesExhaustedError, TopicUnknownError
from kbroker.client.producer import Batch, BatchProducer, DeliveryError, ProducerSettings
from kbroker.records.batch import HEADER
from kbroker.records.compression import Codec
from tests.broker_process import BrokerProcess
from tests.compat.admin import Admin

NOW_MS = 1_700_000_000_000
PATIENT = ClientSettings(retry_backoff_s=0.01, retry_backoff_max_s=0.1, first_patience_s=100)


def batch_of(values: list[bytes]) -> Batch:
    payload = bytearray()
    for number, value in enumerate(values):
        append_record(payload, 0, number, None, value)
    return Batch(bytearray(HEADER.size) + payload, len(values), NOW_MS, NOW_MS)


def values_of(bootstrap: str, topic: str, partition: int) -> list[bytes]:
    settings = {"bootstrap.servers": bootstrap, "group.id": "check", "enable.partition.eof": True}
    consumer = Consumer(settings)
    found: list[bytes] = []
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        while True:
            message = consumer.poll(90)
            assert message is not None, "the broker does not answer"
            if message.error():
                return found
            found.append(message.value() or b"")
    finally:
        consumer.close()


def numbered(partition: int, batch: int, count: int = 5) -> list[bytes]:
    return [b"%d-%d-%d" % (partition, batch, number) for number in range(count)]


@pytest.mark.parametrize("codec", list(Codec))
def test_order_is_kept_in_every_codec(kbroker_broker: BrokerProcess, codec: Codec) -> None:
    """Records would be shuffled, or come twice, within a partition."""
    topic = Admin(kbroker_broker.bootstrap).create_topic("produced", 3, {"retention.ms": "-1"})
    settings = ProducerSettings(codec=codec, max_request_bytes=2000, buffer_bytes=4000)
    with Cluster(kbroker_broker.bootstrap, PATIENT) as cluster, BatchProducer(cluster, settings) as producer:
        for batch in range(60):
            for partition in range(3):
                producer.add(topic, partition, batch_of(numbered(partition, batch)))
        producer.flush()
        assert producer.acknowledged_records == 900
    for partition in range(3):
        expected = [value for batch in range(60) for value in numbered(partition, batch)]
        assert values_of(kbroker_broker.bootstrap, topic, partition) == expected


def test_each_record_is_there_once_after_crashes(tmp_path: Path) -> None:
    """A job that writes while a broker restarts would lose rows, or write them twice."""
    broker = BrokerProcess(tmp_path, {"kbroker.fsync": "os"})
    broker.start()
    topic = Admin(broker.bootstrap).create_topic("crashed", 2, {"retention.ms": "-1"})
    turns = threading.Semaphore(0)
    done = threading.Event()

    def crash(times: int) -> None:
        for _ in range(times):
            turns.acquire()
            broker.kill()
            broker.start()
        done.set()

    crasher = threading.Thread(target=crash, args=(4,))
    crasher.start()
    sent = 0
    settings = ProducerSettings(max_request_bytes=3000, buffer_bytes=30_000, delivery_timeout_s=200)
    with Cluster(broker.bootstrap, PATIENT) as cluster, BatchProducer(cluster, settings) as producer:
        while not done.is_set():
            for partition in range(2):
                producer.add(topic, partition, batch_of(numbered(partition, sent)))
            if sent % 200 == 50:
                turns.release()
            sent += 1
        producer.flush()
    crasher.join()
    try:
        for partition in range(2):
            expected = [value for batch in range(sent) for value in numbered(partition, batch)]
            assert values_of(broker.bootstrap, topic, partition) == expected
    finally:
        broker.stop()


def test_a_refusal_says_what_was_lost(kbroker_broker: BrokerProcess) -> None:
    """A job would end well although its rows are not there."""
    topic = Admin(kbroker_broker.bootstrap).create_topic("narrow", 1, {"max.message.bytes": "500"})
    with Cluster(kbroker_broker.bootstrap) as cluster, BatchProducer(cluster, ProducerSettings()) as producer:
        producer.add(topic, 0, batch_of([b"fits"]))
        producer.flush()
        with pytest.raises(DeliveryError, match=r"1 records for narrow\S+ were refused with MESSAGE_TOO_LARGE"):
            producer.add(topic, 0, batch_of([b"x" * 1000]))
            producer.flush()


def _unknown_topic(cluster: Cluster) -> None:
    with BatchProducer(cluster, ProducerSettings()) as producer:
        producer.add("nobody-made-this", 0, batch_of([b"x"]))


def test_an_unknown_topic_is_told(kbroker_broker: BrokerProcess) -> None:
    """A wrong name would make the job wait, or create a topic nobody wanted."""
    with Cluster(kbroker_broker.bootstrap) as cluster, pytest.raises(TopicUnknownError, match="create it first"):
        _unknown_topic(cluster)


def _add_and_flush(producer: BatchProducer, topic: str) -> Callable[[], None]:
    def act() -> None:
        producer.add(topic, 0, batch_of([b"x"]))
        producer.flush()

    return act


def test_a_broker_that_stays_away_ends_the_wait(tmp_path: Path) -> None:
    """A job would hang for ever instead of failing with the reason."""
    broker = BrokerProcess(tmp_path)
    broker.start()
    topic = Admin(broker.bootstrap).create_topic("away", 1)
    settings = ProducerSettings(delivery_timeout_s=0.5)
    with (
        Cluster(broker.bootstrap, ClientSettings(patience_s=0.2)) as cluster,
        BatchProducer(cluster, settings) as producer,
    ):
        act = _add_and_flush(producer, topic)
        act()
        broker.stop()
        with pytest.raises((RetriesExhaustedError, BrokerUnreachableError), match=r"gave up|cannot be reached"):
            act()
        assert producer.acknowledged_records == 1


@pytest.mark.parametrize("acks", [0, 1])
def test_fewer_acknowledgements(kbroker_broker: BrokerProcess, acks: int) -> None:
    """The cheaper settings would not write at all."""
    topic = Admin(kbroker_broker.bootstrap).create_topic("acks", 1, {"retention.ms": "-1"})
    settings = ProducerSettings(acks=acks, idempotent=False)
    with Cluster(kbroker_broker.bootstrap) as cluster, BatchProducer(cluster, settings) as producer:
        for batch in range(20):
            producer.add(topic, 0, batch_of(numbered(0, batch)))
        producer.flush()
        # The connection's next answer comes behind them all.
        cluster.describe([topic])
    assert values_of(kbroker_broker.bootstrap, topic, 0) == [v for batch in range(20) for v in numbered(0, batch)]
