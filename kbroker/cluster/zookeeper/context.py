"""The state of an elected controller: an image of the cluster, and beside it what brokers do not need.

`image.brokers` are the registered brokers; one that shuts down in order is fenced there, so that it leads no more.  A
partition's `partition_epoch` is its state's version in ZooKeeper; with a leader epoch of -1 it has no state yet.  Its
`offline_replicas` are only those whose log directory has failed; the requests to brokers name all replicas that are not
served.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from kbroker.cluster.partition_updates import PartitionContexts, PartitionUpdates
from kbroker.cluster.zookeeper.znodes import BrokerZnode, StateZnode, TopicZnode
from kbroker.metadata.features import FEATURES, Features
from kbroker.metadata.image import (
    NO_LEADER,
    BrokerImage,
    BrokersImage,
    ClusterImage,
    Endpoint,
    MetadataDelta,
    PartitionImage,
    TopicChange,
    TopicImage,
)
from kbroker.metadata.topic_names import is_internal
from kbroker.types import NO_LEADER_EPOCH, TopicPartition

if TYPE_CHECKING:
    from kbroker.cluster.zookeeper.election import Fence
    from kbroker.config import BrokerConfig

NO_STATE_VERSION = -1


def first_image(cluster_id: str, node_id: int) -> ClusterImage:
    """What a controller begins with.  A ZooKeeper cluster has no features, so no eligible leader replicas either."""
    levels = {feature.name: 0 for feature in FEATURES}
    return ClusterImage.of(cluster_id, controller_id=node_id, features=Features(epoch=0, chosen=levels))


def without_state(index: int, replicas: tuple[int, ...]) -> PartitionImage:
    """A partition that has no state yet."""
    return PartitionImage(index, NO_LEADER, NO_LEADER_EPOCH, replicas, (), NO_STATE_VERSION)


def lacks_state(partition: PartitionImage) -> bool:
    """Whether a partition has no state yet."""
    return partition.leader_epoch == NO_LEADER_EPOCH


def broker_image(node_id: int, registration: BrokerZnode, epoch: int) -> BrokerImage:
    """A registered broker."""
    endpoints = {each.listener: Endpoint(each.host, each.port) for each in registration.endpoints}
    return BrokerImage(node_id, endpoints, registration.rack, epoch=epoch)


def topic_image(
    name: str,
    topic_id: bytes,
    znode: TopicZnode,
    states: Mapping[int, tuple[StateZnode, int]],
    configs: Mapping[str, str],
) -> TopicImage:
    """A topic from its znodes; `states` has the state of each partition and its version."""
    partitions = []
    for index, replicas in znode.partitions.items():
        found = states.get(index)
        partition = without_state(index, replicas)
        if found is not None:
            partition = with_state(partition, *found)
        partitions.append(
            replace(
                partition,
                adding_replicas=znode.adding.get(index, ()),
                removing_replicas=znode.removing.get(index, ()),
            )
        )
    return TopicImage(name, topic_id, tuple(partitions), is_internal(name), configs)


def with_state(partition: PartitionImage, state: StateZnode, version: int) -> PartitionImage:
    """A partition with the state that its znode has."""
    return replace(
        partition, leader=state.leader, leader_epoch=state.leader_epoch, isr=state.isr, partition_epoch=version
    )


def topic_znode(topic: TopicImage) -> TopicZnode:
    """A topic's assignment as ZooKeeper keeps it."""
    return TopicZnode(
        {each.partition: each.replicas for each in topic.partitions},
        topic.topic_id,
        {each.partition: each.adding_replicas for each in topic.partitions if each.adding_replicas},
        {each.partition: each.removing_replicas for each in topic.partitions if each.removing_replicas},
    )


