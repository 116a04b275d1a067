"""A voter that crashes at every call to the file system, and at every call of the start behind that.

What it had said it has is there after each crash, and it starts.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kbroker.cluster.kraft.batches import MetadataBatch
from kbroker.cluster.kraft.metadata_directory import MetadataDirectory, Opened
from kbroker.cluster.kraft.quorum_state import QuorumState
from kbroker.cluster.kraft.quorum_steps import SnapshotId
from kbroker.cluster.kraft.settings import MetadataLogSettings
from kbroker.storage.files.filesystem import SYSTEM_FILES, FileSystem
from tests.cluster.kraft.controllers import START_MS, config_record, data_batch
from tests.cluster.kraft.metadata_files import AtTime, snapshot_of
from tests.descriptors import files_left_by_crashes
from tests.storage.faulty_files import CrashedError, Fault, FaultyFiles, each_crash

__all__ = ["files_left_by_crashes"]
pytestmark = pytest.mark.usefixtures("files_left_by_crashes")

SETTINGS = MetadataLogSettings(segment_bytes=350, retention_bytes=1800, retention_ms=-1)


def directory_of(path: Path, files: FileSystem = SYSTEM_FILES) -> MetadataDirectory:
    return MetadataDirectory(files, str(path), SETTINGS, AtTime())


def batch_at(offset: int, epoch: int) -> MetadataBatch:
    return data_batch(offset, epoch, [config_record(offset), config_record(offset + 1)])


class Workload:
    """What a voter does with its directory, and what it has promised by then.

    `log` has the batches that it had said it has, `states` the votes that it may have: the last one that it had
    answered with, and the one that it was writing; `ahead` a snapshot that was about to take the place of the log.
    """

    def __init__(self, path: Path, files: FileSystem) -> None:
        self.directory = directory_of(path, files)
        self.log: list[MetadataBatch] = []
        self.snapshot = SnapshotId(0, 0)
        self.ahead: SnapshotId | None = None
        self.states = [QuorumState()]

    @property
    def end(self) -> int:
        return self.log[-1].end_offset if self.log else self.snapshot.end_offset

    def append(self, count: int, epoch: int) -> None:
        """Batches in one go, as an answer has them."""
        batches = [batch_at(self.end + 2 * at, epoch) for at in range(count)]
        self.directory.append_durably(tuple(batches))
        self.log += batches

    def elect(self, epoch: int, voted: int = -1) -> None:
        state = QuorumState(epoch, 3001, voted)
        self.states.append(state)
        self.directory.elected(state)
        self.states = [state]

    def truncate(self, end: int) -> None:
        self.log = [each for each in self.log if each.end_offset <= end]
        self.directory.truncate(end)

    def own_snapshot(self, end: int) -> None:
        epoch = next(each.epoch for each in self.log if each.end_offset == end)
        snapshot, data = snapshot_of(end, epoch)
        self.directory.write_piece(snapshot, 0, data[:100])
        self.directory.write_piece(snapshot, 100, data[100:])
        self.directory.keep_own(snapshot, START_MS)
        self.directory.clean()

    def fetched_snapshot(self, end: int, epoch: int) -> None:
        snapshot, data = snapshot_of(end, epoch)
        self.directory.write_piece(snapshot, 0, data)
        self.directory.written(snapshot)
        self.ahead = snapshot
        # A later epoch begins before that offset: what lies behind it here was not committed.
        self.log = [each for each in self.log if each.end_offset <= end]
        self.directory.restart(snapshot, START_MS)
        self.log, self.snapshot, self.ahead = [], snapshot, None

    def run(self) -> None:
        directory = self.directory
        directory.open(is_voter=True)
        self.elect(1, 3002)
        self.append(2, 1)
        self.append(7, 1)
        self.own_snapshot(10)
        self.append(4, 1)
        self.elect(2, 3003)
        # Over two segments, and to where one begins.
        self.truncate(16)
        self.append(1, 2)
        self.truncate(16)
        self.append(9, 2)
        self.own_snapshot(18)
        self.own_snapshot(30)
        directory.close()
        directory.open(is_voter=True)
        self.append(1, 2)
        # Another node's snapshot ahead of all, then one of a newer epoch in the middle of the log.
        self.fetched_snapshot(60, 2)
        self.append(8, 2)
        self.elect(3)
        self.fetched_snapshot(70, 3)
        self.append(2, 3)
        directory.close()


def check(workload: Workload, path: Path, files: FileSystem = SYSTEM_FILES) -> Opened:
    """A start behind a crash."""
    directory = directory_of(path, files)
    opened = directory.open(is_voter=True)
    assert opened.state in workload.states, "a vote is forgotten"
    start = opened.log.snapshot or SnapshotId(0, 0)
    assert opened.log.end_offset == (opened.batches[-1].end_offset if opened.batches else start.end_offset)
    if workload.ahead is not None and start == workload.ahead:
        return opened
    assert start >= workload.snapshot
    found = {each.base_offset: each.data for each in opened.batches}
    for each in workload.log:
        is_there = each.base_offset < start.end_offset or found.get(each.base_offset) == each.data
        assert is_there, f"what was said to be there at {each.base_offset} is gone"
    stored = directory.read(directory.start_offset, 1 << 20)
    kept = b"".join(each.data for each in workload.log if each.base_offset >= directory.start_offset)
    assert stored[: len(kept)] == kept, "replicas get something else"
    directory.close()
    return opened


def crash(path: Path, crash_at: int, fault: Fault) -> Workload:
    files = FaultyFiles(crash_at, fault)
    workload = Workload(path, files)
    with pytest.raises(CrashedError):
        workload.run()
    files.after_crash()
    files.release()
    path.mkdir(exist_ok=True)
    return workload


def calls_of(path: Path) -> int:
    files = FaultyFiles()
    workload = Workload(path, files)
    workload.run()
    assert check(workload, path).log.end_offset == 74
    return files.calls


@each_crash
def test_crash_at_every_call_of_a_voter(fault: Fault, tmp_path: Path) -> None:
    """A voter would forget a vote or records that the quorum counts on, or not come back from a power cut."""
    total = calls_of(tmp_path / "count")
    for crash_at in range(1, total + 1):
        path = tmp_path / "run"
        workload = crash(path, crash_at, fault)
        try:
            check(workload, path)
            check(workload, path)
        except Exception as error:
            error.add_note(f"after a crash at call {crash_at} of {total}")
            raise
        shutil.rmtree(path)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("fault", [Fault.TORN, Fault.GARBLE, Fault.FORGET, Fault.REORDER])
def test_crash_at_every_call_of_every_start(fault: Fault, tmp_path: Path) -> None:
    """A second power cut while the first is mended would cost what the first has left."""
    total = calls_of(tmp_path / "count")
    for crash_at in range(1, total + 1):
        base, path = tmp_path / "base", tmp_path / "run"
        workload = crash(base, crash_at, fault)
        for again in range(1, 1000):
            shutil.copytree(base, path)
            files = FaultyFiles(again, fault)
            is_over = False
            try:
                check(workload, path, files)
                is_over = True
            except CrashedError:
                files.after_crash()
                files.release()
            check(workload, path)
            shutil.rmtree(path)
            if is_over:
                break
        shutil.rmtree(base)
