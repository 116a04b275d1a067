"""The brokers that scenarios run against: kbroker for every test, Apache Kafka for those marked `kafka`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.compat.brokers import KbrokerProcess
from tests.compat.real_kafka import KafkaProcess
from tests.scenarios.golden import SETTINGS


@pytest.fixture(scope="module")
def kbroker_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A kbroker with the settings of the record."""
    broker = KbrokerProcess(tmp_path_factory.mktemp("kbroker"), SETTINGS)
    try:
        broker.start()
        yield broker.port
    finally:
        broker.stop()


@pytest.fixture(scope="module")
def kafka_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """An Apache Kafka with the same settings."""
    broker = KafkaProcess(tmp_path_factory.mktemp("kafka"), SETTINGS)
    try:
        broker.start()
        yield broker.port
    finally:
        broker.stop()
