"""Immutable pictures of the cluster: brokers, topics and partitions at one moment.

A `ClusterImage` is never changed: a change makes a new one that shares everything that stayed the same, so a reader
may keep an image across awaits and see one consistent state.  `MetadataDelta` says what differs between two images
that follow each other.

`image.apply(delta)` is the image after a delta: a delta holds all that changes, so a reader that has the same image,
such as another broker of the cluster, comes to the same one.

Invariants: `topics` and `topics_by_id` hold the same `TopicImage` objects; the partitions of a topic are numbered
from 0 without gaps, so `topic.partitions[i].partition == i`; a partition's `leader` is -1 or one of its `replicas`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple

from kbroker.metadata.features import Features
from kbroker.metadata.security_image import SecurityDelta, SecurityImage
from kbroker.types import ZERO_UUID

NO_LEADER = -1
NO_CONTROLLER = -1

QuotaEntity = tuple[tuple[str, str | None], ...]
"""What client quotas are set on: (type, name) pairs sorted by type, the name None for the type's default."""

_NO_CONFIGS: Mapping[str, str] = MappingProxyType({})
_NO_LEVELS: Mapping[str, int] = MappingProxyType({})
_NO_RANGES: Mapping[str, tuple[int, int]] = MappingProxyType({})

RECOVERED = 0
RECOVERING = 1
"""`PartitionImage.leader_recovery_state`: of a leader after an unclean election, until its next ISR."""


class Endpoint(NamedTuple):
    """Where clients reach a broker on one listener."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class BrokerImage:
    """One broker.  `advertised` is False when its endpoints were not set by `advertised.listeners`: a client of such a
    broker gets the address that it dialled (see `kbroker.handlers.cluster.endpoints`).  `epoch` is the number of its
    last registration, -1 where that is not known.

    What only a KRaft cluster knows: `protocols` are the security protocols of the endpoints as Kafka numbers them,
    `log_dirs` the ids of the directories that work, `cordoned_log_dirs` of those that take no new replicas (None: the
    broker has not said), `incarnation_id` is random for each process, `features` has the lowest and highest level that
    it serves of each feature.
    """

    node_id: int
    endpoints: Mapping[str, Endpoint]
    rack: str | None = None
    advertised: bool = True
    is_fenced: bool = False
    epoch: int = -1
    in_controlled_shutdown: bool = False
    protocols: Mapping[str, int] = field(default_factory=lambda: _NO_LEVELS)
    log_dirs: tuple[bytes, ...] = ()
    cordoned_log_dirs: tuple[bytes, ...] | None = None
    incarnation_id: bytes = ZERO_UUID
    features: Mapping[str, tuple[int, int]] = field(default_factory=lambda: _NO_RANGES)


@dataclass(frozen=True, slots=True)
class ControllerImage:
    """A controller of a KRaft cluster as it has registered; the fields are as a broker's."""

    node_id: int
    endpoints: Mapping[str, Endpoint]
    protocols: Mapping[str, int] = field(default_factory=lambda: _NO_LEVELS)
    incarnation_id: bytes = ZERO_UUID
    features: Mapping[str, tuple[int, int]] = field(default_factory=lambda: _NO_RANGES)
    zk_migration_ready: bool = False


@dataclass(frozen=True, slots=True)
class PartitionImage:
    """One partition.  `partition_epoch` counts changes of replicas or ISR, `leader_epoch` changes of leader.

    `offline_replicas` are those whose log directory has failed; never stored.  `adding_replicas` and
    `removing_replicas` are those of a reassignment under way, all of them among `replicas`.  `elr` are replicas that
    left an ISR below `min.insync.replicas` with all that was committed (KIP-966), `last_known_elr` the last leader of a
    partition without ISR and ELR.  `directories` are the ids of the log directories of the replicas, in their order;
    only a KRaft cluster knows them, and `leader_recovery_state`.
    """

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    partition_epoch: int = 0
    offline_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    directories: tuple[bytes, ...] = ()
    leader_recovery_state: int = RECOVERED


