"""What a broker asks the controller of its cluster, while the controller changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import uvloop

from kbroker.cluster.client import Channel
from kbroker.cluster.client_tcp import TcpTransport
from kbroker.cluster.controller_channel import ControllerChannel
from kbroker.cluster.controller_client import ControllerByImage
from kbroker.cluster.protocol_version import protocol_version
from kbroker.cluster.requests import BrokerEpoch, IsrChange
from kbroker.errors import NotControllerError
from kbroker.metadata.cache import MetadataCache
from kbroker.metadata.image import BrokerImage, ClusterImage, Endpoint, MetadataDelta
from kbroker.protocol.api import ApiKey
from kbroker.schemas import wire
from kbroker.types import TopicPartition
from tests.cluster.nodes import Peer

OLD, NEW, US = 1, 2, BrokerEpoch(3, 7)
LISTENER = "PLAINTEXT"


class Stuck(TcpTransport):
    """A network that loses what goes to one port."""

    def __init__(self, loop: asyncio.AbstractEventLoop, port: int) -> None:
        super().__init__(loop)
        self._port = port
        self.tried = asyncio.Event()

    async def connect(self, host: str, port: int, *rest: Any) -> Channel:
        if port == self._port:
            self.tried.set()
            await asyncio.get_running_loop().create_future()
        return await super().connect(host, port, *rest)


async def versions(peer: Peer) -> None:
    """Answers ApiVersions."""
    header, _ = await peer.request()
    newest = {ApiKey.ALLOCATE_PRODUCER_IDS: 0, ApiKey.ALTER_PARTITION: 3}
    rows = [wire.ApiVersionsResponse.ApiVersion(api_key=key, max_version=most) for key, most in newest.items()]
    peer.answer(header.correlation_id, wire.ApiVersionsResponse(api_keys=rows), header.api_version, flexible=False)


@pytest.mark.parametrize(("topic_id", "version"), [(b"1" * 16, 3), (bytes(16), 1)])
def test_an_isr_is_asked_for_before_the_metadata_have_its_topic(topic_id: bytes, version: int) -> None:
    """The controller would be asked about a topic that it cannot know, and the ISR stay as it is for good."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        peer = Peer()
        await peer.start()
        brokers = [BrokerImage(OLD, {LISTENER: Endpoint("127.0.0.1", peer.port)})]
        cache = MetadataCache(ClusterImage.of("c", controller_id=OLD, brokers=brokers))
        place = ControllerByImage(cache, lambda: LISTENER)
        channel = ControllerChannel(loop, TcpTransport(loop), cache, place, 3, protocol_version("3.9"))
        change = IsrChange(TopicPartition("t", 0), 5, 6, [(3, -1)], topic_id)
        asked = asyncio.ensure_future(channel.alter_partitions(US, [change]))
        await versions(peer)
        header, body = await peer.request()
        assert header.api_version == version
        (topic,) = body.topics
        assert (topic.topic_id == topic_id) if version > 1 else (topic.topic_name == "t")
        asked.cancel()
        channel.close()
        await peer.stop()

    within(main)


@pytest.mark.parametrize("hangs", ["when it is asked", "before it says its versions", "before it accepts"])
def test_a_new_controller_ends_what_waits_on_the_old_one(hangs: str) -> None:
    """An ISR change would wait for 30 s for a controller that hangs, and every commit with it, though another broker is
    the controller."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        old, new = Peer(), Peer()
        await old.start()
        await new.start()
        brokers = [
            BrokerImage(each, {LISTENER: Endpoint("127.0.0.1", peer.port)}) for each, peer in ((OLD, old), (NEW, new))
        ]
        cache = MetadataCache(ClusterImage.of("c", controller_id=OLD, brokers=brokers))
        network = Stuck(loop, old.port if hangs == "before it accepts" else 0)
        place = ControllerByImage(cache, lambda: LISTENER)
        channel = ControllerChannel(loop, network, cache, place, US.node_id, protocol_version("3.9"))
        asked = asyncio.ensure_future(channel.allocate_producer_ids(US))
        if hangs == "before it accepts":
            await network.tried.wait()
        elif hangs == "before it says its versions":
            await old.request()
        else:
            await versions(old)
            await old.request()
        cache.publish(replace(cache.image, controller_id=NEW), MetadataDelta())
        with pytest.raises(NotControllerError):
            await asked
        again = asyncio.ensure_future(channel.allocate_producer_ids(US))
        await versions(new)
        header, _ = await new.request()
        body = wire.AllocateProducerIdsResponse(producer_id_start=5000, producer_id_len=1000)
        new.answer(header.correlation_id, body, header.api_version)
        assert (await again).first_id == 5000
        channel.close()
        await old.stop()
        await new.stop()

    within(main)


def within(scenario: Callable[[], Any]) -> None:
    async def main() -> None:
        async with asyncio.timeout(60):
            await scenario()

    uvloop.run(main())
