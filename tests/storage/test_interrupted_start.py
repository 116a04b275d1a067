"""A start that ends before its time, and the markers that say whether a directory's last stop was a clean one."""

from __future__ import annotations

import asyncio
import errno
import json
import threading
from pathlib import Path

import pytest

from kbroker._fast.log.segment_scan import SegmentScan
from kbroker.broker import Broker
from kbroker.config import BrokerConfig, LogConfig
from kbroker.metadata.local_store import LocalStore
from kbroker.storage.directories.log_dirs import CLEAN_SHUTDOWN_FILE
from kbroker.storage.directories.strays import KnownTopic
from kbroker.storage.files.checkpoints import (
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
)
from kbroker.storage.files.filesystem import DirectoryEntry, FileSystem
from kbroker.storage.manager.log_manager import LogManager
from kbroker.storage.recovery.recovery_progress import LoadingInterruptedError
from kbroker.types import TopicPartition, random_uuid
from tests.storage.batches import HandClock, UnsyncedFiles, append, batch, read_all

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
TOPIC_ID = random_uuid()
CONFIG = LogConfig(internal_segment_bytes=900, index_interval_bytes=150)
TOPICS = {"t": KnownTopic(TOPIC_ID, CONFIG)}
PARTITIONS, BATCHES = 4, 30


def manager_of(*directories: Path, files: FileSystem | None = None) -> LogManager:
    values = {"log.dirs": ",".join(map(str, directories)), "num.recovery.threads.per.data.dir": "1"}
    return LogManager(BrokerConfig.from_mapping(values), HandClock(), files or UnsyncedFiles())


def opened(*directories: Path, files: FileSystem | None = None) -> LogManager:
    manager = manager_of(*directories, files=files)
    manager.open_dirs()
    manager.claim(CLUSTER)
    manager.begin_epoch(7, 6)
    return manager


def fill(*directories: Path) -> LogManager:
    """Partitions over all directories, the first record of each deleted."""
    manager = opened(*directories)
    manager.load_all(TOPICS)
    for index in range(PARTITIONS):
        log = manager.get_or_create_log(TopicPartition("t", index), TOPIC_ID, CONFIG)
        for number in range(BATCHES):
            append(log, batch([b"%05d" % number]))
        log.delete_records_before(1)
    return manager


def marker(directory: Path) -> int | None:
    """The broker epoch in a directory's marker; None without a marker."""
    path = directory / CLEAN_SHUTDOWN_FILE
    epoch: int | None = json.loads(path.read_text())["brokerEpoch"] if path.exists() else None
    return epoch


def checkpoints(directory: Path) -> list[str]:
    return [(directory / name).read_text() for name in (LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT)]


def check_all_is_there(manager: LogManager) -> None:
    manager.load_all(TOPICS)
    assert len(manager.logs) == PARTITIONS
    for log in manager.logs.values():
        assert log.log_start_offset == 1
        assert [value for _, value in read_all(log)][-1] == b"%05d" % (BATCHES - 1)
    manager.shutdown()


class EndingFiles(UnsyncedFiles):
    """Calls for the end of the loading when the `at`-th partition is listed."""

    def __init__(self, at: int) -> None:
        self.manager: LogManager | None = None
        self.left = at

    def list_directory(self, path: str) -> list[DirectoryEntry]:
        if path.rpartition("/")[2].startswith("t-") and self.manager is not None:
            self.left -= 1
            if self.left == 0:
                self.manager.interrupt_loading()
        return super().list_directory(path)


def test_an_interrupted_start_leaves_a_clean_directory_clean(tmp_path: Path) -> None:
    """Everything would be recovered because the broker was stopped while it started (Kafka's LogManager.shutdown)."""
    fill(tmp_path).shutdown()
    before = checkpoints(tmp_path)
    files = EndingFiles(2)
    manager = files.manager = opened(tmp_path, files=files)
    with pytest.raises(LoadingInterruptedError):
        manager.load_all(TOPICS)
    assert marker(tmp_path) is None, "a crash while loading is no clean stop"
    assert len(manager.logs) == 2
    manager.shutdown()
    assert marker(tmp_path) == 7
    assert checkpoints(tmp_path) == before, "they must not forget the logs that were not loaded"
    again = opened(tmp_path)
    assert again.directories[0].clean
    check_all_is_there(again)


