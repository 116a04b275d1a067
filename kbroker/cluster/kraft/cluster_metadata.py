"""What the metadata log says by now: the image that committed records come to.

Records are applied in whole batches; those of a metadata transaction (KIP-868) count together at its end.  However many
batches come at once, one image is published for them.  Decoding and applying go in slices of the loop's time, and the
image stands still until the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from kbroker._fast.base.slices import Slices
from kbroker.cluster.kraft.batches import ControlRecord, MetadataBatch, records_of
from kbroker.cluster.kraft.quorum_steps import SnapshotId
from kbroker.metadata.difference import difference
from kbroker.metadata.features import KRAFT_FEATURES, KRAFT_VERSION, METADATA_VERSION, Features
from kbroker.metadata.image import ClusterImage, Endpoint, MetadataDelta
from kbroker.metadata.metadata_record import MetadataLogError, MetadataTransactions
from kbroker.metadata.record_deltas import MetadataDraft
from kbroker.schemas import wire
from kbroker.waiting import Changes

if TYPE_CHECKING:
    from kbroker._fast.base.slices import Pace
    from kbroker.metadata.cache import MetadataCache
    from kbroker.metadata.image import TopicImage
    from kbroker.metadata.metadata_record import MetadataRecord

NOTHING_APPLIED = -1
LOG = "the metadata log"
_LEVELS = next(each for each in KRAFT_FEATURES if each.name == METADATA_VERSION)


def empty_image(cluster_id: str) -> ClusterImage:
    """A cluster of which nothing is known yet."""
    return ClusterImage.of(cluster_id, features=Features(epoch=NOTHING_APPLIED, table=KRAFT_FEATURES))


class ClusterMetadata:
    """What the log says, applied up to the high watermark in whole batches and metadata transactions.

    `applied_offset` is that of the last record which counts, -1: none; `applied_epoch` and `applied_ms` are its
    leader's epoch and its time.  An open transaction does not count yet.
    """

    def __init__(self, cluster_id: str, slices: Slices | None = None) -> None:
        self._slices = slices or Slices()
        self._image = empty_image(cluster_id)
        self._cache: MetadataCache | None = None
        self._published: ClusterImage | None = None
        self._transactions = MetadataTransactions()
        self._subscribers: list[Callable[[], None]] = []
        self._changes = Changes()
        self.applied_offset = NOTHING_APPLIED
        self.applied_epoch = 0
        self.applied_ms = -1
        self.kraft_version: wire.KRaftVersionRecord | None = None
        self.voters: wire.VotersRecord | None = None
        self.others: dict[str, MetadataRecord] = {}
        """The last of each kind of record that images do not have, such as ProducerIdsRecord."""
        self.loaded_count = 0
        """How many snapshots were applied in the place of all that was."""

    @property
    def image(self) -> ClusterImage:
        """The newest; the cache's once that is attached."""
        return self._image if self._cache is None else self._cache.image

    @property
    def recorded(self) -> ClusterImage:
        """What the records say, published or not."""
        return self._image

    @property
    def is_transaction_open(self) -> bool:
        """Whether the log has a metadata transaction without an end so far."""
        return self._transactions.is_open

    @property
    def voter_ids(self) -> frozenset[int]:
        """The voters that the log names; none for a static quorum."""
        return frozenset(() if self.voters is None else (each.voter_id for each in self.voters.voters))

    @property
    def next_producer_id(self) -> int:
        """The first producer id that no broker was given."""
        last = self.others.get("ProducerIdsRecord")
        return last.value.next_producer_id if last and isinstance(last.value, wire.ProducerIdsRecord) else 0

    def attach(self, cache: MetadataCache) -> None:
        """Publish what is known to a cache, and from now on each change."""
        self._cache = cache
        cache.publish(self._image, difference(cache.image, self._image))
        self._published = cache.image
        cache.mark_filled()

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Call `changed` after each application, also of records that change nothing but the offset."""
        self._subscribers.append(changed)

    async def wait_until(self, holds: Callable[[], bool], seconds: float | None = None) -> bool:
        """Wait for an application after which `holds()`, for `seconds` at most; whether it does."""
        return await self._changes.wait_until(holds, seconds)

    def pace(self) -> Pace:
        """Of long work on the image."""
        return self._slices.pace()

    def voter_endpoints(self, listener: str) -> Mapping[int, Endpoint]:
        """Where the log says that the controllers are, by the name of their listener."""
        if self.voters is None:
            return {}
        return {
            voter.voter_id: Endpoint(each.host, each.port)
            for voter in self.voters.voters
            for each in voter.endpoints
            if each.name.upper() == listener
        }

    async def apply(self, batches: Iterable[MetadataBatch]) -> None:
        """Apply committed batches that follow the last one, and publish.  MetadataLogError."""
        batches = list(batches)
        if not batches:
            return
        draft = MetadataDraft(self._image)
        await self._publish(draft, await self._take(draft, batches, LOG))

    async def load(self, batches: Iterable[MetadataBatch], snapshot: SnapshotId, where: str) -> None:
        """Apply a snapshot in the place of all that was.  MetadataLogError: nothing has changed then."""
        kept = self._transactions, self.kraft_version, self.voters, self.others, self.applied_ms
        self._transactions, self.kraft_version, self.voters, self.others = MetadataTransactions(), None, None, {}
        draft = MetadataDraft(empty_image(self._image.cluster_id))
        try:
            await self._take(draft, list(batches), where)
            delta = await self._delta(draft, snapshot.end_offset - 1)
            delta = replace(delta, created=await self._as_before(delta.created))
        except BaseException:
            self._transactions, self.kraft_version, self.voters, self.others, self.applied_ms = kept
            raise
        image = draft.image.apply(delta)
        if image.features.epoch == NOTHING_APPLIED:
            image = replace(image, features=replace(image.features, epoch=snapshot.end_offset - 1))
        self.loaded_count += 1
        self._set(image, None, snapshot.end_offset - 1, snapshot.epoch)

    async def _take(
        self, draft: MetadataDraft, batches: Iterable[MetadataBatch], where: str
    ) -> tuple[int, int, int] | None:
        """Apply records to a draft; offset, epoch and time of the last batch whose records all count."""
        pace, end = self._slices.pace(), None
        for batch in batches:
            for _, record in records_of(batch, where):
                if isinstance(record, ControlRecord):
                    self._control(draft, record)
                else:
                    for counting in self._transactions.completed((record,)):
                        self._apply(draft, counting)
                await pace
            if not self._transactions.is_open:
                end = batch.end_offset - 1, batch.epoch, batch.info.max_timestamp
        return end

    def _control(self, draft: MetadataDraft, record: ControlRecord) -> None:
        match record.value:
            case wire.KRaftVersionRecord() as value:
                self.kraft_version = value
                draft.set_feature(KRAFT_VERSION, value.kraft_version)
            case wire.VotersRecord() as value:
                self.voters = value
            case wire.SnapshotHeaderRecord() as value:
                self.applied_ms = value.last_contained_log_timestamp

    def _apply(self, draft: MetadataDraft, record: MetadataRecord) -> None:
        match record.value:
            case wire.FeatureLevelRecord(name="metadata.version", feature_level=level):
                if not _LEVELS.min_level <= level <= _LEVELS.max_level:
                    raise MetadataLogError(
                        f"the cluster has metadata.version {level}, and this kbroker knows {_LEVELS.min_level} to "
                        f"{_LEVELS.max_level}: upgrade kbroker, or the cluster if the level is lower"
                    )
            case wire.ProducerIdsRecord() | wire.ZkMigrationStateRecord():
                self.others[record.name] = record
        draft.take(record)

    async def _delta(self, draft: MetadataDraft, offset: int) -> MetadataDelta:
        pace, steps = self._slices.pace(), draft.steps(offset)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                delta: MetadataDelta = end.value
                return delta
            await pace

    async def _as_before(self, topics: Iterable[TopicImage]) -> tuple[TopicImage, ...]:
        """The same topics; unchanged ones are the same objects as before, so that later comparisons are by
        identity."""
        pace, found = self._slices.pace(), []
        for topic in topics:
            before = self._image.topics_by_id.get(topic.topic_id)
            found.append(before if before is not None and before == topic else topic)
            await pace
        return tuple(found)

    async def _publish(self, draft: MetadataDraft, end: tuple[int, int, int] | None) -> None:
        offset, epoch, timestamp_ms = end or (self.applied_offset, self.applied_epoch, self.applied_ms)
        delta = await self._delta(draft, offset)
        self.applied_ms = max(self.applied_ms, timestamp_ms)
        if delta.is_empty():
            self._set(self._image, delta, offset, epoch)
        else:
            self._set(self._image.apply(delta), delta, offset, epoch)

    def _set(self, image: ClusterImage, delta: MetadataDelta | None, offset: int, epoch: int) -> None:
        """`delta` None: all may differ."""
        before, self._image = self._image, image
        self.applied_offset, self.applied_epoch = offset, epoch
        cache = self._cache
        if cache is not None and image is not before:
            if delta is None or cache.image is not self._published:
                # All may differ, or another part has published meanwhile.
                delta = difference(cache.image, image)
            if not delta.is_empty():
                cache.publish(image, delta)
                self._published = cache.image
        self._changes.announce()
        for changed in self._subscribers:
            changed()
