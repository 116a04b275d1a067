"""The records of a KRaft cluster's metadata that make an image, in the order of Kafka's snapshots (KIP-630, KIP-631).

Records have all that images have, in the versions that the image's metadata.version has:

    RegisterBrokerRecord   1, from 3.4 on 2, 3.7-IV2 on 3 (directories), 4.3 on 4 (cordoned directories)
    PartitionRecord        0, from 3.7-IV2 on 1 (directories), 4.0-IV1 on 2 (ELR)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from kbroker.metadata.features import KRAFT_VERSION, METADATA_VERSION
from kbroker.metadata.image import (
    BrokerImage,
    ClusterImage,
    ConfigResource,
    ControllerImage,
    PartitionImage,
    QuotaEntity,
    TopicImage,
)
from kbroker.metadata.metadata_record import MetadataRecord, metadata_record
from kbroker.metadata.record_deltas import TOPIC_RESOURCE
from kbroker.metadata.security_records import records_of
from kbroker.schemas import wire

MIGRATION_FROM = 8
DIRECTORIES_FROM = 17
"""The level of metadata.version that knows which directory a replica is in (3.7-IV2)."""
ELR_FROM = 23
CORDONED_FROM = 30


def image_records(image: ClusterImage, others: Iterable[MetadataRecord] = ()) -> Iterator[MetadataRecord]:
    """All records of an image; `others` are those that images do not have."""
    level = image.features.chosen.get(METADATA_VERSION, 0)
    yield from feature_records(image.features.chosen)
    for broker in image.brokers.values():
        yield broker_record(broker, level)
    for controller in image.controllers.values():
        yield controller_record(controller)
    for topic in image.topics.values():
        yield from topic_records(topic, level)
    yield from config_records(image.configs)
    yield from quota_records(image.quotas)
    yield from others
    yield from map(metadata_record, records_of(image.security))


def feature_records(levels: Mapping[str, int]) -> Iterator[MetadataRecord]:
    """Of the features that are on, metadata.version first; kraft.version has a control record."""
    for name in sorted(levels, key=lambda each: (each != METADATA_VERSION, each)):
        if levels[name] and name != KRAFT_VERSION:
            yield metadata_record(wire.FeatureLevelRecord(name=name, feature_level=levels[name]))


def broker_record(broker: BrokerImage, level: int) -> MetadataRecord:
    """The registration of a broker with what has changed since."""
    record = wire.RegisterBrokerRecord
    registered = record(
        broker_id=broker.node_id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=[
            record.BrokerEndpoint(
                name=name, host=at.host, port=at.port, security_protocol=broker.protocols.get(name, 0)
            )
            for name, at in broker.endpoints.items()
        ],
        features=[
            record.BrokerFeature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in broker.features.items()
        ],
        rack=broker.rack,
        fenced=broker.is_fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
    )
    if level >= DIRECTORIES_FROM:
        registered.log_dirs = list(broker.log_dirs)
    if level >= CORDONED_FROM and broker.cordoned_log_dirs is not None:
        registered.cordoned_log_dirs = list(broker.cordoned_log_dirs)
    return metadata_record(registered, registration_version(level))


def registration_version(level: int) -> int:
    """The version of a broker's registration at a level of metadata.version."""
    return 1 + (level >= MIGRATION_FROM) + (level >= DIRECTORIES_FROM) + (level >= CORDONED_FROM)


def controller_record(controller: ControllerImage) -> MetadataRecord:
    """The registration of a controller."""
    record = wire.RegisterControllerRecord
    return metadata_record(
        record(
            controller_id=controller.node_id,
            incarnation_id=controller.incarnation_id,
            zk_migration_ready=controller.zk_migration_ready,
            end_points=[
                record.ControllerEndpoint(
                    name=name, host=at.host, port=at.port, security_protocol=controller.protocols.get(name, 0)
                )
                for name, at in controller.endpoints.items()
            ],
            features=[
                record.ControllerFeature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in controller.features.items()
            ],
        )
    )


def topic_records(topic: TopicImage, level: int) -> Iterator[MetadataRecord]:
    """A topic with its partitions and settings."""
    yield metadata_record(wire.TopicRecord(name=topic.name, topic_id=topic.topic_id))
    for partition in topic.partitions:
        yield partition_record(topic.topic_id, partition, level)
    yield from config_records({ConfigResource(TOPIC_RESOURCE, topic.name): topic.configs})


def partition_version(level: int) -> int:
    """The version of records of partitions at a level of metadata.version."""
    return (level >= DIRECTORIES_FROM) + (level >= ELR_FROM)


def partition_record(topic_id: bytes, partition: PartitionImage, level: int) -> MetadataRecord:
    """A partition as it is."""
    version = partition_version(level)
    record = wire.PartitionRecord(
        partition_id=partition.partition,
        topic_id=topic_id,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        removing_replicas=list(partition.removing_replicas),
        adding_replicas=list(partition.adding_replicas),
        leader=partition.leader,
        leader_recovery_state=partition.leader_recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
    )
    if version >= 1:
        record.directories = list(partition.directories)
    if version >= 2:
        record.eligible_leader_replicas = list(partition.elr) or None
        record.last_known_elr = list(partition.last_known_elr) or None
    return metadata_record(record, version)


def config_records(configs: Mapping[ConfigResource, Mapping[str, str]]) -> Iterator[MetadataRecord]:
    """Of settings."""
    for resource, values in configs.items():
        for name, value in values.items():
            yield metadata_record(
                wire.ConfigRecord(resource_type=resource.kind, resource_name=resource.name, name=name, value=value)
            )


def quota_records(
    quotas: Mapping[QuotaEntity, Mapping[str, float]], *, remove: bool = False
) -> Iterator[MetadataRecord]:
    """Of client quotas; `remove`: which are gone."""
    entity_data = wire.ClientQuotaRecord.EntityData
    for entity, values in quotas.items():
        for key, value in values.items():
            entities = [entity_data(entity_type=kind, entity_name=name) for kind, name in entity]
            yield metadata_record(wire.ClientQuotaRecord(entity=entities, key=key, value=value, remove=remove))
