"""Fixtures for pytest: a broker for the session, a fresh topic for each test.

    def test_orders(kafka_broker, kafka_topic):
        producer = Producer({"bootstrap.servers": kafka_broker.bootstrap})

pytest loads it by itself where kbroker is installed.  The broker starts when a test first asks for it; each worker of
pytest-xdist has one of its own.  `kafka_broker_settings` may be overridden in a conftest to change its settings, and
`kafka_broker_of_class`, `kafka_broker_of_test` are brokers for tests that end them.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from kbroker.testing.broker import KafkaBroker

_numbers = itertools.count(1)
MAX_NAME = 200


@pytest.fixture(scope="session")
def kafka_broker_settings() -> Mapping[str, str]:
    """Broker settings for the brokers of these fixtures; override it to change them."""
    return {"group.initial.rebalance.delay.ms": "0"}


def _broker(directory: Path, settings: Mapping[str, str]) -> Iterator[KafkaBroker]:
    broker = KafkaBroker(directory, settings)
    try:
        yield broker.start()
    finally:
        broker.close()


@pytest.fixture(scope="session")
def kafka_broker(
    tmp_path_factory: pytest.TempPathFactory, kafka_broker_settings: Mapping[str, str]
) -> Iterator[KafkaBroker]:
    """A running broker, one for the session."""
    yield from _broker(tmp_path_factory.mktemp("kafka-broker"), kafka_broker_settings)


@pytest.fixture(scope="class")
def kafka_broker_of_class(
    tmp_path_factory: pytest.TempPathFactory, kafka_broker_settings: Mapping[str, str]
) -> Iterator[KafkaBroker]:
    """A running broker, one for the class."""
    yield from _broker(tmp_path_factory.mktemp("kafka-broker"), kafka_broker_settings)


@pytest.fixture
def kafka_broker_of_test(tmp_path: Path, kafka_broker_settings: Mapping[str, str]) -> Iterator[KafkaBroker]:
    """A running broker, one for the test."""
    yield from _broker(tmp_path / "kafka-broker", kafka_broker_settings)


@pytest.fixture
def kafka_topic(kafka_broker: KafkaBroker, request: pytest.FixtureRequest) -> str:
    """A new topic with one partition, named after the test."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", request.node.name)[:MAX_NAME]
    return kafka_broker.create_topic(f"{name}-{next(_numbers)}")
