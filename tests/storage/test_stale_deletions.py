"""Deletions that wait for file.delete.delay.ms, while files of the same name come again.

Also of `kbroker.storage.log.segment_removal`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kbroker.config import BrokerConfig, LogConfig
from kbroker.storage.files.log_dir_failure import LogDirFailureChannel
from kbroker.storage.files.open_files import OpenFiles
from kbroker.storage.log.local_log import LogEnvironment
from kbroker.storage.log.log_segment import LogSegment
from kbroker.storage.log.unified_log import UnifiedLog
from kbroker.storage.manager.delayed_deletions import DelayedDeletions
from kbroker.storage.manager.log_manager import LogManager
from kbroker.types import TopicPartition, random_uuid
from tests.cleaner.logs import clean, put
from tests.cleaner.logs import config as compacted
from tests.storage.batches import (
    UNSYNCED_FILES,
    HandClock,
    UnsyncedFiles,
    append,
    batch,
    environment,
    open_log,
    read_all,
)
from tests.storage.moves import Inline, Storage, records_of

TP = TopicPartition("orders", 0)
CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
CONFIG = LogConfig(internal_segment_bytes=200, file_delete_delay_ms=60_000)


class Busy(Inline):
    """Carries jobs out at once, but deletions once it is not busy any more."""

    def __init__(self) -> None:
        self.is_busy = False
        self._jobs: list[Callable[[], object]] = []

    def submit(self, job: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        if not self.is_busy or getattr(job, "__func__", None) is not DelayedDeletions._work:
            return super().submit(job, *args, **kwargs)
        self._jobs.append(partial(job, *args, **kwargs))
        return Future()

    def go_on(self) -> None:
        self.is_busy = False
        while self._jobs:
            self._jobs.pop(0)()


def manager_in(root: Path, clock: HandClock, executor: Executor | None = None) -> LogManager:
    config = BrokerConfig.from_mapping({"log.dirs": str(root)})
    manager = LogManager(config, clock, UNSYNCED_FILES, executor or Inline())
    manager.start(CLUSTER)
    return manager


def retire_some(log: UnifiedLog, *, renamed_at_once: bool = True) -> set[str]:
    """Fills the log and takes its first half away; the names that wait to be unlinked."""
    first = log.log_end_offset
    for at in range(20):
        append(log, batch([b"v%03d" % at]))
    log.delete_records_before(first + 10)
    if not renamed_at_once:
        assert waiting(log) == set()
        log.local.finish_removals()
    return waiting(log)


def waiting(log: UnifiedLog) -> set[str]:
    return {path.name for path in Path(log.directory).iterdir() if path.suffix == ".deleted"}


def whole(segment: LogSegment) -> bytes:
    return UNSYNCED_FILES.pread(segment.file().fd, segment.size, 0)


def test_a_topic_made_again_keeps_its_files_for_their_own_time(tmp_path: Path) -> None:
    """Deletions of the topic that had the name before would take files from the one that has it now."""
    clock = HandClock()
    manager = manager_in(tmp_path, clock)
    old = manager.get_or_create_log(TP, random_uuid(), CONFIG)
    assert retire_some(old)
    manager.delete_log(TP)
    clock.now += 30_000
    new = manager.get_or_create_log(TP, random_uuid(), CONFIG)
    retired = retire_some(new)
    assert retired
    clock.now += 31_000
    manager.run_due()
    assert waiting(new) == retired
    clock.now += 30_000
    manager.run_due()
    assert waiting(new) == set()
    manager.shutdown()


def test_a_thread_that_deletes_for_a_topic_that_is_gone_meets_nothing_of_the_next(tmp_path: Path) -> None:
    """A deletion that a busy disk holds up would end in the directory of the topic that was made meanwhile."""
    clock = HandClock()
    busy = Busy()
    manager = manager_in(tmp_path, clock, busy)
    old = manager.get_or_create_log(TP, random_uuid(), CONFIG)
    retire_some(old)
    clock.now += 61_000
    busy.is_busy = True
    manager.run_due()
    manager.delete_log(TP)
    # The thread had asked whether the log is still there before it was deleted.
    old.local.left = False
    new = manager.get_or_create_log(TP, random_uuid(), CONFIG)
    retired = retire_some(new, renamed_at_once=False)
    busy.go_on()
    assert waiting(new) == retired
    manager.shutdown()


def test_a_segment_that_leaves_after_one_of_its_name_leaves_that_one_alone(tmp_path: Path) -> None:
    """A reader that holds a segment would read the bytes of another at positions that mean nothing there."""
    later: list[Callable[[], None]] = []
    env = LogEnvironment(UNSYNCED_FILES, HandClock(), OpenFiles(64), lambda _delay_ms, action: later.append(action))
    log = open_log(tmp_path / "log", compacted(file_delete_delay_ms=60_000), env=env)
    held: list[tuple[LogSegment, bytes]] = []
    checkpoint = 0
    for turn in range(3):
        for at in range(12):
            put(log, (b"k%d" % (at % 3), b"turn %d, value %d, " % (turn, at) + b"x" * 40))
        log.roll()
        segment = log.local.segments.first
        held.append((segment, whole(segment)))
        checkpoint = clean(log, checkpoint).end_offset
        assert log.local.segments.first is not segment
    assert len({segment.base_offset for segment, _ in held}) == 1
    for segment, content in held:
        assert whole(segment) == content
    for turn, action in enumerate(later):
        action()
        if turn == 0:
            assert whole(held[-1][0]) == held[-1][1]
    assert waiting(log) == set()
    log.close()


def test_a_segment_that_has_left_is_looked_up_in_its_own_indexes(tmp_path: Path) -> None:
    """A search that a compaction overtook would take the new segment's index for the old one's and miss records."""
    later: list[Callable[[], None]] = []
    env = LogEnvironment(UNSYNCED_FILES, HandClock(), OpenFiles(64), lambda _delay_ms, action: later.append(action))
    log = open_log(tmp_path / "log", compacted(internal_segment_bytes=4000, file_delete_delay_ms=60_000), env=env)
    for at in range(60):
        put(log, (b"k%d" % (at % 3), b"value %d, " % at + b"x" * 40))
    log.roll()
    log.close()
    # Now the entries come from the files.
    log = open_log(tmp_path / "log", log.config, env=env, clean=True)
    segment = log.local.segments.first
    end = segment.base_offset + 20
    before = [segment.locate(offset) for offset in range(segment.base_offset, end)]
    clean(log)
    assert [segment.locate(offset) for offset in range(segment.base_offset, end)] == before
    log.close()


@pytest.mark.parametrize("appended", [2, 6])
def test_a_topic_made_again_does_not_begin_where_the_last_one_did(tmp_path: Path, appended: int) -> None:
    """After a crash the records of a topic would be gone, because one that had its name began at a later offset."""
    manager = manager_in(tmp_path, HandClock())
    old = manager.get_or_create_log(TP, random_uuid(), LogConfig())
    other = manager.get_or_create_log(TopicPartition("others", 0), random_uuid(), LogConfig())
    for log in (old, other):
        for at in range(9):
            append(log, batch([b"old %d" % at]))
        log.delete_records_before(4)
        log.flush()
    manager.checkpoints.write_all()
    manager.delete_log(TP)
    new = manager.get_or_create_log(TP, random_uuid(), LogConfig())
    values = [append(new, batch([b"new %d" % at])).first_offset for at in range(appended)]
    manager.release()
    again = manager_in(tmp_path, HandClock())
    assert [offset for offset, _ in read_all(again.logs[TP])] == values
    assert again.logs[TP].log_start_offset == 0
    assert again.checkpoints[str(tmp_path)].recovery_points.read() == {other.topic_partition: 9}
    assert again.logs[other.topic_partition].log_start_offset == 4
    again.release()


def test_a_checkpoint_on_its_way_to_the_disk_does_not_speak_of_a_topic_made_again(tmp_path: Path) -> None:
    """A write that a busy disk holds up would bring the offsets of the topic back that had the name before."""

    class Slow(UnsyncedFiles):
        def rename(self, source: str, target: str) -> None:
            if target.endswith("-checkpoint"):
                writing.set()
                assert going_on.wait(60)
            super().rename(source, target)

    writing, going_on = threading.Event(), threading.Event()
    config = BrokerConfig.from_mapping({"log.dirs": str(tmp_path)})
    manager = LogManager(config, HandClock(), Slow())
    going_on.set()
    manager.start(CLUSTER)
    old = manager.get_or_create_log(TP, random_uuid(), LogConfig())
    for _ in range(9):
        append(old, batch())
    old.flush()
    writing.clear()
    going_on.clear()
    manager.checkpoints.start_recovery_points()
    assert writing.wait(60)
    manager.delete_log(TP)
    threading.Timer(0.05, going_on.set).start()
    manager.get_or_create_log(TP, random_uuid(), LogConfig())
    manager.release()
    assert manager.checkpoints[str(tmp_path)].recovery_points.read() == {}


def test_a_topic_made_again_keeps_what_a_thread_was_to_rename_for_the_last_one(tmp_path: Path) -> None:
    """Retention of a topic that is gone would take the segments of the one that was made meanwhile."""
    busy = Busy()
    manager = manager_in(tmp_path, HandClock(), busy)
    old = manager.get_or_create_log(TP, random_uuid(), CONFIG)
    busy.is_busy = True
    retire_some(old, renamed_at_once=False)
    for at in range(20):
        append(old, batch([b"more %d" % at]))
    old.delete_records_before(30)
    manager.delete_log(TP)
    new = manager.get_or_create_log(TP, random_uuid(), CONFIG)
    values = [append(new, batch([b"new %d" % at])).first_offset for at in range(20)]
    busy.go_on()
    assert waiting(new) == set()
    manager.shutdown()
    again = manager_in(tmp_path, HandClock())
    assert [offset for offset, _ in read_all(again.logs[TP])] == values
    again.release()


@pytest.mark.parametrize("way", ["restart", "move"])
def test_names_that_are_given_again_wait_for_no_thread(tmp_path: Path, way: str) -> None:
    """A log that begins anew, or moves, would lose its first segments to the deletion of what was there before."""
    busy = Busy()

    async def run() -> None:
        storage = Storage(tmp_path, executor=busy)
        moves = storage.lead()
        log = storage.log
        for at in range(40):
            append(log, batch([b"value %d" % at * 20]))
        log.maybe_increment_high_watermark(40)
        busy.is_busy = True
        log.delete_records_before(30)
        if way == "restart":
            log.truncate_fully_and_start_at(0)
        else:
            busy.is_busy = False
            await storage.move(storage.b)
            await storage.move(storage.a)
        first = log.log_end_offset
        offsets = [append(log, batch([b"value %d" % at * 20])).first_offset for at in range(40)]
        assert offsets[0] == first
        busy.go_on()
        assert [record.offset for record in records_of(log)][-40:] == offsets
        assert [segment.path for segment in log.local.segments if not Path(segment.path).exists()] == []
        await moves.stop()
        storage.logs.shutdown()

    asyncio.run(run())


def test_a_crash_before_old_segments_are_renamed_leaves_a_log_without_holes(tmp_path: Path) -> None:
    """A broker that is killed while thousands of segments are deleted would start with gaps in its logs."""
    for killed_after in range(0, 10, 3):
        root = tmp_path / str(killed_after)
        busy = Busy()
        manager = manager_in(root, HandClock(), busy)
        log = manager.get_or_create_log(TP, random_uuid(), CONFIG)
        for at in range(40):
            append(log, batch([b"v%03d" % at]))
        busy.is_busy = True
        log.delete_records_before(30)
        bases = [segment.base_offset for segment in log.local._removals[0]._segments]
        assert len(bases) > 10
        for segment in list(log.local._removals[0]._segments)[:killed_after]:
            segment.rename_suffix(".1.deleted")
        manager.release()
        again = manager_in(root, HandClock())
        log = again.logs[TP]
        assert [offset for offset, _ in read_all(log)] == list(range(bases[killed_after], 40))
        log.maybe_increment_high_watermark(40)
        log.delete_records_before(30)
        assert [offset for offset, _ in read_all(log)] == list(range(30, 40))
        again.shutdown()


class NotingNames(UnsyncedFiles):
    """Knows which names of a directory a power cut would leave."""

    def __init__(self) -> None:
        super().__init__()
        self.durable: set[str] = set()

    def fsync_directory(self, path: str) -> None:
        self.durable = {each.name for each in Path(path).iterdir()}


@pytest.mark.parametrize("delay_ms", [0, 60_000])
def test_the_name_that_tells_where_an_emptied_log_goes_on_is_durable_before_old_ones_go(
    tmp_path: Path, delay_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut behind the retention of all records would leave a log that begins at 0: its offsets came again."""
    files = NotingNames()
    log = open_log(tmp_path / "orders-0", replace(CONFIG, file_delete_delay_ms=delay_ms), env=environment(files=files))
    for _ in range(5):
        append(log, batch([b"v"]))
    log.roll()
    active = Path(log.local.segments.active.path).name
    renamed: list[bool] = []
    rename = LogSegment.rename_suffix

    def noted(segment: LogSegment, suffix: str) -> None:
        renamed.append(active in files.durable)
        rename(segment, suffix)

    monkeypatch.setattr(LogSegment, "rename_suffix", noted)
    files.durable.clear()  # The thread that flushes behind a roll has not come to it.
    log.delete_records_before(log.log_end_offset)
    log.local.finish_removals()
    assert renamed and all(renamed)
    log.close()


def test_the_next_sweep_comes_when_the_first_deletion_is_due() -> None:
    """Deleted segments would hold their disk space for up to a second more than they were to wait."""
    clock = HandClock()
    done: list[str] = []
    deletions = DelayedDeletions(clock, Inline(), LogDirFailureChannel(UNSYNCED_FILES))
    assert deletions.next_due_ms(1000) == 1000
    deletions.later(60_000, lambda: done.append("late"))
    deletions.later(1250, lambda: done.append("soon"))
    assert deletions.next_due_ms(1000) == 1000
    clock.now += 1000
    assert deletions.next_due_ms(1000) == 250
    clock.now += 249
    deletions.run_due()
    assert deletions.next_due_ms(1000) == 1
    clock.now += 1
    deletions.run_due()
    assert deletions.next_due_ms(1000) == 1000
    assert done == ["soon"]
