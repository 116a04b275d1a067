"""What is told while logs are recovered, and what a recovery that is killed keeps."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbroker._fast.log.segment_scan import SegmentScan
from kbroker.config import BrokerConfig, LogConfig
from kbroker.metrics.maintenance import FAMILIES
from kbroker.storage.directories.strays import KnownTopic
from kbroker.storage.files.checkpoints import RECOVERY_POINT_CHECKPOINT
from kbroker.storage.manager.log_manager import LogManager
from kbroker.storage.recovery import recovery_progress, recovery_saver
from kbroker.storage.reports.maintenance_figures import recovery_figures
from kbroker.types import TopicPartition, random_uuid
from tests.compat.waiting import wait_for
from tests.storage.batches import HandClock, UnsyncedFiles, append, batch, read_all

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
TOPIC_ID = random_uuid()
CONFIG = LogConfig(internal_segment_bytes=900, index_interval_bytes=150)
BATCHES = 60


class HeldFiles(UnsyncedFiles):
    """Recovery stops before the segment number `hold_at` until `go` is set."""

    def __init__(self, hold_at: int) -> None:
        self.hold_at = hold_at
        self.held = threading.Event()
        self.go = threading.Event()
        self.scans = 0

    def scan_segment(self, fd: int, position: int, end: int, *, check_crc: bool, max_batches: int) -> SegmentScan:
        self.scans += 1
        if self.scans == self.hold_at:
            self.held.set()
            assert self.go.wait(60)
        return super().scan_segment(fd, position, end, check_crc=check_crc, max_batches=max_batches)


def manager_of(directory: Path, files: UnsyncedFiles | None = None) -> LogManager:
    values = {"log.dirs": str(directory), "num.recovery.threads.per.data.dir": "1"}
    return LogManager(BrokerConfig.from_mapping(values), HandClock(), files or UnsyncedFiles())


@pytest.fixture
def unclean(tmp_path: Path) -> Iterator[Path]:
    """Two partitions of many segments whose broker was killed."""
    manager = manager_of(tmp_path / "data")
    manager.start(CLUSTER)
    for index in range(2):
        log = manager.get_or_create_log(TopicPartition("t", index), TOPIC_ID, CONFIG)
        for number in range(BATCHES):
            append(log, batch([b"%05d" % number]))
        assert log.segment_count > 4
    manager.release()
    yield tmp_path / "data"


def test_recovery_tells_what_is_left(
    unclean: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operator would not know whether a broker that starts for minutes will ever be ready."""
    monkeypatch.setattr(recovery_progress, "REPORT_SECONDS", 0.01)
    files = HeldFiles(hold_at=4)
    manager = manager_of(unclean, files)
    manager.open_dirs()
    manager.claim(CLUSTER)
    total = sum(path.stat().st_size for path in unclean.glob("t-*/*.log"))
    segments = len(list(unclean.glob("t-*/*.log")))
    thread = threading.Thread(target=manager.load_all, args=({"t": KnownTopic(TOPIC_ID, CONFIG)},))
    with caplog.at_level(logging.INFO, "kbroker.storage"):
        thread.start()
        assert files.held.wait(60)
        wait_for(lambda: manager.progress.text in caplog.messages, "a line in the log")
        (left,) = manager.progress.directories()
        read = sum(path.stat().st_size for path in sorted(unclean.glob("t-*/*.log"))[:3])
        assert left.path == str(unclean)
        assert left.logs_left == 2
        assert left.segments_left == segments - 3
        assert left.bytes_left == total - read
        assert manager.progress.text.startswith(f"recovering logs, 0 of 2; {segments - 3} segment(s) with 0 MB left")
        figures = recovery_figures(manager)
        assert figures["kbroker_recovery_left_bytes"] == {(str(unclean),): total - read}
        (log_left,) = manager.progress.threads().values()
        assert log_left == segments // 2 - 3
        assert figures["kbroker_recovery_thread_segments_left"] == {("log-recovery_0",): log_left}
        assert set(figures) <= {family.name for family in FAMILIES}
        files.go.set()
        thread.join(60)
    (left,) = manager.progress.directories()
    assert left[1:] == (0, 0, 0, 0.0)
    assert manager.progress.text == "recovering logs, 2 of 2"
    for log in manager.logs.values():
        assert [value for _, value in read_all(log)] == [b"%05d" % number for number in range(BATCHES)]
    manager.release()


class ReadFiles(UnsyncedFiles):
    """Notes how many bytes of which log files are read."""

    def __init__(self) -> None:
        self.read: dict[str, int] = {}
        self._paths: dict[int, str] = {}

    def open(self, path: str, flags: int, mode: int = 0o644) -> int:
        fd = super().open(path, flags, mode)
        self._paths[fd] = path
        return fd

    def _note(self, fd: int, size: int) -> None:
        path = self._paths[fd]
        if path.endswith(".log"):
            self.read[path] = self.read.get(path, 0) + size

    def pread(self, fd: int, size: int, position: int) -> bytes:
        data = super().pread(fd, size, position)
        self._note(fd, len(data))
        return data

    def scan_segment(self, fd: int, position: int, end: int, *, check_crc: bool, max_batches: int) -> SegmentScan:
        scan = super().scan_segment(fd, position, end, check_crc=check_crc, max_batches=max_batches)
        self._note(fd, scan.valid_end - position)
        return scan


