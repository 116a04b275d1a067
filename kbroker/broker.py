"""The one place that builds, starts and stops the parts of a broker.

Start: lock the log directories, open the metadata, load the logs, lead the partitions, load the groups' coordinator,
listen.  A part that is not ready yet answers with a retriable error; the listeners open last of all that clients see.

Stop (SIGTERM, SIGINT, SIGHUP): stop accepting, answer what waits, let requests under way finish, close connections,
flush the logs, write the clean-shutdown marker.  A signal that comes half a second later, while it still stops, ends
the process at once, without the marker (`stop_signals`).

Exit codes: 0 stopped in order, 1 could not start or failed, as when the last log directory, or the one with the
metadata, gives I/O errors.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kbroker import __version__, log_output
from kbroker._fast.base.counters import RequestStats
from kbroker._fast.base.slices import Slices
from kbroker._fast.net.reactor import Reactor
from kbroker._fast.net.receive_buffer import BufferPool
from kbroker.clock import SYSTEM_CLOCK
from kbroker.cluster.local_controller import LocalController
from kbroker.cluster.stored_image import stored_image
from kbroker.config import log_config
from kbroker.coordinator.classic.group_coordinator import GroupCoordinator
from kbroker.coordinator.consumer.consumer_groups import ConsumerGroups
from kbroker.coordinator.consumer.settings import GroupSettings
from kbroker.coordinator.runtime.background import Threads
from kbroker.coordinator.transactions.assembly import transaction_coordinator
from kbroker.coordinator.transactions.stable_offset import stable_offset_holders
from kbroker.errors import KafkaError
from kbroker.garbage import GarbageCollection
from kbroker.gate.enforcement import EXPIRE_INTERVAL_MS, QuotaEnforcement
from kbroker.handlers import dispatch, share_parts
from kbroker.handlers.endpoints import local_broker
from kbroker.handlers.services import Services
from kbroker.handlers.table import advertised_ranges
from kbroker.metadata.broker_settings import BrokerSettings
from kbroker.metadata.cache import MetadataCache
from kbroker.metadata.client_metrics_overrides import ClientMetricsOverrides
from kbroker.metadata.group_configs import GroupConfigs
from kbroker.metadata.image import ClusterImage
from kbroker.metadata.local_store import FILE_NAME as METADATA_FILE
from kbroker.metadata.local_store import LocalStore
from kbroker.metadata.producer_id_manager import ProducerIdManager
from kbroker.metadata.store import StoreCalls
from kbroker.metadata.topic_names import GROUP_METADATA_TOPIC, SHARE_GROUP_STATE_TOPIC
from kbroker.metrics.http_server import MetricsServer, start_metrics_server
from kbroker.metrics.loop_delay import LoopDelaySampler
from kbroker.metrics.maintenance import Values
from kbroker.metrics.readiness import Problem, Readiness, ReadyState
from kbroker.metrics.sources import (
    NO_TRANSACTIONS,
    CommitTotals,
    ConnectionTotals,
    ConversionTotals,
    DirectorySpace,
    GroupSummary,
    OfflineTotals,
    Sources,
    StableOffsetHolder,
    StorageTotals,
    TransactionTotals,
)
from kbroker.network.cold_reads import COLD_READ_THREADS
from kbroker.network.limits import ConnectionLimits, beside_the_loop, connection_limits, raise_descriptor_limit
from kbroker.network.listener import BindError, Listener
from kbroker.network.socket_options import SocketOptions
from kbroker.periodic import PeriodicTasks, Pieces
from kbroker.protocol.api import ApiKey
from kbroker.quotas.host_names import HostNames
from kbroker.replication.alter_log_dirs import DirectoryMoves
from kbroker.replication.fetch_session import FetchSessionCache
from kbroker.replication.leader_changes import report_at_start
from kbroker.replication.log_dir_failure_handler import LogDirFailureHandler, reason_to_halt
from kbroker.replication.metadata_at_start import check_metadata_is_there
from kbroker.replication.replica_manager import ReplicaManager
from kbroker.replication.state_log import PartitionStateLog
from kbroker.replication.transaction_markers import MarkerWriter
from kbroker.scheduling import process_started
from kbroker.stop_signals import StopSignals
from kbroker.storage.directories.log_dirs import LogDirError
from kbroker.storage.directories.log_placement import all_cordoned
from kbroker.storage.directories.strays import KnownTopic
from kbroker.storage.manager.directory_problems import directory_problems
from kbroker.storage.manager.log_manager import COMPACTION_TASK, LogManager, compaction_interval_ms
from kbroker.storage.manager.shrunk_files import note_shrunk
from kbroker.storage.recovery.recovery_progress import LoadingInterruptedError
from kbroker.storage.reports.log_pages import LogPages
from kbroker.storage.reports.maintenance_figures import maintenance_figures, recovery_figures
from kbroker.telemetry.clients import TelemetryClients

if TYPE_CHECKING:
    from kbroker.config import BrokerConfig, LogConfig
    from kbroker.metadata.image import TopicImage

logger = logging.getLogger("kbroker.broker")

DRAIN_SECONDS = 1.0
HALT_SECONDS = 10.0
SWEEP_INTERVAL_MS = 1_000
TRIM_INTERVAL_MS = 30_000
SPARE_INTERVAL_MS = 5_000
COMPLAINTS_INTERVAL_MS = 10_000
PROGRESS_INTERVAL_SECONDS = 0.25


class Broker:
    """One running broker.  `start` and `stop` are called once each, on the loop.

    It sets `stopping`, and `failed`, when it cannot go on.
    """

    def __init__(
        self, config: BrokerConfig, loop: asyncio.AbstractEventLoop, stopping: asyncio.Event | None = None
    ) -> None:
        self.config = config
        self.loop = loop
        self.stopping = stopping or asyncio.Event()
        self.failed = False
        self.clock = SYSTEM_CLOCK
        self.readiness = Readiness()
        self.stats = RequestStats()
        self.tasks = PeriodicTasks(loop)
        self.loop_delay = LoopDelaySampler(self._activity)
        self.listeners: list[Listener] = []
        self.metrics: MetricsServer | None = None
        self._descriptors = raise_descriptor_limit()
        manager = self.log_manager = LogManager(config, self.clock, activity=self._activity)
        self.store: LocalStore | None = None
        self.cold_reads = ThreadPoolExecutor(COLD_READ_THREADS, thread_name_prefix="cold-read")
        self.store_calls = ThreadPoolExecutor(1, thread_name_prefix="metadata-store")
        self.slices = Slices(loop)
        self.garbage = GarbageCollection(lambda: self.slices.busy)
        self._logs_loaded = False
        self.readiness.watch(lambda: map(Problem, manager.environment.damages.reasons(manager.logs)))

    async def start(self) -> None:
        """Bring everything up; a part's own error when it cannot be."""
        config = self.config
        dirs = self.log_manager.open_dirs()
        check_metadata_is_there(self.log_manager.environment.files, self.log_manager.online_directories())
        store = self.store = LocalStore.open(Path(dirs.first) / METADATA_FILE, dirs.cluster_id)
        store.remember_directories(self.log_manager.claim(store.cluster_id, store.directories()))
        node_id = config.node_id
        calls = StoreCalls(self.store_calls)
        cache = MetadataCache(stored_image(store, config, node_id))
        settings = self.settings = BrokerSettings(config, cache, node_id)
        self.log_manager.follow(settings.config)
        hosts = HostNames(StoreCalls(self.cold_reads))
        controller = LocalController(cache, store, settings, node_id, self.slices, calls, hosts)
        await self._start_metrics(node_id, store.cluster_id)
        registered, last = await controller.register_broker(local_broker(config, node_id))
        self.log_manager.begin_epoch(registered.epoch, last.epoch)
        await self._load_logs(cache.image)
        if (reason := reason_to_halt(self.log_manager)) is not None:
            raise LogDirError(reason)
        await controller.report_replicas(registered, report_at_start(cache.image, node_id, self.log_manager))
        replicas = ReplicaManager(node_id, self.log_manager, self._log_config, self.loop)
        replicas.apply_image(cache.image)
        self.log_manager.attach(self.loop, replicas.on_durable, replicas.on_refused)
        cache.subscribe(replicas.apply)
        self.services = services = Services(
            config=settings.config,
            clock=self.clock,
            node_id=node_id,
            metadata_cache=cache,
            controller=controller,
            producer_ids=ProducerIdManager(partial(controller.allocate_producer_ids, registered)),
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
        self.quotas = QuotaEnforcement(settings.config, self.clock, cache, hosts)
        controller.all_cordoned = partial(all_cordoned, self.log_manager)
        self.moves = services.directory_moves = DirectoryMoves(settings.config, self.log_manager, replicas, self.loop)
        settings.guard(self.log_manager.cleaner.check)
        settings.subscribe(self._on_settings)
        self._start_coordinator(services)
        self.disk_failures = LogDirFailureHandler(
            self.log_manager, cache, controller, registered, self.loop, self._halt
        )
        self.disk_failures.start()
        store.keep_spare()
        store.on_failure = lambda reason: self.log_manager.failures.maybe_add_offline_log_dir(dirs.first, reason)
        await self._listen(services)
        self.moves.resume_found()
        self._schedule(store)
        self.readiness.watch(partial(directory_problems, self.log_manager), replicas.problems)
        self.readiness.move(ReadyState.READY)

    def _start_coordinator(self, services: Services) -> None:
        state_log = PartitionStateLog(
            GROUP_METADATA_TOPIC,
            services.replica_manager,
            lambda: self._max_batch_bytes(services.metadata_cache.topic(GROUP_METADATA_TOPIC)),
            self.loop.call_soon,
        )
        services.state_log = state_log
        services.group_coordinator = GroupCoordinator(
            self.config, self.clock, self.loop, state_log, services.metadata_cache
        )
        self.background = Threads(self.loop, self.config.get("group.coordinator.background.threads"))
        group_settings = GroupSettings(self.config, services.metadata_cache)
        services.broker_settings.subscribe(group_settings.follow)
        services.consumer_groups = ConsumerGroups(
            services.group_coordinator,
            group_settings,
            self.clock,
            services.metadata_cache,
            self.background,
        )
        share_log = PartitionStateLog(
            SHARE_GROUP_STATE_TOPIC,
            services.replica_manager,
            lambda: self._max_batch_bytes(services.metadata_cache.topic(SHARE_GROUP_STATE_TOPIC)),
            self.loop.call_soon,
        )
        share_parts.prepare(services, self.loop, share_log)
        services.group_coordinator.start()
        services.share_coordinator.start()
        services.markers = MarkerWriter(
            services.replica_manager, self.clock, {GROUP_METADATA_TOPIC: services.group_coordinator}
        )
        services.transaction_coordinator = transaction_coordinator(
            self.config,
            self.clock,
            self.loop,
            services.replica_manager,
            services.metadata_cache,
            services.producer_ids,
            services.markers,
            self._max_batch_bytes,
        )
        services.transaction_coordinator.start()

    def _max_batch_bytes(self, topic: TopicImage | None) -> int:
        return int(self._log_config({} if topic is None else topic.configs).max_message_bytes)

    async def _listen(self, services: Services) -> None:
        config = self.config
        handlers = dispatch.served(config.get("kbroker.api.versions"))
        services.advertised_apis = advertised_ranges(handlers)
        routes = dispatch.routes(handlers)
        files = self.log_manager.open_files
        left = self._descriptors - files.least_budget
        limits = self.limits = ConnectionLimits(*connection_limits(self.settings.config), left, files.leave_room)
        options = SocketOptions(
            backlog=config.get("socket.listen.backlog.size"),
            send_buffer_bytes=config.get("socket.send.buffer.bytes"),
            receive_buffer_bytes=config.get("socket.receive.buffer.bytes"),
            tcp_congestion=config.get("socket.tcp.congestion") or "",
            notsent_lowat=config.get("socket.tcp.notsent.lowat"),
        )
        pool = self.pool = BufferPool(limit_bytes=max(0, config.get("queued.max.request.bytes")))
        self.reactor = Reactor(
            self.loop,
            services,
            pool,
            self.stats,
            config.get("socket.busy.poll.us"),
            beside_the_loop(config.get("num.network.threads")),
            services.replica_manager.purgatory,
        )
        self.quotas.guard(self.reactor)
        for each in config.listeners:
            listener = Listener(
                each.name,
                each.host,
                each.port,
                options,
                limits,
                reactor=self.reactor,
                routes=routes,
                unsupported=dispatch.unsupported,
                max_frame_bytes=config.get("socket.request.max.bytes"),
                max_idle_ms=config.get("connections.max.idle.ms"),
                cold_reads=self.cold_reads,
                read_failed=self.log_manager.failures.report_read,
                file_shrunk=partial(note_shrunk, self.log_manager),
                slices=services.slices,
                admission=self.quotas.admit,
            )
            await listener.start()
            self.listeners.append(listener)
            services.metadata_cache.subscribe(listener.endpoint.answers.forget)

    async def _start_metrics(self, node_id: int, cluster_id: str) -> None:
        self.loop_delay.start(self.loop)
        sources = Sources(
            version=__version__,
            node_id=node_id,
            cluster_id=cluster_id,
            requests=self.stats,
            api_name=_api_name,
            loop_delay=self.loop_delay,
            connections=self._connection_totals,
            logs=self.log_manager.logs.values,
            directories=self._directory_spaces,
            commits=self._commit_totals,
            conversions=lambda: self.services.conversions.totals() if self.readiness.ready else ConversionTotals(),
            storage=self._storage_totals,
            offline=self._offline_totals,
            rebalances=self._rebalances,
            expired_offsets=lambda: self.services.group_coordinator.expired_offset_count if self.readiness.ready else 0,
            maintenance=self._maintenance,
            max_partitions=self.config.get("kbroker.metrics.max.partitions"),
            groups=self._group_summaries,
            quotas=lambda: self.quotas.rows() if self.readiness.ready else (),
            transactions=self._transaction_totals,
            stable_offset_holders=self._stable_offset_holders,
            client_samples=lambda: self.services.telemetry.samples() if self.readiness.ready else (),
            fetches_waiting=lambda: len(self.services.replica_manager.purgatory) if self.readiness.ready else 0,
        )
        pages = {"logs": LogPages(self.log_manager, self.clock)}
        self.metrics = await start_metrics_server(
            self.config.get("metrics.listener"), sources, self.readiness, pages=pages
        )

    async def _load_logs(self, image: ClusterImage) -> None:
        """Open the logs in a thread, so that `/readyz` can tell how far it is."""
        topics = {
            topic.name: KnownTopic(topic.topic_id, self._log_config(topic.configs), len(topic.partitions))
            for topic in image.topics.values()
        }
        loading = self.loop.run_in_executor(None, self.log_manager.load_all, topics)
        while not (await asyncio.wait([loading], timeout=PROGRESS_INTERVAL_SECONDS))[0]:
            self.readiness.detail = self.log_manager.progress.text
            if self.stopping.is_set():
                self.log_manager.interrupt_loading()
        await loading
        self._logs_loaded = True

    def _schedule(self, store: LocalStore) -> None:
        self.tasks.add("close idle connections", SWEEP_INTERVAL_MS, self._close_idle)
        self.tasks.add("log suppressed complaints", COMPLAINTS_INTERVAL_MS, self._log_complaints)
        self.tasks.add("forget idle quota meters", EXPIRE_INTERVAL_MS, self.quotas.expire)
        self.tasks.add("collect garbage", self.garbage.INTERVAL_MS, self.garbage.run)
        self.tasks.add("give back receive buffers", TRIM_INTERVAL_MS, self.pool.trim)
        self.tasks.add("keep space for deletions", SPARE_INTERVAL_MS, store.keep_spare)
        for task in (
            *self.log_manager.periodic_tasks(),
            *self.services.group_coordinator.periodic_tasks(),
            *self.services.transaction_coordinator.periodic_tasks(),
            *share_parts.periodic_tasks(self.services),
        ):
            self.tasks.add(task.name, task.interval_ms, task.run, task.initial_delay_ms)
        self.log_manager.flusher.hasten = partial(self.tasks.hasten, self.log_manager.flusher.TASK)

    async def stop(self) -> None:
        """End in order: nothing acknowledged is left unflushed, and the next start is a clean one."""
        self.readiness.move(ReadyState.STOPPING)
        for listener in self.listeners:
            listener.stop_accepting()
        self.services.group_coordinator.stop()
        self.background.close()
        self.services.transaction_coordinator.stop()
        self.services.share_coordinator.stop()
        self.services.replica_manager.purgatory.expire_all()
        _, busy = await asyncio.wait(
            [self.loop.create_task(listener.drained()) for listener in self.listeners], timeout=DRAIN_SECONDS
        )
        for drained in busy:
            drained.cancel()
        for listener in self.listeners:
            listener.close_connections()
        self.reactor.close()
        self.services.replica_manager.close()
        await self.moves.stop()
        self.disk_failures.stop()
        self.tasks.stop()
        self.loop_delay.stop()
        if self.metrics is not None:
            await self.metrics.close()
        self.cold_reads.shutdown(wait=False, cancel_futures=True)
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
        for listener in self.listeners:
            listener.stop_accepting()
        self.log_manager.shutdown()
        self._close_store()

    def _halt(self, reason: str) -> None:
        """What is left is stopped in order, as far as that works and does not take long."""
        logger.critical("the broker cannot go on and halts: %s", reason)
        self.readiness.move(ReadyState.STOPPING)
        self.readiness.detail = reason
        self.failed = True
        _exit_later(1)
        self.stopping.set()

    # What the parts ask

    def _log_config(self, topic_configs: Any) -> Any:
        return _log_config(self.settings.config, frozenset(topic_configs.items()))

    def _on_settings(self, config: BrokerConfig) -> None:
        """A broker setting was changed at run time: let requests see it, and the logs and all other parts follow."""
        self.services.config = config
        self.log_manager.follow(config)
        self.quotas.follow(config)
        self.moves.follow(config)
        self.tasks.change_interval(COMPACTION_TASK, compaction_interval_ms(config))
        self.limits.change(*connection_limits(config))
        self.reactor.change_threads(beside_the_loop(config.get("num.network.threads")))
        self.services.replica_manager.apply_image(self.services.metadata_cache.image)

    def _activity(self) -> int:
        return sum(listener.accepted_count for listener in self.listeners) + self.stats.total()

    def _close_idle(self) -> None:
        now = time.monotonic()
        for listener in self.listeners:
            listener.close_idle(now)

    def _log_complaints(self) -> None:
        for listener in self.listeners:
            listener.log_suppressed()

    def _rebalances(self) -> int:
        if not self.readiness.ready:
            return 0
        return self.services.group_coordinator.rebalance_count + self.services.consumer_groups.rebalance_count

    def _transaction_totals(self) -> TransactionTotals:
        return self.services.transaction_coordinator.totals() if self.readiness.ready else NO_TRANSACTIONS

    def _stable_offset_holders(self) -> Iterable[StableOffsetHolder]:
        logs = list(self.log_manager.logs.values()) if self.readiness.ready else ()
        return stable_offset_holders(logs, self.services.transaction_coordinator, self.clock.now_ms()) if logs else ()

    def _group_summaries(self) -> Iterable[GroupSummary]:
        return self.services.group_coordinator.summaries() if self.readiness.ready else ()

    def _directory_spaces(self) -> Iterable[DirectorySpace]:
        return [
            DirectorySpace(gate.path, gate.free_bytes, gate.is_refusing, gate.refused_count)
            for gate in self.log_manager.gates
        ]

    async def _maintenance(self, pieces: Pieces) -> Values:
        if not self._logs_loaded:
            return recovery_figures(self.log_manager)
        most = self.config.get("kbroker.metrics.max.partitions")
        return await maintenance_figures(self.log_manager, self.clock, most, pieces)

    def _commit_totals(self) -> CommitTotals:
        commits = self.log_manager.commits
        return CommitTotals(commits.fsync_count, commits.fsync_seconds, commits.settled_count)

    def _storage_totals(self) -> StorageTotals:
        files, producers = self.log_manager.open_files, self.log_manager.environment.producers
        return StorageTotals(
            len(files), files.budget, len(files.maps), files.evictions, producers.count, producers.evictions
        )

    def _offline_totals(self) -> OfflineTotals:
        count = self.services.replica_manager.offline_count if self.readiness.ready else 0
        return OfflineTotals(tuple(self.log_manager.failures.offline), count)

    def _connection_totals(self) -> ConnectionTotals:
        refused: dict[str, int] = {}
        closed: dict[str, int] = {}
        paced: dict[str, int] = {}
        for listener in self.listeners:
            for verdict, count in listener.paced.items():
                paced[verdict] = paced.get(verdict, 0) + count
            for reason, count in listener.refused.items():
                refused[reason] = refused.get(reason, 0) + count
            for reason, count in listener.closed.items():
                closed[reason] = closed.get(reason, 0) + count
        return ConnectionTotals(
            current={listener.name: len(listener.endpoint.connections) for listener in self.listeners},
            accepted={listener.name: listener.accepted_count for listener in self.listeners},
            refused=refused,
            closed=closed,
            paced=paced,
        )


@lru_cache(maxsize=256)
def _log_config(config: BrokerConfig, overrides: frozenset[tuple[str, str]]) -> LogConfig:
    """Most topics share their settings: thousands of logs follow a change within milliseconds."""
    return log_config(config, dict(overrides))


def _api_name(api_key: int) -> str:
    try:
        return ApiKey(api_key).message_name
    except ValueError:
        return str(api_key)


async def _serve(config: BrokerConfig, started: float, signals: StopSignals) -> int:
    stopping = asyncio.Event()
    signals.attach(asyncio.get_running_loop(), stopping.set)
    if stopping.is_set():
        return 0
    status, judging = await _serve_until(stopping, config, started)
    signals.finish()
    if status or judging or asyncio.all_tasks() - {asyncio.current_task()}:
        # A thread still runs a codec over a batch that no client waits for any more, or waits for a disk that failed.
        logging.shutdown()
        os._exit(status)
    _exit_later(status)
    return status


async def _serve_until(stopping: asyncio.Event, config: BrokerConfig, started: float) -> tuple[int, bool]:
    """(the exit code, whether a thread still judges a batch)."""
    loop = asyncio.get_running_loop()
    try:
        broker = Broker(config, loop, stopping)
    except ValueError as error:
        logger.error("cannot start: %s", error)
        return 1, False
    try:
        await broker.start()
    except LoadingInterruptedError:
        broker.release()
        logger.info("stopped while logs were being loaded; the next start goes on")
        return 0, False
    except (LogDirError, KafkaError, BindError, OSError, ValueError) as error:
        logger.error("cannot start: %s", error)
        logger.debug("because of", exc_info=error)
        broker.release()
        return 1, False
    broker.garbage.start()
    logger.info("%s", _ready_line(broker, started))
    await stopping.wait()
    logger.info("stopping")
    try:
        await broker.stop()
    except Exception:
        if not broker.failed:
            raise
        logger.exception("the broker could not be stopped in order")
    logger.info("stopped")
    return (1 if broker.failed else 0), bool(broker.services.replica_manager.judging)


def _exit_later(status: int) -> None:
    """The last resort where something, such as a thread that waits for a disk, holds up the end of the process."""
    timer = threading.Timer(HALT_SECONDS, os._exit, (status,))
    timer.daemon = True
    timer.start()


def _ready_line(broker: Broker, started: float) -> str:
    addresses = ", ".join(f"{each.name}://{each.host or '*'}:{each.port}" for each in broker.listeners)
    directories = ", ".join(broker.config.log_dirs)
    metrics = f", metrics on port {broker.metrics.port}" if broker.metrics is not None else ""
    return (
        f"kbroker {__version__} ready on {addresses}{metrics}, data in {directories}, "
        f"after {(time.time() - started) * 1000:.0f} ms"
    )


def run(config: BrokerConfig) -> int:
    """Serve until a signal ends it; the exit code."""
    signals = StopSignals()
    import uvloop

    log_output.setup(config.get("kbroker.log.format"), config.get("kbroker.log.level"))
    for warning in config.warnings:
        logging.getLogger("kbroker.config").warning("%s", warning)
    return uvloop.run(_serve(config, process_started(), signals))
