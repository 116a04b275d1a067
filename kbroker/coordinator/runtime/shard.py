"""One partition of a topic that holds a coordinator's state: append to it, and rebuild the state from it.

    Unloaded -> Loading          this broker became the leader
    Loading  -> Active           the partition was read to its end
    Loading  -> Failed -> Loading reading failed; it is tried again later
    any      -> Unloaded         another broker leads, or the log directory has failed: NOT_COORDINATOR
    any      -> Closed           the broker stops: COORDINATOR_NOT_AVAILABLE

What the records mean is the state's business (`CoordinatorState`).  A state object lives from one load to the unload
that follows; the next load makes a new one.

Writes: `append` makes the records durable as one batch or raises; the state changes only after that, so it never runs
ahead of the log.  Reads: in chunks, in slices of the loop's time.
Loading ends at the log end offset at its start: nothing appends to a partition while it loads.  Records that only
replace the one of the same key (types up to `last_superseding_type`, outside of transactions) are gathered, and only
the newest of each key is replayed, before the next record of another type.  That saves most of the work for a log of
commits that was not compacted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from kbroker._fast.base.build_facts import CHECKED
from kbroker._fast.records.record_batch import BATCH_OVERHEAD, MAGIC_V2, BatchError, BatchInfo
from kbroker._fast.records.record_codec import gather_newest
from kbroker.clock import Clock
from kbroker.coordinator.runtime.plan import NO_TRANSACTION, CommitPoint, KeyValue, TransactionalProducer
from kbroker.coordinator.runtime.timers import Timers
from kbroker.errors import CoordinatorLoadInProgressError, CoordinatorNotAvailableError, KafkaError, NotCoordinatorError
from kbroker.outage import Outage
from kbroker.records.batch import RecordBatchBuilder
from kbroker.records.compression import Codec, CompressionError
from kbroker.records.control import ControlType, read_end_transaction
from kbroker.records.legacy import iterate_stored_batches, iterate_stored_records
from kbroker.types import NO_LEADER_EPOCH, NO_PRODUCER_ID, LeaderEpoch, Offset
from kbroker.waiting import CallLater

if TYPE_CHECKING:
    from kbroker._fast.base.slices import Pace, Slices, Turn

logger = logging.getLogger("kbroker.coordinator")

RETRY_SECONDS = 30.0
_RECORDS_BETWEEN_CLOCKS = 64
# Records that are held back while loading: some 40 MB.
_MOST_GATHERED = 1 << 18
# Tombstones of one deletion may need several batches; the state is valid after each of them.
MAX_BATCH_BYTES = 512 * 1024


class StateLog(CommitPoint, Protocol):
    """Where shards are stored: the partitions of one internal topic."""

    def max_batch_bytes(self) -> int:
        """How large a batch may be."""

    def append(self, partition_index: int, batch: bytearray) -> Offset:
        """Append one batch; the offset of its last record.  Raises KafkaError, and nothing is appended then."""

    def read(self, partition_index: int, offset: Offset, max_bytes: int) -> bytes:
        """Whole batches from the one that holds `offset` on, at least one; empty at the end."""

    def bounds(self, partition_index: int) -> tuple[Offset, Offset]:
        """First offset and end offset."""

    def leads(self, partition_index: int) -> bool:
        """Whether this broker's replica has become the leader, which may happen after the metadata name it."""

    def on_leadership(self, changed: Callable[[int], None]) -> None:
        """Have `changed(partition_index)` called when this broker's replica becomes the leader or ceases to be."""


class CoordinatorState(Protocol):
    """The state of one partition, a function of its records alone.  `replay` is called for each record of the log while
    loading, and for each record of a plan after the append."""

    def replay(self, key: bytes | None, value: bytes | None, producer_id: int) -> None:
        """Apply a record; `producer_id` is -1 unless a transaction wrote it, which may not have ended yet.  A record
        that cannot be read is skipped with a line in the log: this must not raise."""

    def replay_end_transaction(self, producer_id: int, committed: bool) -> None:
        """The transaction of `producer_id` ended."""

    def loaded(self, record_count: int, seconds: float) -> None:
        """All records were replayed; requests are served from now on.  Sessions and other timers begin here."""

    def unloaded(self) -> None:
        """The partition is no longer served; timers are cancelled by then.  Answers parked requests with
        NOT_COORDINATOR, in another turn of the loop.  Also called when loading is given up half-way."""


