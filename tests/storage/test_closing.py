"""The clean end of many logs: one call makes them all durable, and no marker lies."""

from __future__ import annotations

import errno
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbroker.config import BrokerConfig, LogConfig
from kbroker.storage.directories.log_dirs import CLEAN_SHUTDOWN_FILE
from kbroker.storage.files.filesystem import FileSystem
from kbroker.storage.manager import log_closing
from kbroker.storage.manager.log_manager import LogManager
from kbroker.types import TopicPartition, random_uuid
from tests.storage.batches import HandClock, append, batch, read_all
from tests.storage.faulty_files import CrashedError, Fault, FaultyFiles

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
TOPIC_ID = random_uuid()
CONFIG = LogConfig(internal_segment_bytes=330, index_interval_bytes=60)
LOGS, BATCHES = 4, 7
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None


@pytest.fixture
def scratch() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="kbroker-close-", dir=MEMORY))
    yield path
    shutil.rmtree(path)


def manager_of(directory: Path, files: FileSystem) -> LogManager:
    return LogManager(BrokerConfig.from_mapping({"log.dirs": str(directory)}), HandClock(), files)


def fill(directory: Path, files: FileSystem) -> LogManager:
    manager = manager_of(directory, files)
    manager.start(CLUSTER)
    for index in range(LOGS):
        log = manager.get_or_create_log(TopicPartition("t", index), TOPIC_ID, CONFIG)
        for number in range(BATCHES):
            append(log, batch([b"%05d" % number], producer_id=index, epoch=0, sequence=number))
    return manager


def check(directory: Path) -> bool:
    """Whether the stop was clean; when it says so, all has to be there."""
    clean = (directory / CLEAN_SHUTDOWN_FILE).exists()
    manager = manager_of(directory, FileSystem())
    manager.start(CLUSTER)
    for index in range(LOGS):
        log = manager.logs.get(TopicPartition("t", index))
        found = [value for _, value in read_all(log)] if log is not None else []
        assert found == [b"%05d" % number for number in range(len(found))]
        if clean:
            assert log is not None
            assert len(found) == BATCHES, "a clean stop lost records"
            assert log.recovery_point == log.log_end_offset
            assert log.producer_state.producers[index].last_sequence == BATCHES - 1
        if log is not None:
            log.check_invariants()
    manager.release()
    return clean


class CloseFiles(FaultyFiles):
    """Counts calls from the close on; the moment of the crash is the number of one of these."""

    armed = False

    def _count(self, what: str) -> bool:
        return super()._count(what) if self.armed or self.crashed else False


@pytest.mark.parametrize("fault", [Fault.TORN, Fault.LOSE, Fault.KEEP, Fault.GARBLE])
def test_crash_at_every_call_of_the_close(
    fault: Fault, scratch: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A stop that calls itself clean but is not loses what nobody looks for any more."""
    monkeypatch.setattr(log_closing, "AT_ONCE_FROM", 2)
    crash_at = 0
    while True:
        crash_at += 1
        directory = scratch / "run"
        files = CloseFiles(crash_at, fault)
        manager = fill(directory, files)
        files.armed = True
        finished = True
        try:
            manager.shutdown()
        except CrashedError:
            finished = False
            manager.release()
        files.after_crash()
        assert check(directory) or not finished
        shutil.rmtree(directory)
        if finished:
            break
    with capsys.disabled():
        print(f" [{crash_at - 1} crash points, {fault.value}]", end="")


class UntoldFiles(FileSystem):
    """A file system that could not write something back, or an old kernel; counts fsyncs."""

    def __init__(self, *, old: bool) -> None:
        self.old = old
        self.fsyncs = 0

    def sync_file_system(self, fd: int) -> bool:
        if self.old:
            return False
        raise OSError(errno.EIO, "injected")

    def fsync(self, fd: int) -> None:
        self.fsyncs += 1


@pytest.mark.parametrize("old", [True, False])
def test_logs_are_flushed_one_by_one_where_all_at_once_proves_nothing(
    old: bool, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stop would be unclean on some systems for ever, or clean without having flushed anything."""
    monkeypatch.setattr(log_closing, "AT_ONCE_FROM", 2)
    files = UntoldFiles(old=old)
    manager = fill(scratch / "run", files)
    files.fsyncs = 0
    manager.shutdown()
    assert files.fsyncs > LOGS * 3
    assert check(scratch / "run")


def test_many_logs_cost_one_call(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop with thousands of partitions would outlast the supervisor's patience, and end as a crash."""
    monkeypatch.setattr(log_closing, "AT_ONCE_FROM", 2)
    files = FaultyFiles()
    manager = fill(scratch / "run", files)
    for log in manager.logs.values():
        log.local.wait_for_flushes()
    synced: list[str] = []
    monkeypatch.setattr(FaultyFiles, "sync_path", lambda self, path: synced.append(path))
    manager.shutdown()
    assert synced == []
    assert check(scratch / "run")
