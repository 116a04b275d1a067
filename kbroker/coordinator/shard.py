"""One partition of a topic that holds a coordinator's state: append to it, and rebuild the state from it.

    Loading -> Active            the partition was read to its end and handed to the replayer
    Loading -> Failed -> Loading reading failed; it is tried again later
    any     -> Closed            the partition is no longer ours
    any     -> Offline           its log directory has failed

What the records mean is the replayer's business, so groups and transactions share this class.

Writes: `append` makes the records durable as one batch or raises; the caller changes its state only after that, so the
state in memory never runs ahead of the log.  Reads: in chunks, a slice of at most `SLICE_SECONDS` at a time, with the
loop's other work in between.  Loading ends at the log's end of the moment: nobody appends to a partition that loads.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Protocol

from kbroker._fast.records.record_batch import BatchError
from kbroker.clock import Clock
from kbroker.coordinator.timers import CallLater, TimerHandle
from kbroker.errors import CoordinatorLoadInProgressError, CoordinatorNotAvailableError, KafkaError, NotCoordinatorError
from kbroker.records.batch import RecordBatchBuilder
from kbroker.records.compression import Codec, CompressionError
from kbroker.records.control import ControlType, read_end_transaction
from kbroker.records.legacy import iterate_stored_batches, iterate_stored_records

logger = logging.getLogger("kbroker.coordinator")

SLICE_SECONDS = 0.01
RETRY_SECONDS = 30.0
_RECORDS_BETWEEN_CLOCKS = 64
# Tombstones of one deletion may outgrow a batch; each of these batches is safe to stop after.
MAX_BATCH_BYTES = 512 * 1024

KeyValue = tuple[bytes, bytes | None]


class StateLog(Protocol):
    """Where shards are stored: the partitions of one internal topic."""

    def max_batch_bytes(self) -> int:
        """How large a batch may be."""

    def append(self, partition_index: int, batch: bytearray) -> int:
        """Append one batch; the offset of its last record, once it is committed.  Raises KafkaError."""

    def read(self, partition_index: int, offset: int, max_bytes: int) -> bytes:
        """Whole batches from the one that holds `offset` on, at least one; empty at the end."""

    def bounds(self, partition_index: int) -> tuple[int, int]:
        """First offset and end offset."""


class Replayer(Protocol):
    """Turns records back into state."""

    def replay(self, shard: Shard, key: bytes | None, value: bytes | None, producer_id: int) -> None:
        """Apply a record; `producer_id` is -1 unless a transaction wrote it, which may not have ended yet."""

    def replay_end(self, shard: Shard, producer_id: int, committed: bool) -> None:
        """The transaction of `producer_id` ended."""

    def loaded(self, shard: Shard, record_count: int, seconds: float) -> None:
        """The shard is complete and about to serve."""


class ShardState(Enum):
    """See the module's docstring."""

    LOADING = "Loading"
    ACTIVE = "Active"
    FAILED = "Failed"
    CLOSED = "Closed"
    OFFLINE = "Offline"


class Shard:
    """One partition's worth of state."""

    __slots__ = (
        "index",
        "record_count",
        "state",
        "_buffer_bytes",
        "_call_later",
        "_clock",
        "_compression",
        "_log",
        "_replayer",
        "_started",
        "_steps",
        "_timer",
    )

    def __init__(
        self,
        index: int,
        log: StateLog,
        replayer: Replayer,
        clock: Clock,
        call_later: CallLater,
        buffer_bytes: int,
        compression: int = Codec.NONE,
    ) -> None:
        self.index = index
        self.state = ShardState.LOADING
        self.record_count = 0
        self._log = log
        self._replayer = replayer
        self._clock = clock
        self._call_later = call_later
        self._buffer_bytes = buffer_bytes
        self._compression = compression
        self._started = 0.0
        self._steps: Iterator[None] = iter(())
        self._timer: TimerHandle | None = None

    def check_active(self) -> None:
        """Raise what a client is told while the shard cannot serve."""
        if self.state is ShardState.LOADING:
            raise CoordinatorLoadInProgressError()
        if self.state is ShardState.OFFLINE:
            raise NotCoordinatorError()
        if self.state is not ShardState.ACTIVE:
            raise CoordinatorNotAvailableError()

    # Loading

    def load(self) -> None:
        """Begin to load; an empty partition is active at once."""
        self.state = ShardState.LOADING
        self.record_count = 0
        self._started = self._clock.monotonic()
        self._steps = self._replay_all()
        self._run_slice()

    def close(self, state: ShardState = ShardState.CLOSED) -> None:
        """Stop loading and serving."""
        self.state = state
        self._steps = iter(())
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _run_slice(self) -> None:
        self._timer = None
        end = self._clock.monotonic() + SLICE_SECONDS
        try:
            for _ in self._steps:
                if self._clock.monotonic() >= end:
                    self._timer = self._call_later(0.0, self._run_slice)
                    return
        except (KafkaError, BatchError, CompressionError, OSError) as error:
            self.state = ShardState.FAILED
            logger.exception("partition %d of the state topic cannot be loaded: %s", self.index, error)
            self._timer = self._call_later(RETRY_SECONDS, self.load)
            return
        self._replayer.loaded(self, self.record_count, self._clock.monotonic() - self._started)
        self.state = ShardState.ACTIVE

    def _replay_all(self) -> Iterator[None]:
        """Replays everything; yields whenever it is a good moment to look at the clock."""
        offset, end = self._log.bounds(self.index)
        while offset < end:
            chunk = self._log.read(self.index, offset, self._buffer_bytes)
            if not chunk:
                return
            first = offset
            for info in iterate_stored_batches(chunk):
                if info.last_offset < offset:
                    continue
                offset = info.last_offset + 1
                if info.is_control:
                    marker = read_end_transaction(chunk, info)
                    if marker is not None:
                        committed = marker.control_type is ControlType.COMMIT
                        self._replayer.replay_end(self, info.producer_id, committed)
                    continue
                producer_id = info.producer_id if info.is_transactional else -1
                for record in iterate_stored_records(chunk, info):
                    self._replayer.replay(self, record.key, record.value, producer_id)
                    self.record_count += 1
                    if self.record_count % _RECORDS_BETWEEN_CLOCKS == 0:
                        yield
            if offset == first:
                return
            yield

    # Writing

    def append(self, records: Iterable[KeyValue]) -> None:
        """Make records durable, in order; one batch unless they are more than a batch should hold."""
        now_ms = self._clock.now_ms()
        builder = RecordBatchBuilder(compression=self._compression)
        for key, value in records:
            builder.append(key, value, now_ms)
            if builder.size_bytes >= MAX_BATCH_BYTES:
                self._log.append(self.index, builder.build())
                builder = RecordBatchBuilder(compression=self._compression)
        if builder.count:
            self._log.append(self.index, builder.build())
