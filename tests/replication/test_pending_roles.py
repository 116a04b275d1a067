"""A delta that changes thousands of roles is applied in slices; a partition has its role when it is asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
import uvloop

from kbroker._fast.base.slices import Slices
from kbroker.clock import SYSTEM_CLOCK
from kbroker.config import BrokerConfig, log_config
from kbroker.errors import NotLeaderOrFollowerError, UnknownTopicOrPartitionError
from kbroker.metadata.image import ClusterImage, MetadataDelta, PartitionImage, TopicChange, TopicImage
from kbroker.replication import pending_roles, replica_roles
from kbroker.replication.pending_roles import COMPARED_AT_ONCE
from kbroker.replication.replica_manager import ReplicaManager
from kbroker.storage.manager.log_manager import LogManager
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.replication.fetchers import Fetchers
    from kbroker.replication.partition import Partition

OURS, OTHER = 1, 2
PARTITIONS = 40


@pytest.fixture(autouse=True, params=[COMPARED_AT_ONCE, 8])
def _compared_at_once(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Topics are compared as a whole, or in portions."""
    monkeypatch.setattr(pending_roles, "COMPARED_AT_ONCE", request.param)
    monkeypatch.setattr(replica_roles, "COMPARED_AT_ONCE", request.param)


class NotedFetchers:
    """Which partitions are followed."""

    def __init__(self) -> None:
        self.followed: dict[TopicPartition, Partition] = {}
        self.taken: list[int] = []

    def follow(self, partition: Partition) -> None:
        self.taken.append(partition.index)
        self.followed[partition.topic_partition] = partition

    def forget(self, name: TopicPartition) -> None:
        self.followed.pop(name, None)


def topic_of(leader: int, epoch: int) -> TopicImage:
    images = (PartitionImage(index, leader, epoch, (OURS, OTHER), (OURS, OTHER)) for index in range(PARTITIONS))
    return TopicImage("t", bytes(15) + b"\1", tuple(images))


class Parts:
    """The replicas of one broker of a cluster; each slice is one step."""

    def __init__(self, directory: Path) -> None:
        config = BrokerConfig.from_mapping({"log.dirs": str(directory), "node.id": str(OURS)})
        self.logs = LogManager(config, SYSTEM_CLOCK)
        self.logs.open_dirs()
        self.logs.claim("c")
        self.logs.load_all()
        self.replicas = ReplicaManager(
            OURS, self.logs, lambda configs: log_config(config, configs), asyncio.get_running_loop()
        )
        self.fetchers = NotedFetchers()
        self.replicas.roles.fetchers = cast("Fetchers", self.fetchers)
        self.logs.slices = Slices(asyncio.get_running_loop(), slice_us=0)
        self.replicas.exists = lambda topic, _index: topic in self.image.topics
        self.image = ClusterImage("c", 1)
        self.topic = topic_of(OTHER, 0)
        self.publish(MetadataDelta(created=(self.topic,)))

    def publish(self, delta: MetadataDelta) -> None:
        old, self.image = self.image, self.image.apply(delta)
        self.replicas.roles.apply(old, self.image, delta)

    def change(self, topic: TopicImage) -> None:
        old, self.topic = self.topic, topic
        self.publish(MetadataDelta(changed=(TopicChange(old, topic),)))

    def delete(self) -> None:
        self.publish(MetadataDelta(deleted=(self.topic,)))

    @property
    def led(self) -> int:
        return sum(1 for _ in self.replicas)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0)


def test_thousands_of_roles_are_taken_between_other_work(tmp_path: Path) -> None:
    """All clients would wait for it when a broker is gone that led them."""

    async def scenario() -> None:
        parts = Parts(tmp_path)
        assert len(parts.fetchers.followed) < PARTITIONS
        await until(lambda: len(parts.fetchers.followed) == PARTITIONS)
        parts.change(topic_of(OURS, 1))
        assert parts.led < PARTITIONS
        await until(lambda: parts.led == PARTITIONS)
        assert not parts.fetchers.followed
        assert {each.leader_epoch for each in parts.replicas} == {1}
        parts.logs.shutdown()

    uvloop.run(scenario())


def test_a_partition_is_led_when_it_is_asked_for(tmp_path: Path) -> None:
    """Clients that have heard of the new leader would be sent away until its turn has come."""

    async def scenario() -> None:
        parts = Parts(tmp_path)
        parts.change(topic_of(OURS, 1))
        assert parts.replicas.partition("t", PARTITIONS - 1).leader_epoch == 1
        parts.change(topic_of(OTHER, 2))
        with pytest.raises(NotLeaderOrFollowerError):
            parts.replicas.partition("t", 0)
        parts.logs.shutdown()

    uvloop.run(scenario())


def test_the_newest_of_two_changes_counts(tmp_path: Path) -> None:
    """A broker would lead what another one leads by now."""

    async def scenario() -> None:
        parts = Parts(tmp_path)
        parts.change(topic_of(OURS, 1))
        parts.change(topic_of(OTHER, 2))
        await until(lambda: len(parts.fetchers.followed) == PARTITIONS)
        assert parts.led == 0
        assert {each.leader_epoch for each in parts.fetchers.followed.values()} == {2}
        parts.logs.shutdown()

    uvloop.run(scenario())


def test_a_topic_that_is_deleted_takes_no_role_any_more(tmp_path: Path) -> None:
    """Its logs would be there again."""

    async def scenario() -> None:
        parts = Parts(tmp_path)
        await until(lambda: len(parts.fetchers.followed) == PARTITIONS)
        parts.change(topic_of(OURS, 1))
        parts.delete()
        await until(lambda: not parts.logs.logs)
        assert parts.led == 0
        assert not parts.fetchers.followed
        with pytest.raises(UnknownTopicOrPartitionError):
            parts.replicas.partition("t", 0)
        parts.logs.shutdown()

    uvloop.run(scenario())


def test_only_partitions_that_have_changed_take_a_role(tmp_path: Path) -> None:
    """An ISR that changes in one of ten thousand partitions would cost as much as a new leader for all."""

    async def scenario() -> None:
        parts = Parts(tmp_path)
        await until(lambda: len(parts.fetchers.followed) == PARTITIONS)
        parts.fetchers.taken.clear()
        images = list(parts.topic.partitions)
        images[7] = replace(images[7], leader_epoch=1)
        parts.change(replace(parts.topic, partitions=tuple(images)))
        await until(lambda: bool(parts.fetchers.taken))
        assert parts.fetchers.taken == [7]
        parts.logs.shutdown()

    uvloop.run(scenario())
