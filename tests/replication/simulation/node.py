"""A broker of the simulation: the project's own partitions, fetchers, ISR changes and handlers of a controller's
requests, over logs on a memory file system; of the rest only what they need."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kbroker.cluster.controller.interface import Controller
from kbroker.cluster.controller_channel import ControllerChannel
from kbroker.cluster.controller_client import ControllerByImage
from kbroker.cluster.protocol_version import PROTOCOL_VERSIONS
from kbroker.cluster.requests import BrokerEpoch
from kbroker.config import LogConfig
from kbroker.errors import ErrorCode, KafkaError
from kbroker.handlers.cluster.inter_broker import HANDLERS
from kbroker.handlers.records.fetch import _target
from kbroker.handlers.records.fetch_partition import read_partition
from kbroker.handlers.records.log_offsets import HANDLERS as LOG_OFFSET_HANDLERS
from kbroker.metadata.cache import MetadataCache
from kbroker.metadata.image import ClusterImage
from kbroker.protocol.api import ApiKey
from kbroker.replication.fetcher import FetcherSettings
from kbroker.replication.fetcher_manager import FetcherManager
from kbroker.replication.isr_manager import IsrManager
from kbroker.replication.leader_and_isr import ControllerRequests
from kbroker.replication.partition import Partition
from kbroker.replication.replica_manager import ReplicaManager
from kbroker.schemas import wire
from kbroker.storage.log.unified_log import UnifiedLog
from kbroker.types import TopicPartition
from tests.replication.cluster.member import MemberController
from tests.replication.simulation.network import Network
from tests.replication.simulation.virtual_loop import VirtualClock
from tests.storage.batches import environment, open_log

MAX_LAG = 0.1
DAY_MS = 86_400_000
WAIT_SECONDS = 0.02
FROM_CONTROLLER = {row.api_key: row.handle for row in HANDLERS}
LOG_OFFSETS: dict[int, Callable[..., Any]] = {row.api_key: row.handle for row in LOG_OFFSET_HANDLERS}
TEST_TOPIC = "t"


class _NoPace:
    def __await__(self) -> Iterator[None]:
        return iter(())


class Logs:
    """What `ReplicaManager` needs of a `LogManager`."""

    def __init__(self, directory: Path, clock: VirtualClock) -> None:
        self._directory = directory
        self._environment = environment(clock=clock)
        self.failures = SimpleNamespace(offline={})
        self.logs: dict[TopicPartition, UnifiedLog] = {}
        self.high_watermarks: dict[TopicPartition, int] = {}

    def get_log(self, name: TopicPartition) -> UnifiedLog | None:
        return self.logs.get(name)

    def get_or_create_log(
        self, name: TopicPartition, topic_id: bytes, config: LogConfig, *, is_known: bool = False
    ) -> UnifiedLog:
        if name not in self.logs:
            self.logs[name] = open_log(
                self._directory / str(name),
                config,
                env=self._environment,
                topic_partition=name,
                high_watermark=self.high_watermarks.get(name, 0),
            )
        self.logs[name].assign_topic_id(topic_id)
        return self.logs[name]

    def configure(self, log: UnifiedLog, config: LogConfig) -> None:
        log.config = config

    def close(self) -> None:
        for log in self.logs.values():
            log.close(clean=False)
        self.logs.clear()


class SimNode:
    """Started and crashed by the history; its directory stays."""

    max_lag = MAX_LAG
    wait_seconds = WAIT_SECONDS

    def __init__(self, node_id: int, directory: Path, network: Network, min_in_sync: int, release: str) -> None:
        self.node_id = node_id
        self.network = network
        self.loop: Any = network.loop
        # Clocks of brokers are days apart, and nothing may depend on them.
        self.clock = VirtualClock(self.loop, (node_id - 2) * DAY_MS)
        self.logs = Logs(directory, self.clock)
        self.epoch = -1
        self.up = False
        self._starts = 0
        self._config = LogConfig(min_insync_replicas=min_in_sync, message_timestamp_after_max_ms=4 * DAY_MS)
        # ISRs are the controller's affair here, whatever else brokers speak.
        self._protocol = replace(PROTOCOL_VERSIONS[release], alter_partition=3)

    def start(self, epoch: int) -> None:
        self.epoch = epoch
        self.up = True
        self._starts += 1
        loop, network = self.loop, self.network
        rng = random.Random(network.rng.random())
        self.cache = MetadataCache(ClusterImage.of("c"))
        self.replicas = ReplicaManager(self.node_id, self.logs, lambda _configs: self._config, loop)  # type: ignore[arg-type]
        transport = network.transport(self.node_id)
        place = ControllerByImage(self.cache, lambda: "PLAINTEXT")
        self.channel = ControllerChannel(loop, transport, self.cache, place, self.node_id, self._protocol, 1.0, rng)
        self.isr = IsrManager(
            loop, self.clock, self.cache, self.make_controller(rng), self._identity, lambda: self.max_lag
        )
        wait_ms = int(self.wait_seconds * 1000)
        settings = FetcherSettings(self.node_id, self._protocol, wait_ms=wait_ms, backoff_seconds=0.1)
        self.fetchers = FetcherManager(
            loop,
            transport,
            self.cache,
            lambda: "PLAINTEXT",
            lambda: settings,
            self.broker_epoch,
            socket_seconds=1.0,
            rng=rng,
        )
        self.replicas.roles.isr_changes = self.isr
        self.cache.subscribe(self.replicas.roles.note_topics)
        self.requests = ControllerRequests(
            self.node_id,
            self.cache,
            self.replicas.roles,
            self.fetchers,
            self.broker_epoch,
            self.configs_of,
            self.prepare,
        )
        self.services = SimpleNamespace(
            controller_requests=self.requests,
            replica_manager=self.replicas,
            slices=SimpleNamespace(pace=_NoPace),
        )
        network.servers[self.node_id] = self._serve
        loop.call_later(self.max_lag / 2, self._drop_lagging, self._starts)

    # What a cluster with ZooKeeper has others for

    def make_controller(self, _rng: random.Random) -> Controller:
        return MemberController(self.cache, self.channel)

    def broker_epoch(self) -> int:
        return self.epoch

    async def prepare(self, _topics: object) -> None:
        pass

    def configs_of(self, _topic: str) -> Mapping[str, str]:
        return {}

    def _identity(self) -> BrokerEpoch:
        return BrokerEpoch(self.node_id, self.broker_epoch())

    def _drop_lagging(self, start: int) -> None:
        if self.up and self._starts == start:
            self.isr.drop_lagging(list(self.replicas))
            self.loop.call_later(self.max_lag / 2, self._drop_lagging, start)

    def crash(self, rng: random.Random, *, loses: bool) -> None:
        """The process is gone, and with `loses` the end of what it wrote, in the midst of a batch at times."""
        self.up = False
        self.network.drop(self.node_id)
        self.fetchers.close()
        self.isr.close()
        self.channel.close()
        self.replicas.close()
        for name, log in self.logs.logs.items():
            known = self.logs.high_watermarks.get(name, 0)
            self.logs.high_watermarks[name] = rng.randint(min(known, log.high_watermark), log.high_watermark)
        paths = [log.local.segments.active.path for log in self.logs.logs.values()]
        self.logs.close()
        for path in paths if loses else ():
            size = Path(path).stat().st_size
            with open(path, "r+b") as file:
                file.truncate(rng.randint(size // 2, size))

    def hosted(self) -> Partition | None:
        return self.replicas.hosted(TopicPartition(TEST_TOPIC, 0)) if self.up else None

    # What it serves

    async def _serve(self, header: Any, request: Any) -> Any:
        ctx = SimpleNamespace(services=self.services, api_version=header.api_version, gate=None)
        if header.api_key in FROM_CONTROLLER:
            answer: Any = FROM_CONTROLLER[header.api_key](ctx, request)
            return await answer if asyncio.iscoroutine(answer) else answer
        if header.api_key == ApiKey.FETCH:
            return await self._fetch(header.api_version, request)
        assert header.api_key in LOG_OFFSETS
        return await LOG_OFFSETS[header.api_key](ctx, request)

    async def latest(self, leader_epoch: int) -> int:
        """The high watermark as a client sees it that knows of this leader epoch.  KafkaError."""
        asked = wire.ListOffsetsRequest
        row = asked.ListOffsetsPartition(partition_index=0, current_leader_epoch=leader_epoch, timestamp=-1)
        request = asked(replica_id=-1, topics=[asked.ListOffsetsTopic(name=TEST_TOPIC, partitions=[row])])
        ctx = SimpleNamespace(services=self.services, api_version=7, gate=None)
        answer: Any = await LOG_OFFSETS[ApiKey.LIST_OFFSETS](ctx, request)
        (found,) = answer.topics[0].partitions
        if found.error_code:
            raise KafkaError.of(ErrorCode(found.error_code))
        return int(found.offset)

    async def _fetch(self, version: int, request: Any) -> Any:
        """Without sessions; a fetch that finds nothing is answered a while later."""
        by_id = version >= 13
        replica_id = request.replica_state.replica_id if version >= 15 else request.replica_id
        if version >= 15:
            self.isr.fetches(replica_id, request.replica_state.replica_epoch)
        rows = [(topic, row, _target(topic, row, by_id)) for topic in request.topics for row in topic.partitions]
        for last in (False, True):
            found = [
                (topic, *read_partition(self.services, version, replica_id, False, target, 1 << 20, True))
                for topic, _, target in rows
            ]
            if last or any(urgent or len(data.records) for _, data, urgent, _ in found):
                break
            await asyncio.sleep(self.wait_seconds)
        response: Any = wire.FetchResponse
        return response(
            responses=[
                response.FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=[data])
                for topic, data, *_ in found
            ]
        )
