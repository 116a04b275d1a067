"""The judge of what replicas a cluster gives up: no change of metadata takes copies of committed records away so that
fewer than `min.insync.replicas` are left, while more are alive.

What counts when a partition loses replicas, by the last look:

before   those of its ISR whose brokers are there, and that have all that any leader has committed
after    those of its replicas that have all of that; a broker of the ISR that has just gone has it on its disk

A replica that a reassignment was to add may go: that is what calling it off means.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from tests.simulation.several import Several


class Layout(NamedTuple):
    """Where a partition is, as the cluster has decided."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    isr: tuple[int, ...]
    least: int
    """Its `min.insync.replicas`."""
    sure: tuple[int, ...]
    """Those that are to count before a change: the ISR, or all replicas where its end is written before the replicas
    go."""


class Copies:
    """Of one cluster."""

    def __init__(self, world: Several) -> None:
        self._world = world
        self._version: object = None
        self._known: dict[tuple[str, bytes, int], Layout] = {}
        self.changes = 0
        """How many partitions have lost replicas."""

    def look(self) -> None:
        """Hold what has changed since the last look against the rule.  ViolationError."""
        version = self._world.layouts_version()
        if version == self._version:
            return
        self._version = version
        found = self._world.layouts()
        for key, now in found.items():
            before = self._known.get(key)
            if before is not None and before.replicas != now.replicas:
                self._compare((key[0], key[2]), before, now)
        self._known = found

    def _compare(self, partition: tuple[str, int], before: Layout, now: Layout) -> None:
        world = self._world
        gone = set(before.replicas) - set(now.replicas) - set(before.adding)
        if not gone or world.disks.take_part or not world.cuts_by_epochs(partition[0]):
            return
        self.changes += 1
        ends = {node: self._end(node, partition) for node in world.nodes}
        high = max((self._committed(node, partition) for node in world.nodes), default=0)
        had = [node for node in before.sure if world.is_there(node) and (end := ends[node]) is not None and end >= high]
        left = [
            node
            for node in now.replicas
            if ((end := ends[node]) is not None and end >= high) or (node in now.isr and end is None)
        ]
        if len(left) < min(now.least, len(had), len(now.replicas)):
            world.judge.fail(
                f"{partition} goes from {before} to {now}: brokers {had} have all below {high}, and of the replicas "
                f"that stay {left}"
            )

    def _end(self, node: int, partition: tuple[str, int]) -> int | None:
        """Where a broker's log ends; None where there is none to be seen."""
        broker = self._world.brokers.get(node)
        replica = None if broker is None else broker.services.replica_manager.hosted(TopicPartition(*partition))
        return None if replica is None else int(replica.log.log_end_offset)

    def _committed(self, node: int, partition: tuple[str, int]) -> int:
        broker = self._world.brokers.get(node)
        replica = None if broker is None else broker.services.replica_manager.hosted(TopicPartition(*partition))
        return 0 if replica is None else max(replica.log.high_watermark, self._world.states.committed(replica))


__all__ = ["Copies", "Layout"]
