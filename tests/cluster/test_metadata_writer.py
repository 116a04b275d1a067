"""Changes on their way to the store and the image: `kbroker.cluster.metadata_writer`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from kbroker._fast.base.slices import Slices
from kbroker.cluster.metadata_writer import MetadataWriter
from kbroker.cluster.partition_updates import PartitionUpdates
from kbroker.cluster.topics import PUBLISHED_TOPICS
from kbroker.metadata.cache import MetadataCache
from kbroker.metadata.image import ClusterImage, MetadataDelta, PartitionImage, TopicChange, TopicImage
from kbroker.metadata.store import MetadataStoreError
from kbroker.types import TopicPartition


def topic(number: int, *, offline: tuple[int, ...] = (), **configs: str) -> TopicImage:
    row = PartitionImage(0, 1, 0, (1, 2), (1, 2), offline_replicas=offline)
    return TopicImage(f"t{number}", number.to_bytes(16, "big"), (row,), configs=configs)


def writer(
    cache: MetadataCache, write: Callable[[MetadataDelta], Awaitable[None]], seen: list[MetadataDelta] | None = None
) -> MetadataWriter:
    return MetadataWriter(cache, write, Slices(asyncio.get_running_loop()), (seen if seen is not None else []).append)


class Store:
    """Writes when it is let."""

    def __init__(self) -> None:
        self.goes_on = asyncio.Event()
        self.fails = False
        self.taken: list[MetadataDelta] = []

    async def write(self, delta: MetadataDelta) -> None:
        self.taken.append(delta)
        await self.goes_on.wait()
        if self.fails:
            raise MetadataStoreError("the disk is full")


def test_decisions_see_what_is_being_written_and_clients_do_not() -> None:
    """Two changes would be decided over the same epoch, or a client see what a crash takes back."""

    async def main() -> None:
        store, cache = Store(), MetadataCache(ClusterImage.of("c", topics=[topic(1)]))
        made = writer(cache, store.write)
        delta = MetadataDelta(created=(topic(2),), deleted=(cache.image.topics["t1"],))
        change = asyncio.ensure_future(made.change(delta))
        while not store.taken:
            await asyncio.sleep(0)
        assert list(made.written.topics) == ["t2"] and list(cache.image.topics) == ["t1"]
        store.goes_on.set()
        await change
        assert made.written is cache.image and list(cache.image.topics) == ["t2"]

    asyncio.run(main())


def test_what_cannot_be_written_is_taken_back() -> None:
    """Later decisions would stand on a topic that is on no disk."""

    async def main() -> None:
        store, cache = Store(), MetadataCache(ClusterImage.of("c", topics=[topic(1)]))
        before, seen = cache.image, []
        store.fails = True
        store.goes_on.set()
        made = writer(cache, store.write, seen)
        with pytest.raises(MetadataStoreError):
            await made.change(MetadataDelta(created=(topic(2),)))
        assert made.written is cache.image is before and not seen
        store.fails = False
        await made.change(MetadataDelta(created=(topic(2),)))
        assert list(cache.image.topics) == ["t1", "t2"]

    asyncio.run(main())


def test_replicas_that_went_offline_meanwhile_stay_so() -> None:
    """A failed disk would be published as a working one by a change that was decided before."""

    async def main() -> None:
        store, cache = Store(), MetadataCache(ClusterImage.of("c", topics=[topic(1), topic(2)]))
        old = cache.image
        updates = PartitionUpdates(old)
        row = old.topics["t1"].partitions[0]
        updates.put(TopicPartition("t1", 0), replace(row, leader=2, leader_epoch=1, offline_replicas=(3,)))
        settings = TopicChange(old.topics["t2"], replace(old.topics["t2"], configs={"retention.ms": "1"}))
        made = writer(cache, store.write)
        change = asyncio.ensure_future(made.change(MetadataDelta(changed=(*updates.delta().changed, settings))))
        while not store.taken:
            await asyncio.sleep(0)
        gone = tuple(TopicChange(old.topics[name], topic(int(name[1:]), offline=(1,))) for name in ("t1", "t2"))
        cache.apply(MetadataDelta(changed=gone))
        store.goes_on.set()
        await change
        first, second = cache.image.topics["t1"].partitions[0], cache.image.topics["t2"]
        assert (first.leader, first.leader_epoch, first.offline_replicas) == (2, 1, (3, 1))
        assert second.configs == {"retention.ms": "1"} and second.partitions[0].offline_replicas == (1,)

    asyncio.run(main())


def test_many_topics_are_published_in_portions_and_leaders_in_one_image() -> None:
    """Subscribers of one image with 10,000 topics would hold the loop; a half of new leaders is no state there was."""

    async def main() -> None:
        seen: list[MetadataDelta] = []
        cache = MetadataCache(ClusterImage.of("c"))
        store = Store()
        store.goes_on.set()
        made = writer(cache, store.write, seen)
        topics = tuple(topic(number) for number in range(3 * PUBLISHED_TOPICS))
        await made.change(MetadataDelta(created=topics))
        assert [len(each.created) for each in seen] == [PUBLISHED_TOPICS] * 3
        changed = tuple(
            TopicChange(each, replace(each, partitions=(replace(each.partitions[0], leader=2),))) for each in topics
        )
        await made.change(MetadataDelta(changed=changed))
        assert len(seen) == 4 and len(seen[-1].changed) == len(topics)
        known = cache.image.topics
        configured = tuple(
            TopicChange(known[each.name], replace(known[each.name], configs={"a": "b"})) for each in topics
        )
        await made.change(MetadataDelta(changed=configured), by_topic=True)
        assert len(seen) == 7 and len(store.taken) == 3
        assert all(each.configs and each.partitions[0].leader == 2 for each in cache.image.topics.values())
        await made.change(MetadataDelta(deleted=tuple(cache.image.topics.values())))
        assert not cache.image.topics

    asyncio.run(main())
