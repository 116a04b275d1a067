"""Where a partition's records are read: from the log here, or, where another broker leads it, from that one, as the
viewer's client would."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from kbroker.administration.admin import EARLIEST, LATEST, refuse
from kbroker.console.parameters import BadParameterError
from kbroker.errors import KafkaError
from kbroker.schemas import wire
from kbroker.storage.log.log_lookup import DeferredSearch, find_by_timestamp
from kbroker.storage.log.log_values import FetchIsolation

if TYPE_CHECKING:
    from kbroker._fast.files.file_region import FileRegion
    from kbroker.console.parts import ConsoleParts
    from kbroker.console.viewer_client import ViewerClient
    from kbroker.metadata.image import TopicImage
    from kbroker.storage.log.unified_log import UnifiedLog

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
NO_SESSION = -1
MOST_ELSEWHERE = 2_000


@dataclass(frozen=True, slots=True)
class Piece:
    """Whole batches: a region of a segment, or bytes.  `aborted`: producer ids and first offsets of transactions."""

    records: FileRegion | bytes
    size_bytes: int
    aborted: Sequence[tuple[int, int]]


class PartitionSource(Protocol):
    """`end`: the end of the readable offsets.  All raise KafkaError."""

    end: int

    @property
    def log_start_offset(self) -> int:
        """The first offset by now."""

    async def offset_at(self, timestamp: int) -> int:
        """The first offset at or after a time; the end where there is none."""

    async def read(self, position: int, most_bytes: int) -> Piece | None:
        """What is there from an offset on, one batch at least; None where there is nothing."""


class _Here:
    """A log of this broker."""

    def __init__(self, log: UnifiedLog, *, is_committed: bool) -> None:
        self._log = log
        self._isolation = FetchIsolation.TXN_COMMITTED if is_committed else FetchIsolation.HIGH_WATERMARK
        self.end = log.consumer_bound(is_committed)

    @property
    def log_start_offset(self) -> int:
        return self._log.log_start_offset

    async def offset_at(self, timestamp: int) -> int:
        try:
            found = find_by_timestamp(self._log, timestamp)
            while isinstance(found, DeferredSearch):
                deferred = found
                found = await asyncio.get_running_loop().run_in_executor(None, deferred.search)
                if found is None:
                    found = deferred.go_on()
        except (OSError, ValueError) as error:
            raise BadParameterError(f"the log cannot be searched by time: {error}") from error
        return self.end if found is None else found.offset

    async def read(self, position: int, most_bytes: int) -> Piece | None:
        data = self._log.read(position, most_bytes, self._isolation, True)
        if data.records is None or not data.size:
            return None
        aborted = [(each.producer_id, each.first_offset) for each in data.aborted_transactions or ()]
        return Piece(data.records, data.size, aborted)


class _Elsewhere:
    """A partition that another broker leads."""

    def __init__(
        self, client: ViewerClient, topic: TopicImage, partition: int, start: int, end: int, *, is_committed: bool
    ) -> None:
        self._client = client
        self._topic = topic
        self._partition = partition
        self._isolation = READ_COMMITTED if is_committed else READ_UNCOMMITTED
        self.log_start_offset = start
        self.end = end

    async def offset_at(self, timestamp: int) -> int:
        found = await self._client.offsets(self._topic.name, [self._partition], timestamp)
        return self.end if found[self._partition] < 0 else found[self._partition]

    async def read(self, position: int, most_bytes: int) -> Piece | None:
        request = wire.FetchRequest
        asked = request.FetchPartition(
            partition=self._partition,
            current_leader_epoch=-1,
            fetch_offset=position,
            last_fetched_epoch=-1,
            log_start_offset=-1,
            partition_max_bytes=most_bytes,
        )
        topic = request.FetchTopic(topic=self._topic.name, topic_id=self._topic.topic_id, partitions=[asked])
        answer = await self._client.ask(
            wire.FetchResponse,
            request(
                replica_id=-1,
                max_wait_ms=0,
                min_bytes=0,
                max_bytes=most_bytes,
                isolation_level=self._isolation,
                session_epoch=NO_SESSION,
                topics=[topic],
                forgotten_topics_data=[],
                rack_id="",
            ),
            self._client.leader_of(self._topic.name, self._partition),
        )
        refuse(answer.error_code)
        row = answer.responses[0].partitions[0]
        refuse(row.error_code)
        if row.records is None or not isinstance(row.records, (bytes, memoryview)) or not len(row.records):
            return None
        aborted = [(each.producer_id, each.first_offset) for each in row.aborted_transactions or ()]
        return Piece(bytes(row.records), len(row.records), aborted)


async def source_of(parts: ConsoleParts, topic: TopicImage, partition: int, *, is_committed: bool) -> PartitionSource:
    """A partition's records, wherever they are led.  KafkaError."""
    led = parts.services.replica_manager.topics.get(topic.name, {}).get(partition)
    if led is not None:
        return _Here(led.log, is_committed=is_committed)
    client = parts.client
    isolation = READ_COMMITTED if is_committed else READ_UNCOMMITTED
    start = (await client.offsets(topic.name, [partition], EARLIEST))[partition]
    end = (await client.offsets(topic.name, [partition], LATEST, isolation))[partition]
    return _Elsewhere(client, topic, partition, start, end, is_committed=is_committed)


