"""A workload that is stopped at every one of its calls to the file system, and at every call of the recovery after."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kbroker.config import LogConfig
from kbroker.errors import KafkaError
from kbroker.storage.files.filesystem import FileSystem
from kbroker.storage.log.log_values import AppendResult
from kbroker.storage.log.unified_log import UnifiedLog
from tests.extensions.append_groups import append_batch, append_together
from tests.storage.batches import START_MS, append, append_detached, batch, environment, open_log, read_all
from tests.storage.faulty_files import OF_THE_MACHINE, CrashedError, Fault, FaultyFiles, each_crash

# How batches are appended: by `UnifiedLog`, or on the fast path, one by one or as groups.
GENERAL, ALONE, TOGETHER = "general", "alone", "together"
# On the fast path most batches still go the general way: the first of each epoch and of each segment.
each_way = pytest.mark.parametrize(
    "way", [ALONE, *(pytest.param(way, marks=pytest.mark.slow) for way in (GENERAL, TOGETHER))]
)
CONFIG = LogConfig(internal_segment_bytes=330, index_interval_bytes=60)
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None


def epoch_of(offset: int) -> int:
    """The leader epoch that the workload writes an offset with."""
    return offset // 3


class Workload:
    """Appends, rolls, flushes, a truncation, deletion of records and a clean reopen, noting what was promised."""

    def __init__(self, directory: Path, files: FileSystem, way: str = GENERAL) -> None:
        self.directory = directory
        self.way = way
        self.fast_appends = 0
        self.env = environment(files)
        self.expected: list[bytes] = []
        self.flushed = 0
        self.start = 0
        self.log: UnifiedLog | None = None
        self.whole_writes = not isinstance(files, FaultyFiles) or files.fault not in OF_THE_MACHINE

    def append(self, log: UnifiedLog, count: int, how: Callable[..., AppendResult] = append) -> None:
        for _ in range(count):
            value = b"%05d" % len(self.expected)
            sequence = len(self.expected)
            data = batch([value], timestamp=START_MS + sequence, producer_id=9, epoch=0, sequence=sequence)
            if how is append and self.way != GENERAL:
                self._append_fast(log, data, epoch_of(sequence))
            else:
                how(log, data, leader_epoch=epoch_of(sequence))
            self.expected.append(value)
            self.flushed = max(self.flushed, log.recovery_point)

    def _append_fast(self, log: UnifiedLog, data: bytearray, epoch: int) -> None:
        """As a produce does: in C where that takes the batch, else by the log."""
        now_ms = START_MS + len(self.expected)
        if self.way == ALONE:
            offset = append_batch(log, memoryview(data), epoch, now_ms)
        else:
            (found,) = append_together(log, [data], epoch, now_ms)
            offset = -1 if found is None else found
        if offset < 0:
            append(log, data, leader_epoch=epoch)
            return
        self.fast_appends += 1
        log.maybe_increment_high_watermark(log.log_end_offset)

    def flush(self, log: UnifiedLog) -> None:
        log.flush()
        self.flushed = len(self.expected)

    def run(self) -> None:
        log = self.log = open_log(self.directory, CONFIG, env=self.env)
        self.append(log, 6)
        self.flush(log)
        self.append(log, 5)
        log.roll()
        self.flushed = max(self.flushed, log.recovery_point)
        # The first replaces the empty segment's file, the second a segment's that the log begins for it.
        self.append(log, 2, append_detached)
        self.append(log, 2)
        self.start = 4
        log.delete_records_before(4)
        self.flush(log)
        self.append(log, 3)
        # From here the records after the cut are gone by intention, durably or not.
        cut = len(self.expected) - 5
        self.flushed = min(self.flushed, cut)
        log.truncate_to(cut)
        del self.expected[cut:]
        self.append(log, 4)
        log.close()
        self.flushed = len(self.expected)


@pytest.fixture
def scratch() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="kbroker-crash-", dir=MEMORY))
    yield path
    shutil.rmtree(path)


def calls_of_workload(scratch: Path, way: str = GENERAL) -> int:
    files = FaultyFiles()
    workload = Workload(scratch / "count", files, way)
    workload.run()
    assert (workload.fast_appends >= 5) == (way != GENERAL), "the append that is meant was not taken"
    return files.calls


def check(directory: Path, workload: Workload, files: FileSystem | None = None) -> UnifiedLog:
    """Reopens after a crash: all that was promised is there, in order, once, and the log goes on."""
    env = environment(files) if files is not None else None
    # The checkpoint may be older than the truth, never newer.
    point = min(workload.flushed, workload.log.recovery_point if workload.log else 0)
    log = open_log(directory, CONFIG, recovery_point=point, env=env)
    log.check_invariants()
    found = read_all(log)
    offsets = [offset for offset, _ in found]
    if workload.whole_writes:
        assert offsets == list(range(log.log_start_offset, log.log_end_offset))
    else:
        # A machine that fails may lose an older segment's un-synced bytes and keep a newer one's: a hole, as in Kafka.
        assert offsets == sorted(set(offsets))
        assert set(range(log.log_start_offset, workload.flushed)) <= set(offsets)
    # A machine may lose the name of the first segment and keep that of the next, as long as nothing was flushed.
    assert log.log_start_offset <= workload.start or (not workload.whole_writes and workload.flushed == 0)
    assert log.log_end_offset >= workload.flushed, "something that was flushed is gone"
    return log


def check_and_go_on(directory: Path, workload: Workload) -> None:
    log = check(directory, workload)
    found = dict(read_all(log))
    for offset in range(max(workload.start, log.log_start_offset), min(workload.flushed, len(workload.expected))):
        assert found[offset] == workload.expected[offset]
        assert log.leader_epoch_cache.epoch_for_offset(offset) == epoch_of(offset)
    for segment in log.local.segments:
        for slot in range(segment.offset_index.table.entries):
            offset, position = segment.offset_index._get(slot)
            place = segment.locate(offset)
            assert place is not None and place.position == position, "an index entry leads to another batch"
    state = log.producer_state.producers.get(9)
    if state is not None and found:
        assert state.last_offset == max(found)
        assert state.last_sequence == int(found[max(found)] or b"-1")
    append(log, batch([b"after"]))
    assert read_all(log)[-1][1] == b"after"
    log.close(clean=False)


@each_way
@each_crash
def test_crash_at_every_call(fault: Fault, way: str, scratch: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A crash at the wrong moment would lose flushed records, repeat some, or keep the broker from starting."""
    total = calls_of_workload(scratch, way)
    for crash_at in range(1, total + 1):
        directory = scratch / "run"
        files = FaultyFiles(crash_at, fault)
        workload = Workload(directory, files, way)
        with pytest.raises(CrashedError):
            workload.run()
        files.after_crash()
        check_and_go_on(directory, workload)
        shutil.rmtree(directory)
    with capsys.disabled():
        print(f" [{total} crash points, {fault.value}]", end="")


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("fault", [fault for fault in Fault if fault is not Fault.ERROR])
def test_crash_at_every_call_of_every_recovery(fault: Fault, scratch: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A second crash while the first is being repaired would make it worse."""
    total = calls_of_workload(scratch)
    tried = 0
    for crash_at in range(1, total + 1):
        base = scratch / "base"
        files = FaultyFiles(crash_at, fault)
        workload = Workload(base, files)
        with pytest.raises(CrashedError):
            workload.run()
        files.after_crash()
        tried += crash_every_recovery(base, workload, fault)
        shutil.rmtree(base)
    with capsys.disabled():
        print(f" [{tried} crash points of {total} recoveries, {fault.value}]", end="")


def crash_every_recovery(base: Path, workload: Workload, fault: Fault) -> int:
    """Crashes the recovery of what lies in `base` at each of its calls, then recovers; how many calls it has."""
    crash_at = 0
    while True:
        crash_at += 1
        directory = base.parent / "run"
        shutil.copytree(base, directory)
        again = FaultyFiles(crash_at, fault)
        try:
            check(directory, workload, again)
            finished = True
        except CrashedError:
            finished = False
        again.crashed = True
        again.after_crash()
        check_and_go_on(directory, workload)
        shutil.rmtree(directory)
        if finished:
            return crash_at - 1


@pytest.mark.parametrize("way", [ALONE, TOGETHER])
def test_error_at_every_call_leaves_a_log_that_goes_on(way: str, scratch: Path) -> None:
    """One failing write would corrupt the log or stop the partition until a restart."""
    total = calls_of_workload(scratch, way)
    for crash_at in range(1, total + 1):
        directory = scratch / "run"
        files = FaultyFiles(crash_at, Fault.ERROR)
        workload = Workload(directory, files, way)
        try:
            workload.run()
        except (KafkaError, OSError):
            log = workload.log
            if log is not None:
                log.check_invariants()
                assert [offset for offset, _ in read_all(log)] == list(range(log.log_start_offset, log.log_end_offset))
                append(log, batch([b"after"]))
                assert read_all(log)[-1][1] == b"after"
                log.close(clean=False)
        reopened = open_log(directory, CONFIG)
        reopened.check_invariants()
        assert [offset for offset, _ in read_all(reopened)] == list(
            range(reopened.log_start_offset, reopened.log_end_offset)
        )
        reopened.close(clean=False)
        shutil.rmtree(directory)
