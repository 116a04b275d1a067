"""From the records of a KRaft cluster's metadata to what they change of an image (KIP-631).

    image = image.apply(delta_of(image, records))

Records are taken in their order, as many as count together: a batch, a metadata transaction, a snapshot.  Epochs are
counted as the controllers do.  Each record that changes a partition raises its partition epoch.  A record that names a
leader also raises the leader epoch, even if the leader stays the same; clearing an ELR raises only the partition epoch.
Producer ids are no part of images.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from kbroker.metadata.image import (
    BrokerImage,
    BrokersImage,
    ConfigResource,
    Endpoint,
    MetadataDelta,
    PartitionImage,
    TopicChange,
    TopicImage,
)
from kbroker.metadata.metadata_record import MetadataLogError
from kbroker.metadata.security_records import SecurityDraft
from kbroker.metadata.topic_names import is_internal
from kbroker.schemas import wire

if TYPE_CHECKING:
    from kbroker.metadata.image import ClusterImage, QuotaEntity
    from kbroker.metadata.metadata_record import MetadataRecord

K = TypeVar("K")
V = TypeVar("V")

TOPIC_RESOURCE = 2
NO_LEADER_CHANGE = -2
FENCED = 1
"""In a BrokerRegistrationChangeRecord; -1 is unfenced, 0 says nothing of it."""


def partition_of(value: wire.PartitionRecord) -> PartitionImage:
    """A partition as a PartitionRecord makes it."""
    return PartitionImage(
        value.partition_id,
        value.leader,
        value.leader_epoch,
        tuple(value.replicas),
        tuple(value.isr),
        value.partition_epoch,
        adding_replicas=tuple(value.adding_replicas),
        removing_replicas=tuple(value.removing_replicas),
        elr=tuple(value.eligible_leader_replicas or ()),
        last_known_elr=tuple(value.last_known_elr or ()),
    )


def changed_partition(old: PartitionImage, value: wire.PartitionChangeRecord) -> PartitionImage:
    """A partition after a PartitionChangeRecord; what is null there stays as it was."""
    has_leader = value.leader != NO_LEADER_CHANGE
    return replace(
        old,
        leader=value.leader if has_leader else old.leader,
        leader_epoch=old.leader_epoch + has_leader,
        replicas=_or(value.replicas, old.replicas),
        isr=_or(value.isr, old.isr),
        partition_epoch=old.partition_epoch + 1,
        adding_replicas=_or(value.adding_replicas, old.adding_replicas),
        removing_replicas=_or(value.removing_replicas, old.removing_replicas),
        elr=_or(value.eligible_leader_replicas, old.elr),
        last_known_elr=_or(value.last_known_elr, old.last_known_elr),
    )


def without_elr(old: PartitionImage) -> PartitionImage:
    """A partition after a ClearElrRecord: the same object where it had no ELR."""
    if not old.elr and not old.last_known_elr:
        return old
    return replace(old, elr=(), last_known_elr=(), partition_epoch=old.partition_epoch + 1)


def quota_entity(value: wire.ClientQuotaRecord) -> QuotaEntity:
    """What a ClientQuotaRecord limits."""
    return tuple(sorted((each.entity_type, each.entity_name) for each in value.entity))


def delta_of(image: ClusterImage, records: Iterable[MetadataRecord]) -> MetadataDelta:
    """What records change of an image.  MetadataLogError where one contradicts the image or those before."""
    draft = _Draft(image)
    for record in records:
        draft.take(record)
    return draft.delta()


def _or(value: Iterable[int] | None, old: tuple[int, ...]) -> tuple[int, ...]:
    return old if value is None else tuple(value)


@dataclass(slots=True)
class RecordedTopic:
    """A topic as the records so far have it, its partitions by number."""

    name: str
    topic_id: bytes
    partitions: dict[int, PartitionImage] = field(default_factory=dict)

    def change(self, value: wire.PartitionChangeRecord) -> None:
        """Apply a PartitionChangeRecord.  MetadataLogError where there is no such partition."""
        old = self.partitions.get(value.partition_id)
        if old is None:
            raise MetadataLogError(
                f"a record changes {self.name}-{value.partition_id}, which no record before it has made"
            )
        self.partitions[value.partition_id] = changed_partition(old, value)

    def clear_elr(self) -> None:
        """Apply a ClearElrRecord."""
        self.partitions = {index: without_elr(each) for index, each in self.partitions.items()}


def unknown_topic(topic_id: bytes) -> MetadataLogError:
    """A record is about a topic that there is not."""
    return MetadataLogError(f"a record names the topic id {topic_id.hex()}, which no record before it has made")


def put(values: dict[str, V], key: str, value: V | None) -> None:
    """Set it, or take it out where there is no value."""
    if value is None:
        values.pop(key, None)
    else:
        values[key] = value


@dataclass(slots=True)
class _Topic(RecordedTopic):
    """A topic under change, with its settings."""

    configs: dict[str, str] = field(default_factory=dict)

    @staticmethod
    def of(image: TopicImage) -> _Topic:
        """The topic before the change."""
        rows = {each.partition: each for each in image.partitions}
        return _Topic(image.name, image.topic_id, rows, dict(image.configs))

    def image(self) -> TopicImage:
        """The topic by now.  MetadataLogError where a partition is missing."""
        if self.partitions and max(self.partitions) != len(self.partitions) - 1:
            missing = min(set(range(max(self.partitions))) - self.partitions.keys())
            raise MetadataLogError(f"no record makes {self.name}-{missing}, which is below others of the topic")
        rows = tuple(self.partitions[index] for index in range(len(self.partitions)))
        return TopicImage(self.name, self.topic_id, rows, is_internal(self.name), self.configs)


class _Draft:
    """What has come of an image so far; it belongs to one call of `delta_of`."""

    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._topics: dict[bytes, _Topic] = {}
        self._deleted: dict[bytes, TopicImage] = {}
        self._names = {name: topic.topic_id for name, topic in image.topics.items()}
        self._brokers: dict[int, BrokerImage] | None = None
        self._features: dict[str, int] | None = None
        self._configs: dict[ConfigResource, dict[str, str]] = {}
        self._quotas: dict[QuotaEntity, dict[str, float]] = {}
        self._security = SecurityDraft()

    def take(self, record: MetadataRecord) -> None:
        """Apply one record."""
        match record.value:
            case wire.TopicRecord() as value:
                self._create(value)
            case wire.PartitionRecord() as value:
                self._topic(value.topic_id).partitions[value.partition_id] = partition_of(value)
            case wire.PartitionChangeRecord() as value:
                self._topic(value.topic_id).change(value)
            case wire.RemoveTopicRecord() as value:
                self._remove(value)
            case wire.ClearElrRecord() as value:
                self._clear_elr(value.topic_name)
            case wire.ConfigRecord() as value:
                self._configure(value)
            case wire.ClientQuotaRecord() as value:
                self._limit(value)
            case wire.FeatureLevelRecord() as value:
                if self._features is None:
                    self._features = dict(self._image.features.chosen)
                put(self._features, value.name, value.feature_level or None)
            case _:
                if not self._security.take(record.value):
                    self._take_of_brokers(record)

    def delta(self) -> MetadataDelta:
        """What differs from the image."""
        image = self._image
        created, changed = [], []
        for topic_id, topic in self._topics.items():
            old, new = image.topics_by_id.get(topic_id), topic.image()
            if old is None:
                created.append(new)
            elif old != new:
                changed.append(TopicChange(old, new))
        features = None
        if self._features is not None and self._features != image.features.chosen:
            features = replace(image.features, epoch=image.features.epoch + 1, chosen=self._features)
        return MetadataDelta(
            tuple(created),
            tuple(self._deleted.values()),
            tuple(changed),
            None if self._brokers is None else BrokersImage(self._brokers, image.controller_id),
            features,
            {each: values for each, values in self._configs.items() if values != image.configs.get(each, {})},
            {each: limits for each, limits in self._quotas.items() if limits != image.quotas.get(each, {})},
            self._security.delta(image.security),
        )

    # Topics

    def _create(self, value: wire.TopicRecord) -> None:
        known = self._names.get(value.name)
        if known is not None:
            raise MetadataLogError(f"a record makes the topic {value.name}, which there is with the id {known.hex()}")
        self._names[value.name] = value.topic_id
        self._topics[value.topic_id] = _Topic(value.name, value.topic_id)

    def _topic(self, topic_id: bytes) -> _Topic:
        topic = self._topics.get(topic_id)
        if topic is None:
            known = None if topic_id in self._deleted else self._image.topics_by_id.get(topic_id)
            if known is None:
                raise unknown_topic(topic_id)
            topic = self._topics[topic_id] = _Topic.of(known)
        return topic

    def _remove(self, value: wire.RemoveTopicRecord) -> None:
        topic = self._topic(value.topic_id)
        del self._topics[value.topic_id]
        del self._names[topic.name]
        old = self._image.topics_by_id.get(value.topic_id)
        if old is not None:
            self._deleted[value.topic_id] = old

    def _clear_elr(self, name: str) -> None:
        """Of a topic, or of all where it has no name."""
        for topic_id in [self._id(name)] if name else list(self._names.values()):
            self._topic(topic_id).clear_elr()

    def _id(self, name: str) -> bytes:
        topic_id = self._names.get(name)
        if topic_id is None:
            raise MetadataLogError(f"a record names the topic {name}, which no record before it has made")
        return topic_id

    # Settings and quotas

    def _configure(self, value: wire.ConfigRecord) -> None:
        if value.resource_type == TOPIC_RESOURCE:
            put(self._topic(self._id(value.resource_name)).configs, value.name, value.value)
            return
        resource = ConfigResource(value.resource_type, value.resource_name)
        put(_copied(self._configs, resource, self._image.configs), value.name, value.value)

    def _limit(self, value: wire.ClientQuotaRecord) -> None:
        entity = quota_entity(value)
        put(_copied(self._quotas, entity, self._image.quotas), value.key, None if value.remove else value.value)

    # Brokers

    def _take_of_brokers(self, record: MetadataRecord) -> None:
        match record.value:
            case wire.RegisterBrokerRecord() as value:
                endpoints = {each.name: Endpoint(each.host, each.port) for each in value.end_points}
                self._changed_brokers()[value.broker_id] = BrokerImage(
                    value.broker_id, endpoints, value.rack, is_fenced=value.fenced, epoch=value.broker_epoch
                )
            case wire.UnregisterBrokerRecord() as value:
                self._broker(value.broker_id, value.broker_epoch)
                del self._changed_brokers()[value.broker_id]
            case wire.FenceBrokerRecord() as value:
                self._fence(value.id, value.epoch, is_fenced=True)
            case wire.UnfenceBrokerRecord() as value:
                self._fence(value.id, value.epoch, is_fenced=False)
            case wire.BrokerRegistrationChangeRecord() as value:
                if value.fenced:
                    self._fence(value.broker_id, value.broker_epoch, is_fenced=value.fenced == FENCED)

    def _changed_brokers(self) -> dict[int, BrokerImage]:
        if self._brokers is None:
            self._brokers = dict(self._image.brokers)
        return self._brokers

    def _broker(self, node_id: int, epoch: int) -> BrokerImage:
        broker = (self._image.brokers if self._brokers is None else self._brokers).get(node_id)
        if broker is None or broker.epoch != epoch:
            raise MetadataLogError(f"a record names broker {node_id} in epoch {epoch}, which is not registered")
        return broker

    def _fence(self, node_id: int, epoch: int, *, is_fenced: bool) -> None:
        broker = self._broker(node_id, epoch)
        self._changed_brokers()[node_id] = replace(broker, is_fenced=is_fenced)


def _copied(changed: dict[K, dict[str, V]], key: K, before: Mapping[K, Mapping[str, V]]) -> dict[str, V]:
    """What is set for a key by now, to be changed."""
    if key not in changed:
        changed[key] = dict(before.get(key, {}))
    return changed[key]
