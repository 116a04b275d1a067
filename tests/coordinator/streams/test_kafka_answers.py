"""The same requests about streams groups, byte for byte, get the answers that Apache Kafka 4.3.1 gave."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from kbroker.errors import ErrorCode
from kbroker.metadata.features import STREAMS_VERSION, FeatureUpdate, UpgradeType, update_features
from kbroker.metadata.image import MetadataDelta
from tests.coordinator.harness import T1_ID, T2_ID, World
from tests.coordinator.streams.kafka_settings import SETTINGS
from tests.coordinator.streams.record_answers import ANSWERS
from tests.coordinator.streams.script import StreamsScript
from tests.coordinator.wire import Client

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


@pytest.mark.parametrize("what", ["subtopologies", "topics", "settings", "tasks", "partitions", "tags"])
def test_an_enormous_heartbeat_is_refused_at_once(what: str) -> None:
    """One request would hold all other clients up while it is looked through."""
    world = World(SETTINGS)
    script = StreamsScript(Client(world), {"t1": T1_ID, "t2": T2_ID}, lambda: None)
    request = script.request
    many = range(10_001)
    one = request.Subtopology(subtopology_id="0", source_topics=["t1"])
    fields: dict[str, Any] = {}
    if what == "subtopologies":
        rows = [request.Subtopology(subtopology_id=str(number), source_topics=["t1"]) for number in many]
        fields["topology"] = request.Topology(epoch=0, subtopologies=rows)
    elif what in ("topics", "settings"):
        settings = [request.KeyValue(key=str(number), value="") for number in many] if what == "settings" else []
        names = many if what == "topics" else range(1)
        one.state_changelog_topics = [script.topic(f"c{number}", topic_configs=settings) for number in names]
        fields["topology"] = request.Topology(epoch=0, subtopologies=[one])
    elif what == "tags":
        fields["client_tags"] = [request.KeyValue(key=str(number), value="") for number in many]
    if what in ("tasks", "partitions"):
        tasks = {str(number): [0] for number in many} if what == "tasks" else {"0": list(many)}
        answer = script.beat("beats", "a", 3, **script.tasks(tasks))
    else:
        answer = script.join("joins", "a", **fields)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert answer.error_message == "A heartbeat may name at most 10000 tasks, topics, settings and tags in all."
    assert not world.coordinator.registry.groups
