"""The answers on record, and the scenarios that made them.

python -m tests.scenarios.golden PORT [NAME...]     print what the broker on that port answers
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

from tests.scenarios.session import SCENARIOS, Answers, Scenario, run

MODULES = ("versions", "topics", "configs", "produce", "fetch", "list_offsets", "groups", "members", "offsets")
KAFKA_VERSION = "4.3.1"
FILE = Path(__file__).parent / "golden" / f"kafka-{KAFKA_VERSION}.json"

# The settings under which the record was made; kbroker is given the same.
SETTINGS = {"offsets.topic.num.partitions": "5", "group.min.session.timeout.ms": "500"}


def scenarios() -> dict[str, Scenario]:
    """All scenarios by name."""
    for module in MODULES:
        importlib.import_module(f"tests.scenarios.{module}")
    return SCENARIOS


def load() -> dict[str, Answers]:
    """The record."""
    found: dict[str, Answers] = json.loads(FILE.read_text())
    return found


def save(answers: dict[str, Answers]) -> None:
    """Write the record, one line per step, so that a change shows what changed."""
    lines = []
    for name in sorted(answers):
        steps = [
            f"    {json.dumps(step, ensure_ascii=False)}: {json.dumps(value, ensure_ascii=False, sort_keys=True)}"
            for step, value in answers[name].items()
        ]
        lines.append(f"  {json.dumps(name)}: {{\n" + ",\n".join(steps) + "\n  }")
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def main() -> None:
    """Show the answers of a running broker."""
    port, wanted = int(sys.argv[1]), sys.argv[2:]
    for name, function in scenarios().items():
        if not wanted or any(name.startswith(part) for part in wanted):
            print(f"== {name}")
            for step, value in run(function, port).items():
                print(f"   {step}: {json.dumps(value, ensure_ascii=False, sort_keys=True)}")


if __name__ == "__main__":
    main()
