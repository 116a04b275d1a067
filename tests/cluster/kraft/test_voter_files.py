"""What a node with the controller role starts with: every file damaged in every way, after every kind of stop.

A voter has all that it had said it has, or it does not start and says which file is wrong.

Also of `kbroker.cluster.kraft.voter_files`.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator
from enum import Enum
from itertools import product
from pathlib import Path

import pytest

from kbroker.cluster.kraft.batches import MetadataBatch
from kbroker.cluster.kraft.metadata_directory import MetadataDirectory, Opened
from kbroker.cluster.kraft.quorum_state import QuorumState, encode_quorum_state
from kbroker.cluster.kraft.quorum_steps import SnapshotId
from kbroker.cluster.kraft.settings import MetadataLogSettings
from kbroker.cluster.kraft.snapshots import snapshot_name
from kbroker.cluster.kraft.voter_files import DURABLE_END, is_torn
from kbroker.metadata.metadata_record import MetadataLogError
from kbroker.storage.files.filesystem import SYSTEM_FILES, FileSystem
from kbroker.storage.log.partition_metadata import encode_partition_metadata
from kbroker.types import random_uuid
from tests.cluster.kraft.controllers import START_MS, config_record, data_batch
from tests.cluster.kraft.metadata_files import FOLDER, AtTime, snapshot_of
from tests.descriptors import files_left_by_crashes

__all__ = ["files_left_by_crashes"]
pytestmark = pytest.mark.usefixtures("files_left_by_crashes")

SETTINGS = MetadataLogSettings(segment_bytes=350, retention_bytes=-1, retention_ms=-1)


def directory_of(path: Path, files: FileSystem = SYSTEM_FILES) -> MetadataDirectory:
    return MetadataDirectory(files, str(path), SETTINGS, AtTime())


def opened(path: Path) -> Opened:
    """As a voter opens it; what was wrong stays out of the next start."""
    directory = directory_of(path)
    found = directory.open(is_voter=True)
    directory.close()
    again = directory_of(path).open(is_voter=True)
    assert (again.log, again.state) == (found.log, found.state), "the second start finds something else"
    assert data_of(again.batches) == data_of(found.batches)
    return found


def data_of(batches: list[MetadataBatch]) -> list[bytes]:
    return [each.data for each in batches]


def epoch_of(offset: int) -> int:
    return 1 + offset // 14


BATCHES = [data_batch(at, epoch_of(at), [config_record(at), config_record(at + 1)]) for at in range(0, 28, 2)]
SNAPSHOTS = (SnapshotId(8, 1), SnapshotId(18, 2))


def snapshot_data(snapshot: SnapshotId) -> bytes:
    return snapshot_of(snapshot.end_offset, snapshot.epoch)[1]


def write(path: Path, batches: int) -> MetadataDirectory:
    """A voter's directory with so many batches, two or fewer snapshots and the checkpoint of formatting."""
    folder = path / FOLDER
    folder.mkdir(parents=True)
    new = SnapshotId(0, 0)
    (folder / snapshot_name(new)).write_bytes(snapshot_of(0, 0)[1])
    directory = directory_of(path)
    directory.open(is_voter=True)
    for batch in BATCHES[:batches]:
        if batch.base_offset in (0, 14):
            directory.elected(QuorumState(batch.epoch, 3002, 3002))
        directory.append_durably((batch,))
        for snapshot in SNAPSHOTS:
            if batch.end_offset == snapshot.end_offset:
                directory.write_piece(snapshot, 0, snapshot_data(snapshot))
                directory.keep_own(snapshot, START_MS)
    return directory


class Layout(Enum):
    """How much of the log is there: all, from the older snapshot on, or from the newest snapshot on."""

    WHOLE = 0
    FROM_OLDER = 1
    FROM_NEWEST = 2


def filled(path: Path, layout: Layout, stop: str) -> Path:
    directory = write(path, len(BATCHES))
    folder = path / FOLDER
    if layout is not Layout.WHOLE:
        kept = SNAPSHOTS[layout.value - 1]
        directory._delete_snapshots([each for each in directory._snapshots if each.id < kept])
        directory._segments.delete_below(kept.end_offset)
    if stop == "clean":
        directory.close()
    elif stop == "power cut":
        # A batch was being written.
        last = max(folder.glob("*.log"))
        last.write_bytes(last.read_bytes() + data_batch(28, 2, [config_record(28)]).data[:70])
    return folder


DAMAGES = ("missing", "empty", "zeroed", "torn", "flipped", "stale")
STOPS = ("clean", "killed", "power cut")
KINDS = (
    "quorum-state",
    "partition.metadata",
    DURABLE_END,
    "formatted",
    "older snapshot",
    "newest snapshot",
    "first segment",
    "middle segment",
    "last segment",
)


