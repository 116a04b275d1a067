"""Generated requests to kbroker alone, and side by side with real Apache Kafka."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.compat.brokers import KbrokerProcess
from tests.compat.tooling import ROOT
from tests.differential.allowed import ALLOWED
from tests.differential.cases import cases
from tests.differential.comparison import RECORD, SETTINGS, Compared, compare, pairs, table
from tests.differential.questions import Questions

RECORDED: dict[str, Any] = json.loads(RECORD.read_text())


@pytest.fixture(scope="module")
def kbroker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KbrokerProcess]:
    """A kbroker that makes no topics by itself."""
    broker = KbrokerProcess(tmp_path_factory.mktemp("kbroker"), SETTINGS)
    try:
        broker.start()
        yield broker
    finally:
        broker.kill()


def test_no_request_ends_in_a_failure_of_the_broker(kbroker: KbrokerProcess) -> None:
    """A request that no client of ours sends would end its connection with a traceback instead of an error code."""
    questions = Questions(kbroker.port)
    newest = dict(pairs("4.3.1"))
    for api, version in newest.items():
        # Not all, as there are thousands: the comparison with Kafka asks them.
        questions.ask_all(api, version, every=7)
    assert "Traceback" not in kbroker.output.read_text()


def test_the_documentation_has_the_record() -> None:
    """Users would be told of answers that no run has shown."""
    assert table(RECORDED) in (ROOT / "docs" / "compatibility.md").read_text()


def test_what_is_on_record_can_be_asked_again() -> None:
    """A version that is served no longer would stay in the documentation's table."""
    asked = {f"{api} v{version}" for kafka in ("4.3.1", "3.9.1") for api, version in pairs(kafka)}
    assert set(RECORDED) <= asked
    assert {reason for row in RECORDED.values() for reason in row["allowed"]} <= {each.reason for each in ALLOWED}


def test_each_request_has_a_name_of_its_own() -> None:
    """Of two requests of one name, one would not be compared, unnoticed."""
    for api, version in dict(pairs("4.3.1")).items():
        names = [case.name for case in cases(api, version)]
        assert len(names) == len(set(names)), (api, version)


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_answers_are_those_of_apache_kafka(tmp_path: Path) -> None:
    """A client would meet another error code, or another field, than Kafka's."""
    differing: list[str] = []

    def note(row: Compared) -> None:
        differing.extend(f"{row.api} {row.version}: {line}" for line in row.differing)

    compare(tmp_path, report=note)
    assert not differing, "\n  ".join(["answers differ:", *differing])
