"""One partition that this broker has a replica of: who is in sync, what is committed, and who waits for that.

An append is not a commit.  The log knows where it ends; a partition knows which replicas have that, and it alone moves
the high watermark up and says what may be acknowledged.  The rules of that stand in `_fast/log/log_fields`, for the
fast path as well.

    committed      below the high watermark: every in-sync replica has it, this one durably where the settings ask
                   (`kbroker.fsync=commit`, `flush.messages`), and there are `min.insync.replicas` of them (KIP-966)
    acknowledged   to acks=all what is committed; to acks=1 what is durable here, where the settings ask for that

States: LEADER, FOLLOWER; the metadata or the controller's requests say which (`follow`).  A leader learns the log ends
of its followers from their fetches (`follower_fetched`); a follower learns the high watermark from its leader's answers
(`append_from_leader`), and drops what its leader does not have (`truncate_to`).

In a cluster the leader proposes who is in sync (`IsrChanges`).  From the proposal until the controller's answer, a
record is committed when all replicas of both ISRs have it, the one in force and the proposed one: the next leader may
be taken from either.

All of it belongs to the event loop.  Invariant: the high watermark never falls, unless the log is truncated below it.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Sequence
from enum import Enum
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kbroker._fast.base.build_facts import CHECKED
from kbroker._fast.log.log_fields import PartitionFields
from kbroker.errors import (
    FencedLeaderEpochError,
    KafkaError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    UnknownLeaderEpochError,
)
from kbroker.records.layout import LENGTH_POSITION
from kbroker.replication.follower import NO_FOLLOWER, Follower, in_sync_still, joining, may_join
from kbroker.types import FIRST_OFFSET, NO_LEADER_EPOCH, LeaderEpoch, Offset, TopicPartition

if TYPE_CHECKING:
    from kbroker._fast.net.pending import DelayedFetch
    from kbroker.metadata.image import PartitionImage
    from kbroker.replication.delayed_fetch import FetchPurgatory
    from kbroker.storage.log.producer_state import ProducerState
    from kbroker.storage.log.unified_log import UnifiedLog

Settled = Callable[[KafkaError | None], None]


class Role(Enum):
    """What this broker does for a partition; see the module."""

    LEADER = "leader"
    FOLLOWER = "follower"


UNKNOWN = -1


class IsrChanges(Protocol):
    """How a leader gets another ISR: the part that asks the controller, and what it knows of time and brokers."""

    @property
    def max_lag(self) -> float:
        """`replica.lag.time.max.ms`, in seconds."""

    def now(self) -> float:
        """Monotonic seconds."""

    def is_alive(self, node_id: int) -> bool:
        """Whether the broker is registered, and not fenced."""

    def is_eligible(self, node_id: int) -> bool:
        """Whether the broker is alive and may be in an ISR."""

    def fetches(self, node_id: int, broker_epoch: int) -> None:
        """Notes the broker epoch that a follower's fetch names, under which its process has registered; -1: it names
        none."""

    def propose(self, partition: Partition, isr: tuple[int, ...]) -> None:
        """Ask the controller for this ISR."""


class _Wait(NamedTuple):
    """An append that is not acknowledged yet.  `by_all`: to a producer with acks=all, or a coordinator."""

    last_offset: Offset
    by_all: bool
    settled: Settled


_last_offset = attrgetter("last_offset")


class Partition(PartitionFields):
    """A replica of a partition on this broker.  The replica manager gives it its role, the ISR manager the ISR that was
    granted; the partition alone moves the high watermark.

    `waiting` holds the delayed fetches that name it, in the order they came; `_waits` the appends that are not
    acknowledged yet, by whether all replicas have to have them, in the order of their offsets.
    """

    __slots__ = (
        "_deletions",
        "_waits",
        "has_left",
        "adding_replicas",
        "agrees_in_epoch",
        "epoch_start",
        "index",
        "is_reassigning",
        "isr_changes",
        "leader_high_watermark",
        "leader_id",
        "leader_throttled",
        "node_id",
        "partition_epoch",
        "offline",
        "proposed_isr",
        "replicas",
        "role",
        "topic",
        "topic_id",
    )

    log: UnifiedLog
    followers: dict[int, Follower]
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
        isr_changes: IsrChanges | None = None,
    ) -> None:
        self.topic = topic
        self.index = index
        self.topic_id = topic_id
        self.log = log
        self.node_id = node_id
        self.purgatory = purgatory
        self.isr_changes = isr_changes
        self.followers = {}
        self.offline: tuple[int, ...] = ()
        """Replicas whose disk has failed: no commit waits for them, whatever they have fetched before."""
        self.proposed_isr: tuple[int, ...] | None = None
        self.epoch_start = FIRST_OFFSET
        self._waits: dict[bool, list[_Wait]] = {False: [], True: []}
        self._deletions: list[tuple[int, Settled]] = []
        self.leader_epoch = NO_LEADER_EPOCH
        self.leader_id = -1
        self.leader_high_watermark = UNKNOWN
        self.agrees_in_epoch = -1
        """The last leader epoch in which this log, as a follower's, was found to be the beginning of its leader's."""
        self.follow(image)

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"

    @property
    def topic_partition(self) -> TopicPartition:
        """Topic name and partition index."""
        return TopicPartition(self.topic, self.index)

    def follow(self, image: PartitionImage) -> None:
        """Take over what the metadata say; call it after the log's settings have changed as well."""
        if image.leader_epoch != self.leader_epoch or self.leader_id != image.leader:
            self._begin_epoch(image)
        elif image.partition_epoch < self.partition_epoch:
            return  # The answer to a proposal was sooner.  By this ISR, what others lack would count as committed.
        elif image.partition_epoch > self.partition_epoch:
            # The controller has gone on by itself, and would refuse what was proposed.
            self.proposed_isr = None
        if CHECKED:  # Controllers that were restored from a copy may have gone back.
            assert image.leader_epoch >= self.leader_epoch, (self.topic_partition, self.leader_epoch, image)
        self.leader_epoch = LeaderEpoch(image.leader_epoch)
        self.leader_id = image.leader
        self.role = Role.LEADER if image.leader == self.node_id else Role.FOLLOWER
        self.has_left = False
        self.replicas = image.replicas
        self.offline = image.offline_replicas
        self.adding_replicas = image.adding_replicas
        self.is_reassigning = bool(image.adding_replicas or image.removing_replicas)
        self._set_isr(image.isr, image.partition_epoch)
        if self.role is Role.LEADER:
            self.advance()
            self._settle_deletions()
        else:
            assert not any(self._waits.values()) and not self._deletions, f"{self}: a follower commits nothing"
            if CHECKED:
                self.check_invariants()

    def _begin_epoch(self, image: PartitionImage) -> None:
        """Forgets what was known of followers: their logs may have been cut since."""
        self.leader_high_watermark = UNKNOWN
        self.proposed_isr = None
        self.epoch_start = self.log.log_end_offset
        self.followers.clear()
        if self.isr_changes is not None and image.leader == self.node_id:
            # Those in sync have as long as ever to show that they are.
            now = self.isr_changes.now()
            self.followers.update((each, Follower(now)) for each in image.isr if each != self.node_id)

    def _set_isr(self, isr: tuple[int, ...], partition_epoch: int) -> None:
        if CHECKED:
            assert self.leader_id != self.node_id or self.node_id in isr, f"{self}: its leader is not in {isr}"
        self.isr = isr
        self.partition_epoch = partition_epoch
        # More than there are replicas can never be in sync: Kafka asks for all of them then, as does this.
        config = self.log.config
        self.min_in_sync = min(config.min_insync_replicas, len(self.replicas))
        self.leader_throttled = self._is_named(config.leader_replication_throttled_replicas)
        self.follower_throttled = self._is_named(config.follower_replication_throttled_replicas)
        is_alone = isr == (self.node_id,) and (self.isr_changes is None or len(self.replicas) == 1)
        self.commits_alone = self.role is Role.LEADER and is_alone and self.has_min_isr

    def _is_named(self, throttled: Sequence[str]) -> bool:
        """Whether this replica is among `partition:broker` pairs, or all are."""
        return bool(throttled) and ("*" in throttled or f"{self.index}:{self.node_id}" in throttled)

    def reconfigured(self) -> None:
        """The log's settings have changed."""
        self._set_isr(self.isr, self.partition_epoch)
        if self.role is Role.LEADER:
            self.advance()

    def check_invariants(self) -> None:
        """Raises AssertionError unless roles, replicas and waits fit each other; between requests."""
        assert self.min_in_sync <= len(self.replicas), (self, self.min_in_sync, self.replicas)
        assert self.node_id not in self.followers, (self, list(self.followers))
        if self.role is not Role.LEADER:
            assert not self.commits_alone and self.proposed_isr is None, (self, self.proposed_isr)
        for by_all, waits in self._waits.items():
            assert waits == sorted(waits, key=_last_offset), self
            assert not waits or not self.is_acknowledged(waits[0].last_offset, by_all=by_all), (self, waits[0])

    # -- committing, as the leader ------------------------------------------------------------------------------------

    def advance(self) -> None:
        """Moves the high watermark to what is committed now, and settles the appends that waited for that.  Their
        callbacks run after the request that is being served, which may be in the middle of an append."""
        self._move_high_watermark()
        self._settle()
        if CHECKED:
            self.check_invariants()

    def _move_high_watermark(self) -> None:
        if self.has_min_isr and self.log.maybe_increment_high_watermark(self._in_sync_end()) and self.waiting:
            self.purgatory.mark(self)

    def _in_sync_end(self) -> Offset:
        """The offset below which each in-sync replica has everything."""
        log = self.log
        end = log.log_end_offset if log.committer is None else log.committer.bound(log.log_end_offset)
        for replica in self._needed():
            if replica != self.node_id:
                end = min(end, self.followers.get(replica, NO_FOLLOWER).log_end_offset)
        return end

    def _needed(self) -> Sequence[int]:
        """The replicas that have to have a record before it is committed; see the module."""
        changes = self.isr_changes
        if changes is None or len(self.replicas) == 1:
            return self.isr
        needed = self.isr if self.proposed_isr is None else (*self.isr, *self.proposed_isr)
        if len(needed) >= len(self.replicas):
            return needed
        end, now = self.log.log_end_offset, changes.now()
        return (
            *needed,
            *joining(self.replicas, needed, self.followers, end, now, changes.max_lag, self._is_eligible),
        )

    def _is_eligible(self, replica_id: int) -> bool:
        """Whether the controller would take a replica into the ISR."""
        changes = self.isr_changes
        return changes is not None and replica_id not in self.offline and changes.is_eligible(replica_id)

    def wait(self, last_offset: Offset, by_all: bool, settled: Settled) -> None:
        """Call `settled` once: with None when the batch that ends with `last_offset` may be acknowledged, or with the
        error: NOT_ENOUGH_REPLICAS_AFTER_APPEND, NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR.  It is called before this
        returns if the batch may be acknowledged by now, else when no request is being served."""
        if self.has_left or self.role is not Role.LEADER:
            # Since the append, while the rest of its request was judged.
            self.purgatory.ready.put(settled, NotLeaderOrFollowerError())
        elif self.is_acknowledged(last_offset, by_all=by_all):
            if self.log.committer is not None:
                self.log.committer.settled(1)
            settled(self._refusal() if by_all else None)
        else:
            insort(self._waits[by_all], _Wait(last_offset, by_all, settled), key=_last_offset)

    def _refusal(self) -> KafkaError | None:
        """What acks=all gets for a batch that is committed."""
        return None if self.has_min_isr else NotEnoughReplicasAfterAppendError()

    def _settle(self) -> None:
        for by_all, waits in self._waits.items():
            count = 0
            while count < len(waits) and self.is_acknowledged(waits[count].last_offset, by_all=by_all):
                count += 1
            if not count:
                continue
            refusal = self._refusal() if by_all else None
            if self.log.committer is not None:
                self.log.committer.settled(count)
            for each in waits[:count]:
                self.purgatory.ready.put(each.settled, refusal)
            del waits[:count]

    def refuse_waits(self, error: KafkaError, *, for_good: bool = False) -> None:
        """Settle all appends that wait with an error, behind what goes on now; see `take_waits`."""
        for settled in self.take_waits(for_good=for_good):
            self.purgatory.ready.put(settled, error)

    def take_waits(self, *, for_good: bool = False) -> list[Settled]:
        """Remove and return the callbacks of all appends that wait: they will not be acknowledged here, and the caller
        settles them with the reason.  `for_good`: nor will others, or a deletion, as this broker leads it no more."""
        self.has_left = for_good
        waits = [each.settled for each in self._waits[False] + self._waits[True]]
        self._waits = {False: [], True: []}
        if for_good:
            waits += [settled for _, settled in self._deletions]
            self._deletions = []
        return waits

    def check_follower(self, replica_id: int, current_leader_epoch: LeaderEpoch) -> None:
        """Refuse a fetch by a broker that has no replica of this partition, as Kafka does.  If the fetch names a leader
        epoch, that broker knows of a newer one, in which it has a replica.

        Raises NotLeaderOrFollowerError, UnknownLeaderEpochError."""
        if self.role is not Role.LEADER:
            raise NotLeaderOrFollowerError(f"this broker does not lead {self}")
        if replica_id == self.node_id or replica_id not in self.replicas:
            if current_leader_epoch == NO_LEADER_EPOCH:
                raise NotLeaderOrFollowerError(f"broker {replica_id} is no follower of {self}")
            raise UnknownLeaderEpochError(f"broker {replica_id} is no follower of {self}")

    def follower_fetched(self, replica_id: int, fetch_offset: Offset, log_start_offset: Offset) -> None:
        """A follower asks for `fetch_offset`: it has everything before that."""
        follower = self.followers.get(replica_id)
        if follower is None:
            follower = self.followers[replica_id] = Follower()
        changes = self.isr_changes
        now = 0.0 if changes is None else changes.now()
        if follower.fetched(fetch_offset, log_start_offset, self.log.log_end_offset, now):
            self._move_high_watermark()
            self._settle()
            self._settle_deletions()
        if changes is not None and replica_id not in self.isr and self.proposed_isr is None:
            fits = may_join(follower, self.log.high_watermark, self.epoch_start)
            if fits and self._is_eligible(replica_id):
                self._propose((*self.isr, replica_id))

    def drop_lagging(self) -> None:
        """Propose an ISR without the followers that have lagged for too long; call it from time to time."""
        changes = self.isr_changes
        if changes is None or self.role is not Role.LEADER or len(self.isr) <= 1 or self.proposed_isr is not None:
            return
        end = self.log.log_end_offset
        left = in_sync_still(self.isr, self.node_id, self.followers, end, changes.now(), changes.max_lag)
        if left != self.isr:
            self._propose(left)

    def _propose(self, isr: tuple[int, ...]) -> None:
        assert self.isr_changes is not None
        assert self.role is Role.LEADER and self.proposed_isr is None, (str(self), self.role, self.proposed_isr)
        assert self.node_id in isr and set(isr) <= set(self.replicas), (str(self), isr, self.replicas)
        self.proposed_isr = isr
        self.isr_changes.propose(self, isr)

    def isr_granted(self, isr: tuple[int, ...], partition_epoch: int) -> None:
        """The controller's answer to a proposal: the ISR that is in force by now."""
        assert self.role is Role.LEADER, f"{self}: an ISR for a follower"
        if partition_epoch >= self.partition_epoch:
            self.proposed_isr = None
            self._set_isr(isr, partition_epoch)
            self.advance()
            self._settle_deletions()

    def isr_refused(self) -> None:
        """The controller has changed nothing, and the proposal may be made anew."""
        self.proposed_isr = None
        self.advance()

    @property
    def high_watermark_lags(self) -> bool:
        """Whether this leader does not know yet that all is committed that came before its epoch: clients may have seen
        a high watermark behind this one (KIP-207)."""
        return self.log.high_watermark < self.epoch_start

    @property
    def low_watermark(self) -> Offset:
        """The least offset at which the log starts in a replica whose broker is alive, in sync or not: one that has yet
        to hear of a deletion may be in sync again, and lead, by the time of the next read."""
        changes = self.isr_changes
        others = self.isr if changes is None else [each for each in self.replicas if changes.is_alive(each)]
        followers = [self.followers.get(each, NO_FOLLOWER) for each in others if each != self.node_id]
        return min([self.log.log_start_offset, *(max(FIRST_OFFSET, each.log_start_offset) for each in followers)])

    def wait_for_deletion(self, offset: Offset, settled: Settled) -> None:
        """Call `settled` once: with None when no replica that is alive has records below `offset`, or with
        NOT_LEADER_OR_FOLLOWER."""
        self._deletions.append((offset, settled))
        self._settle_deletions()

    def _settle_deletions(self) -> None:
        if self._deletions:
            low = self.low_watermark
            ready = [settled for offset, settled in self._deletions if offset <= low]
            self._deletions = [each for each in self._deletions if each[0] > low]
            for settled in ready:
                self.purgatory.ready.put(settled, None)

    # -- as a follower ------------------------------------------------------------------------------------------------

    def append_from_leader(self, records: memoryview, high_watermark: Offset, log_start_offset: Offset) -> None:
        """Appends what the leader sent, commits what the leader says is committed, and deletes what it has deleted.

        The first batch may begin before an empty log that starts in the midst of it.
        Raises NotLeaderOrFollowerError.
        """
        if self.role is not Role.FOLLOWER:
            raise NotLeaderOrFollowerError(f"this broker leads {self}")
        log = self.log
        self.leader_high_watermark = high_watermark
        if len(records):
            if log.local_log_start_offset == log.log_end_offset:
                self._begin_within(Offset(int.from_bytes(records[:LENGTH_POSITION], "big", signed=True)))
            log.append_as_follower(records)
        if log.maybe_increment_high_watermark(high_watermark) and self.waiting:
            self.purgatory.mark(self)
        if log_start_offset > log.log_start_offset:
            log.delete_records_before(min(log_start_offset, log.high_watermark))
        if CHECKED:
            log.check_invariants()

    @property
    def behind(self) -> int | None:
        """Committed records that are not here; None where the leader has not said yet what is committed."""
        if self.role is Role.LEADER:
            return 0
        known = self.leader_high_watermark
        return None if known == UNKNOWN else max(0, known - self.log.log_end_offset)

    def _begin_within(self, base_offset: Offset) -> None:
        log, starts = self.log, (self.log.log_start_offset, self.log.local_log_start_offset)
        if 0 <= base_offset < log.local_log_start_offset:
            log.truncate_fully_and_start_at(base_offset)
            log.log_start_offset, log.local_log_start_offset = starts

    def end_shared_with(self, leader_epoch: LeaderEpoch, end_offset: Offset) -> tuple[Offset, bool]:
        """Where the log is to be cut, whose leader has said that its largest epoch up to ours ends at `end_offset`.

        And whether what is left is the beginning of the leader's log.  It is not where this log does not have that
        epoch: it is cut to the end of its own epoch before that one, and the leader is asked again (KIP-101).  Epoch
        -1: the answer is older than that; our last epoch ends there.
        """
        log = self.log
        ours = log.end_offset_for_epoch(leader_epoch)
        offset = end_offset if ours.leader_epoch < 0 else ours.end_offset
        if ours.leader_epoch == leader_epoch:
            offset = min(offset, end_offset)
        return min(offset, log.log_end_offset), ours.leader_epoch in (-1, leader_epoch)

    def truncate_to(self, offset: Offset, producers: ProducerState | None = None) -> None:
        """Drop records and leader epochs from `offset` on; those before the log's start cannot be kept.

        `producers`: of what is left, where that is known."""
        assert self.role is Role.FOLLOWER, f"{self}: a leader's log is cut at {offset}"
        log = self.log
        if not log.truncate_to(max(offset, FIRST_OFFSET), producers):
            # An epoch in which nothing was written goes, too, or the leader would answer the same again.
            log.leader_epoch_cache.truncate_from_end(offset)
        assert log.log_end_offset <= max(offset, 0), (str(self), log.log_end_offset, offset)

    def restart_at(self, offset: Offset) -> None:
        """Drop everything: the leader's log begins at `offset`, behind the end of this one."""
        assert self.role is Role.FOLLOWER and offset >= self.log.log_end_offset, (str(self), self.role, offset)
        self.log.truncate_fully_and_start_at(offset)

    # -- what requests ask --------------------------------------------------------------------------------------------

    def check_leader_epoch(self, current_leader_epoch: LeaderEpoch) -> None:
        """Refuse a client whose view of the leader is older or newer than ours (KIP-320); -1 says it has none.

        Raises FencedLeaderEpochError, UnknownLeaderEpochError."""
        if current_leader_epoch in (NO_LEADER_EPOCH, self.leader_epoch):
            return
        if current_leader_epoch < self.leader_epoch:
            raise FencedLeaderEpochError()
        raise UnknownLeaderEpochError()

    def check_in_sync(self) -> None:
        """Refuse acks=all when fewer replicas are in sync than `min.insync.replicas` asks for.

        Raises NotEnoughReplicasError."""
        if not self.has_min_isr:
            raise NotEnoughReplicasError(
                f"The size of the current ISR : {len(self.isr)} is insufficient to satisfy the min.isr requirement "
                f"of {self.min_in_sync} for partition {self}"
            )