@dataclass(frozen=True, slots=True)
class TopicImage:
    """One topic.  `configs` holds only what was set on the topic itself, as the text that the client gave."""

    name: str
    topic_id: bytes
    partitions: tuple[PartitionImage, ...]
    is_internal: bool = False
    configs: Mapping[str, str] = field(default_factory=lambda: _NO_CONFIGS)

    @property
    def replication_factor(self) -> int:
        """The number of replicas of partition 0, which Kafka reports as the topic's."""
        return len(self.partitions[0].replicas) if self.partitions else 0


class ConfigResource(NamedTuple):
    """What settings belong to, other than a topic: `kind` as Kafka numbers it (`ConfigResourceType`), and its name."""

    kind: int
    name: str


class BrokersImage(NamedTuple):
    """All brokers of the cluster, by id, and the one that is the controller."""

    brokers: Mapping[int, BrokerImage]
    controller_id: int


class TopicChange(NamedTuple):
    """A topic before and after."""

    old: TopicImage
    new: TopicImage


def altered(old: TopicImage | None, new: TopicImage) -> tuple[PartitionImage, ...]:
    """The partitions of a topic whose image or settings are others than before."""
    if old is None or is_altered_whole(old, new):
        return new.partitions
    return tuple(each for at, each in enumerate(new.partitions) if is_altered_at(old, new, at))


def is_altered_whole(old: TopicImage, new: TopicImage) -> bool:
    """Whether all partitions of a topic have changed: it has other settings, or is another one of its name."""
    return old.topic_id != new.topic_id or old.configs != new.configs


def is_altered_at(old: TopicImage, new: TopicImage, at: int) -> bool:
    """Whether the image of a partition has changed, or is new."""
    return at >= len(old.partitions) or _differs(old.partitions[at], new.partitions[at])


def _differs(before: PartitionImage, after: PartitionImage) -> bool:
    # Of thousands that change at once each has another epoch, which is seen sooner than all that is equal.
    return before is not after and (before.partition_epoch != after.partition_epoch or before != after)


@dataclass(frozen=True, slots=True)
class MetadataDelta:
    """What a new image adds, removes and changes.  A topic appears in at most one of the fields.

    `brokers`, `controllers` and `features` are whole when they change, else None; `configs` has all settings of each
    resource that changes, none for one that has no settings any more, and `quotas` likewise all of each entity.
    `security` is what changes of ACLs, credentials and tokens.
    """

    created: tuple[TopicImage, ...] = ()
    deleted: tuple[TopicImage, ...] = ()
    changed: tuple[TopicChange, ...] = ()
    brokers: BrokersImage | None = None
    features: Features | None = None
    configs: Mapping[ConfigResource, Mapping[str, str]] = field(default_factory=dict)
    quotas: Mapping[QuotaEntity, Mapping[str, float]] = field(default_factory=dict)
    security: SecurityDelta = field(default_factory=SecurityDelta)
    controllers: Mapping[int, ControllerImage] | None = None

    def is_empty(self) -> bool:
        """Whether nothing differs."""
        return not (
            self.created
            or self.deleted
            or self.changed
            or self.brokers is not None
            or self.features is not None
            or self.configs
            or self.quotas
            or not self.security.is_empty()
            or self.controllers is not None
        )


def is_same_topic(one: bytes, other: bytes) -> bool:
    """Whether two ids under one name may belong to the same topic.  A zero id is not known yet: a controller with
    inter.broker.protocol.version below 2.8 creates topics without one, and a newer controller assigns it."""
    return one == other or ZERO_UUID in (one, other)


def note_id(names: dict[bytes, str], topic: TopicImage) -> None:
    """Note under which id a topic goes, where that is known."""
    if topic.topic_id != ZERO_UUID:
        names[topic.topic_id] = topic.name