async def bounds_of(parts: ConsoleParts, topic: TopicImage, *, is_committed: bool) -> list[tuple[int, int] | None]:
    """First offsets and ends of all partitions, in order of their numbers; None where no broker answers for one."""
    led = parts.services.replica_manager.topics.get(topic.name, {})
    pace = parts.sources.slices.pace()
    found: list[tuple[int, int] | None] = []
    elsewhere: dict[int, list[int]] = {}
    for each in topic.partitions:
        await pace
        here = led.get(each.partition)
        found.append(None if here is None else (here.log.log_start_offset, here.log.consumer_bound(is_committed)))
        if here is None and each.leader >= 0:
            elsewhere.setdefault(each.leader, []).append(each.partition)
    for indexes in elsewhere.values():
        for (_, index), bounds in (await _asked(parts, topic.name, indexes, is_committed=is_committed)).items():
            found[index] = bounds
    return found


async def _asked(
    parts: ConsoleParts, topic: str, partitions: Sequence[int], *, is_committed: bool = False
) -> dict[tuple[str, int], tuple[int, int]]:
    """First offsets and ends; of none where their leader does not answer the viewer."""
    isolation = READ_COMMITTED if is_committed else READ_UNCOMMITTED
    try:
        first = await parts.client.offsets(topic, partitions, EARLIEST)
        last = await parts.client.offsets(topic, partitions, LATEST, isolation)
    except KafkaError:
        return {}
    return {(topic, index): (first[index], last[index]) for index in partitions}


async def bounds_elsewhere(
    parts: ConsoleParts, places: Iterable[tuple[str, int]]
) -> dict[tuple[str, int], tuple[int, int]]:
    """First offsets and ends of partitions whose logs are not here, by topic and partition; of the first
    `MOST_ELSEWHERE`, and of those alone whose leaders answer."""
    image = parts.services.metadata_cache.image
    by_leader: dict[tuple[str, int], list[int]] = {}
    for name, index in islice(places, MOST_ELSEWHERE):
        topic = image.topics.get(name)
        leader = -1 if topic is None or index >= len(topic.partitions) else topic.partitions[index].leader
        if leader >= 0 and leader != parts.services.node_id:
            by_leader.setdefault((name, leader), []).append(index)
    found: dict[tuple[str, int], tuple[int, int]] = {}
    for (name, _), indexes in by_leader.items():
        found |= await _asked(parts, name, indexes)
    return found
