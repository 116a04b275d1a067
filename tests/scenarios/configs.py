"""What the broker says of its settings and those of topics."""

from __future__ import annotations

from typing import Any

from tests.compat.waiting import wait_for
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


def alter(s: Session, step: str, broker: str, *edits: tuple[str, int, str | None]) -> None:
    """Change settings of a broker, or all, and record the answer."""
    rows = [{"name": name, "config_operation": operation, "value": value} for name, operation, value in edits]
    resource = {"resource_type": BROKER, "resource_name": broker, "configs": rows}
    s.ask(step, "IncrementalAlterConfigs", 1, resources=[resource], validate_only=False)


@scenario
def of_all_brokers_in_a_new_cluster(s: Session) -> None:
    """One setting is there without anybody's doing, and stays."""
    name = "min.insync.replicas"
    describe(s, "all", {"resource_type": BROKER, "resource_name": ""}, include_synonyms=True)
    row = {"resource_type": BROKER, "resource_name": "1", "configuration_keys": [name]}
    describe(s, "one", row, include_synonyms=True)
    alter(s, "removed", "", (name, 1, None))
    alter(s, "set for one", "1", (name, 0, "2"))
    alter(s, "too small", "", (name, 0, "0"))
    alter(s, "set as it is", "", (name, 0, "1"))
    describe(s, "then", {"resource_type": BROKER, "resource_name": ""}, include_synonyms=True)


@scenario
def of_parts_that_may_not_be_there(s: Session) -> None:
    """Settings that a single plain broker has no use for are stored and shown."""
    for name, value in (
        ("sasl.kerberos.min.time.before.relogin", "60001"),
        ("num.io.threads", "9"),
        ("num.replica.fetchers", "2"),
        ("transaction.partition.verification.enable", "false"),
    ):
        row = {"resource_type": BROKER, "resource_name": "1", "configuration_keys": [name]}

        def shown(wanted: str | None, row: dict[str, Any] = row) -> bool:
            found = s.quietly("DescribeConfigs", 4, resources=[row]).results[0].configs[0]
            return bool((found.config_source == 2) == (wanted is not None))

        alter(s, f"{name} set", "1", (name, 0, value))
        wait_for(lambda: shown("set"), "the setting")
        describe(s, f"{name} shown", row, include_synonyms=True)
        alter(s, f"{name} wrong", "1", (name, 0, "x"))
        alter(s, f"{name} unset", "1", (name, 1, None))
        wait_for(lambda: shown(None), "the setting to go")
