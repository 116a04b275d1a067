"""Changed settings, deleted records, log directories and producers: kbroker's answers against Apache Kafka 4.3.1's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker_process import BrokerProcess
from tests.handlers.changes import SETTINGS, changes, load
from tests.scenarios.session import run
from tests.scenarios.test_answers import differing_parts

RECORD = load()

OPERATION = "An operation that does not exist is INVALID_REQUEST; Kafka says UNKNOWN_SERVER_ERROR."
TWICE = "AlterConfigs that names a resource twice is INVALID_REQUEST for both; Kafka does not answer."
AT_START = "Broker settings other than topic defaults are read at start only: changing one is INVALID_REQUEST."
ON_PURPOSE = {
    ("topic_settings_that_are_wrong", "unknown operation"): OPERATION,
    ("topic_settings_that_are_wrong", "negative operation"): OPERATION,
    ("topic_settings_replaced", "a topic twice"): TWICE,
    ("settings_of_the_broker", "one: per broker"): AT_START,
}
"""Steps whose answers differ, and how; docs/compatibility.md tells users the same."""
COMPATIBILITY = Path(__file__).parents[2] / "docs" / "compatibility.md"


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    broker = BrokerProcess(tmp_path_factory.mktemp("changes"), SETTINGS)
    broker.start()
    yield broker.port
    broker.stop()


@pytest.mark.parametrize("name", sorted(changes()))
def test_answers_are_kafkas(name: str, port: int) -> None:
    """An admin tool written for Kafka would see other codes, texts or effects than it knows."""
    expected, found = RECORD[name], run(changes()[name], port)
    assert list(expected) == list(found)
    differing = [
        f"{step}: {line}"
        for step in found
        for line in differing_parts(expected[step], found[step], "")
        if (name, step) not in ON_PURPOSE
    ]
    assert not differing, "\n".join(differing)


def test_each_difference_is_told_to_users() -> None:
    """Users would be surprised by a difference that the documentation does not mention."""
    text = " ".join(COMPATIBILITY.read_text().split())
    assert not [reason for reason in ON_PURPOSE.values() if reason not in text]
