"""No fsync ever runs on the event loop's thread: a disk that takes its time must not stop every client."""

from __future__ import annotations

import asyncio
import inspect
import threading
from pathlib import Path

import pytest

from kbroker.config import BrokerConfig, LogConfig
from kbroker.storage.files.filesystem import FileSystem
from kbroker.storage.log.unified_log import UnifiedLog
from kbroker.storage.manager.log_manager import LogManager
from kbroker.types import TopicPartition, random_uuid
from tests.compat.waiting import wait_for
from tests.storage.batches import HandClock, UnsyncedFiles, append, batch

TOPIC_ID = random_uuid()


class WatchedFiles(FileSystem):
    """Counts fsyncs by thread, and fails those of the thread named `forbidden`."""

    def __init__(self) -> None:
        self.forbidden: threading.Thread | None = None
        self.elsewhere: set[str] = set()

    def _note(self, path: str) -> None:
        assert threading.current_thread() is not self.forbidden, f"fsync of {path} on the loop"
        self.elsewhere.add(path.rpartition("/")[2])

    def fsync(self, fd: int) -> None:
        self._note(str(Path(f"/proc/self/fd/{fd}").readlink()))

    def fdatasync(self, fd: int) -> None:
        self.fsync(fd)

    def fsync_directory(self, path: str) -> None:
        self._note(path)


async def work(manager: LogManager, files: WatchedFiles, config: LogConfig) -> None:
    """Everything that a running broker does to its logs."""
    loop = asyncio.get_running_loop()
    settled = asyncio.Event()
    manager.attach(loop, lambda log: settled.set(), lambda log, error: None)
    logs: list[UnifiedLog] = []
    for index in range(3):
        log = manager.get_or_create_log(TopicPartition("a", index), TOPIC_ID, config)
        log.assign_leader_epoch(index)
        logs.append(log)
    for number in range(20):
        for log in logs:
            append(log, batch([b"x" * 50], timestamp=1_700_000_000_000 + number))
    for log in logs:
        log.delete_records_before(7)
        while log.committer is not None and log.committer.holds(log.log_end_offset - 1):
            settled.clear()
            await asyncio.wait_for(settled.wait(), 60)
        assert log.committer is None or log.committer.durable_offset == log.log_end_offset
    for _ in range(2):
        for task in manager.periodic_tasks():
            outcome = task.run()
            if inspect.isawaitable(outcome):
                await outcome
        append(logs[0], batch([b"more"]))
    manager.delete_log(TopicPartition("a", 2))
    manager.run_due()


@pytest.mark.parametrize("mode", ["os", "interval", "commit"])
@pytest.mark.parametrize("flush_messages", [1, 5, 1 << 62])
def test_no_fsync_on_the_loop(tmp_path: Path, mode: str, flush_messages: int) -> None:
    """Every client would wait whenever one disk is slow."""
    files = WatchedFiles()
    manager = LogManager(
        BrokerConfig.from_mapping({"log.dirs": str(tmp_path), "kbroker.fsync": mode}), HandClock(), files
    )
    manager.start("cluster-id-of-the-test1")
    files.forbidden = threading.current_thread()
    config = LogConfig(internal_segment_bytes=500, index_interval_bytes=60, flush_messages=flush_messages, flush_ms=0)
    asyncio.run(work(manager, files, config))
    files.forbidden = None
    manager.shutdown()
    # The small files are brought to the disk, too, just not by the loop.
    assert {"recovery-point-offset-checkpoint.tmp", "replication-offset-checkpoint.tmp"} <= files.elsewhere
    assert "log-start-offset-checkpoint.tmp" in files.elsewhere
    assert any(name.endswith(".log") for name in files.elsewhere)


def test_nothing_is_deleted_on_the_loop(tmp_path: Path) -> None:
    """Every client would wait while thousands of segments, or the directories of a large topic, leave the disk."""
    loop_thread = threading.current_thread()

    class Files(UnsyncedFiles):
        def _check(self, path: str) -> None:
            assert threading.current_thread() is not loop_thread, f"{path} was deleted on the loop"

        def rename(self, source: str, target: str) -> None:
            if target.endswith(".deleted"):
                self._check(source)
            super().rename(source, target)

        def unlink(self, path: str) -> None:
            if not path.endswith(".snapshot"):
                self._check(path)
            super().unlink(path)

        def rmdir(self, path: str) -> None:
            self._check(path)
            super().rmdir(path)

    clock = HandClock()
    manager = LogManager(BrokerConfig.from_mapping({"log.dirs": str(tmp_path)}), clock, Files())
    manager.start("cluster-id-of-the-test1")
    config = LogConfig(internal_segment_bytes=500, retention_bytes=800)
    log = manager.get_or_create_log(TopicPartition("a", 0), TOPIC_ID, config)
    for _ in range(40):
        append(log, batch([b"x" * 50]))
    asyncio.run(manager.retention.run())
    assert log.segment_count < 4
    directory = Path(log.directory)
    live = {f"{segment.base_offset:020d}" for segment in log.local.segments}
    wait_for(
        lambda: {path.name[:20] for path in directory.iterdir() if path.suffix == ".log"} == live,
        "the segments to lose their names",
    )
    clock.now += 61_000
    manager.run_due()
    wait_for(lambda: not list(directory.glob("*.deleted")), "the segments to go")
    manager.delete_log(TopicPartition("a", 0))
    clock.now += 61_000
    manager.run_due()
    wait_for(lambda: not [path for path in tmp_path.iterdir() if path.is_dir()], "the partition to go")
    manager.shutdown()
