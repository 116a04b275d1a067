"""Elections that an active controller holds by itself, some at a time (KIP-631)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kbroker.cluster.partition_updates import PartitionContexts, PartitionUpdates
from kbroker.cluster.partitions import Election, change
from kbroker.metadata.image import NO_LEADER
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker._fast.base.slices import Pace
    from kbroker.config import BrokerConfig
    from kbroker.metadata.image import ClusterImage, PartitionImage

MOST_ELECTIONS: Final = 1_000
"""Of one round."""


async def preferred_elections(image: ClusterImage, config: BrokerConfig, pace: Pace) -> PartitionUpdates:
    """The first replicas lead that others lead for, where they can."""
    return await _elected(image, config, pace, Election.PREFERRED)


async def unclean_elections(image: ClusterImage, config: BrokerConfig, pace: Pace) -> PartitionUpdates:
    """Partitions without a leader get one that may lack records, where their topic allows it."""
    return await _elected(image, config, pace, Election.ONLINE)


async def _elected(image: ClusterImage, config: BrokerConfig, pace: Pace, election: Election) -> PartitionUpdates:
    updates, contexts = PartitionUpdates(image), PartitionContexts(image, config)
    for topic in image.topics.values():
        await pace
        context = contexts.of(topic)
        if election is Election.ONLINE and not context.is_unclean_allowed:
            continue
        for each in topic.partitions:
            if _needs(each, election):
                updates.put(TopicPartition(topic.name, each.partition), change(each, context, election=election))
                if len(updates) == MOST_ELECTIONS:
                    return updates
    return updates


def _needs(partition: PartitionImage, election: Election) -> bool:
    if election is Election.PREFERRED:
        return partition.leader != partition.replicas[0]
    return partition.leader == NO_LEADER
