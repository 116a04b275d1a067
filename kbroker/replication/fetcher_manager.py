"""The fetchers of this broker: `num.replica.fetchers` for each broker that leads partitions which it follows.

A partition is always copied by the same one of a leader's fetchers.  A fetcher without partitions is closed, its
connection with it.  The address of a leader comes from the metadata, or, until these have it, from the controller's
LeaderAndIsr.
"""

from __future__ import annotations

import asyncio
import random
import zlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from kbroker.cluster.client import ClientSettings, NodeClient
from kbroker.metadata.image import NO_LEADER
from kbroker.replication.fetcher import FetcherSettings, ReplicaFetcher

if TYPE_CHECKING:
    from kbroker._fast.base.slices import Pace
    from kbroker.cluster.client import Transport
    from kbroker.cluster.protocol_version import ProtocolVersion
    from kbroker.config import BrokerConfig
    from kbroker.metadata.cache import MetadataCache
    from kbroker.metadata.image import Endpoint
    from kbroker.replication.partition import Partition
    from kbroker.replication.replication_traffic import ReplicationTraffic
    from kbroker.types import TopicPartition


def fetcher_settings(config: BrokerConfig, protocol: ProtocolVersion) -> FetcherSettings:
    """The `replica.fetch.*` settings."""
    return FetcherSettings(
        node_id=config.node_id,
        protocol=protocol,
        wait_ms=config.get("replica.fetch.wait.max.ms"),
        min_bytes=config.get("replica.fetch.min.bytes"),
        max_bytes=config.get("replica.fetch.max.bytes"),
        response_max_bytes=config.get("replica.fetch.response.max.bytes"),
        backoff_seconds=config.get("replica.fetch.backoff.ms") / 1000,
    )


class FetcherSettingsByVersion:
    """The settings of fetchers, with the versions that `protocol` says by then."""

    def __init__(self, config: BrokerConfig, protocol: Callable[[], ProtocolVersion]) -> None:
        self._config = config
        self._protocol = protocol
        self._made = fetcher_settings(config, protocol())

    def __call__(self) -> FetcherSettings:
        protocol = self._protocol()
        if protocol is not self._made.protocol:
            self._made = fetcher_settings(self._config, protocol)
        return self._made


class FetcherFigures(NamedTuple):
    """Fetchers, the largest lag of a partition in records, partitions whose last fetch failed, and the requests of
    each fetcher, by its leader and number."""

    fetchers: int
    max_lag: int
    failed_partitions: int
    request_counts: Mapping[str, int]


class FetcherManager:
    """See the module, and `fetchers.Fetchers`."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        transport: Transport,
        cache: MetadataCache,
        listener: Callable[[], str],
        settings: Callable[[], FetcherSettings],
        broker_epoch: Callable[[], int],
        *,
        count: int = 1,
        socket_seconds: float = 30.0,
        pace: Callable[[], Pace | None] = lambda: None,
        rng: random.Random | None = None,
        traffic: ReplicationTraffic | None = None,
    ) -> None:
        """`listener()` is the name of the listener between brokers, `count` `num.replica.fetchers`."""
        self._loop = loop
        self._transport = transport
        self._cache = cache
        self._listener = listener
        self._settings = settings
        self._broker_epoch = broker_epoch
        self._count = count
        self._socket_seconds = socket_seconds
        self._pace = pace
        self._random = rng
        self._traffic = traffic
        self._leaders: dict[int, Endpoint] = {}
        self._fetchers: dict[tuple[int, int], ReplicaFetcher] = {}

    def note_leaders(self, endpoints: Mapping[int, Endpoint]) -> None:
        """See `Fetchers`."""
        self._leaders.update(endpoints)

    def _find(self, leader: int) -> Endpoint | None:
        broker = self._cache.image.brokers.get(leader)
        known = None if broker is None else broker.endpoints.get(self._listener())
        return known or self._leaders.get(leader)

    def _number_of(self, name: TopicPartition) -> int:
        return (zlib.crc32(name.topic.encode()) + name.partition) % self._count

    def change_count(self, count: int) -> None:
        """Sets the number of fetchers for each leader.  A partition that moves to another fetcher is fetched anew
        there; what the old fetcher still gets for it is dropped."""
        if count == self._count:
            return
        self._count = count
        for partition in [each for fetcher in self._fetchers.values() for each in fetcher.partitions()]:
            self.follow(partition)

    def follow(self, partition: Partition) -> None:
        """See `Fetchers`."""
        name = partition.topic_partition
        assert partition.leader_id not in (NO_LEADER, self._settings().node_id), f"{partition} has no leader to copy"
        self.forget(name)
        key = (partition.leader_id, self._number_of(name))
        fetcher = self._fetchers.get(key)
        if fetcher is None:
            fetcher = self._fetchers[key] = self._make(*key)
        fetcher.add(partition)

    def _make(self, leader: int, number: int) -> ReplicaFetcher:
        settings = self._settings()
        client = NodeClient(
            self._loop,
            self._transport,
            partial(self._find, leader),
            ClientSettings(
                client_id=f"broker-{settings.node_id}-fetcher-{number}",
                request_seconds=self._socket_seconds + settings.wait_ms / 1000,
                max_backoff_seconds=settings.backoff_seconds,
            ),
            self._random,
        )
        return ReplicaFetcher(self._loop, client, self._settings, self._broker_epoch, self._pace, self._traffic)

    def forget(self, topic_partition: TopicPartition) -> None:
        """See `Fetchers`."""
        for key, fetcher in list(self._fetchers.items()):
            if fetcher.remove(topic_partition) and not len(fetcher):
                # The same request may add another partition: a fetcher is closed only if it is still without partitions
                # after a second.
                self._loop.call_later(1.0, self._close_idle, key)

    def _close_idle(self, key: tuple[int, int]) -> None:
        fetcher = self._fetchers.get(key)
        if fetcher is not None and not len(fetcher):
            del self._fetchers[key]
            fetcher.close()

    def __len__(self) -> int:
        return len(self._fetchers)

    def figures(self) -> FetcherFigures:
        """The lag of the followed partitions, by the leaders' last answers."""
        rows = [row for fetcher in self._fetchers.values() for row in fetcher.rows()]
        return FetcherFigures(
            len(self._fetchers),
            max((row.lag or 0 for row in rows), default=0),
            sum(row.failures > 0 for row in rows),
            {f"{broker}-{number}": each.client.request_count for (broker, number), each in self._fetchers.items()},
        )

    def close(self) -> None:
        """Copy nothing any more."""
        for fetcher in self._fetchers.values():
            fetcher.close()
        self._fetchers.clear()