@dataclass(slots=True)
class ControllerContext:
    """One term's knowledge; changed by the controller's one task at a time."""

    node_id: int
    fence: Fence
    image: ClusterImage
    registrations: dict[int, BrokerZnode] = field(default_factory=dict)
    state_epochs: dict[TopicPartition, int] = field(default_factory=dict)
    """The controller epoch that each state was written in."""
    recovering: set[TopicPartition] = field(default_factory=set)
    """Partitions whose leader was elected uncleanly, and whose ISR has not changed since."""
    deleting: set[str] = field(default_factory=set)

    # Brokers

    def live(self) -> list[int]:
        """The registered brokers."""
        return sorted(self.image.brokers)

    def leaving(self) -> frozenset[int]:
        """Those that shut down in order."""
        return frozenset(node_id for node_id, broker in self.image.brokers.items() if broker.is_fenced)

    def put_broker(self, node_id: int, registration: BrokerZnode, epoch: int) -> None:
        """A broker that came, or came again."""
        self.registrations[node_id] = registration
        self._set_brokers({**self.image.brokers, node_id: broker_image(node_id, registration, epoch)})

    def drop_broker(self, node_id: int) -> None:
        """A broker that is gone."""
        self.registrations.pop(node_id, None)
        self._set_brokers({each: broker for each, broker in self.image.brokers.items() if each != node_id})

    def fence_broker(self, node_id: int) -> None:
        """A broker that shuts down in order: nothing is given to it any more."""
        brokers = dict(self.image.brokers)
        brokers[node_id] = replace(brokers[node_id], is_fenced=True)
        self._set_brokers(brokers)

    def _set_brokers(self, brokers: Mapping[int, BrokerImage]) -> None:
        self.image = self.image.apply(MetadataDelta(brokers=BrokersImage(brokers, self.node_id)))

    # Topics

    def put_topic(self, topic: TopicImage) -> None:
        """A topic that is new or changed."""
        old = self.image.topics.get(topic.name)
        if old is not None and old.topic_id == topic.topic_id:
            delta = MetadataDelta(changed=(TopicChange(old, topic),))
        else:
            delta = MetadataDelta(created=(topic,), deleted=() if old is None else (old,))
        self.image = self.image.with_topics(delta)

    def drop_topic(self, name: str) -> None:
        """A topic that is gone."""
        old = self.image.topics.get(name)
        if old is None:
            return
        self.image = self.image.with_topics(MetadataDelta(deleted=(old,)))
        for each in old.partitions:
            named = TopicPartition(name, each.partition)
            self.state_epochs.pop(named, None)
            self.recovering.discard(named)
        self.deleting.discard(name)

    def partition(self, name: TopicPartition) -> PartitionImage | None:
        """A partition, or None."""
        topic = self.image.topics.get(name.topic)
        if topic is None or not 0 <= name.partition < len(topic.partitions):
            return None
        return topic.partitions[name.partition]

    def put_partitions(self, changed: Mapping[TopicPartition, PartitionImage]) -> None:
        """Partitions as they are now."""
        updates = PartitionUpdates(self.image)
        for name, partition in changed.items():
            if self.partition(name) is not None:
                updates.put(name, partition)
        if updates:
            self.image = self.image.with_topics(updates.delta())

    def partitions(self) -> Iterator[tuple[TopicPartition, PartitionImage]]:
        """All partitions of topics that are not being deleted."""
        for topic in self.image.topics.values():
            if topic.name not in self.deleting:
                for each in topic.partitions:
                    yield TopicPartition(topic.name, each.partition), each

    def contexts(self, config: BrokerConfig) -> PartitionContexts:
        """What decisions depend on."""
        return PartitionContexts(self.image, config)

    def is_served(self, partition: PartitionImage, node_id: int) -> bool:
        """Whether a replica's broker is there, and its log directory too."""
        return node_id in self.image.brokers and node_id not in partition.offline_replicas


def of_topics(topics: Iterable[TopicImage]) -> list[TopicPartition]:
    """The names of all partitions of topics."""
    return [TopicPartition(topic.name, each.partition) for topic in topics for each in topic.partitions]