def recovery_points(directory: Path) -> dict[str, int]:
    path = directory / RECOVERY_POINT_CHECKPOINT
    rows = [line.split() for line in path.read_text().splitlines()[2:]] if path.exists() else []
    return {f"{topic}-{partition}": int(offset) for topic, partition, offset in rows}


def recover_and_hold(directory: str, hold_at: str) -> None:
    """What the process does that is killed: it never gets past the segment number `hold_at`."""
    recovery_saver.AFTER_SECONDS = recovery_saver.INTERVAL_SECONDS = 0.0
    manager = manager_of(Path(directory), HeldFiles(int(hold_at)))
    manager.start(CLUSTER, {"t": KnownTopic(TOPIC_ID, CONFIG)})


def test_a_recovery_that_is_killed_goes_on_from_where_it_was(unclean: Path) -> None:
    """A supervisor that gives a start a minute would have a broker that reads the same terabyte for ever."""
    segments = sorted(unclean.glob("t-0/*.log"))
    done = 4
    code = (
        "import sys; from tests.storage.test_recovery_progress import recover_and_hold; recover_and_hold(*sys.argv[1:])"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(unclean), str(done + 1)], cwd=Path(__file__).parents[2])
    try:
        reached = int(segments[done].stem)
        wait_for(lambda: recovery_points(unclean).get("t-0", 0) == reached, "the recovery point")
    finally:
        process.kill()
        process.wait()
    files = ReadFiles()
    manager = manager_of(unclean, files)
    manager.start(CLUSTER, {"t": KnownTopic(TOPIC_ID, CONFIG)})
    read = files.read
    files.read = {}
    # Of the segments that are done only the batch at the end of the last one is looked at, if any.
    assert sum(read.get(str(path), 0) for path in segments[:done]) <= segments[0].stat().st_size // 3
    for path in (*segments[done:], *unclean.glob("t-1/*.log")):
        assert read[str(path)] >= path.stat().st_size
    for log in manager.logs.values():
        assert [value for _, value in read_all(log)] == [b"%05d" % number for number in range(BATCHES)]
        log.check_invariants()
    manager.release()


def test_what_a_recovery_has_saved_is_kept_when_it_is_done(unclean: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next checkpoint would take the recovery points back, and the next crash would cost the same again."""
    monkeypatch.setattr(recovery_saver, "AFTER_SECONDS", 0.0)
    files = HeldFiles(hold_at=5)
    manager = manager_of(unclean, files)
    manager.open_dirs()
    manager.claim(CLUSTER)
    thread = threading.Thread(target=manager.load_all)
    thread.start()
    assert files.held.wait(60)
    wait_for(lambda: recovery_points(unclean).get("t-0", 0) > 0, "the recovery point")
    files.go.set()
    thread.join(60)
    saved = recovery_points(unclean)["t-0"]
    assert manager.logs[TopicPartition("t", 0)].recovery_point >= saved
    manager.release()


def test_only_what_was_not_flushed_is_read_again(tmp_path: Path) -> None:
    """A restart after a crash would take minutes although next to nothing was written since the flush."""
    manager = manager_of(tmp_path)
    manager.start(CLUSTER)
    log = manager.get_or_create_log(TopicPartition("t", 0), TOPIC_ID, CONFIG)
    for number in range(BATCHES):
        append(log, batch([b"%05d" % number], producer_id=7, epoch=0, sequence=number))
    log.flush()
    snapshots = {path: path.read_bytes() for path in tmp_path.glob("t-0/*.snapshot")}
    assert len(snapshots) > 3
    manager.checkpoints.write_all()
    tail = 0
    for number in range(BATCHES, BATCHES + 2):
        data = batch([b"%05d" % number], producer_id=7, epoch=0, sequence=number)
        tail += len(data)
        append(log, data)
    manager.release()
    active = max(tmp_path.glob("t-0/*.log"))
    files = ReadFiles()
    manager = manager_of(tmp_path, files)
    manager.start(CLUSTER, {"t": KnownTopic(TOPIC_ID, CONFIG)})
    assert set(files.read) == {str(active)}
    # Once the headers since the snapshot, once the batches since the index entry before the flush.
    assert files.read[str(active)] <= active.stat().st_size + tail + 3 * len(data)
    assert {path: path.read_bytes() for path in snapshots} == snapshots
    log = manager.logs[TopicPartition("t", 0)]
    assert log.log_end_offset == BATCHES + 2
    assert log.producer_state.producers[7].last_sequence == BATCHES + 1
    manager.release()