class HeldFiles(UnsyncedFiles):
    """The recovery of one log directory stops at its first segment until `go` is set."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.held = threading.Event()
        self.go = threading.Event()
        self.paths: dict[int, str] = {}

    def open(self, path: str, flags: int, mode: int = 0o644) -> int:
        fd = super().open(path, flags, mode)
        self.paths[fd] = path
        return fd

    def scan_segment(self, fd: int, position: int, end: int, *, check_crc: bool, max_batches: int) -> SegmentScan:
        if self.paths[fd].startswith(str(self.directory)):
            self.held.set()
            assert self.go.wait(60)
        return super().scan_segment(fd, position, end, check_crc=check_crc, max_batches=max_batches)


@pytest.mark.parametrize("first_was_clean", [True, False])
def test_an_interrupted_recovery_ends_soon_and_costs_the_other_directories_nothing(
    tmp_path: Path, first_was_clean: bool
) -> None:
    """A stop would wait for hours of recovery, or be followed by a recovery of all other disks as well."""
    one, two = tmp_path / "one", tmp_path / "two"
    manager = fill(one, two)
    unclean = [two] if first_was_clean else [one, two]
    manager.shutdown()
    for directory in unclean:
        (directory / CLEAN_SHUTDOWN_FILE).unlink()
        (directory / RECOVERY_POINT_CHECKPOINT).unlink()
    files = HeldFiles(two)
    manager = opened(one, two, files=files)
    outcome: list[BaseException] = []

    def load() -> None:
        try:
            manager.load_all(TOPICS)
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=load)
    thread.start()
    assert files.held.wait(60)
    while sum(log.parent == str(one) for log in list(manager.logs.values())) < PARTITIONS // 2:
        assert thread.is_alive()
    manager.interrupt_loading()
    files.go.set()
    thread.join(60)
    assert [type(error) for error in outcome] == [LoadingInterruptedError]
    assert any(segments for segments in manager.progress.threads().values())
    manager.shutdown()
    assert (marker(one), marker(two)) == (7, None)
    again = opened(one, two)
    assert [directory.clean for directory in again.directories] == [True, False]
    check_all_is_there(again)


TOO_MANY = OSError(errno.EMFILE, "Too many open files")


class UnlistableFiles(UnsyncedFiles):
    """The directory of one partition cannot be read."""

    def list_directory(self, path: str) -> list[DirectoryEntry]:
        if path.endswith("/t-2"):
            raise TOO_MANY
        return super().list_directory(path)


def test_a_start_that_fails_at_one_log_leaves_the_directory_clean(tmp_path: Path) -> None:
    """Too low a limit of descriptors would cost a recovery of everything once it is put right."""
    fill(tmp_path).shutdown()
    manager = opened(tmp_path, files=UnlistableFiles())
    with pytest.raises(OSError, match="Too many"):
        manager.load_all(TOPICS)
    manager.shutdown()
    assert marker(tmp_path) == 7
    check_all_is_there(opened(tmp_path))


class UnreadableFiles(UnsyncedFiles):
    """An index that is built again cannot be finished."""

    def scan_segment(self, fd: int, position: int, end: int, *, check_crc: bool, max_batches: int) -> SegmentScan:
        raise TOO_MANY


def test_a_start_that_fails_while_an_index_is_built_again_is_not_taken_for_clean(tmp_path: Path) -> None:
    """The next start would believe half of an index."""
    fill(tmp_path).shutdown()
    next((tmp_path / "t-2").glob("*.index")).unlink()
    manager = opened(tmp_path, files=UnreadableFiles())
    with pytest.raises(OSError, match="Too many"):
        manager.load_all(TOPICS)
    manager.shutdown()
    assert marker(tmp_path) is None
    check_all_is_there(opened(tmp_path))


def test_the_marker_has_the_broker_epoch(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A disk that was away during the last run, or was restored, would be taken for the newest state in silence."""
    data = tmp_path / "data"
    fill(data).shutdown()
    assert (data / CLEAN_SHUTDOWN_FILE).read_text() == '{"version":0,"brokerEpoch":7}'
    manager = manager_of(data)
    manager.open_dirs()
    assert manager.directories[0].broker_epoch == 7
    manager.begin_epoch(8, 7)
    assert "was last closed" not in caplog.text
    manager.begin_epoch(10, 9)
    assert f"{data} was last closed by broker epoch 7, but the last run of this broker was 9" in caplog.text
    manager.release()
    for text in ("", "{}", "[]", '{"version":0,"brokerEpoch":"x"}'):
        (data / CLEAN_SHUTDOWN_FILE).write_text(text)
        manager = manager_of(data)
        manager.open_dirs()
        assert (manager.directories[0].clean, manager.directories[0].broker_epoch) == (True, -1)
        manager.release()


def test_each_start_has_a_larger_broker_epoch(tmp_path: Path) -> None:
    """Markers of different runs would look the same."""
    store = LocalStore.open(tmp_path / "metadata", "cluster")
    assert [store.begin_broker_epoch(), store.begin_broker_epoch()] == [(0, -1), (1, 0)]
    store.close()
    store = LocalStore.open(tmp_path / "metadata", "cluster")
    assert store.begin_broker_epoch() == (2, 1)
    store.close()


def test_a_stop_signal_while_logs_are_loaded_ends_the_loading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker would go on recovering until the supervisor kills it."""

    async def main() -> None:
        values = {"log.dirs": str(tmp_path), "metrics.listener": "none"}
        broker = Broker(BrokerConfig.from_mapping(values), asyncio.get_running_loop())
        began = asyncio.Event()
        loop = asyncio.get_running_loop()

        def load(_topics: object) -> None:
            loop.call_soon_threadsafe(began.set)
            while True:
                broker.log_manager.progress.check()

        monkeypatch.setattr(broker.log_manager, "load_all", load)
        start = asyncio.ensure_future(broker.start())
        await began.wait()
        broker.node.stopping.set()
        with pytest.raises(LoadingInterruptedError):
            await start
        broker.node.loop_delay.stop()
        broker.release()

    asyncio.run(main())


def test_checkpoints_that_were_never_written_are_not_missed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A broker that is killed early would say at each start that high watermarks are lost."""
    manager = fill(tmp_path)
    # The first of the checkpoints that is due, and the process is killed.
    manager.checkpoints[str(tmp_path)].recovery_points.write({TopicPartition("t", 0): 0})
    manager.release()
    again = opened(tmp_path)
    again.load_all(TOPICS)
    again.release()
    assert "although it was written before" not in caplog.text
    (tmp_path / REPLICATION_OFFSET_CHECKPOINT).unlink()
    opened(tmp_path).load_all(TOPICS)
    assert f"{REPLICATION_OFFSET_CHECKPOINT} is missing, although it was written before" in caplog.text
