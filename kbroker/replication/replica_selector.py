"""The replica that a consumer had better read from (KIP-392, `replica.selector.class`).

A leader sends a consumer that names its rack (`client.rack`) to a follower in that rack, if the follower is in sync and
has the offset asked for.  Otherwise, and where the leader is in that rack itself, the leader serves the consumer.  As
Kafka's RackAwareReplicaSelector; Java classes of one's own cannot be run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kbroker.replication.follower import NO_FOLLOWER
from kbroker.replication.partition import Role
from kbroker.types import Offset

if TYPE_CHECKING:
    from kbroker.metadata.image import ClusterImage
    from kbroker.replication.partition import Partition

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


@dataclass(frozen=True, slots=True)
class Reader:
    """A consumer: its rack, and the listener that it came by."""

    rack: str
    listener: str


class Candidate(NamedTuple):
    """A replica that has the offset; `caught_up_at`: when it last had all, in seconds."""

    log_end_offset: Offset
    caught_up_at: float
    node_id: int
    rack: str | None


def nearest(rack: str, leader_rack: str | None, candidates: Iterable[Candidate]) -> int | None:
    """The follower that serves a consumer of `rack`, the one with most records first; None: the leader does."""
    if not rack or rack == leader_rack:
        return None
    near = [each for each in candidates if each.rack == rack]
    return max(near, key=lambda each: each[:3]).node_id if near else None


class RackAwareSelector:
    """`image()`: the cluster as this broker knows it."""

    def __init__(self, image: Callable[[], ClusterImage]) -> None:
        self._image = image

    def select(self, partition: Partition, reader: Reader, offset: Offset) -> int | None:
        """The follower to read `offset` from; None: this broker, which leads or follows it."""
        if partition.role is not Role.LEADER:
            return None
        brokers = self._image().brokers
        candidates = []
        for node_id in partition.isr:
            broker = brokers.get(node_id)
            follower = partition.followers.get(node_id, NO_FOLLOWER)
            if node_id == partition.node_id or broker is None or reader.listener not in broker.endpoints:
                continue
            if follower.log_start_offset <= offset <= follower.log_end_offset:
                candidates.append(Candidate(follower.log_end_offset, follower.caught_up_at, node_id, broker.rack))
        own = brokers.get(partition.node_id)
        return nearest(reader.rack, None if own is None else own.rack, candidates)


def replica_selector(name: str | None, image: Callable[[], ClusterImage]) -> RackAwareSelector | None:
    """What `replica.selector.class` names; None where leaders alone serve."""
    return RackAwareSelector(image) if name == RACK_AWARE else None
