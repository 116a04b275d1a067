"""Which brokers hold the replicas of new partitions: pure functions.

Brokers are ordered so that neighbours are in different racks where possible.  Leaders are assigned round robin in that
order.  The followers of a partition are the brokers behind its leader, shifted by one place more in each round, so that
the leaders of a broker that fails move to all other brokers.  A partition has no second replica in a rack while there
is a rack with fewer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kbroker.errors import InvalidReplicaAssignmentError, InvalidReplicationFactorError
from kbroker.metadata.image import NO_LEADER, BrokerImage, PartitionImage


def rack_alternated(brokers: Sequence[BrokerImage]) -> list[int]:
    """Node ids with one broker of each rack in turn."""
    racks: dict[str | None, list[int]] = {}
    for broker in sorted(brokers, key=lambda broker: broker.node_id):
        racks.setdefault(broker.rack, []).append(broker.node_id)
    order: list[int] = []
    queues = list(racks.values())
    while queues:
        order.extend(queue.pop(0) for queue in queues)
        queues = [queue for queue in queues if queue]
    return order


def place(
    brokers: Sequence[BrokerImage], partition_count: int, replication_factor: int, start: int = 0
) -> list[tuple[int, ...]]:
    """Replicas for each of `partition_count` partitions; the first is the preferred leader.

    Fenced brokers lead nothing, and come behind the others of their rack.  Raises InvalidReplicationFactorError."""
    order = rack_alternated([broker for broker in brokers if not broker.is_fenced])
    fenced = rack_alternated([broker for broker in brokers if broker.is_fenced])
    if not order:
        raise InvalidReplicationFactorError(
            f"Unable to replicate the partition {replication_factor} time(s): All brokers are currently fenced, or "
            "have all their log directories cordoned."
        )
    most = len(order) + len(fenced)
    if replication_factor > most:
        raise InvalidReplicationFactorError(
            f"Unable to replicate the partition {replication_factor} time(s): The target replication factor of "
            f"{replication_factor} cannot be reached because only {most} broker(s) are registered or some "
            "brokers have all their log directories cordoned."
        )
    racks = {broker.node_id: broker.rack for broker in brokers}
    return [
        _spread(order, start + partition, replication_factor, racks, fenced) for partition in range(partition_count)
    ]


def _spread(
    order: Sequence[int], number: int, count: int, racks: Mapping[int, str | None], fenced: Sequence[int]
) -> tuple[int, ...]:
    """Replicas of one partition: each next one in a rack that has the fewest of them."""
    others = len(order) - 1
    lap, first = divmod(number, len(order))
    free = [order[(first + 1 + (lap + i) % others) % len(order)] for i in range(others)] if others else []
    free += fenced
    taken = [order[first]]
    if len(set(racks.values())) == 1:
        return (*taken, *free[: count - 1])
    used = dict.fromkeys(racks.values(), 0)
    used[racks[order[first]]] = 1
    while len(taken) < count:
        found = min(free, key=lambda node_id: used[racks[node_id]])
        free.remove(found)
        taken.append(found)
        used[racks[found]] += 1
    return tuple(taken)


def first_place(brokers: Sequence[BrokerImage], replicas: Sequence[int]) -> int:
    """The `start` that would have placed a topic's first partition on these replicas, as far as they show it."""
    order = rack_alternated([broker for broker in brokers if not broker.is_fenced])
    return next((order.index(node_id) for node_id in replicas[:1] if node_id in order), 0)


def check_assignment(replicas: Sequence[int], registered: frozenset[int], replication_factor: int | None) -> None:
    """InvalidReplicaAssignmentError, with Kafka's texts, when a manual assignment cannot be used."""
    if not replicas:
        raise InvalidReplicaAssignmentError("The manual partition assignment includes an empty replica list.")
    previous: int | None = None
    for node_id in sorted(replicas):
        if node_id not in registered:
            raise InvalidReplicaAssignmentError(
                f"The manual partition assignment includes broker {node_id}, but no such broker is registered."
            )
        if node_id == previous:
            raise InvalidReplicaAssignmentError(
                f"The manual partition assignment includes the broker {node_id} more than once."
            )
        previous = node_id
    if replication_factor is not None and len(replicas) != replication_factor:
        raise InvalidReplicaAssignmentError(
            f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this is not "
            f"consistent with previous partitions, which have {replication_factor} replica(s)."
        )


def new_partition(number: int, replicas: Sequence[int], alive: frozenset[int]) -> PartitionImage:
    """A partition at its first epoch: the first replica that is alive leads, the living replicas are in sync."""
    isr = tuple(node_id for node_id in replicas if node_id in alive)
    return PartitionImage(
        partition=number,
        leader=isr[0] if isr else NO_LEADER,
        leader_epoch=0,
        replicas=tuple(replicas),
        isr=isr,
    )


def to_balance(partitions: Iterable[tuple[int, bool]], percentage: int) -> frozenset[int]:
    """The brokers for which more than `percentage` percent of the partitions that prefer them are led by another
    broker.

    `partitions`: for each, its preferred leader, and whether another one leads.
    """
    counts: dict[int, list[int]] = {}
    for preferred, is_elsewhere in partitions:
        count = counts.setdefault(preferred, [0, 0])
        count[0] += 1
        count[1] += is_elsewhere
    return frozenset(node_id for node_id, (total, elsewhere) in counts.items() if elsewhere * 100 > percentage * total)
