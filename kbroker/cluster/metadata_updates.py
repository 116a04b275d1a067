"""What an UpdateMetadata request of a ZooKeeper controller changes in an image; pure.

Partitions are upserts; the list of brokers is complete and replaces the one before.  A leader of -2 says that the
topic is being deleted: it is gone for clients at once.  Settings of topics are not in the request; `configs_of` knows
them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from kbroker.metadata.image import (
    NO_LEADER,
    BrokerImage,
    BrokersImage,
    ClusterImage,
    MetadataDelta,
    PartitionImage,
    TopicChange,
    TopicImage,
    is_same_topic,
)
from kbroker.metadata.topic_names import is_internal
from kbroker.types import ZERO_UUID

LEADER_DURING_DELETE = -2
NO_EPOCH = -1

ConfigsOf = Callable[[str], Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class MetadataUpdate:
    """A request: who is alive, and the partitions of each topic, under (name, id).  An id of zeros is not known."""

    controller_id: int
    brokers: Sequence[BrokerImage]
    topics: Mapping[tuple[str, bytes], Sequence[PartitionImage]]


def metadata_delta(image: ClusterImage, update: MetadataUpdate, configs_of: ConfigsOf) -> MetadataDelta:
    """What differs after `update`; empty when it says nothing new."""
    created: list[TopicImage] = []
    changed: list[TopicChange] = []
    deleted: list[TopicImage] = []
    for (name, topic_id), partitions in update.topics.items():
        old = image.topics.get(name)
        if old is not None and not is_same_topic(old.topic_id, topic_id):
            # The topic of that name that this broker knows has been deleted; the broker was away at the time.
            deleted.append(old)
            old = None
        new = _merged(name, topic_id, old, partitions, configs_of)
        if new is None:
            if old is not None:
                deleted.append(old)
        elif old is None:
            created.append(new)
        elif new != old:
            changed.append(TopicChange(old, new))
    return MetadataDelta(
        created=tuple(created), deleted=tuple(deleted), changed=tuple(changed), brokers=_brokers(image, update)
    )


def _merged(
    name: str, topic_id: bytes, old: TopicImage | None, partitions: Sequence[PartitionImage], configs_of: ConfigsOf
) -> TopicImage | None:
    """The topic with these partitions; None when it is deleted."""
    known = {} if old is None else {each.partition: each for each in old.partitions}
    for each in partitions:
        if each.leader == LEADER_DURING_DELETE:
            known.pop(each.partition, None)
        else:
            known[each.partition] = each
    if not known:
        return None
    # A gap is a partition that the controller has not sent yet.
    rows = tuple(known.get(index) or _unreported(index) for index in range(max(known) + 1))
    if old is not None:
        return replace(old, partitions=rows, topic_id=old.topic_id if topic_id == ZERO_UUID else topic_id)
    return TopicImage(name, topic_id, rows, is_internal(name), configs_of(name))


def _unreported(index: int) -> PartitionImage:
    return PartitionImage(index, NO_LEADER, NO_EPOCH, (), ())


def _brokers(image: ClusterImage, update: MetadataUpdate) -> BrokersImage | None:
    brokers = {
        broker.node_id: replace(broker, epoch=image.brokers[broker.node_id].epoch)
        if broker.node_id in image.brokers
        else broker
        for broker in update.brokers
    }
    if brokers == image.brokers and update.controller_id == image.controller_id:
        return None
    return BrokersImage(brokers, update.controller_id)
