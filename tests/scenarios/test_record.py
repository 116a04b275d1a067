"""The record of Kafka's answers against Apache Kafka itself; with KBROKER_RECORD=1 it is written anew."""

from __future__ import annotations

import os

import pytest

from tests.scenarios.golden import FILE, load, save, scenarios
from tests.scenarios.session import run

pytestmark = pytest.mark.kafka


def test_kafka_answers_as_on_record(kafka_port: int) -> None:
    """The answers that kbroker is held to would be nobody's."""
    found = {name: run(function, kafka_port) for name, function in sorted(scenarios().items())}
    if os.environ.get("KBROKER_RECORD"):
        save(found)
    recorded = load() if FILE.exists() else {}
    differing = [name for name in found if found[name] != recorded.get(name)]
    steps = [
        (name, step, recorded.get(name, {}).get(step), answer)
        for name in differing
        for step, answer in found[name].items()
        if answer != recorded.get(name, {}).get(step)
    ]
    assert not steps, "\n".join(f"{name} / {step}:\n  record: {old}\n  Kafka:  {new}" for name, step, old, new in steps)
    assert set(recorded) == set(found)
