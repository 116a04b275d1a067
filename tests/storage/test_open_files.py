"""The budget of open segments: its size, and logs that are read under a small one.

Also of `kbroker.storage.manager.shrunk_files`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from kbroker._fast.log.segment_scan import SegmentScan
from kbroker.network.limits import KEPT_DESCRIPTORS, ConnectionLimits
from kbroker.storage.files.open_files import OpenFiles, OpenFilesError, ProcessLimits, open_segments, segment_budget
from kbroker.storage.log.log_values import TimestampOffset
from tests.storage.batches import START_MS, UnsyncedFiles, append, batch, environment, open_log, read_all

ROOT = Path(__file__).parents[2]
RECORDS = 9_000
MOST_TAKEN = 200


class Idle:
    """A file that another thread has opened."""

    def __init__(self) -> None:
        self.recently_used = False

    def release(self) -> bool:
        return True


class CrowdedFiles(UnsyncedFiles):
    """Between two reads of a segment other threads open so many files that the budget gives its descriptor up."""

    def __init__(self, other: Path) -> None:
        self.crowd: Callable[[], None] = lambda: None
        self.taken: list[int] = []
        self._other = other

    def scan_segment(self, fd: int, position: int, end: int, *, check_crc: bool, max_batches: int) -> SegmentScan:
        scan = super().scan_segment(fd, position, end, check_crc=check_crc, max_batches=max_batches)
        self._crowd()
        return scan

    def pread(self, fd: int, size: int, position: int) -> bytes:
        data = super().pread(fd, size, position)
        self._crowd()
        return data

    def _crowd(self) -> None:
        self.crowd()
        # A descriptor that was given up is the next one's: another partition's file.
        if len(self.taken) < MOST_TAKEN:
            self.taken += [os.open(self._other, os.O_RDWR) for _ in range(2)]


def open_many(open_files: OpenFiles) -> None:
    for _ in range(4 * open_files.budget):
        open_files.opened(Idle())


def test_a_segment_is_read_to_its_end_while_other_threads_open_files(tmp_path: Path) -> None:
    """After a crash with more partitions than open files, good records would be cut off: others' bytes were read."""
    log = open_log(tmp_path / "orders")
    for n in range(RECORDS):
        append(log, batch([b"%d" % n], timestamp=START_MS + n))
    log.close(clean=False)
    size = (tmp_path / "orders" / f"{0:020d}.log").stat().st_size
    (tmp_path / "other").write_bytes(bytes(2 * size))
    for clean in (False, True):
        files = CrowdedFiles(tmp_path / "other")
        env = environment(files, budget=16)
        files.crowd = partial(open_many, env.open_files)
        try:
            again = open_log(tmp_path / "orders", env=env, clean=clean)
            assert again.log_end_offset == RECORDS
            for n in (0, 5_000, RECORDS - 1):
                assert again.offset_for_timestamp(START_MS + n) == TimestampOffset(START_MS + n, n, 0)
            assert [offset for offset, _ in read_all(again)] == list(range(RECORDS))
            again.close(clean=True)
        finally:
            for fd in files.taken:
                os.close(fd)
    assert (tmp_path / "other").read_bytes() == bytes(2 * size)


MANY_SEGMENTS = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (180, 180))
from kbroker.clock import SYSTEM_CLOCK
from kbroker.config import BrokerConfig, LogConfig
from kbroker.storage.manager.log_manager import LogManager
from kbroker.types import TopicPartition, random_uuid
from tests.storage.batches import START_MS, UNSYNCED_FILES, append, batch, read_all

config = LogConfig(internal_segment_bytes=300, index_interval_bytes=0, retention_ms=-1)
settings = BrokerConfig.from_mapping({"log.dirs": sys.argv[1], "kbroker.max.open.segments": "20"})
manager = LogManager(settings, SYSTEM_CLOCK, UNSYNCED_FILES)
manager.start("cluster")
topic_id = random_uuid()
logs = [manager.get_or_create_log(TopicPartition("orders", at), topic_id, config) for at in range(30)]
most_files = most_maps = 0
for log in logs:
    for n in range(40):
        append(log, batch([b"%d" % n], timestamp=START_MS + n))
