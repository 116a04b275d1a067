"""A cleaner manager over logs, without a broker."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable
from pathlib import Path

from kbroker.config import BrokerConfig
from kbroker.storage.cleaner.cleaner_manager import CleanerManager
from kbroker.storage.files.filesystem import FileSystem
from kbroker.storage.log.unified_log import UnifiedLog
from kbroker.storage.manager.log_manager import LogManager
from kbroker.types import ZERO_UUID, TopicPartition
from tests.cleaner.logs import config, put
from tests.storage.batches import START_MS, TP, HandClock, UnsyncedFiles

OTHER = TopicPartition("payments", 0)


class Brokerless:
    """A log manager with compacted logs and a clock moved by hand."""

    def __init__(
        self, directory: Path, files: FileSystem | None = None, settings: dict[str, str] | None = None
    ) -> None:
        self.clock = HandClock()
        self.files = files or UnsyncedFiles()
        values = {"log.dirs": str(directory), "log.cleaner.dedupe.buffer.size": "1048577", **(settings or {})}
        self.manager = LogManager(BrokerConfig.from_mapping(values), self.clock, self.files)
        self.manager.start("cluster")

    @property
    def cleaner(self) -> CleanerManager:
        return self.manager.cleaner

    def log(self, tp: TopicPartition = TP, **settings: object) -> UnifiedLog:
        return self.manager.get_or_create_log(tp, ZERO_UUID, config(**settings))

    def turn(self) -> None:
        asyncio.run(self.cleaner.run())


def fill(log: UnifiedLog, rounds: int, keys: int = 5, timestamp: int = START_MS) -> None:
    for at in range(rounds):
        put(log, *((b"k%d" % key, b"%d" % at) for key in range(keys)), timestamp=timestamp)


class FailingReads(FileSystem):
    """A disk that cannot read the logs of one topic."""

    def __init__(self) -> None:
        self.failing = True

    def open(self, path: str, flags: int, mode: int = 0o644) -> int:
        if self.failing and TP.topic in path and path.endswith(".log") and not flags:
            raise OSError(errno.EMFILE, "the disk fails")
        return super().open(path, flags, mode)


class StoppingFiles(UnsyncedFiles):
    """Calls something in the thread while a clean is under way."""

    def __init__(self) -> None:
        self.call: Callable[[], object] | None = None
        self.loop: asyncio.AbstractEventLoop | None = None

    def fsync(self, fd: int) -> None:
        if not threading.current_thread().name.startswith("log-cleaner"):
            return
        call, self.call = self.call, None
        if call is not None and self.loop is not None:
            done = threading.Event()
            self.loop.call_soon_threadsafe(call)
            self.loop.call_soon_threadsafe(done.set)
            assert done.wait(60)


def interrupted(broker: Brokerless, files: StoppingFiles, call: Callable[[], object]) -> None:
    """A turn of the cleaner with `call` run on the loop while a segment is being written."""

    async def main() -> None:
        files.loop = asyncio.get_running_loop()
        files.call = call
        await broker.cleaner.run()

    asyncio.run(main())
    assert files.call is None, "no clean was under way"
