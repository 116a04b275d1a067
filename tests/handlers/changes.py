"""What is asked of a broker about changing settings, deleting records, log directories and producers.

The same questions go to Apache Kafka (the answers are in `vectors/kafka-4.3.1-changes.json`) and to kbroker.

python -m tests.handlers.changes PORT [NAME...]     print what the broker on that port answers
python -m tests.handlers.changes PORT --record      and keep it as the record; the broker is to be Apache Kafka
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.compat.waiting import wait_for
from tests.scenarios.session import Answers, Scenario, Session, run

RECORD = Path(__file__).parent / "vectors" / "kafka-4.3.1-changes.json"
SETTINGS = {"offsets.topic.num.partitions": "5"}
TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
TOPIC_SOURCE = 1

MODULES = ("topic_settings", "broker_settings", "live_settings", "record_deletion", "transaction_ends")
MODULES += ("feature_levels", "resource_settings", "leader_elections", "transaction_requests")
CHANGES: dict[str, Scenario] = {}


def change(function: Scenario) -> Scenario:
    """Register a scenario."""
    CHANGES[function.__name__] = function
    return function


def op(name: str, operation: int = SET, value: str | None = None) -> dict[str, Any]:
    """One operation of IncrementalAlterConfigs."""
    return {"name": name, "config_operation": operation, "value": value}


def resource(name: str, *configs: dict[str, Any], kind: int = TOPIC) -> dict[str, Any]:
    """What is to be changed."""
    return {"resource_type": kind, "resource_name": name, "configs": list(configs)}


def incremental(s: Session, step: str, *resources: dict[str, Any], version: int = 1, **values: Any) -> None:
    """Ask to change some settings."""
    s.ask(step, "IncrementalAlterConfigs", version, resources=list(resources), **values)


def replace(s: Session, step: str, name: str, configs: Mapping[str, str | None], **values: Any) -> None:
    """Ask to replace all settings of a topic."""
    rows = [{"name": key, "value": value} for key, value in configs.items()]
    row = {"resource_type": TOPIC, "resource_name": name, "configs": rows}
    s.ask(step, "AlterConfigs", values.pop("version", 2), resources=[row], **values)


def settled(s: Session, name: str, expected: Mapping[str, str], kind: int = TOPIC, source: int = TOPIC_SOURCE) -> None:
    """Wait until a resource's own settings are these: Kafka answers before its broker has followed."""

    def own() -> dict[str, str]:
        rows = [{"resource_type": kind, "resource_name": name, "configuration_keys": None}]
        found = s.quietly("DescribeConfigs", 4, resources=rows).results[0].configs
        return {row.name: row.value for row in found if row.config_source == source}

    try:
        wait_for(lambda: own() == expected, "the settings to be changed")
    except Exception as error:
        raise AssertionError(f"{name}: {own()} where {expected} was due") from error


def describe(s: Session, step: str, name: str, *keys: str, kind: int = TOPIC) -> None:
    """Describe some settings with their synonyms."""
    row = {"resource_type": kind, "resource_name": name, "configuration_keys": list(keys) or None}
    s.ask(step, "DescribeConfigs", 4, resources=[row], include_synonyms=True)


def shown(s: Session, name: str, key: str) -> str:
    """A setting of a topic as it is described."""
    rows = [{"resource_type": TOPIC, "resource_name": name, "configuration_keys": [key]}]
    return str(s.quietly("DescribeConfigs", 4, resources=rows).results[0].configs[0].value)


def changes() -> dict[str, Scenario]:
    """All scenarios by name."""
    for module in MODULES:
        importlib.import_module(f"tests.handlers.{module}")
    return CHANGES


def load() -> dict[str, Answers]:
    """Kafka's answers."""
    found: dict[str, Answers] = json.loads(RECORD.read_text())
    return found


def save(answers: Mapping[str, Answers]) -> None:
    """Keep answers, one line per step."""
    parts = []
    for name in sorted(answers):
        steps = [
            f"    {json.dumps(step)}: {json.dumps(value, sort_keys=True)}" for step, value in answers[name].items()
        ]
        parts.append(f"  {json.dumps(name)}: {{\n" + ",\n".join(steps) + "\n  }")
    RECORD.write_text("{\n" + ",\n".join(parts) + "\n}\n")


def main() -> None:
    """Show or keep the answers of a running broker."""
    port, wanted = int(sys.argv[1]), [part for part in sys.argv[2:] if part != "--record"]
    answers: dict[str, Answers] = {}
    for name, function in changes().items():
        if not wanted or name in wanted:
            answers[name] = run(function, port)
            print(f"== {name}")
            for step, value in answers[name].items():
                print(f"   {step}: {json.dumps(value, sort_keys=True)}")
    if "--record" in sys.argv:
        save({**load(), **answers})


if __name__ == "__main__":
    # The scenarios register with the module of this name, not with the one that runs.
    importlib.import_module("tests.handlers.changes").main()
