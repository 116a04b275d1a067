"""Fetches of one partition from a log, and whether C alone served them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kbroker._fast.requests.fast_fetch import FastFetch
from kbroker._fast.requests.fetch_answer import FetchRules
from kbroker.handlers.records.fetch import FetchResponse, versions
from kbroker.handlers.records.fetch_partition import read_partition
from kbroker.replication.partition import Partition
from kbroker.schemas import message
from kbroker.storage.files.filesystem import FileSystem
from kbroker.storage.log.unified_log import UnifiedLog
from tests.extensions.direct_requests import ask
from tests.handlers.frames import plain
from tests.handlers.partitions import led

FetchRequest: Any = message("FetchRequest")
VERSION = 11
NAME = "events"


class FastReader:
    """Reads `log`; `alone` counts the reads that Python was asked for, `kinds` has the types of other answers."""

    def __init__(self, log: UnifiedLog) -> None:
        purgatory: Any = SimpleNamespace()
        partition = Partition(NAME, 3, bytes(16), log, 1, led(), purgatory)
        find = {"partition": lambda *_: partition, "replica": lambda *_: partition}
        manager = SimpleNamespace(
            topics={NAME: {3: partition}}, names={}, selector=None, traffic=None, isr_changes=None, **find
        )
        self.services = SimpleNamespace(replica_manager=manager, fetch_max_bytes=(1 << 31) - 1)
        self.alone = 0
        self.kinds: set[type] = set()
        self.direct = FastFetch(FetchRules(versions(), FileSystem, self._alone, FetchResponse.program))

    def _alone(self, *asked: Any) -> tuple[Any, bool, Any]:
        self.alone += 1
        return read_partition(*asked)

    def read(self, offset: int, limit: int, committed: bool = False) -> Any | None:
        """The partition's part of the answer; None where Python has read it."""
        row = FetchRequest.FetchPartition(partition=3, fetch_offset=offset, partition_max_bytes=limit)
        topic = FetchRequest.FetchTopic(topic=NAME, partitions=[row])
        asked = FetchRequest(topics=[topic], isolation_level=int(committed))
        before = self.alone
        data = bytearray(FetchRequest.program(VERSION).encode(asked))
        answer = ask(self.direct, self.services, VERSION, 77, data)
        if self.alone > before:
            return None
        self.kinds.add(type(answer))
        frame = plain(answer)[8:]
        return FetchResponse.program(VERSION).decode(frame, 0, len(frame)).responses[0].partitions[0]
