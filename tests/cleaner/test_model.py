"""Random writes, deletions, transactions, rolls, time, cleans and restarts against what a reader must be able to see.

`latest` is the table that a read-committed reader from the start ends up with.  Whatever is compacted, it never
changes; offsets keep their records; a tombstone is visible for delete.retention.ms at least after it was compacted.

Also of `kbroker.storage.cleaner.cleaner_legacy`, `kbroker.storage.cleaner.cleaner_transactions`,
`kbroker._fast.clean.clean_output`, `kbroker._fast.clean.clean_passes`, `kbroker._fast.clean.clean_write`.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from kbroker._fast.records.record_batch import BatchInfo, iterate_batches, validate_crc
from kbroker.records.batch import Record, iterate_records
from kbroker.records.compression import Codec
from kbroker.records.control import ControlType, read_end_transaction
from kbroker.storage.log.log_values import AppendOrigin, FetchIsolation
from kbroker.storage.log.txn_index import AbortedTransaction
from kbroker.storage.log.unified_log import UnifiedLog
from tests.cleaner.logs import Pair, clean, cleaner, config, pairs_batch
from tests.storage.batches import START_MS, HandClock, append, environment, marker, open_log

MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
HOUR_MS = 3_600_000

KEYS = st.sampled_from(
    [b"a", b"b", b"c", b"d", b"e", b"a key of more than fifty-five bytes, so that MD5 needs two blocks"]
)
VALUES = st.one_of(st.none(), st.binary(max_size=30))
PAIRS = st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=6)
CODECS = st.sampled_from([Codec.NONE, Codec.NONE, Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])


def batches_of(log: UnifiedLog) -> list[tuple[BatchInfo, list[Record], bytes]]:
    """Every batch of the log with its records, checksums verified."""
    found = []
    for segment in log.local.segments:
        data = Path(segment.path).read_bytes()[: segment.size]
        end = 0
        for info in iterate_batches(data):
            validate_crc(data, info)
            found.append(
                (info, list(iterate_records(data, info)), data[info.position : info.position + info.size_in_bytes])
            )
            end = info.position + info.size_in_bytes
        assert end == segment.size, "bytes after the last batch"
    return found


class CompactionModel(RuleBasedStateMachine):
    """One compacted log."""

    log: UnifiedLog
    held: list[tuple[BatchInfo, list[Record], bytes]]

    @initialize(
        segment=st.sampled_from([900, 1500, 4000]),
        merged=st.sampled_from([1000, 6000]),
        map_keys=st.sampled_from([2, 3, 100]),
        buffer_bytes=st.sampled_from([1024, 8192]),
    )
    def open(self, segment: int, merged: int, map_keys: int, buffer_bytes: int) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="kbroker-compaction-", dir=MEMORY))
        self.clock = HandClock()
        self.environment = environment(clock=self.clock)
        self.environment.producer_expiration_ms = 1 << 50
        self.config = config(internal_segment_bytes=segment, segment_bytes=merged, delete_retention_ms=HOUR_MS)
        self.log = open_log(self.directory, self.config, env=self.environment)
        # A map of two or three keys takes several rounds.
        self.worker = cleaner(map_bytes=24 * 100 if map_keys == 100 else 24 * (map_keys + 2), buffer_bytes=buffer_bytes)
        self.checkpoint: int | None = None
        self.written: dict[int, Pair] = {}
        self.decided: dict[bytes, tuple[int, bytes | None]] = {}
        self.pending: dict[int, list[int]] = {}
        self.sequences: dict[int, int] = {}
        self.last_data_offset: dict[int, int] = {}
        self.aborted: set[int] = set()
        self.tombstone_seen: dict[int, int] = {}

    def teardown(self) -> None:
        if hasattr(self, "directory"):
            self.log.close(clean=False)
            shutil.rmtree(self.directory)

    def note(self, first: int, pairs: list[Pair], *, decided: bool) -> None:
        for at, (key, value) in enumerate(pairs):
            assert key is not None
            self.written[first + at] = (key, value)
            if decided:
                self.decided[key] = (first + at, value)

    @rule(pairs=PAIRS, codec=CODECS)
    def write(self, pairs: list[Pair], codec: Codec) -> None:
        result = append(self.log, pairs_batch(pairs, codec=codec, timestamp=self.clock.now))
        self.note(result.first_offset, pairs, decided=True)

    @rule(pairs=PAIRS, codec=CODECS, producer=st.integers(1, 3), transactional=st.booleans())
    def write_as_producer(self, pairs: list[Pair], codec: Codec, producer: int, transactional: bool) -> None:
        if producer in self.pending and not transactional:
            return
        identity = producer if transactional else producer + 10
        sequence = self.sequences.get(identity, 0)
        data = pairs_batch(
            pairs,
            codec=codec,
            timestamp=self.clock.now,
            producer_id=identity,
            epoch=0,
            sequence=sequence,
            transactional=transactional,
        )
        result = append(self.log, data)
        self.sequences[identity] = sequence + len(pairs)
        self.last_data_offset[identity] = result.last_offset
        self.note(result.first_offset, pairs, decided=not transactional)
        if transactional:
            self.pending.setdefault(producer, []).extend(range(result.first_offset, result.last_offset + 1))

    @rule(producer=st.integers(1, 3), abort=st.booleans())
    def end_transaction(self, producer: int, abort: bool) -> None:
        offsets = self.pending.pop(producer, None)
        if offsets is None:
            return
        append(self.log, marker(producer, 0, abort=abort), origin=AppendOrigin.COORDINATOR)
        if abort:
            self.aborted.update(offsets)
            return
        for offset in offsets:
            key, value = self.written[offset]
            assert key is not None
            if self.decided.get(key, (-1, None))[0] < offset:
                self.decided[key] = (offset, value)

    @rule()
    def roll(self) -> None:
        if self.log.local.segments.active.size:
            self.log.roll()

    @rule(hours=st.integers(1, 3))
    def pass_time(self, hours: int) -> None:
        self.clock.now += hours * HOUR_MS // 2

    @rule()
    def compact(self) -> None:
        before = self.offsets_held()
        summary = clean(self.log, self.checkpoint, now_ms=self.clock.now, worker=self.worker)
        if summary is None:
            return
        assert summary.end_offset > (self.checkpoint or 0)
        self.checkpoint = summary.end_offset
        after = self.offsets_held()
        assert after <= before, "a record came back"
        self.check_tombstones(before, after)

    def check_tombstones(self, before: set[int], after: set[int]) -> None:
        """The last word on a key goes only after it could be read for delete.retention.ms."""
        for offset in before:
            key, value = self.written[offset]
            assert key is not None
            if value is not None or offset in self.aborted or self.decided.get(key) != (offset, None):
                continue
            if offset in after:
                self.tombstone_seen.setdefault(offset, self.clock.now)
            else:
                assert self.clock.now >= self.tombstone_seen[offset] + HOUR_MS, "a tombstone went too early"

    @rule(clean_stop=st.booleans())
    def restart(self, clean_stop: bool) -> None:
        start, point = self.log.log_start_offset, 0 if not clean_stop else self.log.recovery_point
        self.log.close(clean=clean_stop)
        self.log = open_log(
            self.directory, self.config, clean=clean_stop, recovery_point=point, log_start_offset=start,
            env=self.environment,
        )  # fmt: skip

    def offsets_held(self) -> set[int]:
        return {record.offset for info, records, _ in batches_of(self.log) if not info.is_control for record in records}

    @invariant()
    def readers_find_what_they_must(self) -> None:
        if hasattr(self, "log"):
            self.held = batches_of(self.log)
            self.records_keep_their_offsets_and_contents()
            self.a_committed_reader_sees_the_latest_of_each_key()

    def records_keep_their_offsets_and_contents(self) -> None:
        last = -1
        for info, records, _ in self.held:
            assert info.base_offset > last
            last = info.last_offset
            if info.is_control:
                continue
            for record in records:
                assert info.base_offset <= record.offset <= info.last_offset
                assert self.written[record.offset] == (record.key, record.value)
                assert START_MS <= record.timestamp <= self.clock.now + 6
        assert last < self.log.log_end_offset

    def a_committed_reader_sees_the_latest_of_each_key(self) -> None:
        aborted: set[int] = set()
        waiting: list[AbortedTransaction] = []
        stable = self.log.last_stable_offset
        fetched = self.log.read(self.log.log_start_offset, 1 << 30, FetchIsolation.TXN_COMMITTED, True)
        if fetched.aborted_transactions:
            waiting = sorted(fetched.aborted_transactions, key=lambda entry: entry.first_offset)
        waiting = sorted(
            {entry for segment in self.log.local.segments for entry in segment.txn_index.entries} | set(waiting),
            key=lambda entry: entry.first_offset,
        )
        table: dict[bytes, tuple[int, bytes]] = {}
        for info, records, data in self.held:
            if info.base_offset >= stable:
                break
            while waiting and waiting[0].first_offset <= info.last_offset:
                aborted.add(waiting.pop(0).producer_id)
            if info.is_control:
                found = read_end_transaction(data) if records else None
                if found is not None and found.control_type is ControlType.ABORT:
                    aborted.discard(info.producer_id)
                continue
            if info.is_transactional and info.producer_id in aborted:
                continue
            for record in records:
                assert record.key is not None
                assert record.offset not in self.aborted, "an aborted record is shown to readers"
                if record.value is None:
                    table.pop(record.key, None)
                else:
                    table[record.key] = (record.offset, record.value)
        expected = {}
        for key, (offset, value) in self.decided.items():
            if offset < stable and value is not None:
                expected[key] = (offset, value)
        later = {key for key, (offset, _) in self.decided.items() if offset >= stable}
        for key in table.keys() | expected.keys():
            if key not in later:
                assert table.get(key) == expected.get(key), key

    @invariant()
    def producers_go_on_where_they_ended(self) -> None:
        if not hasattr(self, "log"):
            return
        for producer, offset in self.last_data_offset.items():
            entry = self.log.producer_state.producers[producer]
            assert entry.last_offset == offset
            assert entry.last_sequence == self.sequences[producer] - 1

    @invariant()
    def indexes_lead_to_batches(self) -> None:
        if not hasattr(self, "log"):
            return
        for segment in self.log.local.segments:
            for slot in range(segment.offset_index.table.entries):
                offset, position = segment.offset_index._get(slot)
                place = segment.locate(offset)
                assert place is not None and place.position == position
        self.log.check_invariants()


CHECKS = [HealthCheck.too_slow, HealthCheck.data_too_large]


def test_random_operations() -> None:
    """A rare order of writes, cleans and restarts would lose or bring back a record."""
    run_state_machine_as_test(
        CompactionModel,
        settings=settings(max_examples=60, stateful_step_count=35, deadline=None, suppress_health_check=CHECKS),
    )


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_many_random_operations() -> None:
    """The same, as long as a nightly run may take."""
    run_state_machine_as_test(
        CompactionModel,
        settings=settings(max_examples=400, stateful_step_count=60, deadline=None, suppress_health_check=CHECKS),
    )
