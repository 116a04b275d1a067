"""Changed settings, deleted records, log directories and producers: kbroker's answers against Apache Kafka 4.3.1's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.broker_process import BrokerProcess
from tests.handlers.changes import SETTINGS, changes, load
from tests.scenarios.answer_parts import differing_parts
from tests.scenarios.session import run

RECORD = load()

OPERATION = "An operation that does not exist is INVALID_REQUEST; Kafka says UNKNOWN_SERVER_ERROR."
TWICE = "AlterConfigs that names a resource twice is INVALID_REQUEST for both; Kafka does not answer."
OWN = (
    "kbroker's own settings but `kbroker.disk.reserve.bytes` are read-only; "
    "Kafka stores every name that it does not know."
)
FRACTION = "Among synonyms a fraction is shown as it was read, `1000000.0`; Kafka shows what was typed."
THREADS = "No threads at all are refused with words; Kafka's answer is `/ by zero`."
ADDRESSES = "A wrong list of addresses is refused in words; Kafka passes on what Java's parser said."
ON_PURPOSE = {
    ("topic_settings_that_are_wrong", "unknown operation"): OPERATION,
    ("topic_settings_that_are_wrong", "negative operation"): OPERATION,
    ("topic_settings_replaced", "a topic twice"): TWICE,
    ("live_settings_are_taken", "log.cleaner.io.max.bytes.per.second: described after all"): FRACTION,
    ("live_settings_are_taken", "log.cleaner.io.max.bytes.per.second: described after one"): FRACTION,
    **{
        ("live_settings_that_are_wrong", f"{step} for {name}"): reason
        for name in ("all", "1")
        for step, reason in {
            "0 log.cleaner.threads=0": THREADS,
            "16 max.connections.per.ip.overrides=127.0.0.1": ADDRESSES,
            "17 max.connections.per.ip.overrides=127.0.0.1:x": ADDRESSES,
            "30 kbroker.fsync=commit": OWN,
        }.items()
    },
}
"""Steps whose answers differ, and how; docs/compatibility.md tells users the same."""
WRAPPED = re.compile(r"Invalid value org\.apache\.kafka\S+: (.*) for configuration Invalid dynamic configuration")
"""Kafka's exception in an exception: the words inside are what kbroker says."""
COMPATIBILITY = Path(__file__).parents[2] / "docs" / "compatibility.md"


def unwrapped(answer: Any) -> Any:
    """An answer with Kafka's words for a reason, without the exception around them."""
    if isinstance(answer, dict):
        return {key: unwrapped(value) for key, value in answer.items()}
    if isinstance(answer, list):
        return [unwrapped(value) for value in answer]
    return WRAPPED.sub(r"\1", answer) if isinstance(answer, str) else answer


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
        for line in differing_parts(unwrapped(expected[step]), found[step], "")
        if (name, step) not in ON_PURPOSE
    ]
    assert not differing, "\n".join(differing)


def test_each_difference_is_told_to_users() -> None:
    """Users would be surprised by a difference that the documentation does not mention."""
    text = " ".join(COMPATIBILITY.read_text().split())
    assert not [reason for reason in ON_PURPOSE.values() if reason not in text]
