"""Topics and their consumers, whose fetches the reference serves, the handler, or what reads their bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kbroker.clock import SystemClock
from kbroker.handlers.records.fetch import FetchResponse, handle_fetch
from kbroker.replication.delayed_fetch import FetchPurgatory
from kbroker.replication.fetch_session import FetchSessionCache
from kbroker.replication.partition import Partition
from kbroker.storage.files.filesystem import SYSTEM_FILES
from tests.handlers.both_ways import ID, NAME, FetchRequest, encoded
from tests.handlers.fetch_reference import reference_fetch
from tests.handlers.frames import plain
from tests.handlers.partitions import Manager, led
from tests.handlers.served_fetch import LONG_MS, Context, serve
from tests.storage.batches import append, batch, environment, open_log

PARTITIONS = 4
TOPICS = [(NAME, ID), ("another", bytes(range(16, 32)))]  # the partitions are theirs in turn
VERSIONS = [7, 11, 12, 13, 18]
WIDE = 1 << 20
ALL = dict.fromkeys(range(PARTITIONS), 0)
WAITS = {"max_wait_ms": LONG_MS, "min_bytes": 1}


# How a request is served: by the reference, decoded by the handler, or from its bytes.
REFERENCE, DECODED, DIRECT = "reference", "decoded", "direct"


class Consumers:
    """Topics and their consumers, served in one of these ways."""

    def __init__(self, folder: Path, way: str) -> None:
        self.way = way
        self.served_directly = 0
        env = environment(SYSTEM_FILES)
        self.loop = asyncio.new_event_loop()
        purgatory = FetchPurgatory(self.loop)
        self.partitions = [
            Partition(name, index, topic_id, open_log(folder / str(index), env=env), 1, led(), purgatory)
            for index, (name, topic_id) in zip(range(PARTITIONS), TOPICS * PARTITIONS, strict=False)
        ]
        self.manager = Manager(
            {
                name: {partition.index: partition for partition in self.partitions[offset::2]}
                for offset, (name, _) in enumerate(TOPICS)
            },
            {topic_id: name for name, topic_id in TOPICS},
            purgatory,
        )
        topic: Any = SimpleNamespace(partitions=(None,) * PARTITIONS)
        self.services = SimpleNamespace(
            metadata_cache=SimpleNamespace(
                topic=dict.fromkeys((name for name, _ in TOPICS), topic).get,
                topic_by_id=dict.fromkeys((topic_id for _, topic_id in TOPICS), topic).get,
            ),
            replica_manager=self.manager,
            fetch_sessions=FetchSessionCache(8, seed=1),
            clock=SystemClock(),
            fetch_max_bytes=WIDE,
        )
        self.asked: list[Context] = []
        self.version = 12
        self.session_id = self.session_epoch = 0
        for partition in self.partitions:
            append(partition.log, batch([b"first"]))

    def open(self, version: int, rows: Mapping[int, int], **values: Any) -> None:
        """Fetch these partitions from so far behind their ends on, and begin a session."""
        self.version = version
        self._fetch(version, rows, session_epoch=0, **values)
        frame = plain(self.asked[-1].answers[0])[8 + (version >= 12) :]
        self.session_id = FetchResponse.program(version).decode(frame, 0, len(frame)).session_id
        self.session_epoch = 1

    def go_on(self, rows: Mapping[int, int], forgotten: list[int], **values: Any) -> None:
        gone = [
            FetchRequest.ForgottenTopic(topic=name, topic_id=topic_id, partitions=named)
            for offset, (name, topic_id) in enumerate(TOPICS)
            if (named := [index for index in forgotten if index % 2 == offset])
        ]
        self._fetch(
            self.version,
            rows,
            session_id=self.session_id,
            session_epoch=self.session_epoch,
            forgotten_topics_data=gone,
            **values,
        )
        self.session_epoch += 1

    def once(self, version: int, rows: Mapping[int, int], **values: Any) -> None:
        """Fetch without a session."""
        self._fetch(version, rows, **values)

    def _fetch(self, version: int, rows: Mapping[int, int], leader_epoch: int = -1, **values: Any) -> None:
        limit = values.pop("limit", WIDE)
        topics = []
        for offset, (name, topic_id) in enumerate(TOPICS):
            found = [
                FetchRequest.FetchPartition(
                    partition=index,
                    fetch_offset=self.partitions[index].log.log_end_offset + behind,
                    partition_max_bytes=limit,
                    current_leader_epoch=leader_epoch,
                )
                for index, behind in rows.items()
                if index % 2 == offset
            ]
            if found:
                topics.append(FetchRequest.FetchTopic(topic=name, topic_id=topic_id, partitions=found))
        self.send(version, encoded(FetchRequest(**{"max_bytes": WIDE, "topics": topics, **values}), version))

    def send(self, version: int, data: bytearray) -> None:
        handler = reference_fetch if self.way == REFERENCE else handle_fetch
        self.asked.append(Context(self.services, version, handler))
        self.served_directly += serve(self.asked[-1], data, self.way == DIRECT)

    def append(self, index: int) -> None:
        append(self.partitions[index].log, batch([b"x" * 10]))
        self._mark(index)

    def trim(self, index: int) -> None:
        log = self.partitions[index].log
        log.delete_records_before(log.high_watermark)

    def change_leader(self, index: int) -> None:
        self.partitions[index].leader_epoch += 1
        self._mark(index)

    def transaction(self, index: int) -> None:
        state = self.partitions[index].log.producer_state
        state.first_unstable_offset = None if state.first_unstable_offset is not None else 1
        self._mark(index)

    def drop(self, index: int) -> None:
        self.manager.topics[TOPICS[index % 2][0]].pop(index, None)
        self.manager.purgatory.expire_partition(self.partitions[index])

    def rename(self) -> None:
        self.manager.names.clear()

    def _mark(self, index: int) -> None:
        self.manager.purgatory.mark(self.partitions[index])

    def look(self) -> None:
        self.loop.run_until_complete(asyncio.sleep(0))

    def end_time(self) -> None:
        self.manager.purgatory.expire_all()

    def told(self) -> list[list[bytes]]:
        return [[plain(answer) for answer in ctx.answers] for ctx in self.asked]

    def close(self) -> None:
        self.end_time()
        self.loop.close()
        for partition in self.partitions:
            partition.log.close(clean=False)
