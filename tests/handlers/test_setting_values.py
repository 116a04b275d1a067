"""Values that settings of each kind may not have, and some at the edge: Apache Kafka 4.3.1's answers.

vectors/kafka-4.3.1-setting-values.json: `<kind> <name>=<value>` to the error code and message that an
IncrementalAlterConfigs which only validates is answered with, without the exceptions that Kafka puts around some.
What kbroker refuses as a whole is not among them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker_process import BrokerProcess
from tests.scenarios.session import Session

VECTOR = Path(__file__).parent / "vectors" / "kafka-4.3.1-setting-values.json"
ANSWERS: dict[str, tuple[int, str | None]] = {
    key: tuple(value) for key, value in json.loads(VECTOR.read_text()).items()
}
KINDS = {"broker": (4, "1"), "topic": (2, "wrong"), "group": (32, "g"), "client-metrics": (16, "m")}
JAVAS_OWN = {
    "max.connections.per.ip.overrides": "Value must be a list of address:number",
    "log.cleaner.threads": "Log cleaner threads should be at least 1",
}
"""What kbroker says where Kafka passes on what Java said; docs/compatibility.md tells it."""


@pytest.fixture
def session(broker: BrokerProcess) -> Iterator[Session]:
    opened = Session(broker.port)
    yield opened
    opened.close()


def expected(name: str, answer: tuple[int, str | None]) -> tuple[int, str | None]:
    """Kafka's answer, with words in place of Java's."""
    code, message = answer
    if message and ("begin 0, end -1" in message or message == "/ by zero"):
        return code, JAVAS_OWN[name]
    return code, message


def test_each_kind_of_setting_judges_values_as_kafka_does(session: Session) -> None:
    """A tool would be told of success where Kafka refuses, or be shown other words than its users know."""
    session.create("wrong")
    wrong = {}
    for question, kafkas in ANSWERS.items():
        kind, _, pair = question.partition(" ")
        name, _, value = pair.partition("=")
        resource_type, resource_name = KINDS[kind]
        configs = [{"name": name, "config_operation": 0, "value": value}]
        resource = {"resource_type": resource_type, "resource_name": resource_name, "configs": configs}
        answer = session.quietly("IncrementalAlterConfigs", 1, resources=[resource], validate_only=True).responses[0]
        said, due = (answer.error_code, answer.error_message), expected(name, kafkas)
        if due[1] in JAVAS_OWN.values() and said[1] is not None:
            said = said[0], said[1].partition(f" for configuration {name}: ")[2] or said[1]
        if said != due:
            wrong[question] = said, due
    assert wrong == {}


@pytest.mark.parametrize("operation", [-1, 4, 9])
def test_an_operation_that_kafka_has_not_is_answered_with_its_code(session: Session, operation: int) -> None:
    """A tool of a later Kafka would be told of a wrong value, where the broker does not know what is asked."""
    session.create("wrong")
    names = {"broker": "log.cleaner.threads", "topic": "retention.ms", "group": "consumer.session.timeout.ms"}
    for kind, (resource_type, resource_name) in {**KINDS, "logger": (8, "1")}.items():
        config = {"name": names.get(kind, "metrics"), "config_operation": operation, "value": "1"}
        resource = {"resource_type": resource_type, "resource_name": resource_name, "configs": [config]}
        answer = session.quietly("IncrementalAlterConfigs", 1, resources=[resource]).responses[0]
        of_brokers = (42, f"Unknown operations type {operation}")
        assert (answer.error_code, answer.error_message) == (of_brokers if kind == "broker" else (-1, None)), kind
        resource["configs"] = [config, config]
        assert session.quietly("IncrementalAlterConfigs", 1, resources=[resource]).responses[0].error_code == 42
