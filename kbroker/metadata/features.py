"""The features of the cluster and their levels (KIP-584): the one table, and the rules for changing a level.

Clients change their protocol by these levels, so a row names only levels that this broker serves.  A feature whose
highest level is 0 is not served and not shown.  `Features` is the part of the metadata image: the levels in force and
their epoch, which grows with every change, since clients drop answers with an older epoch than they know.

A level that was never set by an administrator is the default of the running version, as in a cluster that Kafka has
just formatted; one that was set stays until it is set again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType

from kbroker.errors import InvalidUpdateVersionError

METADATA_VERSION = "metadata.version"
ELIGIBLE_LEADER_REPLICAS = "eligible.leader.replicas.version"
GROUP_VERSION = "group.version"
SHARE_VERSION = "share.version"
STREAMS_VERSION = "streams.version"
TRANSACTION_VERSION = "transaction.version"
KRAFT_VERSION = "kraft.version"

NO_LEVEL = 0
CONTROLLERS_REGISTER_FROM = 15
"""The level of metadata.version from which controllers register themselves (3.7-IV0)."""

SAME_EPOCH_FROM = 12
"""The level of metadata.version (3.6-IV0) from which a leader keeps its epoch when the ISR shrinks."""
TRANSACTIONS_FROM = 13
"""That knows metadata transactions (3.6-IV1)."""
CONTROLLERS_FROM = 15
"""At which controllers register (3.7-IV0)."""


@dataclass(frozen=True, slots=True)
class Feature:
    """The levels of a feature that this broker serves, and the one that a new cluster begins with."""

    name: str
    min_level: int
    max_level: int
    default_level: int


# Kafka 4.3.1: group 0-1, share 0-1, streams 0-1, transaction 0-2, each new cluster at the highest.
FEATURES: tuple[Feature, ...] = (
    Feature(METADATA_VERSION, 7, 30, 30),
    Feature(ELIGIBLE_LEADER_REPLICAS, 0, 1, 1),
    Feature(GROUP_VERSION, 0, 1, 1),
    Feature(SHARE_VERSION, 0, 1, 1),
    Feature(STREAMS_VERSION, 0, 1, 1),
    Feature(TRANSACTION_VERSION, 0, 2, 2),
)

KRAFT_FEATURES: tuple[Feature, ...] = (
    *(Feature(each.name, each.min_level, each.max_level, NO_LEVEL) for each in FEATURES),
    Feature(KRAFT_VERSION, 0, 1, NO_LEVEL),
)
"""In a cluster of Kafka's controllers: there only what was set counts, and metadata.version always is."""


def served_features(table: Iterable[Feature] = FEATURES) -> dict[str, Feature]:
    """The features that have a level above 0, by name."""
    return {feature.name: feature for feature in table if feature.max_level > NO_LEVEL}


@dataclass(frozen=True, slots=True)
class Features:
    """The levels in force.  `chosen` holds those that were set, the others have their defaults."""

    epoch: int = 1
    chosen: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    table: tuple[Feature, ...] = FEATURES

    def level(self, name: str) -> int:
        """The level of a feature; 0 where it is off or not served."""
        feature = served_features(self.table).get(name)
        if feature is None:
            return NO_LEVEL
        return max(feature.min_level, min(feature.max_level, self.chosen.get(name, feature.default_level)))

    def levels(self) -> dict[str, int]:
        """The levels above 0, by name; what clients call finalized."""
        found = {name: self.level(name) for name in served_features(self.table)}
        return {name: level for name, level in found.items() if level > NO_LEVEL}


class UpgradeType(IntEnum):
    """What a request allows a new level to be, as Kafka numbers it."""

    UNKNOWN = 0
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


@dataclass(frozen=True, slots=True)
class FeatureUpdate:
    """One feature of a request.  `upgrade_type` is the wire's number, which may be none that Kafka knows."""

    name: str
    level: int
    upgrade_type: int = UpgradeType.UPGRADE


def update_features(features: Features, updates: Iterable[FeatureUpdate], node_id: int) -> Features:
    """The features after a request, all of it; the same object where nothing changes.

    InvalidUpdateVersionError, in Kafka's words (FeatureControlManager), for the first that cannot be done.
    """
    chosen = dict(features.chosen)
    for update in updates:
        _check(features, update, node_id)
        chosen[update.name] = update.level
    changed = Features(features.epoch + 1, MappingProxyType(chosen), features.table)
    return features if dict(features.chosen) == chosen else changed


def _check(features: Features, update: FeatureUpdate, node_id: int) -> None:
    if update.upgrade_type not in (UpgradeType.UPGRADE, UpgradeType.SAFE_DOWNGRADE, UpgradeType.UNSAFE_DOWNGRADE):
        raise _invalid(update, "The controller does not support the given upgrade type.")
    if update.level < 0:
        raise _invalid(update, "A feature version cannot be less than 0.")
    feature = served_features(features.table).get(update.name)
    if feature is None:
        if update.level == NO_LEVEL:
            raise _invalid(update, f"Feature {update.name} not found.")
        raise _invalid(update, f"Local controller {node_id} does not support this feature.")
    if not feature.min_level <= update.level <= feature.max_level:
        served = f"{feature.min_level}-{feature.max_level}"
        raise _invalid(update, f"Local controller {node_id} only supports versions {served}")
    current = features.level(update.name)
    if update.level < current and update.upgrade_type == UpgradeType.UPGRADE:
        raise _invalid(
            update,
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
            "downgrade.",
        )
    if update.level > current and update.upgrade_type != UpgradeType.UPGRADE:
        raise _invalid(update, "Can't downgrade to a newer version.")
    if update.name == METADATA_VERSION and update.level < current:
        raise InvalidUpdateVersionError(
            f"Unsupported metadata.version downgrade from {current} to {update.level}. "
            + (
                "Unsafe metadata downgrade is not supported in this version."
                if update.upgrade_type == UpgradeType.UNSAFE_DOWNGRADE
                else "Refusing to perform the requested downgrade because it might delete metadata information."
            )
        )


def _invalid(update: FeatureUpdate, reason: str) -> InvalidUpdateVersionError:
    return InvalidUpdateVersionError(f"Invalid update version {update.level} for feature {update.name}. {reason}")
