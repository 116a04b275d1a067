"""Where kbroker's answers differ from Apache Kafka's on purpose, each with its reason.

A difference names a scenario, the steps (a pattern), and the parts of the answer (paths such as
`topics[].error_message`; empty for the whole answer).  Those parts are left out of the comparison; everything else must
be equal.  `docs/compatibility.md` tells users the same, reason by reason, and a test holds the two together.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference that is meant."""

    scenario: str
    steps: str
    paths: tuple[str, ...]
    reason: str


DIFFERENCES: tuple[Difference, ...] = ()


def masked(scenario: str, step: str, answer: Any) -> Any:
    """The answer without the parts that are meant to differ."""
    for difference in DIFFERENCES:
        if fnmatchcase(scenario, difference.scenario) and fnmatchcase(step, difference.steps):
            if not difference.paths:
                return "differs on purpose"
            for path in difference.paths:
                answer = _without(answer, path.split("."))
    return answer


def _without(value: Any, path: list[str]) -> Any:
    name, rest = path[0], path[1:]
    is_list = name.endswith("[]")
    key = name.removesuffix("[]")
    if not isinstance(value, dict) or key not in value:
        return value
    changed = dict(value)
    if not rest:
        changed.pop(key)
    elif is_list:
        changed[key] = [_without(item, rest) for item in value[key]]
    else:
        changed[key] = _without(value[key], rest)
    return changed


def reasons() -> Iterable[str]:
    """Every reason, once."""
    return dict.fromkeys(difference.reason for difference in DIFFERENCES)
