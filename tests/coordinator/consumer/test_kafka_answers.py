"""The same requests about consumer groups, byte for byte, get the answers that Apache Kafka 4.3.1 gave."""

from __future__ import annotations

import json

from tests.coordinator.consumer.record_answers import ANSWERS
from tests.coordinator.consumer.script import ConsumerScript
from tests.coordinator.harness import T1_ID, T2_ID, World
from tests.coordinator.wire import Client

# Where kbroker answers otherwise, and why.
DIFFERENT = {"bad regex": "RE2 for C++ says in other words what is wrong"}


def test_requests_get_kafkas_answers() -> None:
    """A consumer that works with Kafka would meet another epoch, assignment or error."""
    world = World({"group.consumer.assignment.interval.ms": 0})
    script = ConsumerScript(Client(world), {"t1": T1_ID, "t2": T2_ID}, lambda: world.loop.advance(1.0))
    script.run()
    ours, kafka = script.plain(), json.loads(ANSWERS.read_text())
    assert ours.keys() == kafka.keys()
    assert {label for label in kafka if kafka[label] != ours[label]} == DIFFERENT.keys()