@dataclass(frozen=True, slots=True)
class ClusterImage:
    """The whole cluster.  `version` grows by one with every image that a cache publishes.

    Topics without an id are in `topics` alone.

    `configs` holds what was set at run time for brokers (the empty name: for all of them), groups and client metrics,
    `quotas` what clients may use, by entity.  `controllers` are those of a KRaft cluster.
    """

    cluster_id: str
    controller_id: int = NO_CONTROLLER
    brokers: Mapping[int, BrokerImage] = field(default_factory=dict)
    topics: Mapping[str, TopicImage] = field(default_factory=dict)
    topics_by_id: Mapping[bytes, TopicImage] = field(default_factory=dict)
    version: int = 0
    features: Features = field(default_factory=Features)
    configs: Mapping[ConfigResource, Mapping[str, str]] = field(default_factory=dict)
    quotas: Mapping[QuotaEntity, Mapping[str, float]] = field(default_factory=dict)
    security: SecurityImage = field(default_factory=SecurityImage)
    controllers: Mapping[int, ControllerImage] = field(default_factory=dict)

    @staticmethod
    def of(
        cluster_id: str,
        *,
        controller_id: int = NO_CONTROLLER,
        brokers: Iterable[BrokerImage] = (),
        topics: Iterable[TopicImage] = (),
        features: Features | None = None,
        configs: Mapping[ConfigResource, Mapping[str, str]] | None = None,
        quotas: Mapping[QuotaEntity, Mapping[str, float]] | None = None,
        security: SecurityImage | None = None,
    ) -> ClusterImage:
        """An image with the given parts, indexed."""
        by_name = {topic.name: topic for topic in topics}
        by_id = {topic.topic_id: topic for topic in by_name.values() if topic.topic_id != ZERO_UUID}
        return ClusterImage(
            cluster_id,
            controller_id,
            {b.node_id: b for b in brokers},
            by_name,
            by_id,
            features=features or Features(),
            configs=dict(configs or {}),
            quotas=dict(quotas or {}),
            security=security or SecurityImage(),
        )

    def apply(self, delta: MetadataDelta) -> ClusterImage:
        """The image after `delta`."""
        image = self.with_topics(delta) if delta.created or delta.deleted or delta.changed else self
        if delta.brokers is not None:
            image = replace(image, brokers=dict(delta.brokers.brokers), controller_id=delta.brokers.controller_id)
        if delta.features is not None:
            image = replace(image, features=delta.features)
        if delta.configs:
            configs = {**image.configs, **delta.configs}
            image = replace(image, configs={resource: values for resource, values in configs.items() if values})
        if delta.quotas:
            quotas = {**image.quotas, **delta.quotas}
            image = replace(image, quotas={entity: values for entity, values in quotas.items() if values})
        if not delta.security.is_empty():
            image = replace(image, security=image.security.apply(delta.security))
        if delta.controllers is not None:
            image = replace(image, controllers=delta.controllers)
        return image

    def with_topics(self, delta: MetadataDelta) -> ClusterImage:
        """The image after the topics of `delta`.  All else stays as it is."""
        by_name = dict(self.topics)
        by_id = dict(self.topics_by_id)
        for topic in delta.deleted:
            del by_name[topic.name]
            by_id.pop(topic.topic_id, None)
        for topic in (*delta.created, *(change.new for change in delta.changed)):
            by_name[topic.name] = topic
            if topic.topic_id != ZERO_UUID:
                by_id[topic.topic_id] = topic
        return replace(self, topics=by_name, topics_by_id=by_id)

    def alive_brokers(self) -> list[BrokerImage]:
        """The brokers that may be given work, by id."""
        return [self.brokers[node_id] for node_id in sorted(self.brokers) if not self.brokers[node_id].is_fenced]

    def active_brokers(self) -> list[BrokerImage]:
        """Those of them that may lead and be in sync: a broker that is about to stop serves, and gets nothing new."""
        return [broker for broker in self.alive_brokers() if not broker.in_controlled_shutdown]
