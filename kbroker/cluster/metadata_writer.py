"""The one door for changes of the cluster's metadata: a delta is written, and then published.

    async with changing:
        delta = decided(writer.written)
        await writer.change(delta)

Decisions are made over `written`: what is published and, on top of it, what is written or being written.  A change that
cannot be written is taken back from there, and nothing of it was published.  Durable changes are published a few topics
at a time, each image consistent in itself.  A broker publishes by itself which of its replicas have gone offline, so
each delta is made anew from the partitions as they are when it is published.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from kbroker.cluster.topics import portions
from kbroker.metadata.image import MetadataDelta, TopicChange

if TYPE_CHECKING:
    from kbroker._fast.base.slices import Slices
    from kbroker.metadata.cache import MetadataCache
    from kbroker.metadata.image import ClusterImage, PartitionImage, TopicImage


class MetadataWriter:
    """`write(delta)` makes a change durable, or raises; `published(delta)` is called behind each image."""

    __slots__ = ("_ahead", "_cache", "_published", "_slices", "_write")

    def __init__(
        self,
        cache: MetadataCache,
        write: Callable[[MetadataDelta], Awaitable[None]],
        slices: Slices,
        published: Callable[[MetadataDelta], None] = lambda delta: None,
    ) -> None:
        self._cache = cache
        self._write = write
        self._slices = slices
        self._published = published
        self._ahead: list[MetadataDelta] = []

    @property
    def written(self) -> ClusterImage:
        """The image with all that is decided, published or not."""
        image = self._cache.image
        for delta in self._ahead:
            image = image.apply(rebased(delta, image))
        return image

    async def change(self, delta: MetadataDelta, *, by_topic: bool = False) -> None:
        """Write a delta to `written`, and publish it.  One change is under way at a time.

        `by_topic`: what changes of topics may be published in several images, too.  Raises what `write` does.
        """
        assert not self._ahead, "a change is under way"
        self._ahead = [delta]
        try:
            await self._write(delta)
            self._ahead = list(_pieces(delta, by_topic))
            pace = self._slices.pace()
            while self._ahead:
                piece = rebased(self._ahead.pop(0), self._cache.image)
                self._cache.apply(piece)
                self._published(piece)
                await pace
        finally:
            self._ahead = []


def _pieces(delta: MetadataDelta, by_topic: bool) -> Iterator[MetadataDelta]:
    """In order, what one image takes."""
    for topics in portions(delta.created):
        yield MetadataDelta(created=topics)
    for topics in portions(delta.deleted):
        yield MetadataDelta(deleted=topics)
    rest = replace(delta, created=(), deleted=())
    if by_topic:
        before = {change.new.name: change.old for change in delta.changed}
        for topics in portions(change.new for change in delta.changed):
            yield MetadataDelta(changed=tuple(TopicChange(before[each.name], each) for each in topics))
        rest = replace(rest, changed=())
    if not rest.is_empty():
        yield rest


def rebased(delta: MetadataDelta, image: ClusterImage) -> MetadataDelta:
    """The same for an image in which further replicas may have gone offline, or topics, since it was decided."""
    topics = image.topics
    deleted = tuple(topics[each.name] for each in delta.deleted if each.name in topics)
    changed = tuple(
        TopicChange(topics[new.name], _moved(old, new, topics[new.name]))
        for old, new in delta.changed
        if new.name in topics
    )
    return replace(delta, deleted=deleted, changed=changed)


def _moved(old: TopicImage, new: TopicImage, now: TopicImage) -> TopicImage:
    if now is old:
        return new
    kept = zip(old.partitions, new.partitions, now.partitions, strict=False)
    rows = (*(_moved_partition(*each) for each in kept), *new.partitions[len(old.partitions) :])
    return replace(new, partitions=rows)


def _moved_partition(old: PartitionImage, new: PartitionImage, now: PartitionImage) -> PartitionImage:
    if now is old:
        return new
    if new is old:
        return now
    lost = set(now.offline_replicas) - set(old.offline_replicas)
    offline = tuple(dict.fromkeys((*new.offline_replicas, *sorted(lost))))
    return new if offline == new.offline_replicas else replace(new, offline_replicas=offline)
