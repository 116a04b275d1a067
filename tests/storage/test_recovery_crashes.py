"""Recovery that is stopped at every one of its own calls to the file system, over what crashes leave behind.

Also of `kbroker.storage.recovery.log_mending`, `kbroker.storage.recovery.log_recoveries`,
`kbroker.storage.recovery.segment_split`.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kbroker.config import LogConfig
from kbroker.storage.files.checkpoints import RECOVERY_POINT_CHECKPOINT, OffsetCheckpoint
from kbroker.storage.files.filesystem import FileSystem
from kbroker.storage.log.log_values import AppendOrigin
from kbroker.storage.log.unified_log import UnifiedLog
from kbroker.storage.recovery import recovery_saver
from kbroker.storage.recovery.log_loader import LoadRequest, load_log
from kbroker.storage.recovery.recovery_saver import Finished, RecoverySaver
from tests.storage.batches import START_MS, TP, UNSYNCED_FILES, append, batch, environment, marker, open_log, read_all
from tests.storage.faulty_files import CrashedError, Fault, FaultyFiles

CONFIG = LogConfig(internal_segment_bytes=330, index_interval_bytes=60)
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
SLOW = pytest.mark.slow


def filled(directory: Path, count: int = 14) -> UnifiedLog:
    log = open_log(directory, CONFIG)
    for number in range(count):
        append(log, batch([b"%05d" % number], timestamp=START_MS + number, producer_id=9, epoch=0, sequence=number))
    return log


def logs_of(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.log"))


def unflushed(directory: Path) -> None:
    """Nothing but the records: every index, snapshot and epoch is to be found again."""
    filled(directory).close(clean=False)
    for path in directory.iterdir():
        if path.suffix != ".log":
            path.unlink()


def torn(directory: Path) -> None:
    """The last batch is not whole."""
    filled(directory).close(clean=False)
    last = logs_of(directory)[-1]
    last.write_bytes(last.read_bytes()[:-7])


def damaged(directory: Path) -> None:
    """A bad batch with segments after it, which have to go before it is cut."""
    filled(directory, 20).close(clean=False)
    second = logs_of(directory)[1]
    data = bytearray(second.read_bytes())
    data[-3] ^= 0xFF
    second.write_bytes(data)


def overlapping(directory: Path) -> None:
    """A segment that begins before the one in front of it ends."""
    filled(directory, 20).close(clean=False)
    files = logs_of(directory)
    files[2].rename(directory / f"{int(files[2].stem) - 1:020d}.log")


def replaced(directory: Path) -> None:
    """A compaction that was killed between its renames."""
    filled(directory).close()
    first, second = logs_of(directory)[:2]
    (directory / f"{first.name}.swap").write_bytes(first.read_bytes() + second.read_bytes())
    (directory / f"{first.stem}.index.swap").write_bytes(b"")


def unfinished(directory: Path) -> None:
    """A compaction that was killed before its renames, and segments on their way out."""
    filled(directory).close(clean=False)
    second = logs_of(directory)[1]
    (directory / f"{second.name}.swap").write_bytes(second.read_bytes()[:75])
    (directory / f"{second.name}.cleaned").write_bytes(second.read_bytes()[75:])
    (directory / "00000000000000000000.log.deleted").write_bytes(b"x")


def too_wide(directory: Path) -> None:
    """A segment whose offsets do not fit its index."""
    directory.mkdir()
    content = bytearray()
    for offset in (0, 1, 5_000_000_000, 5_000_000_001, 9_000_000_000):
        one = batch([b"%d" % offset])
        one[0:8] = offset.to_bytes(8)
        content += one
    (directory / f"{0:020d}.log").write_bytes(content)


def transactional(directory: Path) -> None:
    """Aborted transactions over several segments."""
    log = open_log(directory, CONFIG)
    for number in range(6):
        append(log, batch(producer_id=1, epoch=0, sequence=number, transactional=True))
        append(log, marker(1, 0, abort=number % 2 == 0), origin=AppendOrigin.COORDINATOR)
    append(log, batch(producer_id=1, epoch=0, sequence=6, transactional=True))
    log.close(clean=False)
    for path in directory.glob("*.txnindex"):
        path.unlink()


IMAGES = (unflushed, torn, damaged, overlapping, replaced, unfinished, too_wide, transactional)


@pytest.fixture
def scratch() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="kbroker-recovery-", dir=MEMORY))
    yield path
    shutil.rmtree(path)


class SaverInPlace(RecoverySaver):
    """Saves what is finished at once, so that its calls count among those of the recovery."""

    def add(self, finished: Finished) -> None:
        self._waiting.append(finished)
        self._save()


def recover(root: Path, files: FileSystem) -> UnifiedLog:
    """A start that saves its progress: from the recovery points that the one before has left."""
    checkpoint = OffsetCheckpoint(files, f"{root}/{RECOVERY_POINT_CHECKPOINT}")
    points = checkpoint.read()
    saver = SaverInPlace(files, checkpoint, points)
    request = LoadRequest(f"{root}/log", TP, CONFIG, False, points.get(TP, 0), 0, 1 << 60, None, saver)
    return load_log(request, environment(files))


def state_of(log: UnifiedLog) -> object:
    """All that a client can see of a log, and where its indexes lead."""
    log.check_invariants()
    indexes = [
        (segment.base_offset, segment.offset_index._get(slot))
        for segment in log.local.segments
        for slot in range(segment.offset_index.table.entries)
    ]
    producers = log.producer_state.producers
    return (
        log.log_start_offset,
        log.log_end_offset,
        log.last_stable_offset,
        read_all(log),
        indexes,
        [segment.size for segment in log.local.segments],
        [segment.txn_index.entries for segment in log.local.segments],
        log.leader_epoch_cache.entries,
        [
            (producer, producers[producer].last_sequence, producers[producer].last_offset)
            for producer in sorted(producers)
        ],
    )


@pytest.mark.parametrize("image", IMAGES)
@pytest.mark.parametrize(
    "fault",
    [Fault.TORN, Fault.LOSE, pytest.param(Fault.KEEP, marks=SLOW), pytest.param(Fault.GARBLE, marks=SLOW)],
)
def test_crash_at_every_call_of_a_recovery(
    image: Callable[[Path], None],
    fault: Fault,
    scratch: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A machine that fails again while the broker starts would lose what the first failure had left."""
    monkeypatch.setattr(recovery_saver, "AFTER_SECONDS", 0.0)
    monkeypatch.setattr(recovery_saver, "INTERVAL_SECONDS", 0.0)
    base = scratch / "base"
    base.mkdir()
    image(base / "log")
    shutil.copytree(base, scratch / "whole")
    expected = state_of(recover(scratch / "whole", UNSYNCED_FILES))
    crash_at = 0
    while True:
        crash_at += 1
        root = scratch / "run"
        shutil.copytree(base, root)
        files = FaultyFiles(crash_at, fault)
        try:
            recover(root, files)
            finished = True
        except CrashedError:
            finished = False
        files.crashed = True
        files.after_crash()
        log = recover(root, UNSYNCED_FILES)
        assert state_of(log) == expected, f"crash at call {crash_at}"
        append(log, batch([b"after"]))
        assert read_all(log)[-1][1] == b"after"
        log.close(clean=False)
        shutil.rmtree(root)
        if finished:
            break
    with capsys.disabled():
        print(f" [{image.__name__}: {crash_at - 1} crash points, {fault.value}]", end="")
