"""What a broker takes from UpdateMetadata, LeaderAndIsr and StopReplica, and from whom."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from kbroker.cluster.metadata_updates import MetadataUpdate
from kbroker.cluster.protocol_version import EPOCH_DURING_DELETE
from kbroker.errors import ErrorCode, StaleBrokerEpochError, StaleControllerEpochError
from kbroker.metadata.cache import MetadataCache
from kbroker.metadata.image import ClusterImage, PartitionImage
from kbroker.replication.leader_and_isr import (
    NO_BROKER_EPOCH,
    ControllerRequests,
    ReplicaState,
    ReplicaStop,
    Sender,
)
from kbroker.types import NO_LEADER_EPOCH, ZERO_UUID, TopicPartition

TOPIC_ID = bytes(15) + b"1"
ROW = PartitionImage(0, 2, 0, (2, 3), (2, 3))
HOSTED = PartitionImage(0, 1, 3, (1, 2), (1, 2))
T0 = TopicPartition("t", 0)
BROKER_EPOCH = 7


class Told:
    """Broker 1, which has no replica of the topic, unless a test says since when it leads."""

    def __init__(self) -> None:
        self.cache = MetadataCache(ClusterImage.of("c"))
        self.configs: dict[str, Mapping[str, str]] = {}
        self.replicas: Any = mock.Mock(given_up=())
        self.replicas.is_offline.return_value = False
        self.replicas.hosted.return_value = None
        self.fetchers = mock.Mock()
        self.requests = ControllerRequests(
            1,
            self.cache,
            self.replicas,
            self.fetchers,
            lambda: BROKER_EPOCH,
            lambda name: self.configs.get(name, {}),
            self.prepare,
        )

    def has_led_since(self, leader_epoch: int) -> None:
        self.replicas.hosted.return_value = SimpleNamespace(topic_id=TOPIC_ID, leader_epoch=leader_epoch)

    async def prepare(self, topics: Mapping[str, bytes]) -> None:
        assert topics == {"t": TOPIC_ID}
        self.configs["t"] = {"segment.ms": "7"}

    async def hears(self, controller_epoch: int, broker_epoch: int = NO_BROKER_EPOCH) -> None:
        sender = Sender(2, controller_epoch, broker_epoch)
        await self.requests.update_metadata(sender, MetadataUpdate(2, (), {("t", TOPIC_ID): [ROW]}))

    async def is_told_to_lead(self, controller_epoch: int, broker_epoch: int = NO_BROKER_EPOCH) -> list[ErrorCode]:
        state = ReplicaState("t", TOPIC_ID, HOSTED, is_new=True)
        return await self.requests.leader_and_isr(Sender(2, controller_epoch, broker_epoch), [state], {})

    async def is_told_to_stop(
        self, controller_epoch: int, broker_epoch: int = NO_BROKER_EPOCH, leader_epoch: int = NO_LEADER_EPOCH
    ) -> list[ErrorCode]:
        stop = ReplicaStop(T0, leader_epoch, delete=True)
        return await self.requests.stop_replicas(Sender(2, controller_epoch, broker_epoch), [stop])


def test_a_broker_without_a_replica_knows_the_settings_of_a_new_topic() -> None:
    """It would show defaults where others are set, until it is started again."""
    told = Told()
    asyncio.run(told.hears(1))
    topic = told.cache.topic("t")
    assert topic is not None and topic.configs == {"segment.ms": "7"}


@pytest.mark.parametrize(
    ("leader_epoch", "replicas", "topic_id", "is_dropped"),
    [
        (4, (2, 3), TOPIC_ID, True),
        (4, (2, 3), ZERO_UUID, True),
        (4, (2, 1), TOPIC_ID, False),  # LeaderAndIsr says what becomes of it.
        (3, (2, 3), TOPIC_ID, False),
        (0, (2, 3), TOPIC_ID, False),  # Of a topic that is being deleted, among others.
        (4, (2, 3), bytes(15) + b"2", False),
    ],
)
def test_a_replica_that_is_others_in_a_later_epoch_is_not_served(
    leader_epoch: int, replicas: tuple[int, ...], topic_id: bytes, is_dropped: bool
) -> None:
    """A broker that stood still while its replica went would answer as the leader for good, and take records that are
    lost."""
    told = Told()
    told.has_led_since(3)
    told.requests._prepare = mock.AsyncMock()
    row = PartitionImage(0, 2, leader_epoch, replicas, replicas)
    asyncio.run(told.requests.update_metadata(Sender(2, 1), MetadataUpdate(2, (), {("t", topic_id): [row]})))
    if is_dropped:
        told.fetchers.forget.assert_called_once_with(T0)
        told.replicas.drop.assert_called_once_with(T0, delete=False)
    else:
        told.replicas.drop.assert_not_called()


def deposed_while_settings_are_read(told: Told, old: Callable[[Told], Awaitable[object]]) -> None:
    """A second controller speaks while `old` waits for the settings of the topics that it names."""

    async def main() -> None:
        first = told.prepare

        async def prepare(topics: Mapping[str, bytes]) -> None:
            told.requests._prepare = first
            await told.hears(2)

        told.requests._prepare = prepare
        with pytest.raises(StaleControllerEpochError):
            await old(told)

    asyncio.run(main())


def test_a_controller_that_is_deposed_while_settings_are_read_is_not_heard() -> None:
    """Its old word would replace that of the new one."""
    deposed_while_settings_are_read(Told(), lambda told: told.hears(1))


def test_a_controller_that_is_deposed_while_settings_are_read_makes_no_leader() -> None:
    """A broker would lead that the new controller has made a follower: two would take records of one partition."""
    told = Told()
    deposed_while_settings_are_read(told, lambda each: each.is_told_to_lead(1))
    told.replicas.become_replica.assert_not_called()
    assert asyncio.run(told.is_told_to_lead(2)) == [ErrorCode.NONE]
    told.replicas.become_replica.assert_called_once()


ASKED: dict[str, Callable[[Told, int], Awaitable[object]]] = {
    "UpdateMetadata": lambda told, broker_epoch: told.hears(1, broker_epoch),
    "LeaderAndIsr": lambda told, broker_epoch: told.is_told_to_lead(1, broker_epoch),
    "StopReplica": lambda told, broker_epoch: told.is_told_to_stop(1, broker_epoch),
}


@pytest.mark.parametrize("request_name", ASKED)
def test_what_was_meant_for_an_earlier_life_of_the_broker_is_refused(request_name: str) -> None:
    """A broker that has come back would delete or lead what the controller said before it knew of that."""

    async def main() -> None:
        told, asks = Told(), ASKED[request_name]
        for earlier in (0, BROKER_EPOCH - 1):
            with pytest.raises(StaleBrokerEpochError):
                await asks(told, earlier)
        assert told.requests.controller_epoch == -1
        assert not told.replicas.become_replica.called and not told.replicas.drop.called
        for taken in (NO_BROKER_EPOCH, BROKER_EPOCH, BROKER_EPOCH + 1):
            await asks(told, taken)
        assert told.requests.controller_epoch == 1

    asyncio.run(main())


def test_a_stop_from_before_the_replicas_leader_epoch_is_refused() -> None:
    """A request that comes late would delete the log of a replica that has been made the leader since."""
    told = Told()
    told.has_led_since(5)
    assert asyncio.run(told.is_told_to_stop(1, leader_epoch=4)) == [ErrorCode.FENCED_LEADER_EPOCH]
    told.replicas.drop.assert_not_called()
    for taken in (5, 6, NO_LEADER_EPOCH, EPOCH_DURING_DELETE):
        assert asyncio.run(told.is_told_to_stop(1, leader_epoch=taken)) == [ErrorCode.NONE]
        told.replicas.drop.assert_called_once_with(T0, delete=True)
        told.replicas.drop.reset_mock()
