"""A clean that is stopped at every one of its calls to the file system: what a restart makes of each state.

Run with `-s` to see, for each crash point, the files that a restart would find.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbroker.config import LogConfig
from kbroker.records.batch import Record
from kbroker.records.compression import Codec
from kbroker.storage.files.filesystem import FileSystem
from kbroker.storage.log.log_values import AppendOrigin
from kbroker.storage.log.unified_log import UnifiedLog
from tests.cleaner.logs import DAY_MS, clean, cleaner, config, pairs_batch, put, records_of, table_of
from tests.storage.batches import START_MS, HandClock, append, environment, marker, open_log
from tests.storage.faulty_files import CrashedError, Fault, FaultyFiles, each_crash

MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
SLOW = pytest.mark.slow
# Two groups of several segments each, so that one is in place while the other is not.
CONFIG = config(segment_bytes=1300, internal_segment_bytes=400, segment_index_bytes=2048)
LATER_MS = START_MS + 2 * DAY_MS


@pytest.fixture
def scratch() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="kbroker-clean-crash-", dir=MEMORY))
    yield path
    shutil.rmtree(path)


def opened(directory: Path, files: FileSystem, settings: LogConfig = CONFIG) -> UnifiedLog:
    return open_log(directory, settings, recovery_point=1 << 40, env=environment(files, HandClock(LATER_MS)))


def make_log(directory: Path) -> dict[int, Record]:
    """Keys written again and again, tombstones, an aborted and a committed transaction; flushed and closed."""
    log = open_log(directory, CONFIG, env=environment(clock=HandClock(START_MS)))
    append(log, pairs_batch([(b"gone", b"aborted")], producer_id=7, epoch=0, sequence=0, transactional=True))
    append(log, marker(7, 0, abort=True), origin=AppendOrigin.COORDINATOR)
    append(log, pairs_batch([(b"there", b"committed")], producer_id=7, epoch=0, sequence=1, transactional=True))
    append(log, marker(7, 0, abort=False), origin=AppendOrigin.COORDINATOR)
    for at in range(24):
        codec = Codec.LZ4 if at % 3 == 0 else Codec.NONE
        put(log, (b"k%d" % (at % 5), b"%d" % at), (b"deleted%d" % (at % 2), b"x"), codec=codec)
    put(log, (b"deleted0", None), (b"deleted1", None))
    for at in range(6):
        put(log, (b"k%d" % (at % 5), b"last%d" % at))
    log.roll()
    held = {record.offset: record for record in records_of(log)}
    log.close()
    return held


def expected_table(held: dict[int, Record]) -> dict[bytes, bytes]:
    return table_of(record for record in held.values() if record.key != b"gone")


def check(directory: Path, held: dict[int, Record], *, files: FileSystem | None = None) -> UnifiedLog:
    """Reopens: every record is one that was written, at its offset, once, and the table is what it was."""
    log = opened(directory, files or FaultyFiles())
    log.check_invariants()
    found = records_of(log)
    offsets = [record.offset for record in found]
    assert offsets == sorted(set(offsets))
    for record in found:
        assert held[record.offset] == record
    assert expected_table({record.offset: record for record in found}) == expected_table(held)
    assert not [name for name in os.listdir(directory) if name.endswith((".cleaned", ".swap", ".deleted"))]
    for segment in log.local.segments:
        for slot in range(segment.offset_index.table.entries):
            offset, position = segment.offset_index._get(slot)
            place = segment.locate(offset)
            assert place is not None and place.position == position
    return log


def states(directory: Path) -> str:
    """The segment files, short: base offset, kind and suffix."""
    names = sorted(name for name in os.listdir(directory) if name[:20].isdigit() and "snapshot" not in name)
    return " ".join(f"{int(name[:20])}{name[20:]}" for name in names)


@pytest.fixture(params=["first clean", "second clean"])
def prepared(request: pytest.FixtureRequest, scratch: Path) -> tuple[Path, dict[int, Record]]:
    """A log before its first clean, or one whose tombstones' time is over before its second."""
    base = scratch / "base"
    held = make_log(base)
    if request.param == "second clean":
        log = opened(base, FaultyFiles())
        clean(log, now_ms=START_MS)
        put(log, (b"k0", b"newest"), timestamp=LATER_MS)
        log.roll()
        held = {record.offset: record for record in records_of(log)}
        log.close()
    return base, held


