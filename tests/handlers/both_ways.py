"""Requests that C and the handlers answer, side by side."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kbroker.replication.fetch_session import FetchSessionCache
from kbroker.replication.partition import Partition
from kbroker.schemas import message
from kbroker.storage.files.filesystem import SYSTEM_FILES
from tests.handlers.partitions import Manager, led
from tests.storage.batches import START_MS, append, batch, environment, open_log

ID = bytes(range(16))
NAME = "events"
PRODUCE_VERSIONS, FETCH_VERSIONS = range(3, 14), range(4, 19)
ProduceRequest: Any = message("ProduceRequest")
FetchRequest: Any = message("FetchRequest")


class Side:
    """A partition with its log, and what a handler is given to reach it."""

    def __init__(self, folder: Path, name: str = NAME) -> None:
        self.log = open_log(folder, env=environment(SYSTEM_FILES))
        self.woken: list[Partition] = []
        purgatory: Any = SimpleNamespace(mark=self.woken.append)
        self.partition = Partition(name, 3, ID, self.log, 1, led(), purgatory)
        topic: Any = SimpleNamespace(partitions=(None,) * 4)
        self.services = SimpleNamespace(
            metadata_cache=SimpleNamespace(topic={name: topic}.get, topic_by_id={ID: topic}.get),
            replica_manager=Manager({name: {3: self.partition}}, {ID: name}, purgatory),
            clock=SimpleNamespace(now_ms=lambda: START_MS),
            fetch_sessions=FetchSessionCache(0),
            fetch_max_bytes=1 << 20,
        )
        append(self.log, batch([b"first"]))
        append(self.log, batch([b"second"]))

    def has_a_consumer_wait(self) -> None:
        waiting: dict[Any, None] = self.partition.waiting
        waiting[object()] = None


def encoded(request: Any, version: int) -> bytearray:
    return bytearray(type(request).program(version).encode(request))


def fetch(version: int, offset: int, **values: Any) -> bytearray:
    own = {name: values.pop(name) for name in ("partition_max_bytes", "current_leader_epoch") if name in values}
    row = FetchRequest.FetchPartition(**{"partition": 3, "fetch_offset": offset, "partition_max_bytes": 1 << 20, **own})
    topic = FetchRequest.FetchTopic(topic=NAME, topic_id=ID, partitions=[row])
    return encoded(FetchRequest(**{"max_wait_ms": 5, "min_bytes": 1, "topics": [topic], **values}), version)
