"""The admin APIs against what Apache Kafka 4.3.1 answered to the same requests in the same order.

The vectors were recorded from a single KRaft node; `$id:name` stands for a topic's id, `$new` for one that no topic
kept, `$cluster` for the cluster's.  Settings at their default were left out of CreateTopics answers but the first.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.handlers.admin_broker import AdminBroker

VECTORS = Path(__file__).parent / "vectors"
Step = dict[str, Any]
INVALID_TOPIC, INVALID_REQUEST, POLICY_VIOLATION = 17, 42, 44


def _load(name: str) -> list[Step]:
    steps: list[Step] = json.loads((VECTORS / name).read_text())
    return steps


def _collision_is_told(expected: Step, actual: Step) -> None:
    """A name that can never be created is INVALID_TOPIC; Kafka says UNKNOWN_TOPIC_OR_PARTITION for ever."""
    expected["topics"][0]["error_code"] = INVALID_TOPIC


def _no_crash_on_nameless_topic(expected: Step, actual: Step) -> None:
    """Kafka fails with UNKNOWN_SERVER_ERROR on a topic without name and id."""
    expected["error_code"] = expected["topics"][0]["error_code"] = INVALID_REQUEST


def _any_producer_id(expected: Step, actual: Step) -> None:
    """Ids differ from run to run, and Kafka's first answers are COORDINATOR_LOAD_IN_PROGRESS."""
    if expected["error_code"] in (0, 14):
        assert actual["error_code"] == 0
        assert actual["producer_id"] >= 0
        assert actual["producer_epoch"] == 0
        expected.update(error_code=0, producer_id=actual["producer_id"], producer_epoch=0)


def _growth_has_a_limit(expected: Step, actual: Step) -> None:
    """Kafka says UNKNOWN_SERVER_ERROR."""
    expected["results"][0].update(
        error_code=POLICY_VIOLATION, error_message="Excessively large number of partitions per request."
    )


def _message_formats_differ(expected: Step, actual: Step) -> None:
    """Kafka 4 dropped the setting; kbroker serves consumers that need it."""
    assert actual["topics"][0]["error_code"] == 0
    expected["topics"] = actual["topics"] = []


def _loggers_differ(expected: Step, actual: Step) -> None:
    """Other loggers."""
    for config in (expected["results"][0]["configs"][0], actual["results"][0]["configs"][0]):
        config.update(value="")


def _own_defaults(expected: Step, actual: Step) -> None:
    """`listeners` and settings that Kafka itself derives differ."""
    ours = {config["name"]: config for config in actual["results"][0]["configs"]}
    for config in expected["results"][0]["configs"]:
        assert ours[config["name"]]["config_type"] == config["config_type"]
        assert ours[config["name"]]["is_sensitive"] == config["is_sensitive"]
        assert ours[config["name"]]["read_only"] == config["read_only"]
    kept = {"log.cleaner.threads", "log.retention.hours", "num.io.threads", "log.retention.ms", "log.dirs"}
    for answer in (expected, actual):
        configs = answer["results"][0]["configs"]
        answer["results"][0]["configs"] = [config for config in configs if config["name"] in kept]
        for config in answer["results"][0]["configs"]:
            if config["name"] == "log.dirs":
                config.update(value="", synonyms=[])


def _default_replication_is_clamped(expected: Step, actual: Step) -> None:
    """A default that the cluster cannot fulfil is clamped; Kafka refuses the topic."""
    assert actual["topics"][0]["error_code"] == 0
    assert actual["topics"][0]["replication_factor"] == 1
    actual["topics"] = expected["topics"]


DEVIATIONS: dict[str, Callable[[Step, Step], None]] = {
    "metadata auto collision 2": _collision_is_told,
    "metadata auto collision 3": _collision_is_told,
    "metadata null name zero id": _no_crash_on_nameless_topic,
    "cp excessive": _growth_has_a_limit,
    "bad config message.format.version=2.0": _message_formats_differ,
    "dc logger": _loggers_differ,
    "dc broker": _own_defaults,
    "create rf default": _default_replication_is_clamped,
}
for _step in _load("kafka-4.3.1-admin.json"):
    if _step["api"] == "InitProducerId":
        DEVIATIONS[_step["name"]] = _any_producer_id


def _sort(answer: Step, api: str, name: str) -> None:
    """Where Kafka's order is that of a hash table, ours is not compared."""
    if api == "DescribeConfigs":
        for result in answer["results"]:
            result["configs"].sort(key=lambda config: config["name"])
    if api == "DeleteTopics":
        answer["responses"].sort(key=lambda result: (result["name"] or "", result.get("topic_id", "")))
    if name.startswith("metadata all"):
        answer["topics"].sort(key=lambda topic: topic["name"])


def _reduce(answer: Step, api: str, full: bool) -> None:
    for topic in answer["topics"] if api == "CreateTopics" else ():
        if topic.get("configs") and not full:
            topic["configs"] = [config for config in topic["configs"] if config["config_source"] != 5]
    for result in answer["results"] if api == "DescribeConfigs" else ():
        for config in result["configs"]:
            if config.get("documentation"):
                config["documentation"] = "..."


def _replay(broker: AdminBroker, steps: list[Step]) -> list[str]:
    """Differences, one line each."""
    differences = []
    for number, step in enumerate(steps):
        name, api = step["name"], step["api"]
        actual = broker.ask(api, step["version"], step["request"])
        expected = step["response"]
        for answer in (expected, actual):
            _reduce(answer, api, full=number == 0)
            _sort(answer, api, name)
        deviation = DEVIATIONS.get(name)
        if deviation is not None:
            deviation(expected, actual)
        if actual != expected:
            differences.append(f"{name} ({api} v{step['version']})\n  Kafka:   {expected}\n  kbroker: {actual}")
    return differences


@pytest.mark.parametrize(
    ("vectors", "settings"),
    [
        ("kafka-4.3.1-admin.json", {}),
        (
            "kafka-4.3.1-admin-restricted.json",
            {
                "delete.topic.enable": "false",
                "auto.create.topics.enable": "false",
                "log.retention.hours": "24",
                "log.segment.bytes": "2000000",
                "default.replication.factor": "3",
                "compression.type": "zstd",
            },
        ),
    ],
)
def test_answers_are_kafkas(vectors: str, settings: dict[str, object], tmp_path: Path) -> None:
    """An admin tool written for Kafka would see other codes, texts or fields than it knows."""
    broker = AdminBroker.start(tmp_path, settings)
    try:
        differences = _replay(broker, _load(vectors))
    finally:
        broker.stop()
    assert not differences, "\n".join(differences)