# A flush opens the file that it syncs by its name: that of two threads is not of the budget.
for log in logs:
    log.local.wait_for_flushes()
for log in logs:
    assert [offset for offset, _ in read_all(log)] == list(range(40))
    for n in range(40):
        assert log.offset_for_timestamp(START_MS + n).offset == n
        assert log.read_bytes(n, 1)
    with open("/proc/self/maps") as file:
        most_maps = max(most_maps, sum(line.rstrip().endswith("index") for line in file))
    most_files = max(most_files, sum(".log" in os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")
                                     if os.path.exists(f"/proc/self/fd/{fd}")))
print(sum(log.segment_count for log in logs), most_files, most_maps)
manager.shutdown()
"""


def test_many_segments_are_read_with_few_descriptors_and_maps(tmp_path: Path) -> None:
    """A broker of many segments would fail with "too many open files", or at 65,530 maps, in the middle of a fetch."""
    command = [sys.executable, "-c", MANY_SEGMENTS, str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert ran.returncode == 0, ran.stderr
    segments, most_files, most_maps = map(int, ran.stdout.split())
    assert segments == 300
    assert 1 <= most_files <= 20
    assert 1 <= most_maps <= 40


@pytest.mark.parametrize(
    ("configured", "limits", "budget"),
    [
        (None, ProcessLimits(20_000, 65_530), 6_666),
        (None, ProcessLimits(1 << 20, 65_530), 24_573),
        (None, ProcessLimits(1 << 20, 1 << 20), 349_525),
        (None, ProcessLimits(20, 65_530), 16),
        (5_000, ProcessLimits(20_000, 65_530), 5_000),
        (24_573, ProcessLimits(1 << 20, 65_530), 24_573),
    ],
)
def test_budget_leaves_descriptors_and_maps_for_all_else(
    configured: int | None, limits: ProcessLimits, budget: int
) -> None:
    """Segments would take the descriptors of connections, or more maps than Linux gives a process."""
    assert segment_budget(configured, limits) == budget
    assert budget * 2 < limits.maps


@pytest.mark.parametrize(
    ("configured", "limits", "reason"),
    [
        (1_000, ProcessLimits(1_024, 65_530), "may open 1024 files"),
        (24_574, ProcessLimits(1 << 20, 65_530), "enough for 24573 segments"),
    ],
)
def test_budget_beyond_the_limits_is_refused(configured: int, limits: ProcessLimits, reason: str) -> None:
    """The broker would start, and fail when the segments are in use."""
    with pytest.raises(OpenFilesError, match=reason):
        segment_budget(configured, limits)


def test_connections_leave_the_segments_their_descriptors() -> None:
    """Clients would take the descriptors that fetches need to open segments."""
    limits = ConnectionLimits(1 << 30, 1 << 30, {}, 1_024 - 341)
    room = 1_024 - 341 - KEPT_DESCRIPTORS
    assert [limits.admit("1.1.1.1") for _ in range(room)] == [None] * room
    assert limits.admit("1.1.1.1") is not None


def test_segments_have_what_connections_leave() -> None:
    """10,000 partitions would take turns at being open with thousands of descriptors unused."""
    files = open_segments(None, ProcessLimits(20_000, 65_530))
    assert files.budget > 19_000
    limits = ConnectionLimits(1 << 30, 1 << 30, {}, 20_000 - files.least_budget, files.leave_room)
    holders = [Idle() for _ in range(19_000)]
    for holder in holders:
        files.opened(holder)
    assert len(files) == 19_000
    admitted = 0
    while limits.admit("1.1.1.1") is None:
        admitted += 1
        assert len(files) + admitted + KEPT_DESCRIPTORS <= 20_000
    assert admitted > 13_000
    assert files.budget == 6_666
    for _ in range(admitted + 1):
        limits.leave("1.1.1.1")
    assert files.budget > 19_000
    assert files.maps.budget == 2 * files.budget


def test_a_configured_budget_does_not_move() -> None:
    """Who sets kbroker.max.open.segments would find other numbers of open files."""
    files = open_segments(5_000, ProcessLimits(20_000, 65_530))
    files.leave_room(0)
    assert files.budget == 5_000
    files.leave_room(15_000)
    assert files.budget == 5_000
