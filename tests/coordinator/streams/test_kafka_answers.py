"""The same requests about streams groups, byte for byte, get the answers that Apache Kafka 4.3.1 gave."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from kbroker.errors import ErrorCode
from kbroker.metadata.features import STREAMS_VERSION, FeatureUpdate, UpgradeType, update_features
from kbroker.metadata.image import MetadataDelta
from tests.coordinator.harness import T1_ID, T2_ID, World
from tests.coordinator.streams.record_answers import ANSWERS
from tests.coordinator.streams.script import StreamsScript
from tests.coordinator.wire import Client

SETTINGS: dict[str, object] = {
    "group.streams.assignment.interval.ms": 0,
    "group.streams.initial.rebalance.delay.ms": 0,
    "group.streams.num.standby.replicas": 1,
}
# Where kbroker answers otherwise, and why.
DIFFERENT = {
    "a still has all": "a member that has other tasks than it was given may have lost an answer: it is told again"
}


def test_requests_get_kafkas_answers() -> None:
    """A streams application that works with Kafka would meet another epoch, assignment, status or error."""
    world = World(SETTINGS)
    script = StreamsScript(Client(world), {"t1": T1_ID, "t2": T2_ID}, lambda: world.loop.advance(1.0))
    script.run()
    ours, kafka = script.plain(), json.loads(ANSWERS.read_text())
    assert ours.keys() == kafka.keys()
    assert {label for label in kafka if kafka[label] != ours[label]} == DIFFERENT.keys()


@pytest.mark.parametrize("how", ["feature", "setting"])
def test_the_protocol_can_be_turned_off(how: str) -> None:
    """An administrator could not keep clients on the classic protocol."""
    settings = {} if how == "feature" else {"group.coordinator.rebalance.protocols": "classic,consumer"}
    world = World({**SETTINGS, **settings})
    if how == "feature":
        update = FeatureUpdate(STREAMS_VERSION, 0, UpgradeType.SAFE_DOWNGRADE)
        off = update_features(world.cache.image.features, [update], 1)
        world.cache.publish(replace(world.cache.image, features=off), MetadataDelta(features=off))
    script = StreamsScript(Client(world), {"t1": T1_ID, "t2": T2_ID}, lambda: None)
    assert script.join("joins", "a").error_code == ErrorCode.UNSUPPORTED_VERSION
    script.describe("describe")
    assert script.answers["describe"].groups[0].error_code == ErrorCode.UNSUPPORTED_VERSION
    assert not world.coordinator.registry.groups
