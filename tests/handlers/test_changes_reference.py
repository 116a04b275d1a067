"""Changed settings, deleted records, log directories and producers: kbroker's answers against Apache Kafka 4.3.1's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.broker_process import BrokerProcess
from tests.handlers.changes import CHANGES, SETTINGS, load
from tests.scenarios.session import run
from tests.scenarios.test_answers import differing_parts

RECORD = load()

ON_PURPOSE = {
    ("topic_settings_that_are_wrong", "unknown operation"): ["INVALID_REQUEST", "UNKNOWN_SERVER_ERROR in Kafka"],
    ("topic_settings_that_are_wrong", "negative operation"): ["INVALID_REQUEST", "UNKNOWN_SERVER_ERROR in Kafka"],
    ("topic_settings_replaced", "a topic twice"): ["INVALID_REQUEST for both", "Kafka does not answer"],
    ("settings_of_the_broker", "one: per broker"): ["INVALID_REQUEST", "a setting read at start only"],
}
"""Steps whose answers differ: what is answered, and why or instead of what.  docs/compatibility.md tells users."""


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    broker = BrokerProcess(tmp_path_factory.mktemp("changes"), SETTINGS)
    broker.start()
    yield broker.port
    broker.stop()


@pytest.mark.parametrize("name", sorted(CHANGES))
def test_answers_are_kafkas(name: str, port: int) -> None:
    """An admin tool written for Kafka would see other codes, texts or effects than it knows."""
    expected, found = RECORD[name], run(CHANGES[name], port)
    assert list(expected) == list(found)
    differing = [
        f"{step}: {line}"
        for step in found
        for line in differing_parts(expected[step], found[step], "")
        if (name, step) not in ON_PURPOSE
    ]
    assert not differing, "\n".join(differing)
