"""The one place that builds, starts and stops the parts of a broker.

Start: lock the log directories, open the metadata, load the logs, lead the partitions, load the groups' coordinator,
listen.  A part that is not ready yet answers with a retriable error; the listeners open last of all that clients see.

Stop (SIGTERM, SIGINT, SIGHUP): stop accepting, answer what waits, let requests under way finish, close connections,
flush the logs, write the clean-shutdown marker.  A signal that comes half a second later, while it still stops, ends
the process at once, without the marker (`stop_signals`).
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from kbroker._fast.base.counters import RequestStats
from kbroker._fast.base.slices import Slices
from kbroker._fast.net.socket_part import PlainSocket
from kbroker.assembly.console import Console
from kbroker.assembly.coordinators import Coordinators
from kbroker.assembly.figures import BrokerFigures
from kbroker.assembly.listening import Listeners
from kbroker.assembly.member_choice import first_image, member_of, worker_of
from kbroker.clock import SYSTEM_CLOCK
from kbroker.cluster.local_controller import LocalController
from kbroker.cluster.member import StartInterruptedError, unless_stopping
from kbroker.cluster.requests import NO_BROKER_EPOCH
from kbroker.cluster.stored_image import stored_image
from kbroker.config import log_config
from kbroker.garbage import GarbageCollection
from kbroker.gate.enforcement import EXPIRE_INTERVAL_MS, QuotaEnforcement
from kbroker.handlers.endpoints import local_broker
from kbroker.handlers.services import Services
from kbroker.metadata.broker_settings import BrokerSettings
from kbroker.metadata.cache import MetadataCache
from kbroker.metadata.client_metrics_overrides import ClientMetricsOverrides
from kbroker.metadata.group_configs import GroupConfigs
from kbroker.metadata.image import ClusterImage
from kbroker.metadata.local_store import FILE_NAME as METADATA_FILE
from kbroker.metadata.local_store import LocalStore
from kbroker.metadata.producer_id_manager import ProducerIdManager
from kbroker.metadata.store import StoreCalls
from kbroker.metrics.http_guard import names_of
from kbroker.metrics.http_server import MetricsServer, start_metrics_server
from kbroker.metrics.loop_delay import LoopDelaySampler
from kbroker.metrics.readiness import Problem, Readiness, ReadyState
from kbroker.network.limits import raise_descriptor_limit
from kbroker.periodic import PeriodicTasks
from kbroker.protocol.api import ApiKey
from kbroker.quotas.host_names import HostNames
from kbroker.replication.alter_log_dirs import DirectoryMoves
from kbroker.replication.fetch_session import FetchSessionCache
from kbroker.replication.leader_changes import held_logs, report_at_start
from kbroker.replication.log_dir_failure_handler import LogDirFailureHandler, reason_to_halt
from kbroker.replication.metadata_at_start import check_metadata_is_there, check_node_has_partitions
from kbroker.replication.replica_manager import ReplicaManager
from kbroker.storage.directories.log_dirs import LogDirError
from kbroker.storage.directories.log_placement import all_cordoned
from kbroker.storage.directories.strays import KnownTopic
from kbroker.storage.manager.directory_problems import directory_problems
from kbroker.storage.manager.known_directories import claim_directories, claim_with_store
from kbroker.storage.manager.log_manager import COMPACTION_TASK, LogManager, compaction_interval_ms
from kbroker.storage.reports.log_pages import LogPages
from kbroker.telemetry.clients import TelemetryClients

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from kbroker._fast.net.connection import Connection
    from kbroker._fast.net.socket_part import SocketPart
    from kbroker.assembly.membership import Membership
    from kbroker.cluster.controller import Controller
    from kbroker.cluster.member import Member
    from kbroker.cluster.requests import BrokerEpoch
    from kbroker.cluster.workers.place import Place
    from kbroker.config import BrokerConfig, LogConfig
    from kbroker.gate.authorizer import Authorizer
    from kbroker.metadata.image import TopicImage
    from kbroker.replication.leader_and_isr import ControllerRequests
    from kbroker.types import TopicPartition

logger = logging.getLogger("kbroker.broker")

DRAIN_SECONDS = 1.0
HALT_SECONDS = 10.0
SWEEP_INTERVAL_MS = 1_000
TRIM_INTERVAL_MS = 30_000
SPARE_INTERVAL_MS = 5_000
COMPLAINTS_INTERVAL_MS = 10_000
UNREACHED_INTERVAL_MS = 10_000
PROGRESS_INTERVAL_SECONDS = 0.25


class Broker:
    """One running broker.  `start` and `stop` are called once each, on the loop.

    It sets `stopping`, and `failed`, when it cannot go on.
    """

    def __init__(
        self,
        config: BrokerConfig,
        loop: asyncio.AbstractEventLoop,
        stopping: asyncio.Event | None = None,
        member: Member | None = None,
        authorizer: Authorizer | None = None,
        place: Place | None = None,
        make_socket: Callable[[Connection], SocketPart] = PlainSocket,
    ) -> None:
        """`member` joins it to a cluster, `place` makes it a worker of this host; else it is a cluster of its own.

        `make_socket` is for connections that are not TCP's.
        """
        self.config = config
        self.membership: Membership | None = None
        self.authorizer = authorizer
        self.loop = loop
        self.stopping = stopping or asyncio.Event()
        self.failed = False
        self.clock = SYSTEM_CLOCK
        self.readiness = Readiness()
        self.stats = RequestStats()
        self.tasks = PeriodicTasks(loop)
        self.loop_delay = LoopDelaySampler(self._activity)
        self.metrics: MetricsServer | None = None
        self.listeners = Listeners(config, loop, self.stats, raise_descriptor_limit(), make_socket)
        manager = self.log_manager = LogManager(config, self.clock, activity=self._writing)
        self.store: LocalStore | None = None
        self._broker_epoch: Callable[[], BrokerEpoch]
        self.store_calls = ThreadPoolExecutor(1, thread_name_prefix="metadata-store")
        self.slices = Slices(loop)
        self.worker = None if place is None else worker_of(place, config, loop, self.slices, self.stopping, self._halt)
        self.member = member or self.worker or member_of(config, loop, self.clock, self.slices, self._halt)
        self.garbage = GarbageCollection(lambda: self.slices.busy)
        self.figures = BrokerFigures(config, self.clock, self.readiness, manager, self.listeners)
        self.readiness.watch(lambda: map(Problem, manager.environment.damages.reasons(manager.logs)))

    async def start(self) -> None:
        """Bring everything up; a part's own error when it cannot be.

        A signal ends a start that waits: LoadingInterruptedError, StartInterruptedError.
        """
        config = self.config
        keeps_metadata = self.member is None or (self.worker is not None and self.worker.place.is_controller)
        dirs = self.log_manager.open_dirs(first_has_metadata=keeps_metadata)
        if keeps_metadata:
            check_metadata_is_there(self.log_manager.environment.files, self.log_manager.online_directories())
        cluster_id = dirs.cluster_id
        if self.member is not None:
            opening = self.member.open(cluster_id, self._known_node_id())
            cluster_id = await unless_stopping(self.stopping, opening)
        if keeps_metadata:
            store = self.store = LocalStore.open(Path(dirs.first) / METADATA_FILE, cluster_id)
            cluster_id = store.cluster_id
        assert cluster_id is not None, "its store says, or its cluster"
        node_id = config.node_id
        cache = MetadataCache(self._first_image(cluster_id))
        if self.store is None:
            claim_directories(self.log_manager, cluster_id)
        else:
            others = set() if self.worker is None else self.worker.place.others(node_id)
            check_node_has_partitions(cache.image, node_id, others)
            claim_with_store(self.log_manager, self.store, dirs.first)
        settings = self.settings = BrokerSettings(config, cache, node_id)
        self.log_manager.follow(settings.config)
        hosts = HostNames(StoreCalls(self.listeners.cold_reads))
        replicas = ReplicaManager(node_id, self.log_manager, self._log_config, self.loop)
        controller_requests: ControllerRequests | None = None
        controller: Controller
        if self.member is None:
            controller = await self._control(cache, hosts, replicas)
        else:
            from kbroker.assembly.membership import Membership  # A single broker does not pay for it.

            membership = self.membership = Membership(
                config,
                self.loop,
                self.clock,
                cache,
                self.member,
                self.slices,
                settings,
                hosts,
                None if self.worker is None else self.worker.LISTENER,
            )
            controller = membership.controller
            self.figures.membership = membership
            self._broker_epoch = membership.broker
            await self._start_metrics(node_id, cluster_id)
            await unless_stopping(self.stopping, self.member.load(cache))
            await self._load_logs(None if self.worker is None else cache.image)
            controller_requests = membership.attach(replicas)
            if self.worker is not None:
                report = report_at_start(cache.image, node_id, self.log_manager, all_on_one_host=True)
                await self.worker.took_stock(report, held_logs(cache.image, node_id, self.log_manager))
                membership.follow_images(replicas)
        self.log_manager.attach(self.loop, replicas.on_durable, replicas.on_refused)
        self.services = services = Services(
            config=settings.config,
            clock=self.clock,
            node_id=node_id,
            metadata_cache=cache,
            controller=controller,
            producer_ids=ProducerIdManager(lambda: controller.allocate_producer_ids(self._broker_epoch())),
            log_manager=self.log_manager,
            replica_manager=replicas,
            loop=self.loop,
            fetch_sessions=FetchSessionCache(config.get("max.incremental.fetch.session.cache.slots")),
            fetch_max_bytes=config.get("fetch.max.bytes"),
            broker_settings=settings,
            slices=self.slices,
            group_configs=GroupConfigs(cache, settings),
            telemetry=TelemetryClients(ClientMetricsOverrides(cache), self.clock.monotonic),
        )
        if controller_requests is not None:
            services.controller_requests = controller_requests
        self.figures.services = services
        self.quotas = self.figures.quotas = QuotaEnforcement(settings.config, self.clock, cache, hosts, self.authorizer)
        self.moves = services.directory_moves = DirectoryMoves(settings.config, self.log_manager, replicas, self.loop)
        settings.guard(self.log_manager.cleaner.check)
        settings.subscribe(self._on_settings)
        wrap_markers = None
        if self.membership is not None:
            wrap_markers = self.membership.send_markers
            services.coordinators_elsewhere = self.membership.coordinators_elsewhere()
            services.zookeeper_offsets = self.membership.member.zookeeper_offsets
        self.coordinators = Coordinators(config, services, self.loop, self._max_batch_bytes, wrap_markers)
        self.coordinators.start()
        self.disk_failures = LogDirFailureHandler(
            self.log_manager,
            cache,
            controller,
            self._broker_epoch,
            self.loop,
            self._halt,
            self._lost,
            first_has_metadata=keeps_metadata,
        )
        self.disk_failures.start()
        if self.store is not None:
            self.store.keep_spare()
            failed = self.log_manager.failures.maybe_add_offline_log_dir
            self.store.on_failure = lambda reason: failed(dirs.first, reason)
        if self.worker is not None:
            await self.worker.gather()
        answers_controllers = controller_requests is not None
        await self.listeners.listen(services, self.log_manager, self.quotas, is_member=answers_controllers)
        self.moves.resume_found()
        self._schedule()
        self.readiness.watch(partial(directory_problems, self.log_manager), replicas.problems)
        if self.member is not None:
            assert self.membership is not None
            shown = self.membership.shown(local_broker(config, node_id), self.listeners.all)
            try:
                await unless_stopping(self.stopping, self.member.register(shown))
            except StartInterruptedError:
                return  # All that `stop` ends is there.
            if self.worker is not None:
                self.log_manager.begin_epoch(self.worker.epoch, NO_BROKER_EPOCH)
            self.readiness.watch(self.member.problems, self.membership.problems)
        self.readiness.move(ReadyState.READY)

    def _known_node_id(self) -> int | None:
        metas = (directory.meta for directory in self.log_manager.online_directories())
        return next((meta.node_id for meta in metas if meta is not None and meta.node_id >= 0), None)

    def _first_image(self, cluster_id: str) -> ClusterImage:
        if self.worker is not None:
            return self.worker.first_image(self.store, StoreCalls(self.store_calls))
        if self.store is not None:
            return stored_image(self.store, self.config, self.config.node_id)
        return first_image(cluster_id, local_broker(self.config, self.config.node_id))

    async def _control(self, cache: MetadataCache, hosts: HostNames, replicas: ReplicaManager) -> LocalController:
        """Load the logs as the controller of this one node."""
        store = self.store
        assert store is not None
        node_id = self.config.node_id
        calls = StoreCalls(self.store_calls)
        controller = LocalController(cache, store, self.settings, node_id, self.slices, calls, hosts)
        await self._start_metrics(node_id, store.cluster_id)
        registered, last = await controller.register_broker(local_broker(self.config, node_id))
        self._broker_epoch = lambda: registered
        self.log_manager.begin_epoch(registered.epoch, last.epoch)
        await self._load_logs(cache.image)
        if (reason := reason_to_halt(self.log_manager)) is not None:
            raise LogDirError(reason)
        await controller.report_replicas(registered, report_at_start(cache.image, node_id, self.log_manager))
        replicas.apply_image(cache.image)
        cache.subscribe(replicas.apply)
        controller.all_cordoned = partial(all_cordoned, self.log_manager)
        return controller

    def _max_batch_bytes(self, topic: TopicImage | None) -> int:
        return int(self._log_config({} if topic is None else topic.configs).max_message_bytes)

    async def _start_metrics(self, node_id: int, cluster_id: str) -> None:
        self.loop_delay.start(self.loop)
        sources = self.figures.sources(node_id, cluster_id, self.stats, self.loop_delay)
        console = Console(
            self.config, sources, self.readiness, lambda: self.services, self.listeners.all, self.authorizer
        )
        self.metrics = await start_metrics_server(
            self.config.get("metrics.listener") if self.worker is None else f"unix:{self.worker.place.metrics_socket}",
            sources,
            self.readiness,
            pages={"logs": LogPages(self.log_manager, self.clock)},
            # It is about one broker: among workers there is none.
            sites=console.sites() if self.worker is None else None,
            hosts=names_of(self.config),
        )

    async def _load_logs(self, image: ClusterImage | None) -> None:
        """Open the logs in a thread, so that `/readyz` can tell how far it is.  None: the topics are not known yet."""
        topics: dict[str, KnownTopic] | None = None
        if image is not None:
            topics = {
                topic.name: KnownTopic(topic.topic_id, self._log_config(topic.configs), len(topic.partitions))
                for topic in image.topics.values()
            }
        loading = self.loop.run_in_executor(None, self.log_manager.load_all, topics)
        while not (await asyncio.wait([loading], timeout=PROGRESS_INTERVAL_SECONDS))[0]:
            self.readiness.describe(self.log_manager.progress.text)
            if self.stopping.is_set():
                self.log_manager.interrupt_loading()
        await loading
        self.figures.logs_loaded = True

    def _schedule(self) -> None:
        self.tasks.add("close idle connections", SWEEP_INTERVAL_MS, self.listeners.close_idle)
        self.tasks.add("look for unreached addresses", UNREACHED_INTERVAL_MS, self.listeners.look_for_unreached)
        self.tasks.add("log suppressed complaints", COMPLAINTS_INTERVAL_MS, self.listeners.log_suppressed)
        self.tasks.add("forget idle quota meters", EXPIRE_INTERVAL_MS, self.quotas.expire)
        self.tasks.add("collect garbage", self.garbage.INTERVAL_MS, self.garbage.run)
        self.tasks.add("give back receive buffers", TRIM_INTERVAL_MS, self.listeners.pool.trim)
        if self.store is not None:
            self.tasks.add("keep space for deletions", SPARE_INTERVAL_MS, self.store.keep_spare)
        of_member = () if self.membership is None else self.membership.periodic_tasks()
        for task in (*self.log_manager.periodic_tasks(), *self.coordinators.periodic_tasks(), *of_member):
            self.tasks.add(task.name, task.interval_ms, task.run, task.initial_delay_ms)
        self.log_manager.flusher.hasten = partial(self.tasks.hasten, self.log_manager.flusher.TASK)

    async def stop(self) -> None:
        """End in order: nothing acknowledged is left unflushed, and the next start is a clean one."""
        if self.membership is not None:
            await self.membership.leave()
        self.readiness.move(ReadyState.STOPPING)
        self.listeners.stop_accepting()
        self.coordinators.stop()
        self.services.replica_manager.purgatory.expire_all()
        await self.listeners.close()
        if self.membership is not None:
            await self.membership.close()
        self.services.replica_manager.close()
        await self.moves.stop()
        self.disk_failures.stop()
        self.tasks.stop()
        self.loop_delay.stop()
        if self.metrics is not None:
            await self.metrics.close()
        self.listeners.cold_reads.shutdown(wait=False, cancel_futures=True)
        # In a thread, so that a second signal is heeded while the disk takes its time; nothing else touches logs now.
        await self.loop.run_in_executor(None, self.log_manager.shutdown)
        self._close_store()

    def _close_store(self) -> None:
        # A call that is under way comes to its end.
        self.store_calls.shutdown(cancel_futures=True)
        if self.store is not None:
            self.store.close()

    def release(self) -> None:
        """After a start that failed or was ended: close logs in order, so that no recovery follows; give files back."""
        self.listeners.stop_accepting()
        self.log_manager.shutdown()
        self._close_store()

    def _halt(self, reason: str) -> None:
        """What is left is stopped in order, as far as that works and does not take long."""
        logger.critical("the broker cannot go on and halts: %s", reason)
        self.readiness.move(ReadyState.STOPPING)
        self.readiness.describe(reason)
        self.failed = True
        exit_later(1)
        self.stopping.set()

    # What the parts ask

    def _log_config(self, topic_configs: Mapping[str, str]) -> LogConfig:
        return _log_config(self.settings.config, frozenset(topic_configs.items()))

    def _on_settings(self, config: BrokerConfig) -> None:
        """A broker setting was changed at run time: let requests see it, and the logs and all other parts follow."""
        self.services.config = config
        self.log_manager.follow(config)
        self.quotas.follow(config)
        self.moves.follow(config)
        self.tasks.change_interval(COMPACTION_TASK, compaction_interval_ms(config))
        self.listeners.follow(config)
        image = self.services.metadata_cache.image
        if self.membership is None:
            self.services.replica_manager.apply_image(image)
        else:
            self.membership.follow(config)
            self.services.replica_manager.reconfigure(image.topics)

    def _lost(self, names: Collection[TopicPartition]) -> None:
        if self.membership is not None:
            self.membership.lost(names)

    def _activity(self) -> int:
        return self.listeners.accepted_count + self.stats.total()

    def _writing(self) -> int:
        """Activity that may take up space: followers ask all the time, and nothing is written for that."""
        return self._activity() - self.stats.count(ApiKey.FETCH)


@lru_cache(maxsize=256)
def _log_config(config: BrokerConfig, overrides: frozenset[tuple[str, str]]) -> LogConfig:
    """Most topics share their settings: thousands of logs follow a change within milliseconds."""
    return log_config(config, dict(overrides))


def exit_later(status: int) -> None:
    """The last resort where something, such as a thread that waits for a disk, holds up the end of the process."""
    timer = threading.Timer(HALT_SECONDS, os._exit, (status,))
    timer.daemon = True
    timer.start()
