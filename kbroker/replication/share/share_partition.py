"""One partition as one share group sees it, at the partition's leader (KIP-932; Kafka's SharePartition).

    EMPTY -> INITIALIZING -> ACTIVE -> FENCED     its state is read from the persister, then it serves
                          -> FAILED               it cannot be read; a new object tries again
    any   -> FENCED                               the leader, the topic or the group's state is another one now

    start_offset (SPSO)   all below has come to its end
    end_offset (SPEO)     the last offset that is under way; where nothing is, the next one to read

A change that a client asks for is seen by others only after it is stored: until then its runs can be neither acquired
nor acknowledged.  One write is under way at a time; the next one has all changes made meanwhile.  So the start offset
that it stores does not rest on another change that may still fail.  A lock that times out is released in any case, as
in Kafka.

Offsets that were acquired and never acknowledged are in no stored batch: after a reload the holes between the batches
are available again.  Everything belongs to the event loop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from kbroker._fast.base.build_facts import CHECKED
from kbroker.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    ErrorCode,
    FencedLeaderEpochError,
    FencedStateEpochError,
    KafkaError,
    NotCoordinatorError,
    NotLeaderOrFollowerError,
    bare,
)
from kbroker.replication.share.acknowledgements import AcknowledgementBatch, plan
from kbroker.replication.share.acquiring import acquire_again, acquire_suspects, without
from kbroker.replication.share.acquisition import Acquired, Demand, LogBatch, limit, portions
from kbroker.replication.share.in_flight import InFlight, Run
from kbroker.replication.share.persister import UNINITIALIZED_START_OFFSET, StateBatch, StateUpdate, StoredState
from kbroker.replication.share.record_state import (
    TERMINAL,
    AcknowledgeType,
    RecordState,
    settled_state,
    state_after,
)
from kbroker.replication.share.state_batches import combine

if TYPE_CHECKING:
    from kbroker.clock import Clock
    from kbroker.replication.share.persister import Persister, SharePartitionKey
    from kbroker.replication.share.settings import ShareSettings

logger = logging.getLogger("kbroker.share")

Settled = Callable[[KafkaError | None], None]


class SharePartitionState(Enum):
    """See the module."""

    EMPTY = "empty"
    INITIALIZING = "initializing"
    ACTIVE = "active"
    FAILED = "failed"
    FENCED = "fenced"


class _Change(NamedTuple):
    """A change to be stored: its batches, the runs that wait for the write, and the callback for its result."""

    batches: Sequence[StateBatch]
    runs: Sequence[Run]
    settled: Settled


class SharePartitionContext(NamedTuple):
    """What a share-partition needs of its broker.

    `reset_offset(strategy)`: the offset at which a group without a start offset begins.  `woken` is called when there
    may be something to acquire, `fenced` when this object must not be used any more.  `call_later`: asyncio's.
    """

    persister: Persister
    clock: Clock
    call_later: Callable[[float, Callable[[], None]], object]
    settings: Callable[[], ShareSettings]
    reset_offset: Callable[[str], int]
    woken: Callable[[SharePartition], None]
    fenced: Callable[[SharePartition, KafkaError], None]


class SharePartition:
    """See the module.  Its own methods alone change its state, each on the loop and as a whole."""

    __slots__ = (
        "_context",
        "_changes",
        "_initialized",
        "_look_for_available",
        "_timer_due",
        "_writing",
        "end_offset",
        "in_flight",
        "key",
        "leader_epoch",
        "start_offset",
        "state",
        "state_epoch",
    )

    def __init__(self, key: SharePartitionKey, leader_epoch: int, context: SharePartitionContext) -> None:
        self.key = key
        self.leader_epoch = leader_epoch
        self.state = SharePartitionState.EMPTY
        self.state_epoch = 0
        self.start_offset = 0
        self.end_offset = 0
        self.in_flight = InFlight()
        self._context = context
        self._changes: list[_Change] = []
        self._writing = False
        self._initialized: list[Settled] = []
        self._look_for_available = False
        self._timer_due: float | None = None

    # -- initialisation -----------------------------------------------------------------------------------------------

    def initialize(self, settled: Settled) -> None:
        """Read the state unless it is known, and say when it is, or why it cannot be."""
        if self.state is SharePartitionState.ACTIVE:
            settled(None)
            return
        self._initialized.append(settled)
        if self.state is SharePartitionState.EMPTY:
            self.state = SharePartitionState.INITIALIZING
            self._context.persister.read_state(self.key, self.leader_epoch, self._loaded)

    def _loaded(self, stored: StoredState | KafkaError) -> None:
        if self.state is not SharePartitionState.INITIALIZING:
            return
        error: KafkaError | None = None
        try:
            if isinstance(stored, KafkaError):
                raise client_error(stored)
            self._restore(stored)
            self.state = SharePartitionState.ACTIVE
        except KafkaError as refusal:
            error = bare(refusal)
            self.state = SharePartitionState.FAILED
            logger.warning("the state of %s cannot be read: %s", self, refusal)
        self._tell_initialized(error)

    def _tell_initialized(self, error: KafkaError | None) -> None:
        waiting, self._initialized = self._initialized, []
        for settled in waiting:
            settled(error)

    def _restore(self, stored: StoredState) -> None:
        assert not self.in_flight and not self._changes, f"{self}: its state is read over what is under way"
        start = stored.start_offset
        if start == UNINITIALIZED_START_OFFSET:
            start = self._context.reset_offset(self._context.settings().auto_offset_reset)
        expected = start
        for batch in sorted(stored.batches):
            first = max(batch.first_offset, expected)
            if batch.last_offset < first:
                continue
            if first > expected:
                self.in_flight.add(Run(expected, first - 1, RecordState.AVAILABLE, 0))
            state = RecordState(batch.delivery_state)
            self.in_flight.add(Run(first, batch.last_offset, state, batch.delivery_count))
            expected = batch.last_offset + 1
        self.state_epoch = stored.state_epoch
        self.start_offset = start
        self.end_offset = expected - 1 if self.in_flight else start
        self._look_for_available = True
        self._advance_start()
        assert self.start_offset >= start, (str(self), self.start_offset, start)

    def fence(self, error: KafkaError) -> None:
        """Serve no longer: another object, here or elsewhere, takes over from what is stored."""
        self.state = SharePartitionState.FENCED
        changes, self._changes = self._changes, []
        for change in changes:
            change.settled(error)
        self._tell_initialized(error)

    def __str__(self) -> str:
        return f"share group {self.key.group_id}, partition {self.key.partition} of {self.key.topic_id.hex()}"

    # -- acquiring ----------------------------------------------------------------------------------------------------

    @property
    def next_fetch_offset(self) -> int:
        """Where the next read begins: the first available offset, or behind what is under way."""
        if self._look_for_available:
            for run in self.in_flight:
                if run.is_available:
                    return run.first
            self._look_for_available = False
        return max(self.start_offset, self.end_offset + 1) if self.in_flight else self.end_offset

    @property
    def in_flight_count(self) -> int:
        """How many offsets are between start and end."""
        return self.end_offset - self.start_offset + 1 if self.in_flight else 0

    @property
    def can_acquire(self) -> bool:
        """Whether a read may find something to acquire: not when the number of records under way is at its limit and
        none of them is available."""
        if self.state is not SharePartitionState.ACTIVE:
            return False
        if not self.in_flight or self.in_flight_count < self._context.settings().max_record_locks:
            return True
        return self.next_fetch_offset <= self.end_offset

    def acquire(
        self,
        demand: Demand,
        batches: Sequence[LogBatch],
        aborted: Sequence[tuple[int, int]] = (),
    ) -> list[Acquired]:
        """Hand records of these batches, which were read from `next_fetch_offset` on, to a member.

        `aborted`: offsets of aborted transactions, which no member of the group is to see.
        """
        if self.state is not SharePartitionState.ACTIVE or demand.max_records <= 0 or not batches:
            return []
        begin = batches[0].base_offset
        self._archive_lost(self.next_fetch_offset, begin)
        settings = self._context.settings()
        expires = self._context.clock.monotonic() + settings.record_lock_ms / 1000
        room = settings.max_record_locks - self.in_flight_count
        last = batches[-1].last_offset
        runs = acquire_suspects(self.in_flight, demand, (begin, last), expires, settings.delivery_count_limit)
        if not runs:
            runs = acquire_again(self.in_flight, demand, batches, begin, expires)
            first = self.end_offset + 1 if self.in_flight else self.end_offset
            wanted = min(demand.max_records - sum(len(run) for run in runs), room)
            if wanted > 0 and first <= last:
                runs += self._acquire_new(demand, batches, max(first, batches[0].base_offset), wanted, expires)
        if aborted:
            runs = without(self.in_flight, runs, aborted)
        if runs:
            self._arm(expires)
        if aborted:
            self._advance_start()
        return [Acquired(run.first, run.last, run.delivery_count) for run in runs]

    def _archive_lost(self, begin: int, base_offset: int) -> None:
        """Archives the offsets that were available and that compaction has removed since: no read finds them any
        more."""
        if base_offset <= begin:
            return
        for run in self.in_flight.overlapping(begin, base_offset - 1):
            if run.is_available:
                for piece in self.in_flight.cut(max(run.first, begin), min(run.last, base_offset - 1)):
                    piece.settle(RecordState.ARCHIVED)
        self._advance_start()

    def _acquire_new(
        self, demand: Demand, batches: Sequence[LogBatch], first: int, wanted: int, expires: float
    ) -> list[Run]:
        """Acquire what no member had before."""
        end = limit(batches, first, batches[-1].last_offset, wanted, demand.exact)
        if not self.in_flight:
            self.start_offset = first
        spans = [(first, end)] if demand.exact else portions(batches, first, end, demand.batch_size)
        runs = [Run(low, high, RecordState.ACQUIRED, 1, demand.member_id, expires) for low, high in spans]
        for run in runs:
            self.in_flight.add(run)
        self.end_offset = end
        return runs

    # -- acknowledging ------------------------------------------------------------------------------------------------

    def acknowledge(self, member_id: str, batches: Iterable[AcknowledgementBatch], settled: Settled) -> None:
        """Do what a member says of its records, and say when that is stored.  Raises where nothing of it is done."""
        self.check_active()
        planned = plan(self.in_flight, self.start_offset, member_id, batches)
        settings = self._context.settings()
        runs: list[Run] = []
        for said in planned:
            pieces = self.in_flight.cut(said.first_offset, said.last_offset)
            if said.acknowledge_type == AcknowledgeType.RENEW:
                expires = self._context.clock.monotonic() + settings.record_lock_ms / 1000
                for run in pieces:
                    run.lock_expires = expires
                continue
            for run in pieces:
                run.change(state_after(said.acknowledge_type, run.delivery_count, settings.delivery_count_limit))
            runs += pieces
        self._change(runs, settled)

    def release(self, member_id: str, settled: Settled) -> None:
        """Take all records from a member whose session ends."""
        if self.state is not SharePartitionState.ACTIVE:
            settled(None)
            return
        limit_ = self._context.settings().delivery_count_limit
        runs = [run for run in self.in_flight if run.is_acquired and run.member_id == member_id]
        for run in runs:
            run.change(settled_state(RecordState.AVAILABLE, run.delivery_count, limit_))
        self._change(runs, settled)

    def check_active(self) -> None:
        """Raise the error of a client that comes too early or too late."""
        if self.state is SharePartitionState.FENCED:
            raise FencedStateEpochError(f"Share partition is fenced: {self}")
        if self.state is not SharePartitionState.ACTIVE:
            raise KafkaError.of(KafkaError.code, f"Share partition failed to load: {self}")

    def move_start(self, log_start_offset: int) -> None:
        """The log begins later now: what is below is gone, acquired or not."""
        if log_start_offset <= self.start_offset:
            return
        self.start_offset = log_start_offset
        self._advance_start()
        # The end follows when what is being stored is stored.
        assert log_start_offset <= self.start_offset, (str(self), self.start_offset)

    # -- locks --------------------------------------------------------------------------------------------------------

    def _arm(self, due: float) -> None:
        """Have locks looked at when `due` has come; a timer that goes off earlier arms itself anew."""
        if self._timer_due is None or due < self._timer_due:
            self._timer_due = due
            delay = max(0.0, due - self._context.clock.monotonic())
            self._context.call_later(delay, lambda: self._on_timer(due))

    def _on_timer(self, due: float) -> None:
        if self._timer_due != due:
            return
        self._timer_due = None
        if self.state is SharePartitionState.ACTIVE:
            self.expire_locks()

    def expire_locks(self) -> None:
        """Release the records whose lock has timed out."""
        now = self._context.clock.monotonic() + 0.0005  # A loop may wake a timer a tick early.
        limit_ = self._context.settings().delivery_count_limit
        expired = [run for run in self.in_flight if run.is_acquired and run.lock_expires <= now]
        for run in expired:
            run.settle(settled_state(RecordState.AVAILABLE, run.delivery_count, limit_))
        held = [run.lock_expires for run in self.in_flight if run.is_acquired]
        assert all(due > now for due in held), f"{self}: locks that have timed out and are held"
        if held:
            self._arm(min(held))
        if expired:
            self._look_for_available = True
            self._store(_Change(_batches(expired), (), _unheard))
            self._advance_start()
            self._context.woken(self)

    # -- storing ------------------------------------------------------------------------------------------------------

    def _change(self, runs: Sequence[Run], settled: Settled) -> None:
        if runs:
            self._store(_Change(_batches(runs), runs, settled))
        else:
            settled(None)

    def _store(self, change: _Change) -> None:
        self._changes.append(change)
        if not self._writing:
            self._write()
        if CHECKED:
            assert self._writing or not self._changes, f"{self}: changes that are not stored"

    def _write(self) -> None:
        assert not self._writing, f"{self}: two writes at a time"
        changes, self._changes = self._changes, []
        self._writing = True
        self._context.persister.write_state(self.key, self._update(changes), lambda error: self._stored(changes, error))

    def _update(self, changes: Iterable[_Change]) -> StateUpdate:
        """The update to store.  It has the changes of every run that waits to be stored, so the start offset may count
        all of them."""
        unsettled = self.in_flight.first_unsettled()
        if unsettled is not None:
            start = max(self.start_offset, unsettled.first)
        else:
            start = self.end_offset + 1 if self.in_flight else self.start_offset
        complete = sum(
            run.last - max(run.first, start) + 1
            for run in self.in_flight
            if run.state in TERMINAL and run.last >= start
        )
        batches = combine((batch for change in changes for batch in change.batches), start)
        assert start >= self.start_offset and complete >= 0, (str(self), start, complete)
        return StateUpdate(self.state_epoch, self.leader_epoch, start, complete, batches)

    def _stored(self, changes: Sequence[_Change], error: KafkaError | None) -> None:
        assert self._writing, f"{self}: a write that was not begun"
        self._writing = False
        refusal = None if error is None else client_error(error)
        for change in changes:
            for run in change.runs:
                if refusal is None:
                    run.commit()
                else:
                    run.roll_back()
        self._look_for_available = True
        if refusal is not None:
            logger.warning("the state of %s cannot be stored: %s", self, refusal)
            held = [run.lock_expires for run in self.in_flight if run.is_acquired]
            if held:
                self._arm(min(held))
        self._advance_start()
        if error is not None and is_fencing(error):
            self._context.fenced(self, refusal or error)
        elif self._changes:
            self._write()
        for change in changes:
            change.settled(refusal)
        self._context.woken(self)

    def _advance_start(self) -> None:
        """Forget what has come to its end in front, and what the log has lost."""
        waiting = next((run for run in self.in_flight if run.before is not None or run.state not in TERMINAL), None)
        if waiting is not None:
            self.start_offset = max(self.start_offset, waiting.first)
        elif self.in_flight:
            self.start_offset = max(self.start_offset, self.end_offset + 1)
        self.in_flight.drop_below(self.start_offset)
        if not self.in_flight:
            self.end_offset = self.start_offset
        else:
            self.in_flight.join_ends()
        if CHECKED:
            self.check_invariants()

    def check_invariants(self) -> None:
        """Raises AssertionError unless runs, bounds and what is being stored fit each other."""
        runs = self.in_flight.runs
        assert all(one.last < other.first for one, other in pairwise(runs)), (str(self), runs)
        assert all(run.first <= run.last for run in runs), (str(self), runs)
        assert all(run.is_acquired == bool(run.member_id) for run in runs if run.before is None), (str(self), runs)
        if runs:
            assert runs[-1].last <= self.end_offset, (str(self), self.end_offset, runs[-1])
        else:
            assert self.end_offset == self.start_offset, (str(self), self.start_offset, self.end_offset)


def _batches(runs: Iterable[Run]) -> list[StateBatch]:
    return [StateBatch(run.first, run.last, int(run.state), run.delivery_count) for run in runs]


def _unheard(_error: KafkaError | None) -> None:
    """The result for a timed-out lock, which is ignored: the lock has been released whether or not that is stored."""


def is_fencing(error: KafkaError) -> bool:
    """Whether the state belongs to another leader or another life of the group or topic now."""
    return error.code.name in (
        "FENCED_STATE_EPOCH",
        "FENCED_LEADER_EPOCH",
        "GROUP_ID_NOT_FOUND",
        "UNKNOWN_TOPIC_OR_PARTITION",
    )


_NOT_WRITTEN = frozenset(
    {
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)


def client_error(error: KafkaError) -> KafkaError:
    """The client's error for one of the persister, as in Kafka.

    An error of the coordinator's own write is not passed on: the client gets COORDINATOR_NOT_AVAILABLE, and tries
    again."""
    if error.code in _NOT_WRITTEN or isinstance(error, NotCoordinatorError | CoordinatorLoadInProgressError):
        return CoordinatorNotAvailableError(error.message)
    if isinstance(error, FencedLeaderEpochError):
        return NotLeaderOrFollowerError(error.message)
    known = isinstance(error, CoordinatorNotAvailableError | NotLeaderOrFollowerError) or is_fencing(error)
    return error if known else KafkaError()
