"""Elections of leaders as the metadata log says them: every controller counts what is committed, as Kafka's do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.metadata.image import NO_LEADER, altered

if TYPE_CHECKING:
    from kbroker.metadata.image import ClusterImage, MetadataDelta, PartitionImage


class ElectionCounts:
    """`follow` is a subscriber of the metadata cache.  `elections`: leaders that partitions have got, new ones
    included; `unclean`: those of them that were neither in the ISR nor in the ELR; `eligible`: those from the ELR."""

    __slots__ = ("elections", "eligible", "unclean")

    def __init__(self) -> None:
        self.elections = self.unclean = self.eligible = 0

    def follow(self, _old: ClusterImage, _new: ClusterImage, delta: MetadataDelta) -> None:
        """A new image is there."""
        for topic in delta.created:
            self.elections += sum(each.leader != NO_LEADER for each in topic.partitions)
        for before, after in delta.changed:
            known = before.partitions
            for each in altered(before, after):
                self._count(known[each.partition] if each.partition < len(known) else None, each)

    def _count(self, before: PartitionImage | None, after: PartitionImage) -> None:
        if after.leader == NO_LEADER:
            return
        if before is None:
            self.elections += 1
        elif after.leader != before.leader:
            self.elections += 1
            if after.leader not in before.isr:
                self.eligible += after.leader in before.elr
                self.unclean += after.leader not in before.elr
