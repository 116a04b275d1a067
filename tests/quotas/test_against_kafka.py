"""Quotas beside Apache Kafka 4.3.1: what it answered to admin requests in order, and clients that it throttles."""

from __future__ import annotations

import json
import struct
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.compat.brokers import BrokerProcess, KbrokerProcess
from tests.compat.real_kafka import KafkaProcess
from tests.compat.waiting import wait_for
from tests.handlers.admin_broker import AdminBroker
from tests.network import raw_client as raw
from tests.network.raw_client import RawClient
from tests.quotas.throttled import consumed, produced, set_quotas, write

VECTORS = Path(__file__).parent / "vectors" / "kafka-4.3.1-quotas.json"
Answer = dict[str, Any]


def in_order(answer: Answer) -> Answer:
    """Kafka's order of entries is that of a hash table."""
    if answer["entries"]:
        for entry in answer["entries"]:
            entry.get("values", []).sort(key=lambda value: value["key"])
            entry["entity"].sort(key=lambda part: part["entity_type"])
        answer["entries"].sort(key=lambda entry: json.dumps(entry["entity"]))
    return answer


def test_answers_are_kafkas(tmp_path: Path) -> None:
    """An admin tool written for Kafka would see other codes, texts or quotas than it knows."""
    broker = AdminBroker.start(tmp_path)
    differences = []
    try:
        for step in json.loads(VECTORS.read_text()):
            actual = in_order(broker.ask(step["api"], step["version"], step["request"]))
            expected = in_order(step["response"])
            if actual != expected:
                differences.append(f"{step['name']}\n  Kafka:   {expected}\n  kbroker: {actual}")
        stored = broker.store.client_quotas()
        assert stored == broker.services.metadata_cache.image.quotas
    finally:
        broker.stop()
    assert not differences, "\n".join(differences)


RATE = 500_000
MOST = 1 << 40


def is_stored(client: RawClient, produce: bytes) -> bool:
    return raw.produce_answer(client.ask(produce))[0] == raw.NONE


def throttled(broker: BrokerProcess) -> dict[str, float]:
    """What clients with quotas meet at this broker: rates over three spans of eleven windows, and throttle times."""
    batch = raw.good_batch(1, bytes(6_000))
    for topic in ("few", "many"):
        raw.create_topic(broker.port, topic, 1)
        with RawClient(broker.port) as client:
            produce = raw.produce(topic, 0, batch)
            wait_for(partial(is_stored, client, produce), "the topic")
    found: dict[str, float] = {}
    set_quotas(broker.port, {"client-id": "hostile"}, producer_byte_rate=500, consumer_byte_rate=500)
    with RawClient(broker.port) as client:
        for turn in ("first", "second"):
            answer = client.ask(raw.produce("few", 0, batch))
            assert raw.produce_answer(answer)[0] == raw.NONE
            found[f"{turn} produce, ms"] = struct.unpack_from(">i", answer, len(answer) - 4)[0]
    with RawClient(broker.port) as client:
        for turn in ("first", "second"):
            answer = client.ask(raw.fetch("few", 0, 0, max_bytes=6_200))
            found[f"{turn} fetch, ms"] = struct.unpack_from(">i", answer, 4)[0]
            found[f"{turn} fetch, bytes"] = len(answer)
    set_quotas(broker.port, {"client-id": "hostile"}, producer_byte_rate=None, consumer_byte_rate=None)
    write(broker.port, "many", 10_000)
    set_quotas(broker.port, {"client-id": None}, producer_byte_rate=RATE, consumer_byte_rate=RATE)
    found["consumed in a second"] = consumed(broker.bootstrap, "many", "consumer", 33.0, MOST).per_second
    found["produced in a second"] = produced(broker.bootstrap, "few", "producer", 33.0, MOST).per_second
    return found


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_kafka_throttles_alike(tmp_path: Path) -> None:
    """A client would be slowed more, or less, than a Kafka with the same quota slows it."""
    # The records have no time.
    forever = {"log.retention.ms": "-1"}
    brokers = KafkaProcess(tmp_path / "kafka", forever), KbrokerProcess(tmp_path / "kbroker", forever)
    try:
        for broker in brokers:
            broker.start()
        with ThreadPoolExecutor(2) as pool:
            theirs, ours = pool.map(throttled, brokers)
    finally:
        for broker in brokers:
            broker.kill()
    # A window is a second, of ten or eleven.
    assert ours == pytest.approx(theirs, rel=0.15), (theirs, ours)
    for rates in (theirs, ours):
        assert rates["produced in a second"] == pytest.approx(RATE, rel=0.1)
        assert rates["consumed in a second"] == pytest.approx(RATE, rel=0.1)
