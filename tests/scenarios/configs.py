"""What the broker says of its settings and those of topics."""

from __future__ import annotations

from typing import Any

from tests.scenarios.session import Session, scenario

TOPIC = 2
BROKER = 4


def describe(s: Session, step: str, *resources: dict[str, Any], version: int = 4, **values: Any) -> None:
    """Describe resources and record the answer."""
    rows = [{"configuration_keys": None, **resource} for resource in resources]
    s.ask(step, "DescribeConfigs", version, resources=rows, **values)


@scenario
def topic_in_each_version(s: Session) -> None:
    s.create("configured", 1, {"max.message.bytes": "4000", "cleanup.policy": "compact"})
    row = {"resource_type": TOPIC, "resource_name": "configured"}
    some = ["max.message.bytes", "cleanup.policy", "retention.ms", "segment.bytes", "min.insync.replicas"]
    for version in range(1, 5):
        keyed = {**row, "configuration_keys": some}
        describe(s, f"v{version}", keyed, version=version, include_synonyms=True)
    describe(s, "without synonyms", {**row, "configuration_keys": some})


@scenario
def topic_by_all_its_names(s: Session) -> None:
    """Every setting of a topic: its default, type, and where it comes from."""
    s.create("configured-all")
    describe(s, "all", {"resource_type": TOPIC, "resource_name": "configured-all"}, include_synonyms=True)


@scenario
def some_broker_settings(s: Session) -> None:
    names = [
        "num.partitions",
        "log.segment.bytes",
        "auto.create.topics.enable",
        "message.max.bytes",
        "compression.type",
    ]
    row = {"resource_type": BROKER, "resource_name": "1", "configuration_keys": names}
    describe(s, "with synonyms", row, include_synonyms=True)
    describe(s, "of no name", {**row, "resource_name": ""})


@scenario
def what_is_not(s: Session) -> None:
    s.create("configured-known")
    describe(s, "unknown topic", {"resource_type": TOPIC, "resource_name": "configured-never"})
    describe(s, "invalid topic", {"resource_type": TOPIC, "resource_name": "not a name"})
    describe(s, "another broker", {"resource_type": BROKER, "resource_name": "99"})
    describe(s, "a broker that is no number", {"resource_type": BROKER, "resource_name": "one"})
    describe(s, "unknown kind", {"resource_type": 77, "resource_name": "x"})
    describe(s, "no setting", {"resource_type": TOPIC, "resource_name": "configured-known", "configuration_keys": []})
    unknown = {"resource_type": TOPIC, "resource_name": "configured-known", "configuration_keys": ["no.such"]}
    describe(s, "unknown setting", unknown)
    row = {"resource_type": TOPIC, "resource_name": "configured-known", "configuration_keys": ["retention.ms"]}
    describe(s, "twice", row, row)
    describe(s, "nothing")
