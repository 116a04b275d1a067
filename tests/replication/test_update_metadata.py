"""What a broker takes from UpdateMetadata, and from whom."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any
from unittest import mock

import pytest

from kbroker.cluster.metadata_updates import MetadataUpdate
from kbroker.errors import StaleControllerEpochError
from kbroker.metadata.cache import MetadataCache
from kbroker.metadata.image import ClusterImage, PartitionImage
from kbroker.replication.leader_and_isr import NO_BROKER_EPOCH, ControllerRequests, Sender

TOPIC_ID = bytes(15) + b"1"
ROW = PartitionImage(0, 2, 0, (2, 3), (2, 3))


class Told:
    """Broker 1, which has no replica of the topic."""

    def __init__(self) -> None:
        self.cache = MetadataCache(ClusterImage.of("c"))
        self.configs: dict[str, Mapping[str, str]] = {}
        unused: Any = mock.Mock()
        self.requests = ControllerRequests(
            1, self.cache, unused, unused, lambda: 1, lambda name: self.configs.get(name, {}), self.prepare
        )

    async def prepare(self, topics: Mapping[str, bytes]) -> None:
        assert topics == {"t": TOPIC_ID}
        self.configs["t"] = {"segment.ms": "7"}

    async def hears(self, controller_epoch: int) -> None:
        sender = Sender(2, controller_epoch, NO_BROKER_EPOCH)
        await self.requests.update_metadata(sender, MetadataUpdate(2, (), {("t", TOPIC_ID): [ROW]}))


def test_a_broker_without_a_replica_knows_the_settings_of_a_new_topic() -> None:
    """It would show defaults where others are set, until it is started again."""
    told = Told()
    asyncio.run(told.hears(1))
    topic = told.cache.topic("t")
    assert topic is not None and topic.configs == {"segment.ms": "7"}


def test_a_controller_that_is_deposed_while_settings_are_read_is_not_heard() -> None:
    """Its old word would replace that of the new one."""

    async def main() -> None:
        told = Told()
        first = told.prepare

        async def prepare(topics: Mapping[str, bytes]) -> None:
            told.requests._prepare = first
            await told.hears(2)

        told.requests._prepare = prepare
        with pytest.raises(StaleControllerEpochError):
            await told.hears(1)

    asyncio.run(main())
