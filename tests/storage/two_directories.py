"""A log manager over two directories, one of which may fail."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kbroker.config import BrokerConfig, LogConfig
from kbroker.errors import KafkaStorageError
from kbroker.storage.directories.strays import KnownTopic
from kbroker.storage.files.filesystem import FileSystem
from kbroker.storage.manager.log_manager import LogManager, TopicConfigs
from kbroker.types import TopicPartition, random_uuid
from tests.storage.batches import START_MS, UNSYNCED_FILES, HandClock, append, batch, read_all
from tests.storage.failing_directory import FailingDirectory

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
TOPIC_ID = random_uuid()
SMALL = LogConfig(internal_segment_bytes=400, index_interval_bytes=50, file_delete_delay_ms=0)
TOPICS: TopicConfigs = {"t": KnownTopic(TOPIC_ID, SMALL)}
PRODUCED = 12


class Two:
    """A manager over a directory that works (`good`) and one that may fail (`bad`), with one partition in each."""

    def __init__(self, root: Path, config: LogConfig = SMALL, **settings: str) -> None:
        self.root = root
        self.bad_path, self.good_path = str(root / "bad"), str(root / "good")
        self.files = FailingDirectory(self.bad_path)
        self.clock = HandClock()
        self.settings = settings
        self.manager = self.make(self.files)
        self.manager.start(CLUSTER)
        # The partitions of a topic go to the directories in turn.
        for index in range(2):
            log = self.manager.get_or_create_log(TopicPartition("t", index), TOPIC_ID, config)
            for number in range(PRODUCED):
                append(log, batch([b"%d" % number * 20], timestamp=START_MS + number))
            # What rolled segments are flushed by must not be what a fault hits first.
            log.local.wait_for_flushes()
        self.good = next(log for log in self.manager.logs.values() if log.parent == self.good_path)
        self.bad = next(log for log in self.manager.logs.values() if log.parent == self.bad_path)

    def make(self, files: FileSystem) -> LogManager:
        dirs = f"{self.good_path},{self.bad_path}"
        return LogManager(BrokerConfig.from_mapping({"log.dirs": dirs, **self.settings}), self.clock, files)

    @property
    def failed(self) -> bool:
        return self.manager.failures.is_offline(self.bad_path)

    def check_that_the_rest_serves(self) -> None:
        """What must hold from the failure on, and after a restart with the disk repaired."""
        manager, lost = self.manager, self.bad.topic_partition
        assert list(manager.failures.offline) == [self.bad_path], "each directory once, and that one alone"
        assert manager.drop_failed() == [lost]
        assert manager.drop_failed() == []
        assert set(manager.logs) == {self.good.topic_partition}
        assert [directory.path for directory in manager.online_directories()] == [self.good_path]
        with pytest.raises(KafkaStorageError):
            append(self.bad, batch())
        append(self.good, batch([b"later"]))
        for index in range(5, 8):
            assert manager.get_or_create_log(TopicPartition("t", index), TOPIC_ID, SMALL).parent == self.good_path
        asyncio.run(manager.retention.run())
        asyncio.run(manager.cleaner.run())
        asyncio.run(manager.watch.run())
        for future in manager.checkpoints.save_log_starts():
            assert future.result() is None
        del self.files.failed[:]
        manager.shutdown()
        assert self.files.failed == [], "a directory that is offline is left alone"
        assert (self.root / "good" / ".kafka_cleanshutdown").exists()
        assert not (self.root / "bad" / ".kafka_cleanshutdown").exists()

    def check_restart(self, *, expected: int = PRODUCED) -> None:
        again = self.make(UNSYNCED_FILES)
        again.start(CLUSTER, TOPICS)
        assert [directory.path for directory in again.online_directories()] == [self.good_path, self.bad_path]
        log = again.logs[self.bad.topic_partition]
        assert log.parent == self.bad_path
        log.check_invariants()
        found = [offset for offset, _ in read_all(log)]
        assert found == list(range(log.log_start_offset, expected)), "acknowledged records are missing"
        append(log, batch())
        again.shutdown()
