"""Changed partitions on their way to the store and the image."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.cluster.partitions import PartitionContext
from kbroker.config import BrokerConfig
from kbroker.errors import UnknownTopicOrPartitionError
from kbroker.metadata.features import (
    ELIGIBLE_LEADER_REPLICAS,
    KRAFT_FEATURES,
    METADATA_VERSION,
    SAME_EPOCH_FROM,
)
from kbroker.metadata.image import ClusterImage, MetadataDelta, PartitionImage, TopicChange, TopicImage
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kbroker._fast.base.slices import Pace


class PartitionContexts:
    """What decisions about the partitions of a topic depend on, by an image of the cluster."""

    __slots__ = ("_alive", "_config", "_found", "_has_elr", "_is_kraft", "_level")

    def __init__(self, image: ClusterImage, config: BrokerConfig) -> None:
        self._config = config
        self._alive = frozenset(broker.node_id for broker in image.active_brokers())
        self._is_kraft = image.features.table == KRAFT_FEATURES
        self._level = image.features.level(METADATA_VERSION)
        self._has_elr = image.features.level(ELIGIBLE_LEADER_REPLICAS) > 0
        self._found: dict[tuple[str | None, str | None, int], PartitionContext] = {}

    def of(self, topic: TopicImage) -> PartitionContext:
        """The context of a topic's partitions."""
        min_insync = topic.configs.get(MIN_INSYNC)
        unclean = topic.configs.get(UNCLEAN_ELECTION)
        most = len(topic.partitions[0].replicas) if topic.partitions else 1
        known = self._found.get((min_insync, unclean, most))
        if known is None:
            least = int(min_insync) if min_insync is not None else self._config.get(MIN_INSYNC)
            known = self._found[min_insync, unclean, most] = PartitionContext(
                alive=self._alive,
                min_insync_replicas=min(least, most),
                has_elr=self._has_elr,
                is_unclean_allowed=(
                    unclean.lower() == "true" if unclean is not None else self._config.get(UNCLEAN_ELECTION)
                ),
                has_recovery=self._is_kraft,
                raises_epoch_on_shrink=self._is_kraft and self._level < SAME_EPOCH_FROM,
            )
        return known


MIN_INSYNC: Final = "min.insync.replicas"
UNCLEAN_ELECTION: Final = "unclean.leader.election.enable"


class Absence(NamedTuple):
    """Kafka's messages for a topic or a partition that does not exist; each API has its own."""

    topic: str
    partition: str


NOT_TO_REASSIGN = Absence("Unable to find a topic named {topic}.", "Unable to find partition {topic}:{partition}.")
NOT_TO_ELECT = Absence("No such topic as {topic}", "No such partition as {topic}-{partition}")


class PartitionUpdates:
    """Changes of partitions on top of an image; a partition that is put unchanged does not count as a change."""

    __slots__ = ("_changed", "_image")

    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._changed: dict[str, dict[int, PartitionImage]] = {}

    def get(self, name: TopicPartition) -> PartitionImage | None:
        """A partition as it will be; None where there is none."""
        changed = self._changed.get(name.topic, {}).get(name.partition)
        return changed or _partition(self._image, name)

    def of(self, topic: str) -> Mapping[int, PartitionImage]:
        """The partitions of a topic that change, by their numbers."""
        return self._changed.get(topic, {})

    def existing(self, name: TopicPartition, absence: Absence) -> PartitionImage:
        """A partition as it will be.  UnknownTopicOrPartitionError, in these words, where there is none."""
        found = self.get(name)
        if found is None:
            words = absence.partition if name.topic in self._image.topics else absence.topic
            raise UnknownTopicOrPartitionError(words.format(topic=name.topic, partition=name.partition))
        return found

    def put(self, name: TopicPartition, partition: PartitionImage) -> None:
        """Change a partition."""
        if partition is not self.get(name):
            self._changed.setdefault(name.topic, {})[name.partition] = partition

    def __len__(self) -> int:
        return sum(map(len, self._changed.values()))

    def delta(self) -> MetadataDelta:
        """The delta to the image."""
        return MetadataDelta(changed=tuple(self._changes()))

    async def delta_at(self, pace: Pace) -> MetadataDelta:
        """The same, for thousands of topics."""
        found = []
        for change in self._changes():
            found.append(change)
            await pace
        return MetadataDelta(changed=tuple(found))

    def _changes(self) -> Iterator[TopicChange]:
        for name, changed in self._changed.items():
            topic = self._image.topics[name]
            partitions = list(topic.partitions)
            for number, partition in changed.items():
                partitions[number] = partition
            new = TopicImage(name, topic.topic_id, tuple(partitions), topic.is_internal, topic.configs)
            yield TopicChange(topic, new)


def _partition(image: ClusterImage, name: TopicPartition) -> PartitionImage | None:
    topic = image.topics.get(name.topic)
    if topic is None or not 0 <= name.partition < len(topic.partitions):
        return None
    return topic.partitions[name.partition]
