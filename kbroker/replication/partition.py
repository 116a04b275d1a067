"""One partition as this broker leads it: its log, its leader epoch and the fetches that wait for it.

All of it belongs to the event loop.  The high watermark of a partition with one replica is its log end offset and
moves with each append; `Partition` is where a larger in-sync set will hold it back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.errors import FencedLeaderEpochError, NotEnoughReplicasError, UnknownLeaderEpochError
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.replication.delayed_fetch import DelayedFetch
    from kbroker.storage.unified_log import UnifiedLog


class Partition:
    """A partition that this broker leads.

    `waiting` holds the delayed fetches that name it, in the order they came.
    """

    __slots__ = ("topic", "index", "topic_id", "log", "leader_epoch", "leader_id", "isr", "waiting")

    def __init__(
        self,
        topic: str,
        index: int,
        topic_id: bytes,
        log: UnifiedLog,
        leader_epoch: int,
        leader_id: int,
        isr: tuple[int, ...],
    ) -> None:
        self.topic = topic
        self.index = index
        self.topic_id = topic_id
        self.log = log
        self.leader_epoch = leader_epoch
        self.leader_id = leader_id
        self.isr = isr
        self.waiting: dict[DelayedFetch, None] = {}

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.index)

    def check_leader_epoch(self, current_leader_epoch: int) -> None:
        """Refuse a client whose view of the leader is older or newer than ours (KIP-320); -1 says it has none."""
        if current_leader_epoch < 0 or current_leader_epoch == self.leader_epoch:
            return
        if current_leader_epoch < self.leader_epoch:
            raise FencedLeaderEpochError()
        raise UnknownLeaderEpochError()

    def check_in_sync(self) -> None:
        """Refuse acks=all when fewer replicas are in sync than `min.insync.replicas` asks for."""
        needed = self.log.config.min_insync_replicas
        if len(self.isr) < needed:
            raise NotEnoughReplicasError(
                f"The size of the current ISR : {len(self.isr)} is insufficient to satisfy the min.isr requirement "
                f"of {needed} for partition {self.topic}-{self.index}"
            )
