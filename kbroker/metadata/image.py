"""Immutable pictures of the cluster: brokers, topics and partitions at one moment.

A `ClusterImage` is never changed: a change makes a new one that shares everything that stayed the same, so a reader
may keep an image across awaits and see one consistent state.  `MetadataDelta` says what differs between two images
that follow each other.

Invariants: `topics` and `topics_by_id` hold the same `TopicImage` objects; the partitions of a topic are numbered
from 0 without gaps, so `topic.partitions[i].partition == i`; a partition's `leader` is -1 or one of its `replicas`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple

NO_LEADER = -1
NO_CONTROLLER = -1

_NO_CONFIGS: Mapping[str, str] = MappingProxyType({})


class Endpoint(NamedTuple):
    """Where clients reach a broker on one listener."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class BrokerImage:
    """One broker.  `advertised` is False when its endpoints were not set by `advertised.listeners`: a client of such
    a broker is told the address that it dialled (see `kbroker.handlers.endpoints`)."""

    node_id: int
    endpoints: Mapping[str, Endpoint]
    rack: str | None = None
    advertised: bool = True
    is_fenced: bool = False


@dataclass(frozen=True, slots=True)
class PartitionImage:
    """One partition.  `partition_epoch` counts changes of replicas or ISR, `leader_epoch` changes of leader.

    `offline_replicas` are those whose log directory has failed; never stored.
    """

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    partition_epoch: int = 0
    offline_replicas: tuple[int, ...] = ()


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


class TopicChange(NamedTuple):
    """A topic before and after."""

    old: TopicImage
    new: TopicImage


@dataclass(frozen=True, slots=True)
class MetadataDelta:
    """What a new image adds, removes and changes.  A topic appears in at most one of the fields."""

    created: tuple[TopicImage, ...] = ()
    deleted: tuple[TopicImage, ...] = ()
    changed: tuple[TopicChange, ...] = ()
    brokers_changed: bool = False

    def is_empty(self) -> bool:
        """Whether nothing differs."""
        return not (self.created or self.deleted or self.changed or self.brokers_changed)


@dataclass(frozen=True, slots=True)
class ClusterImage:
    """The whole cluster.  `version` grows by one with every image that a cache publishes."""

    cluster_id: str
    controller_id: int = NO_CONTROLLER
    brokers: Mapping[int, BrokerImage] = field(default_factory=dict)
    topics: Mapping[str, TopicImage] = field(default_factory=dict)
    topics_by_id: Mapping[bytes, TopicImage] = field(default_factory=dict)
    version: int = 0

    @staticmethod
    def of(
        cluster_id: str,
        *,
        controller_id: int = NO_CONTROLLER,
        brokers: Iterable[BrokerImage] = (),
        topics: Iterable[TopicImage] = (),
    ) -> ClusterImage:
        """An image with the given parts, indexed."""
        by_name = {topic.name: topic for topic in topics}
        by_id = {topic.topic_id: topic for topic in by_name.values()}
        return ClusterImage(cluster_id, controller_id, {b.node_id: b for b in brokers}, by_name, by_id)

    def with_topics(self, delta: MetadataDelta) -> ClusterImage:
        """The image after `delta`.  Its brokers stay as they are."""
        by_name = dict(self.topics)
        by_id = dict(self.topics_by_id)
        for topic in delta.deleted:
            del by_name[topic.name]
            del by_id[topic.topic_id]
        for topic in (*delta.created, *(change.new for change in delta.changed)):
            by_name[topic.name] = topic
            by_id[topic.topic_id] = topic
        return replace(self, topics=by_name, topics_by_id=by_id)

    def with_brokers(self, brokers: Iterable[BrokerImage], controller_id: int) -> ClusterImage:
        """The image with another set of brokers."""
        return replace(self, brokers={b.node_id: b for b in brokers}, controller_id=controller_id)

    def alive_brokers(self) -> list[BrokerImage]:
        """The brokers that may be given work, by id."""
        return [self.brokers[node_id] for node_id in sorted(self.brokers) if not self.brokers[node_id].is_fenced]
