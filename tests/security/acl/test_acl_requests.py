"""CreateAcls, DescribeAcls and DeleteAcls of a whole broker, against what Apache Kafka answered.

Also of `kbroker.handlers.security.acls`, `kbroker.security.acl.filters`, `kbroker.security.acl.kinds`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.compat.real_kafka import KafkaProcess
from tests.gate.guarded_broker import GuardedBroker
from tests.scenarios.session import Session
from tests.security.acl.acl_requests import EVERYTHING, FILE, SETTINGS, answers_of, rule

RECORDED: dict[str, Any] = json.loads(FILE.read_text())
WITHOUT = [name for name in RECORDED if name.endswith(" without")]


@pytest.fixture(scope="module", name="answers")
def _answers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    broker = GuardedBroker(tmp_path_factory.mktemp("acls"), SETTINGS, by_settings=True)
    other = GuardedBroker(tmp_path_factory.mktemp("without"), {}, by_settings=True)
    broker.start()
    other.start()
    yield {**answers_of(broker.port), **answers_of(other.port, with_authorizer=False)}
    broker.stop()
    other.stop()


@pytest.mark.parametrize("name", RECORDED)
def test_acls_are_made_described_and_deleted_as_by_kafka(answers: dict[str, Any], name: str) -> None:
    """A tool would not know what became of its rules, or rules would be in force that nobody wanted."""
    assert answers[name] == RECORDED[name]


def test_every_answer_is_on_record(answers: dict[str, Any]) -> None:
    """An answer would be compared with nothing."""
    assert set(answers) == set(RECORDED) and len(WITHOUT) == 9


def test_results_of_creations_and_deletions_stand_in_the_order_of_what_was_asked(tmp_path: Path) -> None:
    """A client would take the refusal of one rule for that of another."""
    broker = GuardedBroker(tmp_path, SETTINGS, by_settings=True)
    broker.start()
    session = Session(broker.port)
    try:
        creations = [rule(), rule(resource_name=""), rule(resource_type=3, resource_name="g")]
        made = session.quietly("CreateAcls", 3, creations=creations).results
        assert [each.error_code for each in made] == [0, 42, 0]
        filters = [{**EVERYTHING, **more} for more in ({"resource_type_filter": 3}, {"operation": 99}, {})]
        deleted = session.quietly("DeleteAcls", 3, filters=filters).filter_results
        found = [[each.resource_name for each in one.matching_acls] for one in deleted]
        assert found == [["g"], [], ["t", "g"]]
    finally:
        session.close()
        broker.stop()


def test_acls_are_there_after_a_restart(tmp_path: Path) -> None:
    """Everybody would be refused, or allowed, what the rules said otherwise."""
    for place in range(2):
        broker = GuardedBroker(tmp_path, SETTINGS, by_settings=True)
        broker.start()
        session = Session(broker.port)
        try:
            if place == 0:
                session.quietly("CreateAcls", 3, creations=[rule()])
            (resource,) = session.quietly("DescribeAcls", 3, **EVERYTHING).resources
            assert (resource.resource_name, len(resource.acls)) == ("t", 1)
        finally:
            session.close()
            broker.stop()


@pytest.mark.kafka
@pytest.mark.slow
def test_kafka_answers_as_on_record(tmp_path: Path) -> None:
    """The answers that kbroker is held to would not be Kafka's."""
    answers = {}
    for place, settings in enumerate((SETTINGS, {})):
        kafka = KafkaProcess(tmp_path / f"kafka-{place}", settings)
        try:
            kafka.start()
            answers.update(answers_of(kafka.port, with_authorizer=place == 0))
        finally:
            kafka.stop()
    assert answers == RECORDED
