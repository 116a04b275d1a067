"""The door for changes of an active controller: what is decided is appended to the quorum's log, and counts at once.

    async with changing:
        delta = decided(writer.written)
        await writer.change(delta)          appended, not committed
    await writer.committed()                a majority has it

`written` is the image with all that is appended in this leadership, committed or not: the next decision builds on it.
It comes from the records that were appended and from nothing else, as every other node's image does.  When the lead is
lost, it is dropped with all that is not committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from kbroker.cluster.controller.deciding import log_topics
from kbroker.cluster.controller.directories import marked, marked_changes, with_directories
from kbroker.cluster.topics import CollisionIndex
from kbroker.errors import NotControllerError, PolicyViolationError
from kbroker.metadata.delta_records import delta_records
from kbroker.metadata.metadata_record import MetadataRecord, MetadataTransactions
from kbroker.metadata.record_deltas import MetadataDraft
from kbroker.schemas import wire

if TYPE_CHECKING:
    from kbroker._fast.base.slices import Pace, Slices
    from kbroker.cluster.raft.leader_log import LeaderLog
    from kbroker.metadata.image import ClusterImage, MetadataDelta

MOST_RECORDS = 10_000
"""Of one atomic result; others are cut into pieces of so many."""


class LogWriter:
    """Methods that change something are called one at a time, under the controller's lock."""

    __slots__ = ("_collisions", "_end", "_image", "_log", "_slices", "next_producer_id")

    def __init__(self, slices: Slices, collisions: CollisionIndex) -> None:
        """`collisions` follows the topics of `written`."""
        self._slices = slices
        self._collisions = collisions
        self._log: LeaderLog | None = None
        self._image: ClusterImage | None = None
        self._end = 0
        self.next_producer_id = 0

    @property
    def is_leading(self) -> bool:
        """Whether there is a log to write to."""
        return self._log is not None

    @property
    def log(self) -> LeaderLog:
        """The log of this leadership.  NotControllerError."""
        if self._log is None:
            raise NotControllerError()
        return self._log

    @property
    def written(self) -> ClusterImage:
        """The image with all that is appended.  NotControllerError."""
        if self._image is None:
            raise NotControllerError()
        return self._image

    def begin(self, log: LeaderLog, image: ClusterImage, next_producer_id: int) -> None:
        """Write to a log from now on, on top of an image that has all below its end."""
        self._log, self._image, self._end = log, image, log.end_offset
        self.next_producer_id = next_producer_id
        self._collisions.replace(image.topics)

    def end(self) -> None:
        """The lead is lost."""
        self._log = self._image = None

    async def committed(self) -> None:
        """Wait until all that is appended by now is committed.  NotControllerError."""
        log = self.log
        await log.committed(self._end)
        if self._log is not log:
            raise NotControllerError()

    @property
    def end_offset(self) -> int:
        """The offset behind the last record of this leadership."""
        return self._end

    def batch(self) -> Batch:
        """The records of a decision to come.  NotControllerError."""
        return Batch(self.written, self._slices.pace())

    async def change(self, delta: MetadataDelta, *, by_topic: bool = False) -> None:
        """Append what makes a delta of `written`, as one atomic result."""
        batch = self.batch()
        await batch.add(delta)
        await self.append(batch)

    async def append(
        self, batch: Batch, last: Callable[[int], MetadataRecord] | None = None, *, is_atomic: bool = True
    ) -> None:
        """Append the records of a batch, which was made since the last change.

        `last(offset)`: one more, made when the offset of the first one is known.  PolicyViolationError where an atomic
        result is too large; NotControllerError.
        """
        log = self.log
        moved = batch.put_at_once(last(log.end_offset)) if last is not None else set()
        if is_atomic and len(batch.records) > MOST_RECORDS:
            raise PolicyViolationError("Unable to perform excessively large batch operation.")
        for at in range(0, len(batch.records), MOST_RECORDS):
            self._end = log.append(batch.records[at : at + MOST_RECORDS])
        self._image = batch.image
        for delta in batch.deltas:
            self._collisions.update((each.name for each in delta.created), [each.name for each in delta.deleted])
            log_topics(delta)
        for record in batch.records:
            if isinstance(record.value, wire.ProducerIdsRecord):
                self.next_producer_id = record.value.next_producer_id
        if moved:
            image = await marked(batch.image, self._slices.pace(), moved)
            if self._log is log:
                self._image = image


class Batch:
    """The records of one decision; each part counts for the next one.  `image`: what they make of the written one."""

    __slots__ = ("_draft", "_pace", "_transactions", "deltas", "image", "records")

    def __init__(self, image: ClusterImage, pace: Pace) -> None:
        self.image = image
        self.records: list[MetadataRecord] = []
        self.deltas: list[MetadataDelta] = []
        self._pace = pace
        self._draft = MetadataDraft(image)
        self._transactions = MetadataTransactions()

    async def add(self, delta: MetadataDelta) -> None:
        """The records that make a delta of `image`, in which new replicas get their directories."""
        delta = await with_directories(self.image, delta, self._pace)
        await self.put(delta_records(self.image, delta))

    async def put(self, records: Iterable[MetadataRecord]) -> None:
        """Further records."""
        for record in records:
            self._take(record)
            await self._pace
        steps = self._draft.steps()
        while True:
            try:
                next(steps)
            except StopIteration as end:
                delta: MetadataDelta = end.value
                break
            await self._pace
        moved = self._settle(delta)
        image = await marked_changes(self.image, delta, self._pace)
        if moved:
            image = await marked(image, self._pace, moved)
        if image is not self.image:
            self.image, self._draft = image, MetadataDraft(image)

    def put_at_once(self, record: MetadataRecord) -> set[int]:
        """One more; the brokers whose directories are others by it, for which `image` is to be marked."""
        self._take(record)
        return self._settle(self._draft.delta())

    def _take(self, record: MetadataRecord) -> None:
        self.records.append(record)
        for counting in self._transactions.completed((record,)):
            self._draft.take(counting)

    def _settle(self, delta: MetadataDelta) -> set[int]:
        before = self.image.brokers
        self.image = self.image.apply(delta)
        self.deltas.append(delta)
        self._draft = MetadataDraft(self.image)
        if delta.brokers is None:
            return set()
        after = delta.brokers.brokers
        return {
            node
            for node in (*before, *after)
            if node not in before or node not in after or before[node].log_dirs != after[node].log_dirs
        }
