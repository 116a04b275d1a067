"""Generated requests to kbroker alone, and side by side with real Apache Kafka."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compat.brokers import KbrokerProcess
from tests.compat.real_kafka import KafkaProcess
from tests.differential.comparison import LEFT_OUT, compare, ranges, table
from tests.differential.questions import ask_all
from tests.scenarios.golden import SETTINGS

BROKER_SETTINGS = {**SETTINGS, "auto.create.topics.enable": "false"}
PAGE = Path(__file__).parents[2] / "docs" / "design" / "wire-differential.md"
HEAD = """# The wire, side by side with Apache Kafka

Written by `KBROKER_RECORD=1 make test-kafka PYTEST="tests/differential"`; do not edit. The same generated requests went
to Apache Kafka 4.3.1 and to kbroker: ten with the values that a field may have, at its bounds and beyond, four damaged.
Decoded answers were compared field by field. `tests/differential/comparison.py` lists what differs on purpose, with
reasons.

"""


@pytest.fixture(scope="module")
def kbroker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KbrokerProcess]:
    """A kbroker that makes no topics by itself."""
    broker = KbrokerProcess(tmp_path_factory.mktemp("kbroker"), BROKER_SETTINGS)
    try:
        broker.start()
        yield broker
    finally:
        broker.stop()


def test_no_request_ends_in_a_failure_of_the_broker(kbroker: KbrokerProcess) -> None:
    """A request that no client of ours sends would end its connection with a traceback instead of an error code."""
    for api, versions in sorted(ranges(kbroker.port).items()):
        if api in LEFT_OUT:
            continue
        for version in {versions[0], versions[-1]}:
            ask_all(kbroker.port, api, version)
    assert "Traceback" not in kbroker.output.read_text()


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_answers_are_those_of_apache_kafka(kbroker: KbrokerProcess, tmp_path: Path) -> None:
    """A client would meet another error code, or another field, than Kafka's."""
    kafka = KafkaProcess(tmp_path / "kafka", BROKER_SETTINGS)
    try:
        kafka.start()
        found = compare(kafka.port, kbroker.port)
    finally:
        kafka.stop()
    if os.environ.get("KBROKER_RECORD"):
        PAGE.write_text(HEAD + "\n".join(table(found)) + "\n")
    differing = [f"{each.api} {each.version}: {line}" for each in found for line in each.differing]
    assert not differing, "\n  ".join(["answers differ:", *differing])
