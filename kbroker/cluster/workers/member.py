"""A worker among those of its host: worker 1 is the controller and takes the others in, they follow it over a link."""

from __future__ import annotations

import asyncio
import logging
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from kbroker.cluster.controller_stats import ControllerStats
from kbroker.cluster.member import StartInterruptedError, unless_stopping
from kbroker.cluster.named_host import near_host
from kbroker.cluster.placement import to_balance
from kbroker.cluster.replica_reports import unserved_delta
from kbroker.cluster.requests import NO_BROKER_EPOCH, ElectionType, ReplicaReport
from kbroker.cluster.stored_image import stored_image
from kbroker.cluster.workers.controller_link import ControllerLink, Held, LinkState
from kbroker.cluster.workers.controller_server import ControllerServer
from kbroker.cluster.workers.host_controller import HostController
from kbroker.cluster.workers.remote_controller import RemoteController
from kbroker.errors import KafkaError
from kbroker.metadata.image import BrokerImage, ClusterImage, Endpoint
from kbroker.metrics.readiness import Problem
from kbroker.outage import Outage
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker._fast.base.slices import Slices
    from kbroker.cluster.controller.interface import Controller
    from kbroker.cluster.workers.worker_slot import WorkerSlot
    from kbroker.config import BrokerConfig
    from kbroker.metadata.broker_settings import BrokerSettings
    from kbroker.metadata.cache import MetadataCache
    from kbroker.metadata.image import PartitionImage
    from kbroker.metadata.store import MetadataStore, StoreCalls
    from kbroker.quotas.host_names import HostNames

logger = logging.getLogger("kbroker.cluster")

WAIT_SECONDS = 10.0
WORKERS_LISTENER = "kbroker.workers"
"""Under this name a broker's image has its endpoint for the other workers, which no client is shown."""


def with_near_endpoint(broker: BrokerImage, port: int, host: str) -> BrokerImage:
    """A broker with the endpoint for other workers, bound to `host`."""
    return replace(broker, endpoints={**broker.endpoints, WORKERS_LISTENER: Endpoint(near_host(host), port)})


class Worker(ABC):
    """One worker.  A start calls `open`, `controller`, `load`, `report_logs`, `wait_for_workers` and `register`."""

    def __init__(self, slot: WorkerSlot, config: BrokerConfig, loop: asyncio.AbstractEventLoop, slices: Slices) -> None:
        """`slices`: of the loop's time."""
        self.controller_stats = ControllerStats()
        self.slot = slot
        self._config = config
        self._loop = loop
        self._slices = slices

    @property
    @abstractmethod
    def epoch(self) -> int:
        """This broker's epoch by now; -1 while it is not registered."""

    @abstractmethod
    async def open(self, store: MetadataStore | None, calls: StoreCalls) -> ClusterImage:
        """The cluster as this worker knows it before it serves.  `store`: of the controller, written over `calls`.

        StartInterruptedError.
        """

    @abstractmethod
    def controller(self, cache: MetadataCache, settings: BrokerSettings, hosts: HostNames) -> Controller:
        """The controller as this worker reaches it."""

    @abstractmethod
    def load(self, cache: MetadataCache) -> None:
        """From here on `cache` has what the controller publishes."""

    @abstractmethod
    async def report_logs(self, report: ReplicaReport, held: Held) -> None:
        """The logs are open: what the controller has to know of them, by `held` also when it starts again.  Returns
        when this worker may lead and follow."""

    @abstractmethod
    async def wait_for_workers(self) -> None:
        """Return when the workers are there that clients need from the first moment on.  StartInterruptedError."""

    @abstractmethod
    async def register(self, broker: BrokerImage) -> None:
        """This worker serves."""

    def is_heard(self) -> bool:
        """Whether the controller hears this worker."""
        return True

    @abstractmethod
    def problems(self) -> Iterable[Problem]:
        """What is wrong among the workers, for people."""

    @abstractmethod
    async def close(self) -> None:
        """Leave the others."""


