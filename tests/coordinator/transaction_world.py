"""A transaction coordinator on a clock that tests move by hand, over logs in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from kbroker._fast.base.slices import Slices
from kbroker.config import BrokerConfig
from kbroker.coordinator.runtime.plan import Outcome
from kbroker.coordinator.transactions.transaction_coordinator import ProducerRequest, TransactionCoordinator
from kbroker.coordinator.transactions.transaction_metadata import TransactionMetadata
from kbroker.errors import ErrorCode, KafkaError, KafkaStorageError
from kbroker.metadata.topic_names import TRANSACTION_STATE_TOPIC
from kbroker.replication.transaction_markers import Marker
from kbroker.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition
from tests.coordinator.harness import STATE_ID, ManualLoop, MemoryLog, create_topics, make_cache, topic_image
from tests.unbroken import HOUR_US

T = TypeVar("T")
PARTITIONS = (TopicPartition("t1", 0), TopicPartition("t1", 1), TopicPartition("t2", 0))


def finished(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that has nothing to wait for."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    raise AssertionError("it waits")


class Disk:
    """Lets so many appends happen, then none; None: all."""

    def __init__(self) -> None:
        self.left: int | None = None
        self.count = 0

    def use(self) -> None:
        if self.left == 0:
            raise KafkaStorageError("the disk is gone")
        self.count += 1
        if self.left is not None:
            self.left -= 1


class Log(MemoryLog):
    """The state log, on the disk."""

    def __init__(self, disk: Disk) -> None:
        super().__init__(None)
        self.disk = disk

    def append(self, partition_index: int, batch: bytearray) -> int:
        self.disk.use()
        return super().append(partition_index, batch)


class MarkerLog:
    """What markers were written, by partition; `refused` has partitions that take none now."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.written: dict[TopicPartition, list[Marker]] = {each: [] for each in PARTITIONS}
        self.refused: set[TopicPartition] = set()

    def write(self, topic: str, index: int, marker: Marker, settled: Any) -> None:
        if TopicPartition(topic, index) in self.refused:
            raise KafkaError.of(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.disk.use()
        self.written[TopicPartition(topic, index)].append(marker)
        settled(None)


class Ids:
    """Producer ids; the first is high, so that it is not taken for an index."""

    def __init__(self) -> None:
        self.last = 1_000

    async def next_id(self) -> int:
        self.last += 1
        return self.last


class TransactionWorld:
    """A coordinator with everything around it; `restart` is a crash: only the logs stay."""

    def __init__(self, settings: dict[str, object] | None = None, slice_us: int = HOUR_US) -> None:
        self.slice_us = slice_us
        self.disk = Disk()
        self.log = Log(self.disk)
        self.markers = MarkerLog(self.disk)
        self.ids = Ids()
        self.loop = ManualLoop()
        self.settings = settings or {}
        self.may_be_superseded = False
        self.start()

    def start(self) -> None:
        self.cache = make_cache()
        create_topics(self.cache, topic_image(TRANSACTION_STATE_TOPIC, STATE_ID, len(self.log.partitions)))
        config = BrokerConfig.from_mapping(self.settings)
        self.coordinator = TransactionCoordinator(
            config,
            self.loop,
            self.loop.call_later,
            self.log,
            self.cache,
            self.ids,
            self.markers,
            lambda: 2,
            Slices(self.loop, self.slice_us),
            lambda: self.may_be_superseded,
        )
        self.coordinator.start()
        self._abort_timed_out, self.forget_expired = (task.run for task in self.coordinator.periodic_tasks())

    def abort_timed_out(self) -> None:
        """As the periodic task does, with the tasks that it begins: one needs a new producer id."""

        async def main() -> None:
            self._abort_timed_out()
            await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()})

        asyncio.run(main())

    def restart(self) -> None:
        self.coordinator.stop()
        self.start()

    def init(
        self, transactional_id: str, pid: int = NO_PRODUCER_ID, epoch: int = NO_PRODUCER_EPOCH, timeout_ms: int = 60_000
    ) -> TransactionMetadata | ErrorCode:
        expected = ProducerRequest(transactional_id, pid, epoch)
        return self._code(lambda: finished(self.coordinator.init_producer_id(transactional_id, timeout_ms, expected)))

    def add(
        self, transactional_id: str, pid: int, epoch: int, *partitions: TopicPartition, version: int = 0
    ) -> TransactionMetadata | ErrorCode:
        producer = ProducerRequest(transactional_id, pid, epoch, version)
        return self._code(lambda: self.coordinator.add_partitions(producer, frozenset(partitions)))

    def end(
        self, transactional_id: str, pid: int, epoch: int, commit: bool, version: int = 0
    ) -> TransactionMetadata | ErrorCode:
        producer = ProducerRequest(transactional_id, pid, epoch, version)
        return self._code(lambda: finished(self.coordinator.end(producer, commit)))

    @staticmethod
    def _code(operation: Any) -> TransactionMetadata | ErrorCode:
        try:
            outcome: Outcome[TransactionMetadata] = operation()
        except KafkaError as error:
            return error.code
        return outcome.answer

    def found(self, transactional_id: str) -> TransactionMetadata:
        metadata = self.coordinator.find(transactional_id)
        assert metadata is not None
        return metadata

    def ends_in(self, partition: TopicPartition, producer_id: int, epoch: int) -> list[bool]:
        """Whether each marker of the id and epoch in a partition commits, in their order."""
        return [
            marker.is_commit
            for marker in self.markers.written[partition]
            if (marker.producer_id, marker.producer_epoch) == (producer_id, epoch)
        ]

    def outcomes(self) -> dict[tuple[int, int], set[tuple[TopicPartition, bool]]]:
        """By producer id and epoch of the markers, where they are and what they say."""
        found: dict[tuple[int, int], set[tuple[TopicPartition, bool]]] = {}
        for partition, markers in self.markers.written.items():
            for marker in markers:
                found.setdefault((marker.producer_id, marker.producer_epoch), set()).add((partition, marker.is_commit))
        return found
