"""Images never change under a reader, and subscribers hear of every change in order."""

from __future__ import annotations

import asyncio
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.metadata.cache import MetadataCache
from kbroker.metadata.image import (
    BrokerImage,
    BrokersImage,
    ClusterImage,
    MetadataDelta,
    PartitionImage,
    TopicChange,
    TopicImage,
)
from kbroker.types import random_uuid


def topic(name: str, partition_count: int = 1) -> TopicImage:
    partitions = tuple(PartitionImage(number, 1, 0, (1,), (1,)) for number in range(partition_count))
    return TopicImage(name, random_uuid(), partitions)


def test_a_held_image_stays_as_it_was() -> None:
    """An answer that is being built would mix two states of the cluster."""
    first = ClusterImage.of("cluster", topics=[topic("a")])
    second = first.with_topics(MetadataDelta(created=(topic("b"),)))
    assert set(first.topics) == {"a"}
    assert set(second.topics) == {"a", "b"}
    assert second.topics["a"] is first.topics["a"]


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from(["create", "grow", "delete"])), max_size=40))
def test_both_indexes_hold_the_same_topics(steps: list[tuple[str, str]]) -> None:
    """A topic would be found by name but not by id after some sequence of changes."""
    cache = MetadataCache(ClusterImage.of("cluster"))
    expected: dict[str, int] = {}
    for name, action in steps:
        old = cache.topic(name)
        if action == "create" and old is None:
            delta = MetadataDelta(created=(topic(name),))
            expected[name] = 1
        elif action == "grow" and old is not None:
            new = TopicImage(name, old.topic_id, topic(name, len(old.partitions) + 1).partitions)
            delta = MetadataDelta(changed=(TopicChange(old, new),))
            expected[name] += 1
        elif action == "delete" and old is not None:
            delta = MetadataDelta(deleted=(old,))
            del expected[name]
        else:
            continue
        cache.publish(cache.image.with_topics(delta), delta)
    assert {name: len(image.partitions) for name, image in cache.image.topics.items()} == expected
    assert list(cache.image.topics_by_id.values()) == list({id(t): t for t in cache.image.topics.values()}.values())
    for image in cache.image.topics.values():
        assert cache.topic(image.name) is cache.topic_by_id(image.topic_id) is image


def test_subscribers_see_the_new_image_before_publish_returns() -> None:
    """A topic would be visible before its logs exist."""
    cache = MetadataCache(ClusterImage.of("cluster"))
    heard: list[tuple[int, int, bool]] = []
    cache.subscribe(lambda old, new, delta: heard.append((old.version, new.version, cache.topic("a") is not None)))
    delta = MetadataDelta(created=(topic("a"),))
    cache.publish(cache.image.with_topics(delta), delta)
    assert heard == [(0, 1, True)]


def test_a_failing_subscriber_does_not_silence_the_others(caplog: pytest.LogCaptureFixture) -> None:
    """One full disk would keep the coordinator from hearing of a deleted topic."""
    cache = MetadataCache(ClusterImage.of("cluster"))
    heard: list[int] = []

    def fail(_old: ClusterImage, _new: ClusterImage, _delta: MetadataDelta) -> None:
        raise OSError(28, "No space left on device")

    cache.subscribe(fail)
    cache.subscribe(lambda _old, new, _delta: heard.append(new.version))
    delta = MetadataDelta(created=(topic("a"),))
    with caplog.at_level(logging.ERROR, "kbroker.metadata"):
        cache.publish(cache.image.with_topics(delta), delta)
    assert heard == [1]
    assert "failed to apply metadata version 1 (1 topics created" in caplog.text


def test_brokers_change_without_touching_topics() -> None:
    """A broker that joins would make every topic look changed."""
    image = ClusterImage.of("cluster", topics=[topic("a")])
    brokers = {2: BrokerImage(2, {}), 1: BrokerImage(1, {}, is_fenced=True)}
    delta = MetadataDelta(brokers=BrokersImage(brokers, controller_id=2))
    changed = image.apply(delta)
    assert changed.topics is image.topics
    assert [broker.node_id for broker in changed.alive_brokers()] == [2]
    assert MetadataDelta().is_empty()
    assert not delta.is_empty()


def test_what_readers_keep_is_forgotten_when_it_may_be_wrong() -> None:
    """Clients would be told a topic's old partitions, or a broker's old address, until the restart."""
    cache = MetadataCache(ClusterImage.of("cluster"))
    same, changed, deleted = topic("same"), topic("changed"), topic("deleted")
    delta = MetadataDelta(created=(same, changed, deleted))
    cache.publish(cache.image.with_topics(delta), delta)
    for view in ("one", "other"):
        cache.derived(view).update(dict.fromkeys(("same", "changed", "deleted"), "kept"))
    delta = MetadataDelta(deleted=(deleted,), changed=(TopicChange(changed, topic("changed", 2)),))
    cache.publish(cache.image.with_topics(delta), delta)
    assert cache.derived("one") == cache.derived("other") == {"same": "kept"}
    cache.apply(MetadataDelta(brokers=BrokersImage({}, -1)))
    assert cache.derived("one") == {}


def test_what_waits_for_the_first_metadata_goes_on_with_them() -> None:
    """A broker that has just joined a cluster would tell clients that there are no topics."""

    async def scenario() -> None:
        cache = MetadataCache(ClusterImage.of("c"))
        await cache.filled(0.0)
        waiting = asyncio.create_task(cache.filled(600.0))
        await asyncio.sleep(0)
        assert not waiting.done()
        cache.apply(MetadataDelta(brokers=BrokersImage({1: BrokerImage(1, {})}, 1)))
        await waiting
        await cache.filled(600.0)

    asyncio.run(scenario())


def test_a_request_waits_for_the_first_metadata_without_a_task() -> None:
    """A handler runs up to its first wait without one: clients got UNKNOWN_SERVER_ERROR."""

    async def scenario() -> None:
        cache = MetadataCache(ClusterImage.of("c"))
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        loop.call_soon(lambda: done.set_result(cache.filled(600.0)))
        handler = await done
        first = loop.create_future()
        loop.call_soon(lambda: first.set_result(handler.send(None)))
        assert asyncio.isfuture(await first)
        handler.close()

    asyncio.run(scenario())