class FirstWorker(Worker):
    """Worker 1, the controller."""

    _controller: HostController
    _server: ControllerServer
    _store: MetadataStore
    _calls: StoreCalls
    _cache: MetadataCache

    def __init__(
        self,
        slot: WorkerSlot,
        config: BrokerConfig,
        loop: asyncio.AbstractEventLoop,
        slices: Slices,
        stopping: asyncio.Event,
    ) -> None:
        super().__init__(slot, config, loop, slices)
        self._stopping = stopping
        self._epoch = NO_BROKER_EPOCH
        self._is_listening = False
        self._waits: set[asyncio.Task[None]] = set()
        self._balance_timer: asyncio.TimerHandle | None = None
        self._outage = Outage(logger, now=loop.time)

    @property
    def epoch(self) -> int:
        return self._epoch

    async def open(self, store: MetadataStore | None, calls: StoreCalls) -> ClusterImage:
        assert store is not None
        self._store, self._calls = store, calls
        return stored_image(store, self._config, self._config.node_id)

    def load(self, cache: MetadataCache) -> None:
        """It publishes itself."""
        return

    def controller(self, cache: MetadataCache, settings: BrokerSettings, hosts: HostNames) -> Controller:
        node_id = self._config.node_id
        self._cache = cache
        self._controller = HostController(cache, self._store, settings, node_id, self._slices, self._calls, hosts)
        self._controller.is_stopping = self._stopping.is_set
        self._server = ControllerServer(self._controller, cache, self._loop, self._slices)
        return self._controller

    async def report_logs(self, report: ReplicaReport, held: Held) -> None:
        """Become the controller: worker 1 is alive from here on, and the others may come."""
        node_id = self._config.node_id
        epoch, _ = await self._calls(self._store.begin_broker_epoch)
        self._epoch = epoch
        await self._controller.enter(BrokerImage(node_id, {}, epoch=epoch), report)
        sock = socket.socket(fileno=self.slot.descriptor)
        sock.setblocking(False)
        self._server.log_reports.open({node_id, *self.slot.others(node_id)}, WAIT_SECONDS, self._server.is_connected)
        await self._server.listen(sock)
        self._is_listening = True
        await unless_stopping(self._stopping, self._server.log_reports.report_logs(node_id, await held()))
        self.controller_stats.begin(self._partitions)
        self.controller_stats.state = "active"

    def _partitions(self) -> Iterable[PartitionImage]:
        return (each for topic in self._cache.image.topics.values() for each in topic.partitions)

    async def wait_for_workers(self) -> None:
        """The other workers are there first, so that what is made from the first moment on is spread over all."""
        others = self.slot.others(self._config.node_id) - self._server.log_reports.absent
        for node_id in await self._server.gathered(others, WAIT_SECONDS, self._stopping):
            if self._stopping.is_set():
                raise StartInterruptedError
            logger.warning("worker %d has not come within %d s; the others go on", node_id, WAIT_SECONDS)
            await self._controller.missing(node_id)

    async def register(self, broker: BrokerImage) -> None:
        await self._controller.enter(replace(broker, epoch=self._epoch), ReplicaReport())
        self._balance_later()

    # Leaders go back

    def _balance_later(self) -> None:
        seconds = self._config.get("leader.imbalance.check.interval.seconds")
        self._balance_timer = self._loop.call_later(seconds, self._balance)

    def _balance(self) -> None:
        self._balance_later()
        if self._config.get("auto.leader.rebalance.enable"):
            task = self._loop.create_task(self._prefer())
            self._waits.add(task)
            task.add_done_callback(self._waits.discard)

    async def _prefer(self) -> None:
        partitions = [
            (TopicPartition(topic.name, each.partition), each)
            for topic in self._cache.image.topics.values()
            for each in topic.partitions
        ]
        rows = [(each.replicas[0], each.leader != each.replicas[0]) for _, each in partitions]
        brokers = to_balance(rows, self._config.get("leader.imbalance.per.broker.percentage"))
        due = [
            name
            for name, each in partitions
            if each.replicas[0] in brokers and each.leader != each.replicas[0] and each.replicas[0] in each.isr
        ]
        if due:
            try:
                await self._controller.elect_leaders(ElectionType.PREFERRED, due)
            except KafkaError as error:
                self._outage.failed("leaders stay where they are: %s", error)
            else:
                self._outage.over("leaders go back where they belong")

    def problems(self) -> Iterable[Problem]:
        """Workers that are away."""
        missing = self.slot.others(self._config.node_id) - self._server.present
        if missing:
            yield Problem(
                f"these workers are away, and with them what they lead: {', '.join(map(str, sorted(missing)))}"
            )

    async def close(self) -> None:
        if self._balance_timer is not None:
            self._balance_timer.cancel()
        for task in self._waits:
            task.cancel()
        if self._is_listening:
            self._server.close()


class FollowingWorker(Worker):
    """Any other worker, which follows worker 1."""

    _cache: MetadataCache

    def __init__(
        self,
        slot: WorkerSlot,
        config: BrokerConfig,
        loop: asyncio.AbstractEventLoop,
        slices: Slices,
        stopping: asyncio.Event,
        failed: Callable[[str], None],
    ) -> None:
        super().__init__(slot, config, loop, slices)
        self._link = ControllerLink(slot.address, config.node_id, loop, stopping, slices)
        self._link.failure = failed
        self._report = ReplicaReport()

    @property
    def epoch(self) -> int:
        return self._link.epoch

    async def open(self, store: MetadataStore | None, calls: StoreCalls) -> ClusterImage:
        return await self._link.open()

    def load(self, cache: MetadataCache) -> None:
        self._cache = cache
        self._link.follow(cache)

    def controller(self, cache: MetadataCache, settings: BrokerSettings, hosts: HostNames) -> Controller:
        return RemoteController(self._link, cache)

    async def report_logs(self, report: ReplicaReport, held: Held) -> None:
        """The controller gets the report when this worker enters; until then its images still show this worker's lost
        replicas as online."""
        self._report = report
        await self._link.report_logs(held)
        self._cache.apply(unserved_delta(self._cache.image, self._config.node_id, report.offline))

    async def wait_for_workers(self) -> None:
        """Worker 1 was there before."""
        return

    async def register(self, broker: BrokerImage) -> None:
        await self._link.enter(broker, self._report)

    def is_heard(self) -> bool:
        return self._link.state is LinkState.FOLLOWING

    def problems(self) -> Iterable[Problem]:
        """Whether the controller is there."""
        if self._link.state is not LinkState.FOLLOWING:
            yield Problem("the controller, worker 1, is away: leaders and settings stay as they are")

    async def close(self) -> None:
        self._link.close()


def worker(
    slot: WorkerSlot,
    config: BrokerConfig,
    loop: asyncio.AbstractEventLoop,
    slices: Slices,
    stopping: asyncio.Event,
    failed: Callable[[str], None],
) -> Worker:
    """The membership of the worker at a slot.  `stopping`: the broker is to stop; `failed` is called with the reason
    why it cannot go on."""
    if slot.is_controller:
        return FirstWorker(slot, config, loop, slices, stopping)
    return FollowingWorker(slot, config, loop, slices, stopping, failed)
