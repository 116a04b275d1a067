"""Appends and reads of the fast path do what the general ones do, byte for byte, or leave it to them.

Also of `kbroker._fast.log.append_group`, `kbroker._fast.log.fast_append`, `kbroker._fast.requests.partition_read`.
"""

from __future__ import annotations

import os
import tempfile
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker.config import LogConfig
from kbroker.errors import KafkaError
from kbroker.records.batch import RecordBatchBuilder
from kbroker.records.codec_libraries import native_codecs_loaded
from kbroker.records.compression import Codec
from kbroker.storage.files.filesystem import SYSTEM_FILES, Buffer, FileSystem
from kbroker.storage.log.log_validator import AppendOrigin
from kbroker.storage.log.log_values import FetchIsolation
from kbroker.storage.log.unified_log import UnifiedLog
from tests.extensions.append_groups import append_batch, append_together
from tests.handlers.fast_reads import FastReader
from tests.handlers.frames import plain
from tests.storage.batches import START_MS, append, batch, environment, marker, open_log, read_all
from tests.storage.failing_writes import failing_writes

native_codecs_loaded()

CONFIGS = [
    LogConfig(),
    LogConfig(segment_bytes=1200, index_interval_bytes=100),
    LogConfig(segment_index_bytes=48, index_interval_bytes=50),
    LogConfig(cleanup_policy=frozenset({"compact"}), segment_ms=2_000),
    LogConfig(message_timestamp_type="LogAppendTime"),
    LogConfig(compression_type="lz4"),
    LogConfig(compression_type="uncompressed"),
    LogConfig(max_message_bytes=300, message_timestamp_before_max_ms=1_000, message_timestamp_after_max_ms=1_000),
]


@st.composite
def produced(draw: st.DrawFn) -> bytes:
    """A batch as a producer may send it: mostly plain, of each kind of oddity some."""
    producer = draw(st.sampled_from([-1, -1, -1, 7, 8]))
    builder = RecordBatchBuilder(
        compression=draw(st.sampled_from([0, 0, 0, 3, 4, *Codec])),
        producer_id=producer,
        producer_epoch=-1 if producer < 0 else draw(st.sampled_from([0, 0, 0, 1])),
        base_sequence=-1 if producer < 0 else draw(st.integers(0, 4)),
        is_transactional=producer == 8 and draw(st.booleans()),
    )
    time = START_MS + draw(st.sampled_from([0, 0, 1, 500, 5_000, -5_000]))
    for at in range(draw(st.integers(1, 3))):
        key = draw(st.sampled_from([b"k", b"key", None]))
        builder.append(key, draw(st.sampled_from([b"", None, b"v" * 20, b"v" * 200])), time + at)
    data = builder.build()
    damage = draw(st.sampled_from(["", "", "", "", "", "", "", "bit", "short", "long", "offset"]))
    if damage == "bit":
        data[draw(st.integers(0, len(data) - 1))] ^= 1 << draw(st.integers(0, 7))
    elif damage == "short":
        del data[draw(st.integers(0, len(data) - 1)) :]
    elif damage == "long":
        data += b"\0" * draw(st.integers(1, 70))
    elif damage == "offset":
        data[7] = 9
    return bytes(data)


def general(log: UnifiedLog, data: bytearray) -> Any:
    """What the handler does after a -1: base offset, or the error."""
    try:
        result = log.append_as_leader(data, 0, origin=AppendOrigin.CLIENT)
    except KafkaError as error:
        return error.code
    if not result.duplicate:
        log.maybe_increment_high_watermark(log.log_end_offset)
    return result.first_offset, result.log_append_time


def quick(log: UnifiedLog, data: bytearray, now_ms: int) -> Any:
    before = bytes(data)
    first = append_batch(log, memoryview(data), 0, now_ms, transactional=True)
    if first < 0:
        assert bytes(data) == before
        return general(log, data)
    log.maybe_increment_high_watermark(log.log_end_offset)
    return first, -1


def state(log: UnifiedLog) -> list[Any]:
    """Everything that an append changes, files included."""
    log.flush()
    tail = log.local.segments.active.tail
    assert tail is not None
    return [
        {path.name: path.read_bytes() for path in sorted(Path(log.directory).iterdir()) if path.suffix != ".tmp"},
        (log.log_start_offset, log.high_watermark, log.last_stable_offset, log.log_end_offset),
        (tail.size, tail.max_timestamp, tail.offset_of_max_timestamp, tail.bytes_since_index),
        sorted((each.producer_id, each.last_sequence, each.count) for each in log.producer_state.producers.values()),
    ]


