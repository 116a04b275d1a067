"""The same requests about consumer groups, byte for byte, get the answers that Apache Kafka 4.3.1 gave."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kbroker.errors import ErrorCode
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


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"subscribed_topic_names": [f"t{number}" for number in range(10_001)]}, "10000 topics"),
        ({"subscribed_topic_names": ["t1"] * 10_001}, "10000 topics"),
        ({"owned": {"t1": list(range(60_000)), "t2": list(range(40_001))}}, "100000 partitions"),
    ],
    ids=["topics", "one topic often", "partitions"],
)
def test_an_enormous_heartbeat_is_refused(fields: dict[str, Any], what: str) -> None:
    """A single member would hold up every client of the broker for half a second, as often as it likes."""
    world = World({})
    script = ConsumerScript(Client(world), {"t1": T1_ID, "t2": T2_ID}, lambda: None)
    answer = script.join("joins", "a", **fields)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert answer.error_message == f"A heartbeat may name at most {what} in all."
    assert not world.coordinator.registry.groups
    most = {"subscribed_topic_names": [f"t{number}" for number in range(10_000)]}
    assert script.join("joins with as many as may be", "a", **most).error_code == 0