def file_of(folder: Path, kind: str) -> Path:
    segments = sorted(folder.glob("*.log"))
    snapshots = {"formatted": SnapshotId(0, 0), "older snapshot": SNAPSHOTS[0], "newest snapshot": SNAPSHOTS[1]}
    if kind in snapshots:
        return folder / snapshot_name(snapshots[kind])
    if kind.endswith("segment"):
        return segments[{"first": 0, "middle": len(segments) // 2, "last": -1}[kind.split()[0]]]
    return folder / kind


def damage(path: Path, kind: str, early: Path) -> None:
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
        case "stale" if path.name == "partition.metadata":
            path.write_bytes(encode_partition_metadata(random_uuid()))
        case "stale" if path.suffix == ".checkpoint":
            path.write_bytes(snapshot_data(SNAPSHOTS[0]))
        case "stale":
            path.write_bytes((early / path.name).read_bytes() if (early / path.name).exists() else b"")


class Outcome(Enum):
    SAME = "all that was there, as it was"
    REFUSED = "it does not start"
    SHORTER = "nothing tells it from a crash in the middle of a write"


def outcome_of(kind: str, damage: str, stop: str, layout: Layout) -> Outcome:
    match kind:
        case "quorum-state":
            return Outcome.REFUSED
        case "partition.metadata":
            return Outcome.REFUSED if damage == "stale" else Outcome.SAME
        case "newest snapshot" if layout is Layout.FROM_NEWEST and damage != "stale":
            return Outcome.REFUSED
        case "first segment" if damage == "missing" and layout is not Layout.FROM_NEWEST:
            return Outcome.SAME  # As after the deletion of what is old: a snapshot has the records.
        case "last segment" if stop != "clean" and damage == "torn":
            return Outcome.SHORTER
        case "first segment" | "middle segment" | "last segment":
            return Outcome.REFUSED
    return Outcome.SAME


def cases() -> Iterator[tuple[Layout, str, str, str]]:
    for layout, kind, harm, stop in product(Layout, KINDS, DAMAGES, STOPS):
        if layout is Layout.WHOLE or kind not in ("formatted", "partition.metadata", "quorum-state", DURABLE_END):
            yield layout, kind, harm, stop


@pytest.mark.parametrize(("layout", "kind", "harm", "stop"), list(cases()))
def test_damage_of_every_file_of_a_voter(
    layout: Layout, kind: str, harm: str, stop: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A voter would vote twice, or let the quorum elect a leader that lacks what was committed."""
    folder = filled(tmp_path / "one", layout, stop)
    write(tmp_path / "early", 6).close()
    path = file_of(folder, kind)
    content = path.read_bytes() if path.exists() else None
    if content is None or (kind == "middle segment" and path == file_of(folder, "last segment")):
        pytest.skip("there is no such file")
    damage(path, harm, tmp_path / "early" / FOLDER)
    if path.exists() and path.read_bytes() == content:
        pytest.skip("it is as it was")
    before = {each.name: each.read_bytes() for each in folder.iterdir()}
    caplog.set_level(logging.WARNING, "kbroker.cluster")
    outcome = outcome_of(kind, harm, stop, layout)
    if outcome is Outcome.REFUSED:
        with pytest.raises(MetadataLogError) as caught:
            directory_of(tmp_path / "one").open(is_voter=True)
        assert f"{folder}/" in str(caught.value) and "remove this one from the quorum" in str(caught.value)
        assert {each.name: each.read_bytes() for each in folder.iterdir()} == before, "it has changed something"
        return
    found = opened(tmp_path / "one")
    assert found.state == QuorumState(2, 3002, 3002)
    written = [each for each in BATCHES if each.base_offset >= (found.log.snapshot or SnapshotId(0, 0)).end_offset]
    if outcome is Outcome.SHORTER:
        assert data_of(found.batches) == data_of(written[: len(found.batches)])
        assert any("cut off" in each for each in caplog.messages)
        assert found.log.end_offset >= SNAPSHOTS[1].end_offset
        return
    assert data_of(found.batches) == data_of(written) and found.log.end_offset == 28
    if stop == "power cut":
        assert any("cut off" in each for each in caplog.messages)
    if "snapshot" in kind or kind == "formatted":
        is_damaged = harm not in ("missing", "stale")
        assert any(path.name in each for each in caplog.messages) == is_damaged


def test_a_flipped_bit_of_the_last_batch_is_no_torn_end() -> None:
    """A record that was acknowledged would be cut off as one that was not."""
    data = BATCHES[0].data + BATCHES[1].data
    position, last = len(BATCHES[0].data), BATCHES[1].data
    for at, bit in product(range(len(last)), range(8)):
        flipped = last[:at] + bytes([last[at] ^ 1 << bit]) + last[at + 1 :]
        # The offset and the epoch are behind no checksum, and stay a batch.
        if 8 <= at < 12 or at >= 16:
            assert not is_torn(flipped, position), f"byte {at}, bit {bit}"
    for end in range(1, len(last)):
        assert is_torn(last[:end], position), end
        assert is_torn(last[:end] + bytes(600), position), end
        assert not is_torn(last[:end] + data, position), "there is a batch behind it"
    assert is_torn(bytes(len(last)), position)


def emptied(folder: Path) -> None:
    for each in folder.glob("*.log"):
        each.unlink()


def kept_by_kafka(folder: Path) -> None:
    for each in folder.glob("*.log"):
        each.with_suffix(".index").write_bytes(b"")
        each.with_suffix(".timeindex").write_bytes(bytes(12))
    (folder / "leader-epoch-checkpoint").write_bytes(b"0\n1\n1 0\n")
    (folder / f"{snapshot_name(SnapshotId(4, 1))}.deleted").write_bytes(b"")
    (folder / DURABLE_END).unlink()


def with_a_part(folder: Path) -> None:
    (folder / f"{snapshot_name(SnapshotId(22, 2))}.part").write_bytes(b"half")


@pytest.mark.parametrize(
    ("change", "is_taken"),
    [
        (emptied, False),
        (kept_by_kafka, True),
        (with_a_part, True),
        (lambda folder: (folder / "quorum-state").write_bytes(encode_quorum_state(QuorumState(1, 3001))), False),
        (lambda folder: (folder / "quorum-state").write_bytes(encode_quorum_state(QuorumState(9, 3001))), True),
        (lambda folder: (folder / f"{40:020}.log").write_bytes(b""), False),
        (lambda folder: (folder / f"{snapshot_name(SnapshotId(40, 2))}").write_bytes(snapshot_of(40, 2)[1]), False),
        (lambda folder: (folder / f"{snapshot_name(SnapshotId(19, 2))}").write_bytes(snapshot_of(19, 2)[1]), False),
        (lambda folder: (folder / f"{snapshot_name(SnapshotId(20, 1))}").write_bytes(snapshot_of(20, 1)[1]), False),
    ],
    ids=["no log", "Kafka's", "part", "older", "newer", "segment behind", "snapshot ahead", "no border", "epoch"],
)
def test_files_that_do_not_go_together(change: Callable[[Path], None], is_taken: bool, tmp_path: Path) -> None:
    """Files of several times or nodes would be taken for one log; or those of a healthy one be refused."""
    folder = filled(tmp_path, Layout.WHOLE, "clean")
    change(folder)
    if is_taken:
        assert opened(tmp_path).log.end_offset == 28
        return
    with pytest.raises(MetadataLogError, match=str(folder)):
        opened(tmp_path)


def test_a_new_directory_is_one_only_once(tmp_path: Path) -> None:
    """A voter whose files are deleted one by one would begin anew, with another vote in the same epoch."""
    opened(tmp_path)
    folder = tmp_path / FOLDER
    assert {each.name for each in folder.iterdir()} == {"quorum-state", "partition.metadata", f"{0:020}.log"}
    for name in ("quorum-state", f"{0:020}.log"):
        shutil.copytree(folder, tmp_path / name / FOLDER)
        directory = directory_of(tmp_path / name)
        directory.open(is_voter=True)
        directory.elected(QuorumState(1, -1, 3001))
        directory.close()
        (tmp_path / name / FOLDER / name).unlink()
        with pytest.raises(MetadataLogError, match=name if name == "quorum-state" else "no segment"):
            opened(tmp_path / name)


def test_a_formatted_directory_needs_its_voters(tmp_path: Path) -> None:
    """A voter of a dynamic quorum would start as one of a static quorum."""
    folder = tmp_path / FOLDER
    folder.mkdir()
    path = folder / snapshot_name(SnapshotId(0, 0))
    path.write_bytes(b"")
    with pytest.raises(MetadataLogError, match="voters"):
        opened(tmp_path)
    path.write_bytes(snapshot_of(0, 0)[1])
    assert opened(tmp_path).log.snapshot == SnapshotId(0, 0)
    path.write_bytes(b"")
    with pytest.raises(MetadataLogError, match="voters"):
        opened(tmp_path)


def test_a_shorter_log_of_a_newer_epoch_is_right(tmp_path: Path) -> None:
    """A voter whose log Apache Kafka has cut meanwhile, for a newer leader, would not start."""
    folder = filled(tmp_path, Layout.WHOLE, "clean")
    noted = (folder / DURABLE_END).read_bytes()
    directory = directory_of(tmp_path)
    directory.open(is_voter=True)
    directory.elected(QuorumState(3, 3001))
    directory.truncate(22)
    assert not (folder / DURABLE_END).exists()
    directory.append_durably((data_batch(22, 3, [config_record(1)]),))
    directory.close()
    (folder / DURABLE_END).write_bytes(noted)
    assert opened(tmp_path).log.end_offset == 23
