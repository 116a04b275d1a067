"""The metadata log on disk: crashes at every call, damage of every file, what is kept and what is deleted.

What is read at a start is always a part of what was written, from its beginning; the rest is fetched again.

Also of `kbroker.cluster.kraft.segments`, `kbroker.cluster.kraft.snapshots`, `kbroker.cluster.kraft.quorum_state`,
`kbroker.cluster.kraft.metadata_directory`.
"""

from __future__ import annotations

import shutil
from itertools import product
from pathlib import Path

import pytest

from kbroker.cluster.kraft.batches import DamagedBatchesError, MetadataBatch
from kbroker.cluster.kraft.metadata_directory import MetadataDirectory, Opened
from kbroker.cluster.kraft.quorum_state import QuorumState, decode_quorum_state, encode_quorum_state
from kbroker.cluster.kraft.quorum_steps import SnapshotId
from kbroker.cluster.kraft.settings import MetadataLogSettings
from kbroker.cluster.kraft.snapshots import snapshot_batches, snapshot_name
from kbroker.storage.files.filesystem import SYSTEM_FILES, FileSystem
from tests.cluster.kraft.controllers import START_MS, config_record, data_batch
from tests.cluster.kraft.metadata_files import FOLDER, AtTime, snapshot_of
from tests.descriptors import files_left_by_crashes
from tests.storage.faulty_files import OF_THE_MACHINE, CrashedError, Fault, FaultyFiles, each_crash

__all__ = ["files_left_by_crashes"]
pytestmark = pytest.mark.usefixtures("files_left_by_crashes")

SETTINGS = MetadataLogSettings(segment_bytes=500, retention_bytes=1500, retention_ms=-1)


def log_of(count: int, epoch: int = 1) -> list[MetadataBatch]:
    """A log of so many batches of two records."""
    return [data_batch(2 * at, epoch, [config_record(2 * at), config_record(2 * at + 1)]) for at in range(count)]


def directory_of(path: Path, files: FileSystem = SYSTEM_FILES) -> MetadataDirectory:
    return MetadataDirectory(files, str(path), SETTINGS, AtTime())


LAST = data_batch(40, 2, [config_record(40), config_record(41)])


class Workload:
    """What an observer does with its directory; its log was said to end at `written`, and on the disk at `durable`."""

    def __init__(self, path: Path, files: FileSystem) -> None:
        self.directory = directory_of(path, files)
        self.log: list[MetadataBatch] = []
        self.snapshot = 0
        self.written = self.durable = 0
        self.epoch = 0

    def append(self, batches: list[MetadataBatch]) -> None:
        self.log += batches
        self.directory.append(tuple(batches))
        self.written = self.log[-1].end_offset

    def elect(self, epoch: int) -> None:
        self.directory.elected(QuorumState(epoch, 3001))
        self.epoch = epoch

    def own_snapshot(self, end: int) -> None:
        snapshot, data = snapshot_of(end)
        self.directory.write_piece(snapshot, 0, data[:100])
        self.directory.write_piece(snapshot, 100, data[100:])
        self.directory.keep_own(snapshot, START_MS)
        self.snapshot = end
        self.directory.clean()

    def run(self) -> None:
        self.directory.open()
        self.elect(1)
        batches = log_of(14)
        self.append(batches[:5])
        self.append(batches[5:6])
        self.written = 8
        self.directory.truncate(8)
        self.durable = 8
        del self.log[4:]
        self.append(batches[4:9])
        self.own_snapshot(16)
        self.append(batches[9:11])
        self.own_snapshot(20)
        self.append(batches[11:14])
        self.elect(2)
        # The controllers' own snapshot, far ahead.
        snapshot, data = snapshot_of(40)
        self.directory.write_piece(snapshot, 0, data)
        self.directory.written(snapshot)
        self.directory.restart(snapshot, START_MS)
        self.log, self.snapshot, self.written, self.durable = [], 40, 40, 40
        self.append([LAST])
        self.directory.close()


