"""Where a partition's records are read: from the log here, or, where another broker leads it, from that one, as the
viewer's client would."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from kbroker.cluster.partition_reader import by_leader
from kbroker.console.parameters import BadParameterError
from kbroker.errors import KafkaError
from kbroker.storage.log.log_lookup import DeferredSearch, find_by_timestamp
from kbroker.storage.log.log_values import FetchIsolation
from kbroker.types import READ_COMMITTED, READ_UNCOMMITTED, Offset

if TYPE_CHECKING:
    from kbroker._fast.files.file_region import FileRegion
    from kbroker.console.parts import ConsoleParts
    from kbroker.console.viewer_client import ViewerClient
    from kbroker.metadata.image import TopicImage
    from kbroker.storage.log.unified_log import UnifiedLog

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
        self.end: int = log.consumer_bound(is_committed)

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
        data = self._log.read(Offset(position), most_bytes, self._isolation, True)
        if data.records is None or not data.size:
            return None
        aborted = [(each.producer_id, each.first_offset) for each in data.aborted_transactions or ()]
        return Piece(data.records, data.size, aborted)


class _Elsewhere:
    """A partition that another broker leads."""

    def __init__(
        self, client: ViewerClient, topic: str, partition: int, bounds: tuple[int, int], isolation: int
    ) -> None:
        self._client = client
        self._topic, self._partition = topic, partition
        self._isolation = isolation
        self.log_start_offset, self.end = bounds

    async def offset_at(self, timestamp: int) -> int:
        found = await self._client.offsets(self._topic, [self._partition], timestamp)
        return self.end if found[self._partition] < 0 else found[self._partition]

    async def read(self, position: int, most_bytes: int) -> Piece | None:
        found = await self._client.reader.read(
            self._topic, self._partition, position, most_bytes, isolation=self._isolation
        )
        return Piece(found.records, len(found.records), found.aborted) if found.records else None


async def source_of(parts: ConsoleParts, topic: TopicImage, partition: int, *, is_committed: bool) -> PartitionSource:
    """A partition's records, wherever they are led.  KafkaError."""
    led = parts.services.replica_manager.topics.get(topic.name, {}).get(partition)
    if led is not None:
        return _Here(led.log, is_committed=is_committed)
    isolation = READ_COMMITTED if is_committed else READ_UNCOMMITTED
    bounds = await parts.client.bounds(topic.name, [partition], isolation)
    return _Elsewhere(parts.client, topic.name, partition, bounds[partition], isolation)


async def bounds_of(parts: ConsoleParts, topic: TopicImage, *, is_committed: bool) -> list[tuple[int, int] | None]:
    """First offsets and ends of all partitions, in order of their numbers; None where no broker answers for one."""
    led = parts.services.replica_manager.topics.get(topic.name, {})
    pace = parts.sources.slices.pace()
    found: list[tuple[int, int] | None] = []
    away: list[tuple[str, int]] = []
    for each in topic.partitions:
        await pace
        here = led.get(each.partition)
        found.append(None if here is None else (here.log.log_start_offset, here.log.consumer_bound(is_committed)))
        if here is None:
            away.append((topic.name, each.partition))
    isolation = READ_COMMITTED if is_committed else READ_UNCOMMITTED
    for (_, index), bounds in (await bounds_elsewhere(parts, away, isolation, most=None)).items():
        found[index] = bounds
    return found


async def bounds_elsewhere(
    parts: ConsoleParts,
    places: Iterable[tuple[str, int]],
    isolation: int = READ_UNCOMMITTED,
    *,
    most: int | None = MOST_ELSEWHERE,
) -> dict[tuple[str, int], tuple[int, int]]:
    """First offsets and ends of partitions whose logs are not here, by topic and partition; of the first `most`, and of
    those alone whose leaders answer the viewer."""
    found: dict[tuple[str, int], tuple[int, int]] = {}
    for leader, topics in by_leader(parts.services.metadata_cache.image, islice(places, most)).items():
        for name, indexes in topics.items() if leader != parts.services.node_id else ():
            with suppress(KafkaError):
                bounds = await parts.client.bounds(name, indexes, isolation)
                found |= {(name, index): each for index, each in bounds.items()}
    return found