class WriteCalls:
    """Write calls of this thread, counted by the system."""

    def __init__(self) -> None:
        self._before = self._count()

    def since(self) -> int:
        return self._count() - self._before

    def _count(self) -> int:
        return next(
            int(line.split()[1]) for line in Path("/proc/thread-self/io").read_text().splitlines() if "syscw" in line
        )


@settings(max_examples=150, deadline=None)
@given(config=st.sampled_from(CONFIGS), batches=st.lists(produced(), min_size=1, max_size=12))
def test_a_fast_append_leaves_what_the_general_one_leaves(config: LogConfig, batches: list[bytes]) -> None:
    """Records would be stored that a rule forbids, twice, at other offsets, or without their index entries."""
    with tempfile.TemporaryDirectory() as folder:
        env = [environment(SYSTEM_FILES), environment(SYSTEM_FILES)]
        logs = [open_log(Path(folder, name), config, env=each) for name, each in zip("ab", env, strict=True)]
        for data in batches:
            expected = general(logs[0], bytearray(data))
            assert quick(logs[1], bytearray(data), START_MS) == expected
        assert state(logs[1]) == state(logs[0])
        for log in logs:
            log.close()


@settings(max_examples=150, deadline=None)
@given(
    # An index that is full ends a group only behind it: the rest of the group has no entries.
    config=st.sampled_from([config for config in CONFIGS if config.segment_index_bytes > 48]),
    groups=st.lists(st.lists(produced(), min_size=1, max_size=8), min_size=1, max_size=5),
)
def test_a_group_leaves_what_its_batches_leave_one_by_one(config: LogConfig, groups: list[list[bytes]]) -> None:
    """Batches that came together would be stored at each other's offsets, twice, or without their index entries."""
    with tempfile.TemporaryDirectory() as folder:
        env = [environment(SYSTEM_FILES), environment(SYSTEM_FILES)]
        logs = [open_log(Path(folder, name), config, env=each) for name, each in zip("ab", env, strict=True)]
        for group in groups:
            buffers = [bytearray(data) for data in group]
            offsets = append_together(logs[0], buffers, 0, START_MS)
            logs[0].maybe_increment_high_watermark(logs[0].log_end_offset)
            for data, offset in zip(group, offsets, strict=True):
                if offset is not None:
                    assert general(logs[1], bytearray(data)) == (offset, -1)
            for data, buffer, offset in zip(group, buffers, offsets, strict=True):
                if offset is None:
                    assert bytes(buffer) == data
                    assert general(logs[0], buffer) == general(logs[1], bytearray(data))
        assert state(logs[0]) == state(logs[1])
        for log in logs:
            log.close()


def test_plain_batches_of_a_group_are_written_by_one_call(tmp_path: Path) -> None:
    """Requests that came together would each pay for a write of their own, unnoticed."""
    log = open_log(tmp_path, env=environment(SYSTEM_FILES))
    for _ in range(2):
        general(log, batch())
    group = [batch([b"x", b"y"]), batch(), batch([b"x"], producer_id=4, epoch=0, sequence=0)]
    # The same producer's next batch is judged when the one before it is counted in.
    group += [batch([b"x"], producer_id=4, epoch=0, sequence=1), batch(compression=Codec.LZ4)]
    group += [batch() for _ in range(40)]
    calls = WriteCalls()
    assert append_together(log, group, 0, START_MS) == [2, 4, 5, None, 6, *range(7, 35), *[None] * 12]
    assert calls.since() == 1
    assert (log.high_watermark, log.log_end_offset) == (2, 35), "an append is not a commit"
    log.close()


@pytest.mark.parametrize("failure", ["closed", "full"])
def test_a_group_that_cannot_be_written_leaves_all_of_it(tmp_path: Path, failure: str) -> None:
    """Records would be in the log whose producers were told that they are not, or the other way round."""
    log = open_log(tmp_path, env=environment(SYSTEM_FILES))
    for _ in range(2):
        general(log, batch())
    segment = log.local.segments.active
    group = [batch([b"lost"]), batch([b"too"])]
    before = [bytes(data) for data in group]
    with failing_writes(segment, failure):
        assert append_together(log, group, 0, START_MS) == [None, None]
        assert [bytes(data) for data in group] == before
        assert log.log_end_offset == 2
    assert [general(log, data) for data in group] == [(2, -1), (3, -1)]
    assert Path(segment.path).stat().st_size == segment.size
    log.close()


