"""A real client pushes its metrics, and a scrape of the broker shows them (KIP-714)."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Producer

from tests.broker_process import BrokerProcess
from tests.compat.waiting import wait_for
from tests.network import raw_client as raw
from tests.scenarios.session import Session

CLIENT_METRICS = 16


def subscribe(port: int, **settings: str) -> None:
    """Set a subscription for all clients."""
    session = Session(port)
    configs = [
        {"name": name.replace("_", "."), "config_operation": 0, "value": text} for name, text in settings.items()
    ]
    row = {"resource_type": CLIENT_METRICS, "resource_name": "everything", "configs": configs}
    assert session.quietly("IncrementalAlterConfigs", 1, resources=[row]).responses[0].error_code == 0
    session.close()


def test_what_a_producer_pushes_is_in_the_metrics(tmp_path: Path) -> None:
    """Operators would have asked clients for their metrics and looked for them in vain."""
    broker = BrokerProcess(tmp_path)
    broker.start()
    try:
        # A client that is silent for three intervals is forgotten.
        subscribe(broker.port, metrics="org.apache.kafka", interval_ms="2000")
        producer = Producer({"bootstrap.servers": broker.bootstrap, "client.id": "pushes", "enable.metrics.push": True})

        def pushed() -> bool:
            producer.produce("seen", b"value")
            producer.poll(0.05)
            shown = raw.scrape(broker.metrics_url)
            own = [
                name for name in shown if name.startswith("org_apache_kafka_producer_") and 'client_id="pushes"' in name
            ]
            return any("connection_creation" in name for name in own) and shown["kbroker_client_metrics"] >= 1

        wait_for(pushed, "the producer's metrics to be shown")
        producer.flush(10)
    finally:
        broker.stop()


def test_the_apis_of_client_metrics_are_shown_while_there_is_a_subscription(tmp_path: Path) -> None:
    """librdkafka would write a line about client metrics at each start of each client, though nobody asks for any."""
    broker = BrokerProcess(tmp_path)
    broker.start()
    try:

        def shown() -> set[int]:
            session = Session(broker.port)
            found = {row.api_key for row in session.quietly("ApiVersions", 0).api_keys}
            session.close()
            return found & {71, 72}

        assert shown() == set()
        subscribe(broker.port, metrics="org.apache.kafka")
        assert shown() == {71, 72}
    finally:
        broker.stop()
