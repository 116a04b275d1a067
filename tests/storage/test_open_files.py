"""The budget of open files while several threads load logs."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from kbroker._fast.segment_scan import SegmentScan
from kbroker.storage.log_values import TimestampOffset
from kbroker.storage.open_files import OpenFiles
from tests.storage.batches import START_MS, UnsyncedFiles, append, batch, environment, open_log, read_all

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
