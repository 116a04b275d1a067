"""The levels of the cluster's features in Kafka's releases: by name, by default, and by what each needs (KIP-1022).

A new cluster begins with a metadata.version, which names a release, and with the levels that other features have by
default in that release.  All texts of refusals are Kafka 4.3.1's (`MetadataVersion`, `Feature`, `Formatter`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from kbroker.metadata.features import (
    ELIGIBLE_LEADER_REPLICAS,
    GROUP_VERSION,
    KRAFT_VERSION,
    METADATA_VERSION,
    NO_LEVEL,
    SHARE_VERSION,
    STREAMS_VERSION,
    TRANSACTION_VERSION,
)

OLDEST = 7
_NAMES = """
3.3-IV3 3.4-IV0 3.5-IV0 3.5-IV1 3.5-IV2 3.6-IV0 3.6-IV1 3.6-IV2 3.7-IV0 3.7-IV1 3.7-IV2 3.7-IV3 3.7-IV4 3.8-IV0 3.9-IV0
4.0-IV0 4.0-IV1 4.0-IV2 4.0-IV3 4.1-IV0 4.1-IV1 4.2-IV0 4.2-IV1 4.3-IV0
"""
RELEASES: Mapping[int, str] = MappingProxyType(dict(enumerate(_NAMES.split(), OLDEST)))
"""The name of each metadata.version."""
NEWEST = max(RELEASES)
SCRAM_LEVEL = 11
"""The metadata.version from which on the log holds users of SCRAM."""
_UNSTABLE = {NEWEST + 1: "4.4-IV0"}


class LevelError(ValueError):
    """A release or a level that a new cluster cannot begin with, in Kafka's words."""


class _Level(NamedTuple):
    """A level of a feature: the metadata.version from which on it is the default, and what it needs."""

    default_from: int
    needed: Mapping[str, int] = MappingProxyType({})


# By name, the levels from 1 on.
_LEVELS: Mapping[str, tuple[_Level, ...]] = {
    ELIGIBLE_LEADER_REPLICAS: (_Level(26, {METADATA_VERSION: 23}),),
    GROUP_VERSION: (_Level(22),),
    KRAFT_VERSION: (_Level(21),),
    SHARE_VERSION: (_Level(28),),
    STREAMS_VERSION: (_Level(29),),
    TRANSACTION_VERSION: (_Level(24), _Level(24)),
}


def metadata_version_of(release: str) -> int:
    """The metadata.version of a release such as `4.3`, `4.3.1` or `4.3-IV0`.  LevelError."""
    parts = release.split(".")
    wanted = ".".join(parts[:2]) if len(parts) > 2 else release
    found = [level for level, name in RELEASES.items() if wanted in (name, name.partition("-")[0])]
    if not found:
        raise LevelError(
            f"Unknown metadata.version '{release}'. Supported metadata.version are: {', '.join(RELEASES.values())}"
        )
    return found[-1]


def default_levels(metadata_version: int = NEWEST) -> dict[str, int]:
    """The levels of a new cluster of that metadata.version, itself included; without kraft.version."""
    found = {METADATA_VERSION: metadata_version}
    for name, levels in _LEVELS.items():
        if name != KRAFT_VERSION:
            found[name] = sum(level.default_from <= metadata_version for level in levels)
    return found


def first_levels(release: str | None, chosen: Mapping[str, int], *, is_dynamic: bool) -> dict[str, int]:
    """The levels that a new cluster begins with, by name; metadata.version and kraft.version included.

    `release`: see `metadata_version_of`, None for the newest or what is chosen.  `is_dynamic`: the log names the
    voters, and not `controller.quorum.voters`.  LevelError.
    """
    version = _first_metadata_version(release, chosen)
    for name in sorted(chosen):
        if name != METADATA_VERSION and name not in _LEVELS:
            raise LevelError(f"Unsupported feature: {name}. Supported features are: {', '.join(_LEVELS)}")
    levels = {**default_levels(version), KRAFT_VERSION: int(is_dynamic), **chosen, METADATA_VERSION: version}
    if KRAFT_VERSION in chosen:
        _check_kraft_version(chosen[KRAFT_VERSION], is_dynamic=is_dynamic)
    for name in _LEVELS:
        _check_level(name, levels)
    return levels


def _first_metadata_version(release: str | None, chosen: Mapping[str, int]) -> int:
    if METADATA_VERSION not in chosen:
        return NEWEST if release is None else metadata_version_of(release)
    if release is not None:
        raise LevelError(f"Use --release-version instead of --feature {METADATA_VERSION}=X to avoid ambiguity.")
    level = chosen[METADATA_VERSION]
    if level in _UNSTABLE:
        raise LevelError(f"{METADATA_VERSION} {_UNSTABLE[level]} is not yet stable.")
    if level not in RELEASES:
        raise LevelError(
            f"No MetadataVersion with feature level {level}. Valid feature levels are from {OLDEST} to "
            f"{max(_UNSTABLE)}."
        )
    return level


def _check_kraft_version(level: int, *, is_dynamic: bool) -> None:
    if level == NO_LEVEL and is_dynamic:
        raise LevelError(
            "Cannot set kraft.version to 0 if controller.quorum.voters is empty and one of the flags --standalone, "
            "--initial-controllers, or --no-initial-controllers is used. For dynamic controllers support, try removing "
            "the --feature flag for kraft.version."
        )
    if level != NO_LEVEL and not is_dynamic:
        raise LevelError(
            f"Cannot set kraft.version to {level} unless controller.quorum.voters is empty and one of the flags "
            "--standalone, --initial-controllers, or --no-initial-controllers is used. For dynamic controllers "
            "support, try using one of --standalone, --initial-controllers, or --no-initial-controllers and removing "
            "controller.quorum.voters."
        )


def _check_level(name: str, levels: Mapping[str, int]) -> None:
    level = levels[name]
    if not NO_LEVEL <= level <= len(_LEVELS[name]):
        raise LevelError(f"No feature:{name} with feature level {level}")
    if level == NO_LEVEL:
        return
    for other, needed in _LEVELS[name][level - 1].needed.items():
        if levels[other] < needed:
            raise LevelError(f"{name} could not be set to {level} because it depends on {other} level {needed}")
