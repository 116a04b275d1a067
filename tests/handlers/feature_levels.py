"""What is asked of a broker about features and their levels (`tests.handlers.changes`).

Levels belong to the whole cluster: each scenario leaves them as it found them.
"""

from __future__ import annotations

from typing import Any

from tests.compat.waiting import wait_for
from tests.handlers.changes import change
from tests.scenarios.session import Session

UNKNOWN, UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 0, 1, 2, 3
ELR = "eligible.leader.replicas.version"


def update(feature: str, level: int, upgrade_type: int = UPGRADE) -> dict[str, Any]:
    """One row of a request from v1 on."""
    return {"feature": feature, "max_version_level": level, "upgrade_type": upgrade_type}


def ask(s: Session, step: str, *rows: dict[str, Any], version: int = 2, validate_only: bool = False) -> None:
    """Ask to change levels."""
    only = {"validate_only": validate_only} if version else {}
    s.ask(step, "UpdateFeatures", version, feature_updates=list(rows), timeout_ms=10_000, **only)


@change
def feature_levels_that_are_wrong(s: Session) -> None:
    for version in (0, 1, 2):
        row = {"feature": "no.such.version", "max_version_level": 1}
        ask(s, f"unknown feature v{version}", row, version=version)
        ask(s, f"no feature v{version}", version=version)
        ask(
            s, f"a level too high v{version}", {"feature": "metadata.version", "max_version_level": 31}, version=version
        )
        ask(
            s,
            f"one right, one wrong v{version}",
            {"feature": "metadata.version", "max_version_level": 30},
            row,
            version=version,
        )
    ask(s, "unknown feature at 0", update("no.such.version", 0))
    ask(s, "a level too low", update("metadata.version", 6, UNSAFE_DOWNGRADE))
    ask(s, "level 0 of metadata.version", update("metadata.version", 0, UNSAFE_DOWNGRADE))
    ask(s, "a negative level", update("metadata.version", -1, UNSAFE_DOWNGRADE))
    ask(s, "a negative level of an unknown feature", update("no.such.version", -1, UNSAFE_DOWNGRADE))
    ask(s, "down by an upgrade", update("metadata.version", 29))
    ask(s, "unknown upgrade type", update("metadata.version", 30, UNKNOWN))
    ask(s, "an upgrade type that does not exist", update("metadata.version", 30, 9))
    ask(s, "the same level by a downgrade", update("metadata.version", 30, SAFE_DOWNGRADE))
    ask(s, "a feature twice", update("metadata.version", 30), update("metadata.version", 30))
    ask(s, "an empty name", update("", 1))
    ask(s, "before downgrades had kinds", {"feature": "metadata.version", "max_version_level": 29}, version=0)
    ask(s, "a higher level by a downgrade", update("metadata.version", 31, SAFE_DOWNGRADE))


@change
def feature_levels_that_change(s: Session) -> None:
    ask(s, "down safely, which loses metadata", update("metadata.version", 29, SAFE_DOWNGRADE), validate_only=True)
    ask(s, "down unsafely", update("metadata.version", 7, UNSAFE_DOWNGRADE), validate_only=True)
    ask(s, "the level that it has", update("metadata.version", 30))
    ask(s, "only validated", update(ELR, 0, SAFE_DOWNGRADE), validate_only=True)
    finalized(s, "after validation")
    ask(s, "down before kinds", {"feature": ELR, "max_version_level": 0, "allow_downgrade": True}, version=0)
    ask(s, "down without saying so", update(ELR, 0))
    ask(s, "one right and one wrong", update(ELR, 0, SAFE_DOWNGRADE), update("metadata.version", 29))
    finalized(s, "after a refusal")
    ask(s, "down", update(ELR, 0, SAFE_DOWNGRADE))
    finalized(s, "when it is down", ELR, 0)
    ask(s, "down again", update(ELR, 0, UNSAFE_DOWNGRADE), version=1)
    ask(s, "up by a downgrade", update(ELR, 1, UNSAFE_DOWNGRADE))
    ask(s, "up", update(ELR, 1), version=1)
    finalized(s, "when it is up", ELR, 1)


def finalized(s: Session, step: str, feature: str = "metadata.version", level: int = 30) -> None:
    """Wait until a feature has a level, and record those of two features."""

    def levels() -> dict[str, int]:
        software = {"client_software_name": "test", "client_software_version": "1"}
        answer = s.quietly("ApiVersions", 4, **software)
        found = {row.name: row.max_version_level for row in answer.finalized_features}
        return {name: found.get(name, 0) for name in ("metadata.version", ELR)}

    wait_for(lambda: levels()[feature] == level, f"{feature} to be {level}")
    s.record(step, levels())