def test_plain_batches_take_the_fast_path(tmp_path: Path) -> None:
    """A condition that never holds would send every produce the long way, unnoticed."""
    log = open_log(tmp_path, env=environment(SYSTEM_FILES))
    general(log, batch())  # makes the segment ready, and its first time known
    general(log, batch())
    for at in range(5):
        assert append_batch(log, memoryview(batch([b"x", b"y"])), 0, START_MS) == 2 + 2 * at
    for sequence in range(3):
        data = batch([b"x"], producer_id=4, epoch=0, sequence=sequence)
        assert append_batch(log, memoryview(data), 0, START_MS) == 12 + sequence
    assert (log.high_watermark, log.log_end_offset) == (2, 15), "an append is not a commit"
    for at, codec in enumerate((Codec.LZ4, Codec.ZSTD)):
        assert append_batch(log, memoryview(batch(compression=codec)), 0, START_MS) == 15 + at
    assert append_batch(log, memoryview(batch([os.urandom(66_000)], compression=Codec.LZ4)), 0, START_MS) == -1
    assert append_batch(log, memoryview(batch()), 1, START_MS) == -1  # an epoch that the log has not seen
    log.close()


class SeenWrites(FileSystem):
    """Files that note what is written to them."""

    def __init__(self) -> None:
        self.writes: list[tuple[bytes, int]] = []

    def pwrite(self, fd: int, data: Buffer, position: int) -> None:
        self.writes.append((bytes(data), position))
        super().pwrite(fd, data, position)


def test_what_stands_in_front_of_the_files_sees_every_write(tmp_path: Path) -> None:
    """Faults that a test puts behind the file calls would not be met by the append that production uses."""
    files = SeenWrites()
    log = open_log(tmp_path, env=environment(files))
    for _ in range(2):
        general(log, batch())
    one, several = batch([b"alone"]), [batch([b"first"]), batch([b"second"])]
    end = log.local.segments.active.size
    files.writes.clear()
    assert append_batch(log, memoryview(one), 0, START_MS) == 2
    assert append_together(log, several, 0, START_MS) == [3, 4]
    assert files.writes == [(bytes(one), end), (bytes(several[0] + several[1]), end + len(one))]
    log.maybe_increment_high_watermark(5)
    assert [value for _, value in read_all(log)][2:] == [b"alone", b"first", b"second"]
    assert FastReader(log).read(0, 1 << 20) is None
    log.close()


def test_a_batch_that_goes_on_with_a_transaction_is_appended(tmp_path: Path) -> None:
    """Transactional producers would pay for the general append with each batch; or one would be let in unverified."""
    log = open_log(tmp_path, env=environment(SYSTEM_FILES))
    general(log, batch())
    batches = [batch([b"x"], producer_id=8, epoch=0, sequence=at, transactional=True) for at in range(4)]
    assert append_batch(log, memoryview(batches[0]), 0, START_MS, transactional=True) == -1  # it begins one
    general(log, batches[0])
    assert append_batch(log, memoryview(batches[1]), 0, START_MS) == -1  # its request names no transactional id
    assert append_batch(log, memoryview(batches[1]), 0, START_MS, transactional=True) == 2
    assert append_batch(log, memoryview(batches[3]), 0, START_MS, transactional=True) == -1  # one is missing
    assert append_batch(log, memoryview(batches[2]), 0, START_MS, transactional=True) == 3
    plain_batch = batch([b"x"], producer_id=8, epoch=0, sequence=3)
    assert append_batch(log, memoryview(plain_batch), 0, START_MS, transactional=True) == -1
    log.maybe_increment_high_watermark(4)
    assert log.last_stable_offset == 1
    log.close()


@pytest.mark.parametrize("failure", ["closed", "full"])
def test_a_write_that_fails_is_left_to_the_general_way(tmp_path: Path, failure: str) -> None:
    """Bytes of a failed write would pass for records after a restart, or the producer would get no error."""
    log = open_log(tmp_path, env=environment(SYSTEM_FILES))
    for _ in range(2):
        general(log, batch())
    segment = log.local.segments.active
    data = batch([b"lost"])
    before = bytes(data)
    with failing_writes(segment, failure):
        assert append_batch(log, memoryview(data), 0, START_MS) == -1
        assert bytes(data) == before
        assert log.log_end_offset == 2
    assert general(log, data) == (2, -1)
    assert Path(segment.path).stat().st_size == segment.size
    log.close()