def check(workload: Workload, path: Path, least: int) -> Opened:
    """What is found after a crash is right, and has all up to `least`."""
    directory = directory_of(path)
    opened = directory.open()
    start = 0 if opened.log.snapshot is None else opened.log.snapshot.end_offset
    assert start >= workload.snapshot, "a snapshot that was kept is gone"
    assert opened.log.end_offset >= least, "records that have to be there are gone"
    assert opened.log.epoch >= workload.epoch
    end = start
    written = {each.data for each in (*log_of(14), LAST)}
    for batch in opened.batches:
        assert batch.base_offset == end
        assert batch.data in written
        end = batch.end_offset
    assert end == opened.log.end_offset
    directory.append((data_batch(end, 9, [config_record(99)]),))
    directory.close()
    again = directory_of(path)
    assert again.open().log.end_offset == end + 1
    again.close()
    return opened


def calls_of(path: Path) -> int:
    files = FaultyFiles()
    Workload(path, files).run()
    return files.calls


@each_crash
def test_crash_at_every_call(fault: Fault, tmp_path: Path) -> None:
    """A broker would find a log with a hole, or forget an epoch that it has told."""
    for crash_at in range(1, calls_of(tmp_path / "count") + 1):
        path = tmp_path / f"{crash_at}"
        files = FaultyFiles(crash_at, fault)
        workload = Workload(path, files)
        with pytest.raises(CrashedError):
            workload.run()
        files.after_crash()
        path.mkdir(exist_ok=True)
        check(workload, path, workload.durable if fault in OF_THE_MACHINE else workload.written)
        shutil.rmtree(path)


def filled(path: Path) -> Path:
    """A directory with two snapshots, several segments and an epoch; its metadata folder."""
    path.mkdir()
    directory = directory_of(path)
    directory.open()
    directory.elected(QuorumState(1, 3001))
    batches = log_of(12)
    for at, batch in enumerate(batches):
        directory.append((batch,))
        if at in (3, 7):
            snapshot, data = snapshot_of(batch.end_offset)
            directory.write_piece(snapshot, 0, data)
            directory.keep_own(snapshot, START_MS)
    directory.close()
    return path / FOLDER


DAMAGES = ("missing", "empty", "zeroed", "torn", "flipped", "stale")


