"""Levels of features that all nodes of a cluster have (KIP-584, KIP-919): Kafka's checks beyond a node's own."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from kbroker.errors import InvalidUpdateVersionError
from kbroker.metadata.broker_settings import ALL_BROKERS, BROKER_RESOURCE, MIN_INSYNC
from kbroker.metadata.features import (
    CONTROLLERS_FROM,
    ELIGIBLE_LEADER_REPLICAS,
    KRAFT_VERSION,
    METADATA_VERSION,
    NO_LEVEL,
    FeatureUpdate,
    update_features,
)
from kbroker.metadata.metadata_record import MetadataRecord, metadata_record
from kbroker.schemas import wire

if TYPE_CHECKING:
    from kbroker.metadata.image import ClusterImage


def feature_update_records(
    image: ClusterImage, updates: Iterable[FeatureUpdate], node_id: int, voters: Collection[int], min_insync: int
) -> list[MetadataRecord]:
    """The records of a request, one for each feature, also where the level stays.  InvalidUpdateVersionError.

    kraft.version has no record here: the quorum itself changes it (`kraft_upgrade`).  `voters`: ids of the quorum's
    voters.  `min_insync`: this node's static `min.insync.replicas`.
    """
    updates = list(updates)
    update_features(image.features, updates, node_id)
    for update in updates:
        _check_nodes(image, update, node_id, voters)
    records: list[MetadataRecord] = []
    for update in updates:
        if update.name == ELIGIBLE_LEADER_REPLICAS and update.level > image.features.level(update.name) == NO_LEVEL:
            records += _min_insync_records(image, min_insync)
    named = (each for each in updates if each.name != KRAFT_VERSION)
    return records + [
        metadata_record(wire.FeatureLevelRecord(name=each.name, feature_level=each.level)) for each in named
    ]


def kraft_upgrade(image: ClusterImage, updates: Iterable[FeatureUpdate]) -> int | None:
    """The kraft.version that a request raises the quorum to; None where it stays.  InvalidUpdateVersionError."""
    for update in updates:
        now = image.features.chosen.get(KRAFT_VERSION, NO_LEVEL)
        if update.name == KRAFT_VERSION and update.level != now:
            if update.level < now:
                raise _invalid(update, "Can't downgrade the version of this feature.")
            return update.level
    return None


def _check_nodes(image: ClusterImage, update: FeatureUpdate, node_id: int, voters: Collection[int]) -> None:
    for broker in image.brokers.values():
        _check(update, f"Broker {broker.node_id}", broker.features)
    if image.features.chosen.get(METADATA_VERSION, NO_LEVEL) < CONTROLLERS_FROM:
        return
    for controller in image.controllers.values():
        if controller.node_id != node_id:
            _check(update, f"Controller {controller.node_id}", controller.features)
    missing = sorted(set(voters) - {node_id} - image.controllers.keys())
    if missing:
        raise _invalid(update, f"The controllers {missing} have not said yet which versions they support.")


def _check(update: FeatureUpdate, node: str, ranges: Mapping[str, tuple[int, int]]) -> None:
    low, high = ranges.get(update.name, (NO_LEVEL, NO_LEVEL))
    if low <= update.level <= high:
        return
    if high == NO_LEVEL:
        raise _invalid(update, f"{node} does not support this feature.")
    raise _invalid(update, f"{node} only supports versions {low}-{high}")


def _min_insync_records(image: ClusterImage, min_insync: int) -> Iterator[MetadataRecord]:
    """With ELRs it is set for all brokers, and for no single one."""
    own = {each.name: values for each, values in image.configs.items() if each.kind == BROKER_RESOURCE}
    if MIN_INSYNC not in own.get(ALL_BROKERS, {}):
        yield _setting(ALL_BROKERS, str(min_insync))
    for broker in sorted(own):
        if broker and MIN_INSYNC in own[broker]:
            yield _setting(broker, None)


def _setting(broker: str, value: str | None) -> MetadataRecord:
    return metadata_record(
        wire.ConfigRecord(resource_type=BROKER_RESOURCE, resource_name=broker, name=MIN_INSYNC, value=value)
    )


def _invalid(update: FeatureUpdate, reason: str) -> InvalidUpdateVersionError:
    return InvalidUpdateVersionError(f"Invalid update version {update.level} for feature {update.name}. {reason}")
