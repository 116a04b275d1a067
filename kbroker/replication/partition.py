"""One partition that this broker has a replica of: who is in sync, what is committed, and who waits for that.

An append is not a commit.  The log knows where it ends; a partition knows which replicas have that, and it alone moves
the high watermark and says what may be acknowledged.

    committed      below the high watermark: every in-sync replica has it, this one durably where the settings ask
                   (`kbroker.fsync=commit`, `flush.messages`), and there are `min.insync.replicas` of them (KIP-966)
    acknowledged   to acks=all what is committed; to acks=1 what is durable here, where the settings ask for that

States: LEADER, FOLLOWER; the metadata say which (`follow`).  A leader learns the log ends of its followers from their
fetches (`follower_fetched`); a follower learns the high watermark from its leader's answers (`append_from_leader`).

All of it belongs to the event loop.  Invariant: the high watermark never falls, unless the log is truncated below it.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Sequence
from enum import Enum
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from kbroker._fast.log.log_fields import PartitionFields
from kbroker.errors import (
    FencedLeaderEpochError,
    KafkaError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    UnknownLeaderEpochError,
)
from kbroker.types import NO_LEADER_EPOCH, TopicPartition

if TYPE_CHECKING:
    from kbroker._fast.net.pending import DelayedFetch
    from kbroker.metadata.image import PartitionImage
    from kbroker.replication.delayed_fetch import FetchPurgatory
    from kbroker.storage.log.unified_log import UnifiedLog

Settled = Callable[[KafkaError | None], None]


class Role(Enum):
    """What this broker does for a partition; see the module."""

    LEADER = "leader"
    FOLLOWER = "follower"


class FollowerProgress(NamedTuple):
    """What a follower has, by its last fetch; -1: it has not fetched since this broker leads."""

    log_end_offset: int = -1
    log_start_offset: int = -1


class _Wait(NamedTuple):
    """An append that is not acknowledged yet.  `by_all`: to a producer with acks=all, or a coordinator."""

    last_offset: int
    by_all: bool
    settled: Settled


_last_offset = attrgetter("last_offset")


class Partition(PartitionFields):
    """A replica of a partition on this broker.

    `waiting` holds the delayed fetches that name it, in the order they came; `_waits` the appends that are not
    acknowledged yet, by whether all replicas have to have them, in the order of their offsets.
    """

    __slots__ = (
        "_deletions",
        "_waits",
        "followers",
        "index",
        "leader_id",
        "node_id",
        "replicas",
        "role",
        "topic",
        "topic_id",
    )

    log: UnifiedLog
    waiting: dict[DelayedFetch, None]
    purgatory: FetchPurgatory

    def __init__(
        self,
        topic: str,
        index: int,
        topic_id: bytes,
        log: UnifiedLog,
        node_id: int,
        image: PartitionImage,
        purgatory: FetchPurgatory,
    ) -> None:
        self.topic = topic
        self.index = index
        self.topic_id = topic_id
        self.log = log
        self.node_id = node_id
        self.purgatory = purgatory
        self.waiting: dict[DelayedFetch, None] = {}
        self.followers: dict[int, FollowerProgress] = {}
        self._waits: dict[bool, list[_Wait]] = {False: [], True: []}
        self._deletions: list[tuple[int, Callable[[], object]]] = []
        self.leader_epoch = -1
        self.follow(image)

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"

    @property
    def topic_partition(self) -> TopicPartition:
        """Topic name and partition index."""
        return TopicPartition(self.topic, self.index)

    def follow(self, image: PartitionImage) -> None:
        """Take over what the metadata say; call it after the log's settings have changed as well."""
        if image.leader_epoch != self.leader_epoch:
            self.followers.clear()
        self.leader_epoch = image.leader_epoch
        self.leader_id = image.leader
        self.role = Role.LEADER if image.leader == self.node_id else Role.FOLLOWER
        self.replicas = image.replicas
        self.isr = image.isr
        # More than there are replicas can never be in sync: Kafka asks for all of them then, as does this.
        self.min_in_sync = min(self.log.config.min_insync_replicas, len(image.replicas))
        self.commits_alone = self.role is Role.LEADER and self.isr == (self.node_id,) and self.min_in_sync <= 1
        if self.role is Role.LEADER:
            self.advance()
            self._settle_deletions()

    # -- committing, as the leader ------------------------------------------------------------------------------------

    def appended(self) -> None:
        """The log is longer: commits what can be, and wakes the followers that wait for records."""
        self.advance()
        if self.waiting and not self.commits_alone:
            self.purgatory.mark(self)

    def advance(self) -> None:
        """Moves the high watermark to what is committed now, and settles what waited for that."""
        enough = len(self.isr) >= self.min_in_sync
        if enough and self.log.maybe_increment_high_watermark(self._in_sync_end()) and self.waiting:
            self.purgatory.mark(self)
        if self._waits[False] or self._waits[True]:
            self._settle()

    def _in_sync_end(self) -> int:
        """The offset below which each in-sync replica has everything."""
        log = self.log
        end = log.log_end_offset if log.committer is None else log.committer.bound(log.log_end_offset)
        for replica in self.isr:
            if replica != self.node_id:
                end = min(end, self.followers.get(replica, FollowerProgress()).log_end_offset)
        return end

    def is_acknowledged(self, last_offset: int, *, by_all: bool) -> bool:
        """Whether the batch that ends with `last_offset` may be acknowledged; `by_all`: to acks=all."""
        if by_all:
            return self.log.high_watermark > last_offset
        return self.log.committer is None or not self.log.committer.holds(last_offset)

    def wait(self, last_offset: int, by_all: bool, settled: Settled) -> None:
        """Call `settled` once when the batch that ends with `last_offset` may be acknowledged (None), or with why it
        may not: NOT_ENOUGH_REPLICAS_AFTER_APPEND, NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR."""
        wait = _Wait(last_offset, by_all, settled)
        if self.is_acknowledged(last_offset, by_all=by_all):
            self._settle_all([wait])
        else:
            insort(self._waits[by_all], wait, key=_last_offset)

    def _settle(self) -> None:
        ready: list[_Wait] = []
        for by_all, waits in self._waits.items():
            count = 0
            while count < len(waits) and self.is_acknowledged(waits[count].last_offset, by_all=by_all):
                count += 1
            ready += waits[:count]
            del waits[:count]
        if ready:
            self._settle_all(ready)

    def _settle_all(self, ready: Sequence[_Wait]) -> None:
        too_few = NotEnoughReplicasAfterAppendError() if len(self.isr) < self.min_in_sync else None
        if self.log.committer is not None:
            self.log.committer.settled(len(ready))
        for each in ready:
            # An answer lets its connection go on at once: its next append may come before this returns.
            each.settled(too_few if each.by_all else None)

    def take_waits(self) -> list[Settled]:
        """What waits to be acknowledged and will not be here: the caller settles it with the reason."""
        waits = self._waits[False] + self._waits[True]
        self._waits = {False: [], True: []}
        return [each.settled for each in waits]

    def check_follower(self, replica_id: int) -> None:
        """Refuse a fetch by a broker that has no replica of this partition, as Kafka does."""
        if self.role is not Role.LEADER or replica_id == self.node_id or replica_id not in self.replicas:
            raise NotLeaderOrFollowerError(f"broker {replica_id} is no follower of {self}")

    def follower_fetched(self, replica_id: int, fetch_offset: int, log_start_offset: int) -> None:
        """A follower asks for `fetch_offset`: it has everything before that."""
        known = self.followers.get(replica_id)
        progress = FollowerProgress(fetch_offset, log_start_offset)
        if progress != known:
            self.followers[replica_id] = progress
            self.advance()
            self._settle_deletions()

    @property
    def low_watermark(self) -> int:
        """The least offset at which the log starts in an in-sync replica: DeleteRecords answers with it."""
        followers = [self.followers.get(each, FollowerProgress()) for each in self.isr if each != self.node_id]
        return min([self.log.log_start_offset, *(max(0, each.log_start_offset) for each in followers)])

    def wait_for_deletion(self, offset: int, settled: Callable[[], object]) -> None:
        """Call `settled` once when no in-sync replica has records below `offset`."""
        self._deletions.append((offset, settled))
        self._settle_deletions()

    def _settle_deletions(self) -> None:
        if self._deletions:
            low = self.low_watermark
            ready = [settled for offset, settled in self._deletions if offset <= low]
            self._deletions = [each for each in self._deletions if each[0] > low]
            for settled in ready:
                settled()

    # -- as a follower ------------------------------------------------------------------------------------------------

    def append_from_leader(self, records: memoryview | bytes, high_watermark: int) -> None:
        """Appends what the leader sent, and commits what the leader says is committed."""
        if self.role is not Role.FOLLOWER:
            raise NotLeaderOrFollowerError(f"this broker leads {self}")
        if len(records):
            self.log.append_as_follower(records)
        if self.log.maybe_increment_high_watermark(high_watermark) and self.waiting:
            self.purgatory.mark(self)

    # -- what requests ask --------------------------------------------------------------------------------------------

    def check_leader_epoch(self, current_leader_epoch: int) -> None:
        """Refuse a client whose view of the leader is older or newer than ours (KIP-320); -1 says it has none."""
        if current_leader_epoch in (NO_LEADER_EPOCH, self.leader_epoch):
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