def files_of(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


def damage(path: Path, kind: str, stale: Path) -> None:
    data = path.read_bytes()
    match kind:
        case "missing":
            path.unlink()
        case "empty":
            path.write_bytes(b"")
        case "zeroed":
            path.write_bytes(bytes(len(data)))
        case "torn":
            path.write_bytes(data[: len(data) * 2 // 3])
        case "flipped":
            middle = len(data) // 2
            path.write_bytes(data[:middle] + bytes([data[middle] ^ 0x55]) + data[middle + 1 :])
        case "stale":
            other = [each for each in sorted(stale.iterdir()) if each.suffix == path.suffix]
            path.write_bytes(other[0].read_bytes() if other else b"")


@pytest.mark.parametrize(("number", "kind"), list(product(range(7), DAMAGES)))
def test_damage_of_every_file(number: int, kind: str, tmp_path: Path) -> None:
    """A damaged file would keep the broker from its start, or have it believe what nobody wrote."""
    folder = filled(tmp_path / "one")
    stale = filled(tmp_path / "other")
    files = files_of(folder)
    assert len(files) == 7, [each.name for each in files]
    damage(files[number], kind, stale)
    directory = directory_of(tmp_path / "one")
    opened = directory.open()
    start = 0 if opened.log.snapshot is None else opened.log.snapshot.end_offset
    if opened.log.snapshot is not None:
        # Nothing in a snapshot tells where it ends, in Kafka's neither, but its name.
        ends = (start, 8) if kind == "stale" else (start,)
        assert b"".join(each.data for each in opened.snapshot) in [snapshot_of(end)[1] for end in ends]
    written = {each.data for each in log_of(12)}
    assert all(each.data in written for each in opened.batches)
    assert opened.log.end_offset == (opened.batches[-1].end_offset if opened.batches else start)
    assert [each.base_offset for each in opened.batches] == list(range(start, opened.log.end_offset, 2))
    assert opened.log.epoch in (0, 1)
    if files[number].suffix not in (".log", ".checkpoint"):
        assert opened.log.end_offset == 24
    directory.close()
    again = directory_of(tmp_path / "one").open()
    assert again.log == opened.log, "the second start finds something else"


def test_a_damaged_snapshot_is_put_aside_and_the_one_before_taken(tmp_path: Path) -> None:
    """A bad sector would cost the download of everything."""
    folder = filled(tmp_path / "one")
    newest = folder / snapshot_name(SnapshotId(16, 1))
    newest.write_bytes(newest.read_bytes()[:-10])
    opened = directory_of(tmp_path / "one").open()
    assert opened.log.snapshot == SnapshotId(8, 1)
    assert opened.log.end_offset == 24
    assert (folder / f"{newest.name}.damaged").exists()


def test_segments_and_snapshots_are_deleted_by_age_and_size(tmp_path: Path) -> None:
    """The log would grow without bound."""
    directory = directory_of(tmp_path)
    directory.open()
    for at, batch in enumerate(log_of(200)):
        directory.append((batch,))
        if at % 10 == 9:
            snapshot, data = snapshot_of(4)
            snapshot = SnapshotId(batch.end_offset, 1)
            directory.write_piece(snapshot, 0, data)
            directory.keep_own(snapshot, START_MS)
            directory.clean()
        assert directory.size_bytes < SETTINGS.retention_bytes + 10 * len(batch.data) + 1000
    assert len(list((tmp_path / FOLDER).iterdir())) < 20
    directory.close()
    opened = directory_of(tmp_path).open()
    assert opened.log.end_offset == 400 and opened.log.snapshot == SnapshotId(400, 1)


def test_a_snapshot_without_its_end_is_none(tmp_path: Path) -> None:
    """Half of the cluster's metadata would be taken for all of it."""
    data = snapshot_of(600)[1]
    batches = snapshot_batches(data, "test")
    assert b"".join(each.data for each in batches) == data
    for end in (0, 10, len(data) - 1, len(data) - len(batches[-1].data)):
        with pytest.raises(DamagedBatchesError):
            snapshot_batches(data[:end], "test")
    with pytest.raises(DamagedBatchesError):
        snapshot_batches(data[len(batches[0].data) :], "test")
    with pytest.raises(DamagedBatchesError):
        snapshot_batches(batches[0].data + b"".join(each.data for each in batches[2:]), "test")


@pytest.mark.parametrize(
    ("data", "state"),
    [
        (
            b'{"leaderId":3003,"leaderEpoch":10,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}',
            QuorumState(10, 3003),
        ),
        (
            b'{"clusterId":"","leaderId":3001,"leaderEpoch":1,"votedId":-1,"appliedOffset":0,'
            b'"currentVoters":[{"voterId":3001}],"data_version":0}',
            QuorumState(1, 3001),
        ),
    ],
)
def test_quorum_state_of_kafka(data: bytes, state: QuorumState) -> None:
    """A broker that takes the place of Kafka's would step back to an older epoch."""
    assert decode_quorum_state(data) == state
    assert decode_quorum_state(encode_quorum_state(state)) == state
    if b'"data_version":1' in data:
        assert encode_quorum_state(state) == data
    for end in range(len(data)):
        with pytest.raises(ValueError, match=r"\w"):
            decode_quorum_state(data[:end])


@pytest.mark.parametrize(
    "data",
    [
        b'{"leaderId":1,"leaderEpoch":-1,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}',
        b'{"leaderId":1,"leaderEpoch":"7","votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}',
        b'{"leaderId":1,"leaderEpoch":7,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":2}',
        b'{"leaderId":1,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}',
        b'{"leaderId":1,"leaderEpoch":7,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}',
        b'{"leaderId":1,"leaderEpoch":7,"votedId":3001,"data_version":1}',
        b'{"leaderEpoch":7,"votedId":3001,"data_version":0}',
    ],
)
def test_a_quorum_state_without_an_epoch_is_refused(data: bytes) -> None:
    """A broker would fetch in an epoch that no quorum has had, or a voter forget its vote."""
    with pytest.raises(ValueError, match=r"quorum-state|epoch|vote"):
        decode_quorum_state(data)
