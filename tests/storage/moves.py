"""A broker's storage with partitions in two log directories, and moves between them, for tests."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

from kbroker.config import BrokerConfig, log_config
from kbroker.metadata.image import ClusterImage, PartitionImage, TopicImage
from kbroker.records.batch import Record, iterate_records
from kbroker.replication.alter_log_dirs import DirectoryMoves
from kbroker.replication.replica_manager import ReplicaManager
from kbroker.storage.directories.strays import KnownTopic
from kbroker.storage.files.filesystem import FileSystem
from kbroker.storage.files.throttle import Throttle
from kbroker.storage.log.log_values import AppendOrigin
from kbroker.storage.log.unified_log import UnifiedLog
from kbroker.storage.manager.log_manager import LogManager
from kbroker.types import TopicPartition
from tests.storage.batches import UNSYNCED_FILES, HandClock, append, batch, headers, marker

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
TOPIC_ID = bytes(range(16))
TP = TopicPartition("orders", 0)
VERIFICATION = "transaction.partition.verification.enable"
VALUE = b"v" * 80
# A part of each log whose copy is held up.
PART_BYTES = 30_000
SMALL = {"segment.bytes": "1048576", "internal.segment.bytes": "400", "index.interval.bytes": "64"}


class Inline(Executor):
    """Runs what it is given at once, so that the order of calls to the file system is the same each time."""

    def submit(self, job: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(job(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)
        return future


class HeldThrottle(Throttle):
    """Lets `room` bytes pass, and the others when a test sets `opened`; the clock has no part in it.

    A move that waits here can be called off, as at any throttle.
    """

    def __init__(self, room: int) -> None:
        super().__init__(20_000.0)
        self.opened = threading.Event()
        self._room = room

    def spend(self, size_bytes: int, check: Callable[[], None]) -> None:
        self._room -= size_bytes
        while self._room < 0 and not self.opened.wait(0.01):
            check()


class Storage:
    """Logs of one topic over the directories `a` and `b`, opened as a broker opens them."""

    def __init__(
        self,
        root: Path,
        files: FileSystem = UNSYNCED_FILES,
        *,
        configs: Mapping[str, str] | None = None,
        settings: Mapping[str, str] | None = None,
        executor: Executor | None = None,
        topic_id: bytes = TOPIC_ID,
    ) -> None:
        self.a, self.b = str(root / "a"), str(root / "b")
        values = {"log.dirs": f"{self.a},{self.b}", "node.id": "1", VERIFICATION: "false", **(settings or {})}
        self.config = BrokerConfig.from_mapping(values)
        self.configs = dict(SMALL if configs is None else configs)
        self.clock = HandClock()
        self.logs = LogManager(self.config, self.clock, files, executor)
        self.logs.start(CLUSTER, {TP.topic: KnownTopic(topic_id, log_config(self.config, self.configs), 1)})

    def lead(self, partitions: int = 1) -> DirectoryMoves:
        """Lead the topic's partitions on the running loop; those that are new begin in `a`."""
        loop = asyncio.get_running_loop()
        for index in range(partitions):
            self.logs.plans.prefer(TopicPartition(TP.topic, index), self.a)
        images = tuple(PartitionImage(index, 1, 0, (1,), (1,)) for index in range(partitions))
        topic = TopicImage(TP.topic, TOPIC_ID, images, False, self.configs)
        self.replicas = ReplicaManager(1, self.logs, lambda own: log_config(self.config, own), loop)
        self.replicas.roles.apply_image(ClusterImage.of(CLUSTER, controller_id=1, topics=[topic]))
        for image in images:
            self.replicas.partition(topic.name, image.partition)
        self.logs.attach(loop, self.replicas.on_durable, self.replicas.on_refused)
        self.moves = DirectoryMoves(self.config, self.logs, self.replicas, loop)
        return self.moves

    @property
    def log(self) -> UnifiedLog:
        log = self.logs.get_log(TP)
        assert log is not None
        return log

    async def settled(self) -> None:
        """Until no move is under way any more."""
        while self.moves.tasks:
            await asyncio.wait(self.moves.tasks)

    async def move(self, path: str) -> None:
        """Moves the partition and waits for the end."""
        self.moves.alter(TP, path)
        await self.settled()


def records_of(log: UnifiedLog) -> list[Record]:
    """Every record in the log's files, in order."""
    found: list[Record] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        content = log.read_bytes(offset, 1 << 20)
        if not content:
            break
        for info in headers(content):
            batch = content[info.position : info.position + info.size_in_bytes]
            found.extend(record for record in iterate_records(batch) if record.offset >= offset)
            offset = info.last_offset + 1
    return found


def fill(storage: Storage, count: int = 20) -> None:
    """Segments with plain, idempotent and transactional batches."""
    log = storage.log
    for at in range(count):
        append(log, batch([VALUE + b"%d" % at]))
        append(log, batch([b"p%d" % at], producer_id=5, epoch=0, sequence=at))
        append(log, batch([b"t%d" % at], producer_id=6, epoch=0, sequence=at, transactional=True))
        append(log, marker(6, 0, abort=at % 3 == 0), origin=AppendOrigin.COORDINATOR)


def names(storage: Storage) -> dict[str, list[str]]:
    """The partition's directories in each log directory."""
    return {
        path: sorted(name for name in os.listdir(path) if name.startswith("orders-")) for path in (storage.a, storage.b)
    }
