"""From the records of a KRaft cluster's metadata to what they change of an image (KIP-631).

    image = image.apply(delta_of(image, records))

Records are taken in their order, as many as count together: a batch, a metadata transaction, a snapshot.  Epochs are
counted as the controllers do.  Each record that changes a partition raises its partition epoch.  A record that names a
leader also raises the leader epoch, even if the leader stays the same; clearing an ELR raises only the partition epoch.
Producer ids are no part of images.

A draft costs what its records change, not what there is: records that say nothing of the image cost next to nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from kbroker.metadata.broker_records import BrokersDraft
from kbroker.metadata.features import NO_LEVEL
from kbroker.metadata.image import (
    BrokersImage,
    ConfigResource,
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
NO_RECOVERY_CHANGE = -1


class Tuples:
    """Makes equal tuples the same object, of which thousands of partitions have few."""

    __slots__ = ("_directories", "_ids")

    def __init__(self) -> None:
        self._ids: dict[tuple[int, ...], tuple[int, ...]] = {(): ()}
        self._directories: dict[tuple[bytes, ...], tuple[bytes, ...]] = {(): ()}

    def ids(self, values: Iterable[int] | None) -> tuple[int, ...]:
        """Of node ids; none of None."""
        made = tuple(values or ())
        return self._ids.setdefault(made, made)

    def directories(self, values: Iterable[bytes]) -> tuple[bytes, ...]:
        """Of ids of directories."""
        made = tuple(values)
        return self._directories.setdefault(made, made)


def partition_of(value: wire.PartitionRecord, tuples: Tuples | None = None) -> PartitionImage:
    """A partition as a PartitionRecord makes it."""
    ids, directories = _makers(tuples)
    return PartitionImage(
        value.partition_id,
        value.leader,
        value.leader_epoch,
        ids(value.replicas),
        ids(value.isr),
        value.partition_epoch,
        adding_replicas=ids(value.adding_replicas),
        removing_replicas=ids(value.removing_replicas),
        elr=ids(value.eligible_leader_replicas or ()),
        last_known_elr=ids(value.last_known_elr or ()),
        directories=directories(value.directories),
        leader_recovery_state=value.leader_recovery_state,
    )


def changed_partition(
    old: PartitionImage, value: wire.PartitionChangeRecord, tuples: Tuples | None = None
) -> PartitionImage:
    """A partition after a PartitionChangeRecord; what is null there stays as it was."""
    ids, directories = _makers(tuples)
    has_leader = value.leader != NO_LEADER_CHANGE
    recovery = value.leader_recovery_state
    return PartitionImage(
        old.partition,
        value.leader if has_leader else old.leader,
        old.leader_epoch + has_leader,
        old.replicas if value.replicas is None else ids(value.replicas),
        old.isr if value.isr is None else ids(value.isr),
        old.partition_epoch + 1,
        old.offline_replicas,
        old.adding_replicas if value.adding_replicas is None else ids(value.adding_replicas),
        old.removing_replicas if value.removing_replicas is None else ids(value.removing_replicas),
        old.elr if value.eligible_leader_replicas is None else ids(value.eligible_leader_replicas),
        old.last_known_elr if value.last_known_elr is None else ids(value.last_known_elr),
        old.directories if value.directories is None else directories(value.directories),
        old.leader_recovery_state if recovery == NO_RECOVERY_CHANGE else recovery,
    )


def _makers(
    tuples: Tuples | None,
) -> tuple[Callable[[Iterable[int]], tuple[int, ...]], Callable[[Iterable[bytes]], tuple[bytes, ...]]]:
    return (tuple, tuple) if tuples is None else (tuples.ids, tuples.directories)


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
    draft = MetadataDraft(image)
    for record in records:
        draft.take(record)
    return draft.delta()


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
            raise unknown_partition(self.name, value.partition_id)
        self.partitions[value.partition_id] = changed_partition(old, value)

    def clear_elr(self) -> None:
        """Apply a ClearElrRecord."""
        self.partitions = {index: without_elr(each) for index, each in self.partitions.items()}


def unknown_topic(topic_id: bytes) -> MetadataLogError:
    """A record is about a topic that there is not."""
    return MetadataLogError(f"a record names the topic id {topic_id.hex()}, which no record before it has made")


def unknown_partition(topic: str, number: int) -> MetadataLogError:
    """A record is about a partition that there is not."""
    return MetadataLogError(f"a record changes {topic}-{number}, which no record before it has made")


def put(values: dict[str, V], key: str, value: V | None) -> None:
    """Set it, or take it out where there is no value."""
    if value is None:
        values.pop(key, None)
    else:
        values[key] = value


class _Topic:
    """A topic under change: what differs from the image, if it is there."""

    __slots__ = ("changed", "configs", "name", "old", "topic_id")

    def __init__(self, name: str, topic_id: bytes, old: TopicImage | None = None) -> None:
        self.name = name
        self.topic_id = topic_id
        self.old = old
        self.changed: dict[int, PartitionImage] = {}
        self.configs: dict[str, str] | None = None

    def partition(self, number: int) -> PartitionImage:
        """By now.  MetadataLogError where there is none."""
        known = self.changed.get(number)
        if known is not None:
            return known
        if self.old is None or not 0 <= number < len(self.old.partitions):
            raise unknown_partition(self.name, number)
        return self.old.partitions[number]

    def clear_elr(self) -> None:
        """Apply a ClearElrRecord."""
        rows = {} if self.old is None else {each.partition: each for each in self.old.partitions}
        for number, before in {**rows, **self.changed}.items():
            after = without_elr(before)
            if after is not before:
                self.changed[number] = after

    def configure(self, name: str, value: str | None) -> None:
        """Set one of its own settings, or take it away."""
        if self.configs is None:
            self.configs = {} if self.old is None else dict(self.old.configs)
        put(self.configs, name, value)

    def image(self) -> TopicImage:
        """By now; the old image where nothing differs.  MetadataLogError where a partition is missing."""
        old = self.old
        before = () if old is None else old.partitions
        configs: Mapping[str, str] = {} if old is None else old.configs
        if self.configs is not None:
            configs = self.configs
        if old is not None and configs == old.configs:
            if all(number < len(before) and before[number] == each for number, each in self.changed.items()):
                return old
            configs = old.configs
        rows: list[PartitionImage | None] = [*before]
        if self.changed:
            rows += [None] * (max(self.changed) + 1 - len(rows))
        for number, each in self.changed.items():
            rows[number] = each
        whole = tuple(each for each in rows if each is not None)
        if len(whole) < len(rows):
            missing = rows.index(None)
            raise MetadataLogError(f"no record makes {self.name}-{missing}, which is below others of the topic")
        return TopicImage(self.name, self.topic_id, whole, is_internal(self.name), configs)


class MetadataDraft:
    """What has come of an image by the records so far."""

    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._topics: dict[bytes, _Topic] = {}
        self._deleted: dict[bytes, TopicImage] = {}
        self._names: dict[str, bytes | None] = {}
        self._brokers = BrokersDraft(image)
        self._features: dict[str, int] | None = None
        self._configs: dict[ConfigResource, dict[str, str]] = {}
        self._quotas: dict[QuotaEntity, dict[str, float]] = {}
        self._security = SecurityDraft()
        self._tuples = Tuples()

    @property
    def image(self) -> ClusterImage:
        """The image that is changed."""
        return self._image

    def take(self, record: MetadataRecord) -> None:
        """Apply one record.  MetadataLogError where it contradicts the image or records before it."""
        match record.value:
            case wire.PartitionChangeRecord() as value:
                topic = self._topic(value.topic_id)
                old = topic.partition(value.partition_id)
                topic.changed[value.partition_id] = changed_partition(old, value, self._tuples)
            case wire.PartitionRecord() as value:
                self._topic(value.topic_id).changed[value.partition_id] = partition_of(value, self._tuples)
            case wire.TopicRecord() as value:
                self._create(value)
            case wire.RemoveTopicRecord() as value:
                self._remove(value)
            case wire.ClearElrRecord() as value:
                self._clear_elr(value.topic_name)
            case wire.ConfigRecord() as value:
                self._configure(value)
            case wire.ClientQuotaRecord() as value:
                self._limit(value)
            case wire.FeatureLevelRecord() as value:
                self.set_feature(value.name, value.feature_level)
            case value:
                if not self._brokers.take(value):
                    self._security.take(value)

    def set_feature(self, name: str, level: int) -> None:
        """Apply a FeatureLevelRecord, or what else says the level of a feature."""
        if self._features is None:
            self._features = dict(self._image.features.chosen)
        put(self._features, name, None if level == NO_LEVEL else level)

    def delta(self, features_epoch: int | None = None) -> MetadataDelta:
        """What differs from the image.  `features_epoch`: that of features that differ; None: the next one."""
        steps = self.steps(features_epoch)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                delta: MetadataDelta = end.value
                return delta

    def steps(self, features_epoch: int | None = None) -> Generator[None, None, MetadataDelta]:
        """The same in small steps, one for each topic."""
        image = self._image
        created, changed = [], []
        for topic in self._topics.values():
            new = topic.image()
            if topic.old is None:
                created.append(new)
            elif new is not topic.old:
                changed.append(TopicChange(topic.old, new))
            yield
        features = None
        if self._features is not None and self._features != image.features.chosen:
            epoch = image.features.epoch + 1 if features_epoch is None else features_epoch
            features = replace(image.features, epoch=epoch, chosen=self._features)
        brokers = self._brokers.brokers
        return MetadataDelta(
            tuple(created),
            tuple(self._deleted.values()),
            tuple(changed),
            None if brokers is None else BrokersImage(brokers, image.controller_id),
            features,
            {each: values for each, values in self._configs.items() if values != image.configs.get(each, {})},
            {each: limits for each, limits in self._quotas.items() if limits != image.quotas.get(each, {})},
            self._security.delta(image.security),
            self._brokers.controllers,
        )

    # Topics

    def _known_id(self, name: str) -> bytes | None:
        if name in self._names:
            return self._names[name]
        topic = self._image.topics.get(name)
        return None if topic is None else topic.topic_id

    def _create(self, value: wire.TopicRecord) -> None:
        known = self._known_id(value.name)
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
            topic = self._topics[topic_id] = _Topic(known.name, topic_id, known)
        return topic

    def _remove(self, value: wire.RemoveTopicRecord) -> None:
        topic = self._topic(value.topic_id)
        del self._topics[value.topic_id]
        self._names[topic.name] = None
        if topic.old is not None:
            self._deleted[value.topic_id] = topic.old

    def _clear_elr(self, name: str) -> None:
        """Of a topic, or of all where it has no name."""
        if name:
            self._topic(self._id(name)).clear_elr()
            return
        for topic_id, known in self._image.topics_by_id.items():
            is_gone = topic_id in self._deleted
            if not is_gone and any(each.elr or each.last_known_elr for each in known.partitions):
                self._topic(topic_id)
        for topic in self._topics.values():
            topic.clear_elr()

    def _id(self, name: str) -> bytes:
        topic_id = self._known_id(name)
        if topic_id is None:
            raise MetadataLogError(f"a record names the topic {name}, which no record before it has made")
        return topic_id

    # Settings and quotas

    def _configure(self, value: wire.ConfigRecord) -> None:
        if value.resource_type == TOPIC_RESOURCE:
            self._topic(self._id(value.resource_name)).configure(value.name, value.value)
            return
        resource = ConfigResource(value.resource_type, value.resource_name)
        put(_copied(self._configs, resource, self._image.configs), value.name, value.value)

    def _limit(self, value: wire.ClientQuotaRecord) -> None:
        entity = quota_entity(value)
        put(_copied(self._quotas, entity, self._image.quotas), value.key, None if value.remove else value.value)


def _copied(changed: dict[K, dict[str, V]], key: K, before: Mapping[K, Mapping[str, V]]) -> dict[str, V]:
    """What is set for a key by now, to be changed."""
    if key not in changed:
        changed[key] = dict(before.get(key, {}))
    return changed[key]
