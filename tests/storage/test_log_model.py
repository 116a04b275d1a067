"""Random operations on a log against a plain list of records, reproducible and shrinking on failure.

Also of `kbroker.storage.log.log_lookup`, `kbroker.storage.log.log_segments`, `kbroker.storage.log.log_view`,
`kbroker.storage.log.segment_search`, `kbroker.storage.log.segment_batches`, `kbroker.storage.log.time_search`.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kbroker.config import LogConfig
from kbroker.errors import OffsetOutOfRangeError
from kbroker.storage.log.log_values import AppendOrigin, FetchIsolation
from kbroker.storage.log.unified_log import UnifiedLog
from tests.storage.batches import (
    START_MS,
    append,
    batch,
    environment,
    headers,
    marker,
    open_log,
    read_all,
    region_bytes,
)

# Memory where there is some: the test is about bytes, not about a disk.
FAST_DIRECTORY = "/dev/shm" if Path("/dev/shm").is_dir() else None

PRODUCERS = st.integers(1, 3)


class LogModel(RuleBasedStateMachine):
    """`records` is what the log must hold: (offset, value), None for a transaction's marker."""

    log: UnifiedLog

    @initialize(segment=st.sampled_from([400, 700, 5000]), interval=st.sampled_from([0, 100, 4096]))
    def open(self, segment: int, interval: int) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="kbroker-model-", dir=FAST_DIRECTORY))
        self.config = LogConfig(internal_segment_bytes=segment, index_interval_bytes=interval)
        self.records: list[tuple[int, bytes | None]] = []
        self.start = self.end = self.flushed = self.count = 0
        self.sequences: dict[int, int] = {}
        self.open_transactions: dict[int, int] = {}
        self.environment = environment()
        self.log = self.opened(clean=False, recovery_point=0)

    def opened(self, *, clean: bool, recovery_point: int) -> UnifiedLog:
        return open_log(
            self.directory,
            self.config,
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=self.start,
            env=self.environment,
        )

    def teardown(self) -> None:
        if hasattr(self, "directory"):
            self.log.close(clean=False)
            shutil.rmtree(self.directory)

    def values(self, count: int) -> list[bytes]:
        self.count += count
        return [b"%d" % (self.count - count + i) for i in range(count)]

    def appended(self, values: list[bytes]) -> None:
        self.records += [(self.end + i, value) for i, value in enumerate(values)]
        self.end += len(values)

    @rule(count=st.integers(1, 5), epoch_step=st.integers(0, 1))
    def append_plain(self, count: int, epoch_step: int) -> None:
        values = self.values(count)
        epoch = max(self.log.latest_epoch, 0) + epoch_step
        result = append(self.log, batch(values, timestamp=START_MS + self.count), leader_epoch=epoch)
        assert (result.first_offset, result.last_offset) == (self.end, self.end + count - 1)
        self.appended(values)

    @rule(producer=PRODUCERS, count=st.integers(1, 3), transactional=st.booleans())
    def append_idempotent(self, producer: int, count: int, transactional: bool) -> None:
        transactional = transactional or producer in self.open_transactions
        values = self.values(count)
        sequence = self.sequences.get(producer, 0)
        data = batch(values, producer_id=producer, epoch=0, sequence=sequence, transactional=transactional)
        again = bytearray(data)
        first = append(self.log, data, leader_epoch=self.log.latest_epoch)
        retried = append(self.log, again, leader_epoch=self.log.latest_epoch)
        assert retried.duplicate
        assert retried.first_offset == first.first_offset == self.end
        if transactional:
            self.open_transactions.setdefault(producer, self.end)
        self.sequences[producer] = sequence + count
        self.appended(values)

    @rule(abort=st.booleans())
    def end_transaction(self, abort: bool) -> None:
        for producer in sorted(self.open_transactions)[:1]:
            del self.open_transactions[producer]
            append(self.log, marker(producer, 0, abort=abort), origin=AppendOrigin.COORDINATOR)
            self.records.append((self.end, None))
            self.end += 1

    @rule()
    def roll(self) -> None:
        self.log.roll()
        self.flushed = max(self.flushed, self.log.recovery_point)

    @rule()
    def flush(self) -> None:
        self.log.flush()
        self.flushed = self.end

    @rule(back=st.integers(0, 12))
    def truncate(self, back: int) -> None:
        target = max(self.start, self.end - back)
        # Batches go whole: the log ends where the batch that held the offset began.
        if target < self.end:
            place = self.log.read(target, 1, FetchIsolation.LOG_END, True)
            target = max(headers(region_bytes(place))[0].base_offset, self.start)
        self.log.truncate_to(target)
        self.records = [record for record in self.records if record[0] < target]
        self.end = target
        self.flushed = min(self.flushed, target)
        self.forget_producers()

    @rule(forward=st.integers(0, 10))
    def delete_records(self, forward: int) -> None:
        self.start = min(self.start + forward, self.log.last_stable_offset)
        self.log.delete_records_before(self.start)
        self.records = [record for record in self.records if record[0] >= self.start]

    @rule(clean=st.booleans())
    def reopen(self, clean: bool) -> None:
        self.log.close(clean=clean)
        self.log = self.opened(clean=clean, recovery_point=self.log.recovery_point)

    @rule(garbage=st.binary(min_size=1, max_size=200))
    def reopen_with_a_torn_tail(self, garbage: bytes) -> None:
        self.log.close(clean=False)
        with open(self.log.local.segments.active.path, "ab") as file:
            file.write(garbage)
        self.log = self.opened(clean=False, recovery_point=self.log.recovery_point)

    def forget_producers(self) -> None:
        """After a truncation the model takes producers as the log sees them; reads and bounds stay checked."""
        entries = self.log.producer_state.producers.values()
        self.sequences = {entry.producer_id: entry.next_sequence for entry in entries}
        self.open_transactions = {
            entry.producer_id: entry.current_txn_first_offset
            for entry in entries
            if entry.current_txn_first_offset >= 0
        }

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "log"):
            return
        log = self.log
        log.check_invariants()
        assert (log.log_start_offset, log.log_end_offset) == (self.start, self.end)
        found = read_all(log)
        assert [offset for offset, _ in found] == [offset for offset, _ in self.records]
        wrong = [
            (got, expected)
            for got, expected in zip(found, self.records, strict=True)
            if expected[1] is not None and got != expected
        ]
        assert not wrong
        assert log.last_stable_offset == max(self.start, min([*self.open_transactions.values(), self.end]))
        try:
            log.read(self.end + 1, 10, FetchIsolation.LOG_END, True)
        except OffsetOutOfRangeError:
            return
        raise AssertionError("an offset past the end was read")


TestLogModel = LogModel.TestCase
TestLogModel.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
