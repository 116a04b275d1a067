"""kbroker's answers against those that Apache Kafka gave, scenario by scenario."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios.answer_parts import differing_parts
from tests.scenarios.differences import masked, reasons
from tests.scenarios.golden import load, scenarios
from tests.scenarios.session import Answers, run

RECORD = load()
COMPATIBILITY = Path(__file__).parents[2] / "docs" / "compatibility.md"


def unlike(name: str, expected: Answers, found: Answers) -> list[str]:
    """A line for each step whose answer is not the one on record."""
    lines = [f"{step}: not asked any more" for step in expected if step not in found]
    for step, answer in found.items():
        ours, theirs = masked(name, step, answer), masked(name, step, expected.get(step, "not on record"))
        lines += [f"{step}: {line}" for line in differing_parts(theirs, ours, "")]
    return lines


@pytest.mark.parametrize("name", sorted(scenarios()))
def test_answers_are_those_of_kafka(name: str, kbroker_port: int) -> None:
    """Clients and tools that rely on an answer of Kafka's would meet another one."""
    differing = unlike(name, RECORD.get(name, {}), run(scenarios()[name], kbroker_port))
    assert not differing, "\n  ".join(["answers differ:", *differing])


def test_each_difference_is_told_to_users() -> None:
    """Users would be surprised by a difference that the documentation does not mention."""
    text = " ".join(COMPATIBILITY.read_text().split())
    missing = [reason for reason in reasons() if reason not in text]
    assert not missing