class ShardState(Enum):
    """See the module's docstring."""

    UNLOADED = "Unloaded"
    LOADING = "Loading"
    ACTIVE = "Active"
    FAILED = "Failed"
    CLOSED = "Closed"


S = TypeVar("S", bound=CoordinatorState)


class Shard(Generic[S]):
    """One partition's worth of state, changed by its runtime alone.  `build(shard)` makes the state object, before each
    load."""

    __slots__ = (
        "coordinator",
        "index",
        "leader_epoch",
        "load_seconds",
        "record_count",
        "state",
        "timers",
        "_build",
        "_buffer_bytes",
        "_call_later",
        "_last_superseding_type",
        "_clock",
        "_compression",
        "_log",
        "_outage",
        "_slices",
        "_started",
        "_steps",
        "_timer",
    )

    def __init__(
        self,
        index: int,
        log: StateLog,
        build: Callable[[Shard[S]], S],
        clock: Clock,
        call_later: CallLater,
        slices: Slices,
        buffer_bytes: int,
        compression: int = Codec.NONE,
        last_superseding_type: int = -1,
    ) -> None:
        self.index = index
        self.state = ShardState.UNLOADED
        self.coordinator: S | None = None
        self.leader_epoch = NO_LEADER_EPOCH
        self.record_count = 0
        self.load_seconds = 0.0
        self.timers = Timers(clock, call_later)
        self._log = log
        self._build = build
        self._clock = clock
        self._call_later = call_later
        self._slices = slices
        self._buffer_bytes = buffer_bytes
        self._compression = compression
        self._last_superseding_type = last_superseding_type
        self._started = 0.0
        self._steps: Iterator[None] = iter(())
        self._timer: asyncio.TimerHandle | Turn | None = None
        self._outage = Outage(logger, logging.ERROR, clock.monotonic)

    def check_active(self) -> None:
        """Raise the client's error while the shard cannot serve."""
        if self.state is ShardState.ACTIVE:
            return
        if self.state is ShardState.LOADING:
            raise CoordinatorLoadInProgressError()
        if self.state is ShardState.UNLOADED:
            raise NotCoordinatorError()
        raise CoordinatorNotAvailableError()

    def active(self) -> S:
        """The state, while the shard serves.  Raises what `check_active` does."""
        self.check_active()
        assert self.coordinator is not None
        return self.coordinator

    # Loading

    def lead(self, leader_epoch: int) -> None:
        """This broker leads the partition in `leader_epoch`: load it, unless it has been led all the while."""
        assert leader_epoch >= self.leader_epoch, (self.index, leader_epoch, self.leader_epoch)
        self.leader_epoch = LeaderEpoch(leader_epoch)
        if self.state not in (ShardState.LOADING, ShardState.ACTIVE):
            self.load()

    def load(self) -> None:
        """Begin to load; an empty partition is active at once."""
        self.unload()
        self.state = ShardState.LOADING
        self.coordinator = self._build(self)
        self.record_count = 0
        self._started = self._clock.monotonic()
        self._steps = self._replay_all(self.coordinator)
        self._run_slice(self._slices.pace())

    def unload(self, state: ShardState = ShardState.UNLOADED) -> None:
        """Stop loading and serving."""
        self.state = state
        self._steps = iter(())
        self.timers.cancel_all()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        coordinator, self.coordinator = self.coordinator, None
        assert not self.timers, f"{self.index}: timers of a state that is gone"
        if CHECKED:
            self.check_invariants()
        if coordinator is not None:
            coordinator.unloaded()

    def check_invariants(self) -> None:
        """Raises AssertionError unless there is a state exactly where one is being read or served."""
        has_state = self.state in (ShardState.LOADING, ShardState.ACTIVE)
        assert has_state == (self.coordinator is not None), (self.index, self.state)
        assert self.state is not ShardState.ACTIVE or self._timer is None, f"{self.index} is served and still loading"

    def _run_slice(self, pace: Pace) -> None:
        self._timer = None
        try:
            for _ in self._steps:
                if pace.due():
                    self._timer = pace.then(partial(self._run_slice, pace))
                    return
        except (KafkaError, BatchError, CompressionError, OSError) as error:
            self._outage.failed("partition %d of the state topic cannot be loaded: %s", self.index, error, error=error)
            self.unload(ShardState.FAILED)
            self._timer = self._call_later(RETRY_SECONDS, self.load)
            return
        self._outage.over("partition %d of the state topic is loaded", self.index)
        assert self.state is ShardState.LOADING and self.coordinator is not None, (self.index, self.state)
        self.state = ShardState.ACTIVE
        if CHECKED:
            self.check_invariants()
        if self.coordinator is not None:
            self.load_seconds = self._clock.monotonic() - self._started
            self.coordinator.loaded(self.record_count, self.load_seconds)

    def _replay_all(self, coordinator: S) -> Iterator[None]:
        """Replays everything; yields whenever it is a good moment to look at the clock."""
        offset, end = self._log.bounds(self.index)
        # What is superseded by a later record of the same key needs no replay.
        newest: dict[bytes, bytes | None] = {}
        while offset < end:
            chunk = self._log.read(self.index, offset, self._buffer_bytes)
            if not chunk:
                return
            first = offset
            for info in iterate_stored_batches(chunk):
                if info.last_offset < offset:
                    continue
                offset = info.last_offset + 1
                if self._gathered(chunk, info, newest):
                    self.record_count += info.records_count
                    yield
                    if len(newest) >= _MOST_GATHERED:
                        yield from _replay_newest(coordinator, newest)
                    continue
                yield from _replay_newest(coordinator, newest)
                if info.is_control:
                    marker = read_end_transaction(chunk, info)
                    if marker is not None:
                        committed = marker.control_type is ControlType.COMMIT
                        coordinator.replay_end_transaction(info.producer_id, committed)
                    continue
                producer_id = info.producer_id if info.is_transactional else NO_PRODUCER_ID
                for record in iterate_stored_records(chunk, info):
                    coordinator.replay(record.key, record.value, producer_id)
                    self.record_count += 1
                    if self.record_count % _RECORDS_BETWEEN_CLOCKS == 0:
                        yield
            if offset == first:
                break
            assert first < offset, (self.index, first, offset)
            yield
        yield from _replay_newest(coordinator, newest)

    def _gathered(self, chunk: bytes, info: BatchInfo, newest: dict[bytes, bytes | None]) -> bool:
        """Whether all records of a batch only supersede earlier ones of their keys, and were put into `newest`.  When
        False, some of them may be in `newest` nevertheless, which is harmless: the caller replays `newest` and then the
        whole batch."""
        if self._last_superseding_type < 0 or info.magic < MAGIC_V2 or info.compression:
            return False
        if info.is_control or info.is_transactional:
            return False
        records = memoryview(chunk)[info.position + BATCH_OVERHEAD : info.position + info.size_in_bytes]
        return gather_newest(records, newest, self._last_superseding_type)

    # Writing

    def append(self, records: Iterable[KeyValue], producer: TransactionalProducer = NO_TRANSACTION) -> None:
        """Make records durable, in order, as one batch.  Raises KafkaError, and none is written then."""
        now_ms = self._clock.now_ms()
        builder = self._builder(producer)
        for key, value in records:
            builder.append(key, value, now_ms)
        if builder.count:
            self._log.append(self.index, builder.build())

    def append_divided(
        self, records: Iterable[KeyValue], appended: Callable[[list[KeyValue]], None] | None = None
    ) -> None:
        """The same as one batch or several; `appended` is called with the records of each when it is durable."""
        now_ms = self._clock.now_ms()
        left = records if isinstance(records, list) else list(records)
        begin = 0
        while begin < len(left):
            builder = self._builder(NO_TRANSACTION)
            end = builder.extend(left, begin, now_ms, MAX_BATCH_BYTES)
            self._log.append(self.index, builder.build())
            if appended is not None:
                appended(left if end - begin == len(left) else left[begin:end])
            begin = end

    def _builder(self, producer: TransactionalProducer) -> RecordBatchBuilder:
        return RecordBatchBuilder(
            compression=self._compression,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            is_transactional=producer.producer_id != NO_PRODUCER_ID,
        )


def _replay_newest(coordinator: CoordinatorState, newest: dict[bytes, bytes | None]) -> Iterator[None]:
    """Replays what was gathered, and empties it."""
    for count, (key, value) in enumerate(newest.items()):
        coordinator.replay(key, value, NO_PRODUCER_ID)
        if count % _RECORDS_BETWEEN_CLOCKS == 0:
            yield
    newest.clear()
