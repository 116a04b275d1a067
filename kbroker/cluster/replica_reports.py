"""What becomes of partitions when a broker reports on its replicas, comes, or is gone: pure, over an image."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from kbroker.cluster import partitions as decisions
from kbroker.cluster.partition_updates import PartitionContexts, PartitionUpdates
from kbroker.metadata.image import BrokerImage
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker._fast.base.slices import Pace
    from kbroker.cluster.requests import HeldLog, ReplicaReport
    from kbroker.config import BrokerConfig
    from kbroker.metadata.image import ClusterImage, MetadataDelta


class Reported(NamedTuple):
    """`updates` are to be stored; `unserved` is what is true where they cannot be."""

    updates: PartitionUpdates
    unserved: PartitionUpdates


def unserved_delta(image: ClusterImage, node_id: int, gone: Collection[TopicPartition]) -> MetadataDelta:
    """The delta that a broker publishes at once for its partitions that have lost their log: they are offline, in
    unchanged epochs."""
    updates = PartitionUpdates(image)
    for name in gone:
        partition = updates.get(name)
        if partition is not None:
            updates.put(name, decisions.unserved(partition, node_id))
    return updates.delta()


def reported(image: ClusterImage, config: BrokerConfig, node_id: int, report: ReplicaReport) -> Reported:
    """Leaders and epochs after a report of a broker, which is among those of `image`."""
    updates = PartitionUpdates(image)
    unserved = PartitionUpdates(image)
    contexts = PartitionContexts(image, config)
    for name in report.offline:
        partition = updates.get(name)
        if partition is not None:
            context = contexts.of(image.topics[name.topic])
            updates.put(name, decisions.replica_failed(partition, node_id, context))
            unserved.put(name, decisions.unserved(partition, node_id))
    for name, held_epoch in report.online.items():
        partition = updates.get(name)
        if partition is not None:
            context = contexts.of(image.topics[name.topic])
            is_unclean = name in report.unclean
            returned = decisions.replica_returned(partition, node_id, held_epoch, is_unclean, context)
            updates.put(name, returned)
            if decisions.needs_new_epoch(partition, node_id, held_epoch):
                unserved.put(name, decisions.unserved(partition, node_id))
    return Reported(updates, unserved)


def started_anew(image: ClusterImage, node_id: int, report: ReplicaReport, updates: PartitionUpdates) -> None:
    """A broker has started, and `report` names all of its replicas that are offline: others that were are back."""
    for topic in image.topics.values():
        for partition in topic.partitions:
            name = TopicPartition(topic.name, partition.partition)
            if node_id in partition.offline_replicas and name not in report.offline:
                known = updates.get(name) or partition
                left = tuple(each for each in known.offline_replicas if each != node_id)
                updates.put(name, replace(known, offline_replicas=left))


async def without_broker(
    image: ClusterImage, config: BrokerConfig, node_id: int, left: Mapping[int, BrokerImage], pace: Pace
) -> PartitionUpdates:
    """Partitions when a broker leads none and is in no ISR any more; `left`: the brokers as they are then."""
    updates = PartitionUpdates(image)
    contexts = PartitionContexts(replace(image, brokers=left), config)
    for topic in image.topics.values():
        await pace
        context = contexts.of(topic)
        for partition in topic.partitions:
            for changed in decisions.without_broker((partition,), node_id, context):
                updates.put(TopicPartition(topic.name, changed.partition), changed)
                await pace
    return updates


async def with_broker(
    image: ClusterImage, config: BrokerConfig, node_id: int, updates: PartitionUpdates, pace: Pace
) -> None:
    """Give partitions without a leader one, now that a broker, which is among those of `image`, has come."""
    contexts = PartitionContexts(image, config)
    for topic in image.topics.values():
        await pace
        changed = updates.of(topic.name)
        for partition in topic.partitions:
            known = changed.get(partition.partition, partition)
            if known.leader < 0 and node_id in known.replicas:
                name = TopicPartition(topic.name, partition.partition)
                updates.put(name, decisions.change(known, contexts.of(topic)))


def after_losses(
    image: ClusterImage, config: BrokerConfig, held: Mapping[int, Mapping[TopicPartition, HeldLog]]
) -> PartitionUpdates:
    """Partitions after a start in which replicas may have lost records; `held`: what nodes, which are about to come,
    have of them.

    A replica that was not shut down cleanly, and whose log ends before another replica's, may lack committed records:
    it leads nothing and is in no ISR until it has copied them.  The same goes for one without a log, unless no replica
    has one: then nothing was ever there.  One whose log was found to lack its end lacks them while another one in sync
    is not known to, whether that has come or not; of those that all do, the one with most leads.
    """
    ends: dict[TopicPartition, dict[int, HeldLog]] = {}
    for node_id, logs in held.items():
        for name, log in logs.items():
            ends.setdefault(name, {})[node_id] = log
    coming = {node_id: BrokerImage(node_id, {}) for node_id in held}
    contexts = PartitionContexts(replace(image, brokers={**coming, **image.brokers}), config)
    updates = PartitionUpdates(image)
    for name, of_nodes in ends.items():
        partition = updates.get(name)
        if partition is None:
            continue
        in_sync = {*partition.isr, *partition.elr}
        able = {node_id: log for node_id, log in of_nodes.items() if node_id in in_sync}
        is_whole_anywhere = any(each not in able or (able[each].end >= 0 and not able[each].is_cut) for each in in_sync)
        best = max(((log.epoch, log.end) for log in able.values()), default=(-1, -1))
        is_anywhere = any(each not in of_nodes or of_nodes[each].end >= 0 for each in partition.replicas)
        short = [
            node_id
            for node_id, log in able.items()
            if (log.is_unclean and ((log.epoch, log.end) < best or (log.end < 0 and is_anywhere)))
            or (log.is_cut and ((log.epoch, log.end) < best or is_whole_anywhere))
        ]
        if short:
            context = contexts.of(image.topics[name.topic])
            changed = decisions.change(partition, context, unclean=short)
            if changed.leader != partition.leader:
                changed = decisions.change(partition, context, unclean=short, least_leader_epoch=best[0] + 1)
            updates.put(name, changed)
    return updates
