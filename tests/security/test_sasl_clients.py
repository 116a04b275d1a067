"""Real clients log in by each mechanism, and do what clients do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compat.waiting import wait_for
from tests.security.threaded_broker import ThreadedBroker

RECORDS = 50


@pytest.fixture(scope="module", name="broker")
def _broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreadedBroker]:
    broker = ThreadedBroker(tmp_path_factory.mktemp("clients"))
    broker.start()
    yield broker
    broker.stop()


def confluent(broker: ThreadedBroker, mechanism: str, seconds: int = 600) -> dict[str, Any]:
    """Settings of librdkafka."""
    own: dict[str, Any] = {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
    }
    if mechanism == "OAUTHBEARER":
        return {**own, "oauth_cb": lambda _: (broker.token("sam", seconds), time.time() + seconds)}
    name = "alice" if mechanism == "PLAIN" else "sam"
    return {**own, "sasl.username": name, "sasl.password": f"{name}-pw"}


def of_python_client(broker: ThreadedBroker, mechanism: str) -> dict[str, Any]:
    """Settings of kafka-python and aiokafka; bearer tokens come of a provider of each one's own kind."""
    if mechanism == "OAUTHBEARER":
        return {
            "bootstrap_servers": broker.bootstrap,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": mechanism,
        }
    name = "alice" if mechanism == "PLAIN" else "sam"
    return {
        "bootstrap_servers": broker.bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": name,
        "sasl_plain_password": f"{name}-pw",
    }


def ready(client: Any) -> None:
    """librdkafka asks for bearer tokens when it is polled."""
    client.poll(0)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"])
def test_librdkafka_produces_in_transactions_and_consumes_in_a_group(broker: ThreadedBroker, mechanism: str) -> None:
    """Clients of Python, Go, .NET and C could not use the broker by that mechanism."""
    topic = f"rd-{mechanism.lower()}"
    settings = confluent(broker, mechanism)
    admin = AdminClient(settings)
    ready(admin)
    for future in admin.create_topics([NewTopic(topic, 2, 1)]).values():
        future.result(30)
    producer = Producer({**settings, "transactional.id": topic})
    ready(producer)
    producer.init_transactions(30)
    for commits in (True, False):
        producer.begin_transaction()
        for number in range(RECORDS):
            producer.produce(topic, f"{commits} {number}".encode(), str(number).encode())
        if commits:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
    consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[bytes] = []
    while len(found) < RECORDS:
        record = consumer.poll(30)
        assert record is not None and record.error() is None, record
        found.append(record.value() or b"")
    consumer.commit(asynchronous=False)
    consumer.close()
    assert sorted(found) == sorted(f"True {number}".encode() for number in range(RECORDS))
    assert broker.logins()[mechanism] >= 3


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"])
def test_kafka_python_produces_in_transactions_and_consumes(broker: ThreadedBroker, mechanism: str) -> None:
    """Users of kafka-python could not log in by that mechanism."""
    kafka = pytest.importorskip("kafka")
    settings = of_python_client(broker, mechanism)
    if mechanism == "OAUTHBEARER":
        oauth = pytest.importorskip("kafka.net.sasl.oauth")
        provider = type("Provider", (oauth.AbstractTokenProvider,), {"token": lambda self: broker.token("sam")})
        settings["sasl_oauth_token_provider"] = provider()
    topic = f"py-{mechanism.lower()}"
    producer = kafka.KafkaProducer(transactional_id=topic, **settings)
    producer.init_transactions()
    for commits in (False, True):
        producer.begin_transaction()
        for number in range(RECORDS):
            producer.send(topic, str(number if commits else -1).encode())
        producer.flush(30)
        if commits:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    producer.close()
    consumer = kafka.KafkaConsumer(
        topic,
        group_id=topic,
        auto_offset_reset="earliest",
        consumer_timeout_ms=30_000,
        isolation_level="read_committed",
        **settings,
    )
    found = [next(consumer).value for _ in range(RECORDS)]
    consumer.close()
    assert sorted(map(int, found)) == list(range(RECORDS))


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"])
def test_aiokafka_produces_in_transactions_and_consumes(broker: ThreadedBroker, mechanism: str) -> None:
    """Users of aiokafka could not log in by that mechanism."""
    aiokafka = pytest.importorskip("aiokafka")
    settings = of_python_client(broker, mechanism)
    if mechanism == "OAUTHBEARER":
        oauth = pytest.importorskip("aiokafka.abc")

        async def token(_self: object) -> str:
            return broker.token("sam")

        settings["sasl_oauth_token_provider"] = type("Provider", (oauth.AbstractTokenProvider,), {"token": token})()
    topic = f"aio-{mechanism.lower()}"

    async def main() -> list[int]:
        async with aiokafka.AIOKafkaProducer(transactional_id=topic, **settings) as producer:
            for commits in (False, True):
                await producer.begin_transaction()
                for number in range(RECORDS):
                    await producer.send_and_wait(topic, str(number if commits else -1).encode())
                await (producer.commit_transaction() if commits else producer.abort_transaction())
        consumer = aiokafka.AIOKafkaConsumer(
            topic, group_id=topic, auto_offset_reset="earliest", isolation_level="read_committed", **settings
        )
        async with consumer, asyncio.timeout(60):
            return [int((await consumer.getone()).value) for _ in range(RECORDS)]

    assert sorted(asyncio.run(main())) == list(range(RECORDS))


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_client_of_kafka_0_10_logs_in_with_tokens_without_a_header(broker: ThreadedBroker, mechanism: str) -> None:
    """Clients that do not ask for versions could not log in."""
    before = broker.logins().get(mechanism, 0)
    old = {"api.version.request": False, "broker.version.fallback": "0.10.0"}
    metadata = AdminClient({**confluent(broker, mechanism), **old}).list_topics(timeout=30)
    assert metadata.brokers
    assert broker.logins()[mechanism] > before


