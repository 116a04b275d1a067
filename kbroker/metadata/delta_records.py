"""The records of a KRaft cluster's metadata that make a change of an image (KIP-631): the inverse of `record_deltas`.

    delta_of(image, delta_records(image, delta)) == delta

Records come in Kafka's order: features, registrations, topics that go, topics that come or change, settings, quotas,
security.  A partition whose epochs go on as controllers count them has a PartitionChangeRecord with what differs; one
that is new, or whose epochs do not, has a PartitionRecord.  Where ELRs are on, a change of `min.insync.replicas` also
clears those of the topic, or of all topics: a record says so, whether the delta has it or not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from kbroker.metadata.broker_records import FENCED
from kbroker.metadata.broker_settings import BROKER_RESOURCE, MIN_INSYNC
from kbroker.metadata.features import ELIGIBLE_LEADER_REPLICAS, KRAFT_VERSION, METADATA_VERSION, NO_LEVEL
from kbroker.metadata.image import (
    BrokerImage,
    ClusterImage,
    ConfigResource,
    MetadataDelta,
    PartitionImage,
    QuotaEntity,
    TopicChange,
    TopicImage,
)
from kbroker.metadata.image_records import (
    broker_record,
    config_records,
    controller_record,
    feature_records,
    partition_record,
    partition_version,
    quota_records,
)
from kbroker.metadata.metadata_record import MetadataRecord, metadata_record
from kbroker.metadata.record_deltas import TOPIC_RESOURCE, changed_partition
from kbroker.metadata.security_image import SecurityDelta
from kbroker.metadata.security_records import records_of_changes
from kbroker.schemas import wire

UNFENCED = -1
IN_SHUTDOWN = 1


def delta_records(image: ClusterImage, delta: MetadataDelta) -> Iterator[MetadataRecord]:
    """What makes `delta` of the image.

    ValueError for what no record says: a controller that is gone, a broker whose incarnation begins without an epoch.
    """
    chosen = image.features.chosen
    if delta.features is not None:
        yield from _feature_changes(chosen, delta.features.chosen)
        chosen = delta.features.chosen
    level = chosen.get(METADATA_VERSION, NO_LEVEL)
    if delta.brokers is not None:
        yield from _broker_changes(image.brokers, delta.brokers.brokers, level)
    if delta.controllers is not None:
        if not image.controllers.keys() <= delta.controllers.keys():
            raise ValueError("no record takes a controller's registration away")
        for node_id, controller in delta.controllers.items():
            if controller != image.controllers.get(node_id):
                yield controller_record(controller)
    for topic in delta.deleted:
        yield metadata_record(wire.RemoveTopicRecord(topic_id=topic.topic_id))
    has_elr = image.features.level(ELIGIBLE_LEADER_REPLICAS) > NO_LEVEL
    for topic in delta.created:
        yield from _new_topic(topic, level, has_elr)
    for change in delta.changed:
        yield from _topic_changes(change, level)
    for resource, values in delta.configs.items():
        yield from _config_changes(resource, image.configs.get(resource, {}), values)
    if has_elr:
        yield from _cleared(image, delta)
    for entity, limits in delta.quotas.items():
        yield from _quota_changes(entity, image.quotas.get(entity, {}), limits)
    yield from _security_changes(delta.security)


def _feature_changes(before: Mapping[str, int], after: Mapping[str, int]) -> Iterator[MetadataRecord]:
    yield from feature_records({name: level for name, level in after.items() if before.get(name) != level})
    for name in sorted(before.keys() - after.keys() - {KRAFT_VERSION}):
        yield metadata_record(wire.FeatureLevelRecord(name=name, feature_level=NO_LEVEL))


def _broker_changes(
    before: Mapping[int, BrokerImage], after: Mapping[int, BrokerImage], level: int
) -> Iterator[MetadataRecord]:
    for node_id, old in before.items():
        if node_id not in after:
            yield metadata_record(wire.UnregisterBrokerRecord(broker_id=node_id, broker_epoch=old.epoch))
    for node_id, new in after.items():
        known = before.get(node_id)
        if new != known:
            yield _broker_change(known, new, level)


def _broker_change(old: BrokerImage | None, new: BrokerImage, level: int) -> MetadataRecord:
    """A registration, or what has changed of it where a BrokerRegistrationChangeRecord can say that."""
    if old is not None:
        with_state = replace(
            old,
            is_fenced=new.is_fenced,
            in_controlled_shutdown=new.in_controlled_shutdown,
            log_dirs=new.log_dirs,
            cordoned_log_dirs=new.cordoned_log_dirs,
        )
        goes_back = old.in_controlled_shutdown and not new.in_controlled_shutdown
        has_none = (old.log_dirs and not new.log_dirs) or (
            old.cordoned_log_dirs is not None and new.cordoned_log_dirs is None
        )
        if with_state == new and not goes_back and not has_none:
            return _registration_change(old, new)
    return broker_record(new, level)


def _registration_change(old: BrokerImage, new: BrokerImage) -> MetadataRecord:
    change, version = wire.BrokerRegistrationChangeRecord(broker_id=new.node_id, broker_epoch=new.epoch), 0
    if new.is_fenced != old.is_fenced:
        change.fenced = FENCED if new.is_fenced else UNFENCED
    if new.in_controlled_shutdown != old.in_controlled_shutdown:
        change.in_controlled_shutdown, version = IN_SHUTDOWN, 1
    if new.log_dirs != old.log_dirs:
        change.log_dirs, version = list(new.log_dirs), 2
    if new.cordoned_log_dirs != old.cordoned_log_dirs:
        change.cordoned_log_dirs, version = list(new.cordoned_log_dirs or ()), 3
    return metadata_record(change, version)


def _new_topic(topic: TopicImage, level: int, has_elr: bool) -> Iterator[MetadataRecord]:
    yield metadata_record(wire.TopicRecord(name=topic.name, topic_id=topic.topic_id))
    yield from config_records({ConfigResource(TOPIC_RESOURCE, topic.name): topic.configs})
    if has_elr and MIN_INSYNC in topic.configs:
        yield metadata_record(wire.ClearElrRecord(topic_name=topic.name))
    for partition in topic.partitions:
        yield partition_record(topic.topic_id, partition, level)


def _cleared(image: ClusterImage, delta: MetadataDelta) -> Iterator[MetadataRecord]:
    """Whose ELRs count no more, since another number of replicas has to be in sync."""
    for old, new in delta.changed:
        if old.configs.get(MIN_INSYNC) != new.configs.get(MIN_INSYNC):
            yield metadata_record(wire.ClearElrRecord(topic_name=new.name))
    for resource, values in delta.configs.items():
        if resource.kind == BROKER_RESOURCE and image.configs.get(resource, {}).get(MIN_INSYNC) != values.get(
            MIN_INSYNC
        ):
            yield metadata_record(wire.ClearElrRecord(topic_name=""))


def _topic_changes(change: TopicChange, level: int) -> Iterator[MetadataRecord]:
    old, new = change
    if len(new.partitions) < len(old.partitions):
        raise ValueError(f"no record takes partitions of {new.name} away")
    for before, each in zip(old.partitions, new.partitions, strict=False):
        # Which replicas are offline each broker knows by itself: no record says it.
        after = each
        if each.offline_replicas != before.offline_replicas:
            after = replace(each, offline_replicas=before.offline_replicas)
        if after != before:
            yield _partition_change(new.topic_id, before, after, level)
    for added in new.partitions[len(old.partitions) :]:
        yield partition_record(new.topic_id, added, level)
    yield from _config_changes(ConfigResource(TOPIC_RESOURCE, new.name), old.configs, new.configs)


def _partition_change(topic_id: bytes, old: PartitionImage, new: PartitionImage, level: int) -> MetadataRecord:
    change = wire.PartitionChangeRecord(partition_id=new.partition, topic_id=topic_id)
    if new.leader_epoch != old.leader_epoch:
        change.leader = new.leader
    if new.leader_recovery_state != old.leader_recovery_state:
        change.leader_recovery_state = new.leader_recovery_state
    fields = [
        ("replicas", "replicas"),
        ("isr", "isr"),
        ("adding_replicas", "adding_replicas"),
        ("removing_replicas", "removing_replicas"),
        ("elr", "eligible_leader_replicas"),
        ("last_known_elr", "last_known_elr"),
        ("directories", "directories"),
    ]
    for ours, theirs in fields:
        if getattr(new, ours) != getattr(old, ours):
            setattr(change, theirs, list(getattr(new, ours)))
    if changed_partition(old, change) != new:
        return partition_record(topic_id, new, level)
    return metadata_record(change, partition_version(level))


def _config_changes(
    resource: ConfigResource, before: Mapping[str, str], after: Mapping[str, str]
) -> Iterator[MetadataRecord]:
    yield from config_records({resource: {name: value for name, value in after.items() if before.get(name) != value}})
    for name in sorted(before.keys() - after.keys()):
        yield metadata_record(
            wire.ConfigRecord(resource_type=resource.kind, resource_name=resource.name, name=name, value=None)
        )


def _quota_changes(
    entity: QuotaEntity, before: Mapping[str, float], after: Mapping[str, float]
) -> Iterator[MetadataRecord]:
    yield from quota_records({entity: {key: value for key, value in after.items() if before.get(key) != value}})
    gone = dict.fromkeys(sorted(before.keys() - after.keys()), 0.0)
    yield from quota_records({entity: gone}, remove=True)


def _security_changes(delta: SecurityDelta) -> Iterator[MetadataRecord]:
    yield from map(metadata_record, records_of_changes(delta))
