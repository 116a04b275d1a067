"""One partition as this broker leads it: its log, its leader epoch and the fetches that wait for it.

All of it belongs to the event loop.  The high watermark of a partition with one replica is its log end offset and
moves with each append; `Partition` is where a larger in-sync set will hold it back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker._fast.log_fields import PartitionFields
from kbroker.errors import FencedLeaderEpochError, NotEnoughReplicasError, UnknownLeaderEpochError
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.metadata.image import PartitionImage
    from kbroker.replication.delayed_fetch import DelayedFetch
    from kbroker.storage.unified_log import UnifiedLog


class Partition(PartitionFields):
    """A partition that this broker leads.

    `waiting` holds the delayed fetches that name it, in the order they came.
    """

    __slots__ = ("topic", "index", "topic_id", "leader_id")

    log: UnifiedLog
    waiting: dict[DelayedFetch, None]

    def __init__(
        self,
        topic: str,
        index: int,
        topic_id: bytes,
        log: UnifiedLog,
        leader_id: int,
        image: PartitionImage,
    ) -> None:
        self.topic = topic
        self.index = index
        self.topic_id = topic_id
        self.log = log
        self.leader_id = leader_id
        self.waiting: dict[DelayedFetch, None] = {}
        self.follow(image)

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.index)

    def follow(self, image: PartitionImage) -> None:
        """Take over what the metadata say; call it after the log's settings have changed as well."""
        self.leader_epoch = image.leader_epoch
        self.isr = image.isr
        # More than there are replicas can never be in sync: Kafka asks for all of them then, as does this.
        self.min_in_sync = min(self.log.config.min_insync_replicas, len(image.replicas))

    def check_leader_epoch(self, current_leader_epoch: int) -> None:
        """Refuse a client whose view of the leader is older or newer than ours (KIP-320); -1 says it has none."""
        if current_leader_epoch < 0 or current_leader_epoch == self.leader_epoch:
            return
        if current_leader_epoch < self.leader_epoch:
            raise FencedLeaderEpochError()
        raise UnknownLeaderEpochError()

    def check_in_sync(self) -> None:
        """Refuse acks=all when fewer replicas are in sync than `min.insync.replicas` asks for."""
        if len(self.isr) < self.min_in_sync:
            raise NotEnoughReplicasError(
                f"The size of the current ISR : {len(self.isr)} is insufficient to satisfy the min.isr requirement "
                f"of {self.min_in_sync} for partition {self}"
            )