@each_crash
def test_crash_at_every_call_of_a_clean(
    prepared: tuple[Path, dict[int, Record]], fault: Fault, scratch: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A crash during compaction would lose the latest value of a key, or bring a deleted one back."""
    base, held = prepared
    seen: dict[str, int] = {}
    crash_at = 0
    while True:
        crash_at += 1
        directory = scratch / "run"
        shutil.copytree(base, directory)
        files = FaultyFiles(0, fault)
        log = opened(directory, files)
        files.crash_at = files.calls + crash_at
        try:
            clean(log, now_ms=LATER_MS, worker=cleaner(files), files=files)
            finished = True
        except CrashedError:
            finished = False
        files.crashed = True
        files.after_crash()
        seen.setdefault(states(directory), crash_at)
        again = check(directory, held)
        clean(again, now_ms=LATER_MS)
        assert expected_table({record.offset: record for record in records_of(again)}) == expected_table(held)
        assert len(records_of(again)) < len(held)
        put(again, (b"after", b"x"))
        again.close(clean=False)
        shutil.rmtree(directory)
        if finished:
            break
    assert crash_at > 40
    for state, first in seen.items():
        print(f"{fault.value} {first:4d}: {state}")
    with capsys.disabled():
        print(f" [{crash_at - 1} crash points, {len(seen)} states, {fault.value}]", end="")


@pytest.mark.slow
@pytest.mark.parametrize("fault", [Fault.TORN, Fault.LOSE, Fault.FORGET, Fault.REORDER])
def test_crash_at_every_call_of_the_repair(
    prepared: tuple[Path, dict[int, Record]], fault: Fault, scratch: Path
) -> None:
    """A second crash, while a swap is brought to its end, would lose what the first one left."""
    base, held = prepared
    crash_at = 0
    finished = False
    while not finished:
        crash_at += 1
        half = scratch / "half"
        shutil.copytree(base, half)
        files = FaultyFiles(0, fault)
        log = opened(half, files)
        files.crash_at = files.calls + crash_at
        try:
            clean(log, now_ms=LATER_MS, worker=cleaner(files), files=files)
            finished = True
        except CrashedError:
            pass
        files.crashed = True
        files.after_crash()
        second, repaired = 0, not any(name.endswith((".swap", ".cleaned", ".deleted")) for name in os.listdir(half))
        while not repaired:
            second += 1
            directory = scratch / "run"
            shutil.copytree(half, directory)
            again = FaultyFiles(second, fault)
            try:
                check(directory, held, files=again)
                repaired = True
            except CrashedError:
                pass
            again.crashed = True
            again.after_crash()
            print(f"{crash_at}, {second}: {states(half)} -> {states(directory)}")
            check(directory, held).close(clean=False)
            shutil.rmtree(directory)
        shutil.rmtree(half)


def test_an_error_at_every_call_leaves_a_log_that_goes_on(
    prepared: tuple[Path, dict[int, Record]], scratch: Path
) -> None:
    """One failing write during compaction would stop a partition, or damage it."""
    base, held = prepared
    crash_at = 0
    finished = False
    while not finished:
        crash_at += 1
        directory = scratch / "run"
        shutil.copytree(base, directory)
        files = FaultyFiles(0, Fault.ERROR)
        log = opened(directory, files)
        files.crash_at = files.calls + crash_at
        try:
            clean(log, now_ms=LATER_MS, worker=cleaner(files), files=files)
            finished = True
        except OSError:
            pass
        log.check_invariants()
        found = {record.offset: record for record in records_of(log)}
        assert expected_table(found) == expected_table(held), crash_at
        if not finished:
            # Once as after a restart, once as the next attempt finds it.
            copied = scratch / "copy"
            shutil.copytree(directory, copied)
            check(copied, held).close(clean=False)
            shutil.rmtree(copied)
            clean(log, now_ms=LATER_MS, worker=cleaner(files), files=files)
            log.check_invariants()
            assert expected_table({record.offset: record for record in records_of(log)}) == expected_table(held)
        log.close(clean=False)
        again = check(directory, held)
        clean(again, now_ms=LATER_MS)
        assert expected_table({record.offset: record for record in records_of(again)}) == expected_table(held)
        again.close(clean=False)
        shutil.rmtree(directory)
    assert crash_at > 40