def test_a_file_given_up_by_another_thread_while_a_large_batch_is_judged_or_written(tmp_path: Path) -> None:
    """The batch would go into whatever file has the descriptor's number by then, or end its producer's connection."""
    log = open_log(tmp_path, LogConfig(max_message_bytes=4 << 20), env=environment(SYSTEM_FILES))
    data = bytes(batch([os.urandom(1 << 19)]))
    segment = log.local.segments.active
    done = threading.Event()

    def give_up() -> None:
        while not done.is_set():
            segment.release()

    thread = threading.Thread(target=give_up)
    thread.start()
    try:
        for at in range(60):
            segment.file()
            buffer = bytearray(data)
            first = append_batch(log, memoryview(buffer), 0, START_MS)
            assert first == at or (first < 0 and general(log, buffer) == (at, -1))
    finally:
        done.set()
        thread.join()
    stored = Path(segment.path).read_bytes()
    assert len(stored) == 60 * len(data)
    assert all(stored[at * len(data) + 16 : (at + 1) * len(data)] == data[16:] for at in range(60))
    log.close()


def with_transactions(folder: Path, *, aborts: bool) -> UnifiedLog:
    """Several segments, of which some hold transactions, the last one of them closed."""
    log = open_log(folder, LogConfig(segment_bytes=700, index_interval_bytes=150), env=environment(SYSTEM_FILES))
    sequence = 0
    for at in range(40):
        if at % 9 == 4:
            data = batch([b"t"], producer_id=5, epoch=0, sequence=sequence, transactional=True)
            append(log, data)
            sequence += 1
            append(log, batch([b"between"] * 2))
            append(log, marker(5, 0, abort=aborts), origin=AppendOrigin.COORDINATOR)
        append(log, batch([b"%d" % at] * (at % 4 + 1)))
    return log


@settings(max_examples=60, deadline=None)
@given(
    aborts=st.booleans(),
    reads=st.lists(
        st.tuples(st.integers(-2, 140), st.sampled_from([-1, 0, 1, 90, 200, 1 << 20]), st.booleans()),
        min_size=20,
        max_size=60,
    ),
)
def test_a_fast_read_gives_what_the_general_one_gives(aborts: bool, reads: list[tuple[int, int, bool]]) -> None:
    """A consumer would get other records than are at its offset, or aborted ones."""
    with tempfile.TemporaryDirectory() as folder:
        log = with_transactions(Path(folder), aborts=aborts)
        reader = FastReader(log)
        for offset, limit, committed in reads:
            isolation = FetchIsolation.TXN_COMMITTED if committed else FetchIsolation.HIGH_WATERMARK
            found = reader.read(offset, limit, committed)
            if found is None:
                continue
            data = log.read(offset, limit, isolation, True)
            assert not data.first_entry_incomplete and not data.aborted_transactions
            assert bytes(found.records) == (b"" if data.records is None else plain([data.records]))
            assert (found.high_watermark, found.last_stable_offset, found.log_start_offset) == (
                data.high_watermark,
                data.last_stable_offset,
                data.log_start_offset,
            )
            assert found.aborted_transactions == ([] if committed else None)
        log.close()


def test_reading_on_takes_the_fast_path(tmp_path: Path) -> None:
    """A condition that never holds would send every fetch the long way, unnoticed."""
    log = open_log(tmp_path, LogConfig(segment_bytes=4000), env=environment(SYSTEM_FILES))
    for _ in range(200):
        append(log, batch([b"x" * 30] * 3))
    reader = FastReader(log)
    for offset in range(0, log.log_end_offset, 3):
        reader.read(offset, 1)
    assert reader.alone < 50
    log.close()


def test_nobody_is_led_by_a_place_that_was_cut(tmp_path: Path) -> None:
    """After a truncation a reader would be sent into the middle of another batch."""
    log = open_log(tmp_path, env=environment(SYSTEM_FILES))
    for _ in range(80):
        append(log, batch([b"x" * 30]))
    for offset in range(40):
        log.read(offset, 1, FetchIsolation.HIGH_WATERMARK, True)
    log.truncate_to(20)
    for at in range(40):
        append(log, batch([b"y" * (at + 1)]))
    reader = FastReader(log)
    for offset in range(15, 60):
        found = reader.read(offset, 1)
        if found is not None:
            data = log.read(offset, 1, FetchIsolation.HIGH_WATERMARK, True)
            assert data.records is not None and bytes(found.records) == plain([data.records])
    log.close()
