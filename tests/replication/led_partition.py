"""A partition that this broker leads in a cluster of several."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import uvloop

from kbroker.broker import Broker
from kbroker.config import BrokerConfig
from kbroker.metadata.image import MetadataDelta, TopicChange
from kbroker.replication.partition import Partition
from tests.broker.client import Client
from tests.ports import free_port

OURS, THEIRS = 1, 2
TIMED_OUT, NOT_LEADER, NOT_ENOUGH_REPLICAS = 7, 6, 19
LONG_MS = 60_000
TOPIC = "replicated"


class Cluster:
    """The broker, and the replicas that its metadata name."""

    def __init__(self, directory: Path, settings: dict[str, str]) -> None:
        self.port = free_port()
        values = {
            "log.dirs": str(directory),
            "node.id": str(OURS),
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "metrics.listener": "none",
            "offsets.topic.num.partitions": "1",
            **settings,
        }
        self.broker = Broker(BrokerConfig.from_mapping(values), asyncio.get_running_loop())

    def place(self, topic: str = TOPIC, **values: Any) -> None:
        """Says of each partition of a topic where its replicas are, and raises its epochs if the leader changes."""
        assert self.broker.services is not None
        cache = self.broker.services.metadata_cache
        old = cache.image.topics[topic]
        new = replace(old, partitions=tuple(replace(each, **values) for each in old.partitions))
        change = MetadataDelta(changed=(TopicChange(old, new),))
        cache.publish(cache.image.with_topics(change), change)

    def partition(self, topic: str = TOPIC) -> Partition:
        assert self.broker.services is not None
        found: Partition = self.broker.services.replica_manager.topics[topic][0]
        return found

    async def client(self) -> Client:
        return await asyncio.to_thread(Client, self.port)

    async def follow(self, client: Client, offset: int, topic: str = TOPIC, version: int = 11) -> Any:
        """The follower's fetch: it has everything before `offset`."""
        return await asyncio.to_thread(client.fetch, topic, version, offset=offset, replica_id=THEIRS)


def run(directory: Path, scenario: Callable[[Cluster], Awaitable[None]], **settings: str) -> None:
    async def main() -> None:
        cluster = Cluster(directory, settings)
        await cluster.broker.start()
        try:
            admin = await cluster.client()
            await asyncio.to_thread(admin.create, TOPIC)
            cluster.place(replicas=(OURS, THEIRS), isr=(OURS, THEIRS))
            await scenario(cluster)
            admin.close()
        finally:
            await cluster.broker.stop()

    uvloop.run(main())


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0)