@pytest.mark.parametrize(
    ("change", "mechanism"),
    [
        ({"sasl.password": "wrong"}, "PLAIN"),
        ({"sasl.password": "wrong"}, "SCRAM-SHA-256"),
        ({"sasl.username": "nobody"}, "SCRAM-SHA-512"),
        ({"oauth_cb": lambda _: ("eyJhbGciOiJub25lIn0.e30.", time.time() + 600)}, "OAUTHBEARER"),
    ],
)
def test_librdkafka_says_why_it_is_not_let_in(broker: ThreadedBroker, change: dict[str, Any], mechanism: str) -> None:
    """A user would look for the mistake in the network."""
    errors: list[str] = []
    heard: Callable[[Any], None] = lambda error: errors.append(str(error))  # noqa: E731
    client = Producer({**confluent(broker, mechanism), **change, "error_cb": heard, "log_level": 0})

    def says_so() -> bool:
        client.poll(0.1)
        return any("_AUTHENTICATION" in each for each in errors)

    wait_for(says_so, "the client to hear of it", seconds=30)
    assert broker.logins("failed")[mechanism] >= 1


def test_a_client_at_work_renews_its_session_without_losing_a_record(tmp_path: Path) -> None:
    """A producer would stand still, or lose what it sends, whenever a session ends."""
    broker = ThreadedBroker(tmp_path, **{"connections.max.reauth.ms": "1200"})
    broker.start()
    try:
        settings = confluent(broker, "SCRAM-SHA-256")
        failed: list[Any] = []
        # Where this process is held up for as long as a session lasts, its connection ends, and records are sent again.
        producer = Producer({**settings, "linger.ms": 0, "enable.idempotence": True})
        sent = 0

        def renewed() -> bool:
            nonlocal sent
            producer.produce("t", str(sent).encode(), on_delivery=lambda error, _: failed.append(error) if error else 0)
            sent += 1
            producer.poll(0.01)
            return broker.logins("succeeded_again").get("SCRAM-SHA-256", 0) >= 3

        wait_for(renewed, "three renewals", seconds=60)
        assert producer.flush(30) == 0
        assert failed == []
        consumer = Consumer({**settings, "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["t"])
        found = []
        while len(found) < sent:
            record = consumer.poll(30)
            assert record is not None and record.error() is None, record
            found.append(int(record.value() or b""))
        consumer.close()
        assert found == list(range(sent))
        assert broker.logins("failed_again") == {}
    finally:
        broker.stop()
