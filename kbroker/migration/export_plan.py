"""kbroker's metadata for an Apache Kafka of some release: the records of a snapshot, and what is not exported.

The one node is broker and controller.  Its broker is registered as fenced, with the broker epoch of its directories'
markers, so that its start counts as one after a clean stop.  Its partitions have it in their ISR and have no leader, as
after such a stop; it becomes their leader when it starts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from kbroker.cluster.config_changes import ConfigResourceType
from kbroker.metadata.features import FEATURES, METADATA_VERSION, Features
from kbroker.metadata.image import NO_LEADER, ConfigResource, QuotaEntity, TopicImage
from kbroker.metadata.image_records import DIRECTORIES_FROM, config_records, feature_records, quota_records
from kbroker.metadata.metadata_record import MetadataRecord, metadata_record
from kbroker.metadata.security_image import SecurityImage
from kbroker.metadata.security_records import records_of
from kbroker.schemas import wire
from kbroker.types import ZERO_UUID, TopicPartition, random_uuid

GROUP_SETTINGS_FROM = 22
"""The first level of 4.0, whose brokers know settings of groups."""

RELEASES: Mapping[str, Mapping[str, int]] = MappingProxyType(
    {
        "3.7": {METADATA_VERSION: 19},
        "3.8": {METADATA_VERSION: 20},
        "3.9": {METADATA_VERSION: 21},
        "4.0": {METADATA_VERSION: 25, "transaction.version": 2, "group.version": 1},
        "4.1": {
            METADATA_VERSION: 27,
            "transaction.version": 2,
            "group.version": 1,
            "eligible.leader.replicas.version": 1,
        },
        "4.2": {
            METADATA_VERSION: 29,
            "transaction.version": 2,
            "group.version": 1,
            "eligible.leader.replicas.version": 1,
            "share.version": 1,
            "streams.version": 1,
        },
        "4.3": {
            METADATA_VERSION: 30,
            "transaction.version": 2,
            "group.version": 1,
            "eligible.leader.replicas.version": 1,
            "share.version": 1,
            "streams.version": 1,
        },
    }
)
"""The highest level of each feature by release, as `kafka-storage.sh version-mapping` of 4.3.1 prints them."""
KINDS: Mapping[str, str] = {"consumer": "group.version", "share": "share.version", "streams": "streams.version"}
"""The feature that groups of a kind need."""


class UnknownReleaseError(ValueError):
    """A release of Kafka that there is no table for."""


class Stored(NamedTuple):
    """What the metadata store holds.  `next_producer_id`: the first that was not given out."""

    cluster_id: str
    topics: Sequence[TopicImage]
    configs: Mapping[ConfigResource, Mapping[str, str]]
    quotas: Mapping[QuotaEntity, Mapping[str, float]]
    features: Features
    next_producer_id: int
    security: SecurityImage = SecurityImage()


class Node(NamedTuple):
    """The stopped node: its broker epoch, the ids of its directories, and the directory of each partition."""

    node_id: int
    broker_epoch: int
    directory_ids: Sequence[bytes]
    places: Mapping[TopicPartition, bytes]


@dataclass(frozen=True, slots=True)
class ExportPlan:
    """`levels` are the features' levels there, `left` says what does not come along."""

    levels: Mapping[str, int]
    records: tuple[MetadataRecord, ...]
    left: tuple[str, ...]


def levels_of(release: str) -> Mapping[str, int]:
    """The highest levels that a release such as 4.3.1 has.  UnknownReleaseError."""
    levels = RELEASES.get(".".join(release.split(".")[:2]))
    if levels is None:
        raise UnknownReleaseError(f"{release}: known are {', '.join(RELEASES)}")
    return levels


def plan_export(
    stored: Stored,
    node: Node,
    release: str,
    groups: Mapping[str, str],
) -> ExportPlan:
    """The records of a snapshot.  UnknownReleaseError for a release without a table."""
    highest = levels_of(release)
    levels = {
        feature.name: min(stored.features.level(feature.name), highest.get(feature.name, 0)) for feature in FEATURES
    }
    left = [
        f"the {kind} groups {', '.join(names)}: Kafka {release} has none at {feature} {levels[feature]}"
        for kind, feature in KINDS.items()
        if (names := [name for name, its in groups.items() if its == kind]) and not levels[feature]
    ]
    configs = dict(stored.configs)
    if levels[METADATA_VERSION] < GROUP_SETTINGS_FROM:
        for resource in [each for each in configs if each.kind == ConfigResourceType.GROUP]:
            left.append(f"the settings of group {resource.name}: Kafka {release} has none for groups")
            del configs[resource]
    records = (
        *feature_records(levels),
        _registration(node, levels[METADATA_VERSION]),
        *(each for topic in stored.topics for each in _topic(topic, node, levels[METADATA_VERSION])),
        *config_records(configs),
        *quota_records(stored.quotas),
        metadata_record(
            wire.ProducerIdsRecord(
                broker_id=node.node_id, broker_epoch=node.broker_epoch, next_producer_id=stored.next_producer_id
            )
        ),
        *map(metadata_record, records_of(stored.security)),
    )
    return ExportPlan(levels, records, tuple(left))


def _registration(node: Node, level: int) -> MetadataRecord:
    registered = wire.RegisterBrokerRecord(
        broker_id=node.node_id,
        incarnation_id=random_uuid(),
        broker_epoch=node.broker_epoch,
        end_points=[],
        features=[],
        rack=None,
        fenced=True,
        in_controlled_shutdown=True,
    )
    if level < DIRECTORIES_FROM:
        return metadata_record(registered, 1)
    registered.log_dirs = list(node.directory_ids)
    return metadata_record(registered, 3)


def _topic(topic: TopicImage, node: Node, level: int) -> Iterator[MetadataRecord]:
    yield metadata_record(wire.TopicRecord(name=topic.name, topic_id=topic.topic_id))
    for partition in topic.partitions:
        record = wire.PartitionRecord(
            partition_id=partition.partition,
            topic_id=topic.topic_id,
            replicas=[node.node_id],
            isr=[node.node_id],
            removing_replicas=[],
            adding_replicas=[],
            leader=NO_LEADER,
            leader_epoch=partition.leader_epoch + 1,
            partition_epoch=partition.partition_epoch + 1,
        )
        if level < DIRECTORIES_FROM:
            yield metadata_record(record)
            continue
        record.directories = [node.places.get(TopicPartition(topic.name, partition.partition), ZERO_UUID)]
        yield metadata_record(record, 1)
    yield from config_records({ConfigResource(ConfigResourceType.TOPIC, topic.name): topic.configs})
