"""The one place that builds, starts and stops the parts of a broker.

Start: lock the log directories, join the cluster, load the logs, lead the partitions, load the groups' coordinator,
listen.  A part that is not ready yet answers with a retriable error.  Of all that clients see, the listeners open last.

Stop (SIGTERM, SIGINT, SIGHUP): stop accepting, answer what waits, let requests under way finish, close connections,
flush the logs, write the clean-shutdown marker.  A signal that comes half a second later, while it still stops, ends
the process at once, without the marker (`stop_signals`).
"""

from __future__ import annotations

import asyncio
import logging
from functools import lru_cache, partial
from typing import TYPE_CHECKING, cast

from kbroker._fast.net.socket_part import PlainSocket
from kbroker.assembly.console import Console, bodies_of
from kbroker.assembly.coordinator_basis import CoordinatorBasis
from kbroker.assembly.coordinators import Coordinators
from kbroker.assembly.figures import BrokerFigures
from kbroker.assembly.listening import Role, SentFiles
from kbroker.assembly.membership.choice import membership_of
from kbroker.assembly.membership.cluster_membership import BrokerParts, MetadataParts
from kbroker.assembly.membership.settings import NOT_FORMATTED, inter_broker_listener, metadata_directory
from kbroker.assembly.node import Node
from kbroker.assembly.security_figures import security_figures
from kbroker.cluster.member import StartInterruptedError
from kbroker.cluster.outbound import Outbound
from kbroker.config import log_config
from kbroker.gate.enforcement import EXPIRE_INTERVAL_MS, QuotaEnforcement
from kbroker.handlers import dispatch
from kbroker.handlers.services import Services
from kbroker.handlers.table import Handler, advertised_ranges, narrowed
from kbroker.metadata.broker_settings import BrokerSettings
from kbroker.metadata.cache import MetadataCache
from kbroker.metadata.client_metrics_overrides import ClientMetricsOverrides
from kbroker.metadata.group_configs import GroupConfigs
from kbroker.metadata.producer_id_manager import ProducerIdManager
from kbroker.metadata.store import StoreCalls
from kbroker.metrics.readiness import Problem, ReadyState
from kbroker.metrics.recent import SAMPLE_SECONDS
from kbroker.protocol.api import ApiKey
from kbroker.quotas.host_names import HostNames
from kbroker.registry.configured import schema_ids_of
from kbroker.replication.alter_log_dirs import DirectoryMoves
from kbroker.replication.fetch_session import FetchSessionCache
from kbroker.replication.log_dir_failure_handler import LogDirFailureHandler
from kbroker.replication.replica_manager import ReplicaManager
from kbroker.security.acl.standard_authorizer import authorizer_of
from kbroker.security.delegation_tokens import ExpiredTokens, has_expired
from kbroker.security.http_access import http_access
from kbroker.security.openness import broker_principal, openness, warning_of_brokers, warning_of_nobody
from kbroker.security.sasl.plain_logins import PlainLogins
from kbroker.storage.directories.kept_secret import kept_secret
from kbroker.storage.directories.log_dirs import LogDirError
from kbroker.storage.directories.strays import KnownTopic
from kbroker.storage.files.filesystem import SYSTEM_FILES
from kbroker.storage.manager.directory_problems import directory_problems
from kbroker.storage.manager.log_manager import COMPACTION_TASK, LogManager, compaction_interval_ms
from kbroker.storage.manager.shrunk_files import note_shrunk
from kbroker.storage.reports.log_pages import LogPages
from kbroker.telemetry.clients import TelemetryClients

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kbroker._fast.net.connection import Connection
    from kbroker._fast.net.socket_part import SocketPart
    from kbroker.assembly.controller_part import ControllerPart
    from kbroker.assembly.membership.cluster_membership import ClusterMembership
    from kbroker.cluster.controller.interface import Administration
    from kbroker.config import BrokerConfig, LogConfig
    from kbroker.metadata.image import ClusterImage, TopicImage
    from kbroker.metrics.families import Values
    from kbroker.security.authorizer import Authorizer
    from kbroker.security.client.client_security import ClientSecurity
    from kbroker.storage.directories.log_dirs import OpenedDirs

logger = logging.getLogger("kbroker.broker")

PROGRESS_INTERVAL_SECONDS = 0.25


class Broker:
    """One running broker.  `start` and `stop` are called once each, on the loop.

    Its `node` has what a node without logs has as well; its `membership` alone decides how it takes part in a cluster.
    """

    def __init__(
        self,
        config: BrokerConfig,
        loop: asyncio.AbstractEventLoop,
        stopping: asyncio.Event | None = None,
        *,
        make_membership: Callable[[BrokerParts], ClusterMembership] = membership_of,
        authorizer: Authorizer | None = None,
        make_socket: Callable[[Connection], SocketPart] = PlainSocket,
    ) -> None:
        """`make_socket` is for connections that are not TCP's.  ValueError where settings name no membership."""
        self.config = config
        self.authorizer = authorizer
        self.loop = loop
        node = self.node = Node(config, loop, stopping, lambda: self.cache.image.security, make_socket)
        self.quorum = None if not config.is_voter else _controller_part(config, node)
        """The controller role, where the broker has that as well."""
        self.clock = node.clock
        self.readiness = node.readiness
        self._denials: Mapping[tuple[str, str], int] = {}
        self.log_manager = LogManager(config, self.clock, activity=self._writing, slices=node.slices)
        self.membership = make_membership(
            BrokerParts(
                config,
                loop,
                self.clock,
                node.slices,
                node.stopping,
                node.halt,
                self.log_manager,
                Outbound(loop, partial(_between_brokers, config), expected=not config.is_quorum_of_one),
                self.quorum,
            )
        )
        self.figures = BrokerFigures(
            config,
            self.clock,
            self.readiness,
            self.log_manager,
            node.listeners,
            self.membership,
            self._security_figures,
        )
        self.readiness.watch(lambda: map(Problem, self.log_manager.environment.damages.reasons(self.log_manager.logs)))

    @property
    def directories(self) -> list[str]:
        """The paths of what it keeps data in."""
        return self.config.log_dirs

    @property
    def is_judging(self) -> bool:
        """Whether a thread still judges a batch, for a client that may be gone."""
        return self.services.replica_manager.judging.is_under_way

    async def start(self) -> None:
        """Bring everything up; a part's own error when it cannot be.

        A signal ends a start that waits: LoadingInterruptedError, StartInterruptedError.
        """
        await self._join_cluster()
        await self._start_metrics()
        await self._load_logs(await self.membership.catch_up())
        await self.membership.report_logs()
        self.log_manager.attach(self.loop, self.replicas.on_durable, self.replicas.on_refused)
        self._make_services()
        self._denials = self.quotas.gatekeeper.denials
        self._watch_disks()
        await self.membership.wait_for_others()
        if self.quorum is None:
            await self.node.sasl.start()
        self.node.security.describe()
        listeners = self.node.listeners
        bound = listeners.bind([self._role()], self._sent_files(), self.settings.config, self.replicas.purgatory)
        self.moves.resume_found()
        self._schedule()
        self.readiness.watch(partial(directory_problems, self.log_manager), self.replicas.problems)
        try:
            await self.membership.prepare(bound)
            await listeners.accept(bound)
            await self.membership.serve(bound)
        except StartInterruptedError:
            return  # All that `stop` ends is there.
        self.readiness.watch(self.membership.problems)
        self._tell_openness()
        self.readiness.move(ReadyState.READY)

    def _security_figures(self) -> Values:
        acls = len(self.cache.image.security.acls)
        return security_figures(self.node.security, self.node.sasl, self.clock, acls, self._denials)

    def _tell_openness(self) -> None:
        """Log what is open to whom, and warn where brokers may not reach each other."""
        for each in openness(self.config):
            logger.info("%s", each)
        if (text := warning_of_nobody(self.config, self.cache.image.security.acls.values())) is not None:
            logger.warning("%s", text)
        if self.authorizer is None or not self.membership.has_other_brokers or self.config.is_quorum_of_one:
            return
        listener = inter_broker_listener(self.config)
        principal = broker_principal(_between_brokers(self.config))
        host = next(each.host for each in self.config.listeners if each.name == listener)
        if principal is not None and (text := warning_of_brokers(self.authorizer, principal, host)) is not None:
            logger.warning("%s", text)

    async def _join_cluster(self) -> None:
        """Find the cluster; make what stands on its metadata, the controller included."""
        membership, node, quorum = self.membership, self.node, self.quorum
        dirs = self.log_manager.open_dirs(first_has_metadata=membership.keeps_metadata)
        if quorum is not None:
            if self.config.is_quorum_of_one:
                from kbroker.assembly.own_quorum import make_ready

                dirs = make_ready(self.config, self.log_manager)
            await self._begin_quorum(quorum, dirs)
        image = await membership.join(dirs)
        cache = self.cache = MetadataCache(image) if quorum is None else quorum.cache
        node_id = self.config.node_id  # The cluster may have given it.
        self.authorizer = self.authorizer or authorizer_of(self.config, cache)
        settings = self.settings = BrokerSettings(self.config, cache, node_id) if quorum is None else quorum.settings
        self.log_manager.follow(settings.config)
        if quorum is None:
            node.take(settings, self._kept_secret)
        self.hosts = HostNames(StoreCalls(node.listeners.cold_reads))
        replicas = self.replicas = ReplicaManager(node_id, self.log_manager, self._log_config, self.loop)
        membership.connect(MetadataParts(cache, settings, self.hosts, replicas))

    async def _begin_quorum(self, quorum: ControllerPart, dirs: OpenedDirs) -> None:
        """Take part in the quorum, and wait for its leader: nothing is known of the cluster before.

        LogDirError, StartInterruptedError."""
        if dirs.cluster_id is None:
            raise LogDirError(NOT_FORMATTED)
        quorum.prepare(dirs.cluster_id, metadata_directory(self.config, self.log_manager.online_directories()))
        self.cache = quorum.cache
        await self.node.sasl.start()
        await quorum.begin()
        await quorum.caught_up()

    def _make_services(self) -> None:
        """The parts that serve requests; the coordinators begin to load what their topics hold."""
        config, settings, cache, membership = self.config, self.settings, self.cache, self.membership
        settings.guard(self.log_manager.cleaner.check)
        settings.subscribe(self._on_settings)
        producer_ids = ProducerIdManager(lambda: membership.controller.allocate_producer_ids(membership.broker()))
        basis = self._basis(producer_ids)
        coordinators = self.coordinators = Coordinators(basis)
        self.handlers = self._served()
        self.moves = DirectoryMoves(settings.config, self.log_manager, self.replicas, self.loop)
        self.services = self.figures.services = Services(
            settings=settings,
            clock=self.clock,
            node_id=config.node_id,
            metadata_cache=cache,
            controller=membership.controller,
            administration=cast("Administration", membership.administration),
            producer_ids=producer_ids,
            log_manager=self.log_manager,
            replica_manager=self.replicas,
            group_coordinator=coordinators.groups,
            consumer_groups=coordinators.consumer_groups,
            transaction_coordinator=coordinators.transactions,
            markers=coordinators.markers,
            state_log=coordinators.state_log,
            share_partitions=coordinators.share.partitions,
            share_coordinator=coordinators.share.coordinator,
            share_groups=coordinators.share.groups,
            share_states=coordinators.share.states,
            streams_groups=coordinators.streams_groups,
            internal_topics=coordinators.internal_topics,
            loop=self.loop,
            advertised_apis={name: advertised_ranges(rows) for name, rows in self.handlers.items()},
            view=membership.view(),
            fetch_sessions=FetchSessionCache(config.get("max.incremental.fetch.session.cache.slots")),
            fetch_max_bytes=config.get("fetch.max.bytes"),
            directory_moves=self.moves,
            slices=self.node.slices,
            group_configs=GroupConfigs(cache, settings),
            controller_requests=membership.controller_requests,
            coordinators_elsewhere=basis.elsewhere,
            zookeeper_offsets=membership.zookeeper_offsets,
            telemetry=TelemetryClients(ClientMetricsOverrides(cache), self.clock.monotonic),
            authorizer=self.authorizer,
            forwarding=membership.forwarding,
            schema_ids=schema_ids_of(config, self.clock),
        )
        self.quotas = QuotaEnforcement(settings.config, self.clock, cache, self.hosts, self.authorizer)
        self.figures.quotas = self.quotas
        coordinators.start()

    def _basis(self, producer_ids: ProducerIdManager) -> CoordinatorBasis:
        membership = self.membership
        return CoordinatorBasis(
            self.config,
            self.settings,
            self.loop,
            self.clock,
            self.node.slices,
            self.cache,
            self.replicas,
            membership.controller,
            producer_ids,
            self._max_batch_bytes,
            membership.markers,
            membership.may_be_superseded,
            membership.coordinators_elsewhere(),
            membership.share_coordinators_elsewhere(),
        )

    def _role(self) -> Role:
        quotas, watches = self.quotas, self.membership.watches_addresses
        routes = {name: dispatch.routes(rows) for name, rows in self.handlers.items()}
        unsupported, on_metadata = dispatch.unsupported, self.cache.subscribe
        return Role(self.services, routes, unsupported, quotas.guard, quotas.admit, on_metadata, watches)

    def _sent_files(self) -> SentFiles:
        logs = self.log_manager
        files = logs.open_files
        shrunk = partial(note_shrunk, logs)
        return SentFiles(logs.failures.report_read, shrunk, files.least_budget, files.leave_room)

    def _served(self) -> dict[str, tuple[Handler, ...]]:
        ranges, membership = self.config.get("kbroker.api.versions"), self.membership
        return {each.name: narrowed(membership.handlers(each.name), ranges) for each in self.config.listeners}

    def _watch_disks(self) -> None:
        """From here on a log directory that fails has its partitions led elsewhere."""
        membership = self.membership
        self.disk_failures = LogDirFailureHandler(
            self.log_manager,
            self.cache,
            membership.controller,
            membership.broker,
            self.loop,
            self.node.halt,
            membership.lost,
            first_has_metadata=membership.keeps_metadata,
            shows_losses=membership.shows_losses,
        )
        self.disk_failures.start()

    async def _drop_expired_tokens(self) -> None:
        now_ms, tokens = self.clock.now_ms(), self.cache.image.security.tokens.values()
        if self.membership.administration is not None and any(has_expired(each, now_ms) for each in tokens):
            await self.membership.administration.alter_security(ExpiredTokens(now_ms))

    def _max_batch_bytes(self, topic: TopicImage | None) -> int:
        return int(self._log_config({} if topic is None else topic.configs).max_message_bytes)

    async def _start_metrics(self) -> None:
        """Metrics, readiness and the console are there while the logs load."""
        node, membership = self.node, self.membership
        node.loop_delay.start(self.loop)
        sources = self.figures.sources(self.config.node_id, self.cache.image.cluster_id, node.stats, node.loop_delay)
        is_plain = PlainLogins(lambda: self.settings.config).accepts
        access = http_access(self.config, lambda: self.cache.image.security.scram, self.authorizer, is_plain)
        console = Console(
            self.config,
            sources,
            self.readiness,
            lambda: self.services,
            node.listeners.all,
            self.authorizer,
            node.listeners.inside,
            knows_viewers=access is not None,
        )
        await node.start_metrics(
            membership.metrics_listener or self.config.get("metrics.listener"),
            sources,
            {"logs": LogPages(self.log_manager, self.clock)},
            console.sites(),
            access,
            bodies_of(self.config),
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
            if self.node.stopping.is_set():
                self.log_manager.interrupt_loading()
        try:
            await loading
        finally:
            del loading  # It keeps its error, and the error this frame.
        self.figures.logs_loaded = True

    def _schedule(self) -> None:
        tasks = self.node.tasks
        self.node.schedule(lambda: self.settings.config)
        check_ms = self.config.get("delegation.token.expiry.check.interval.ms")
        tasks.add("drop expired delegation tokens", check_ms, self._drop_expired_tokens)
        tasks.add("forget idle quota meters", EXPIRE_INTERVAL_MS, self.quotas.expire)
        tasks.add("read counters for rates", SAMPLE_SECONDS * 1000, self.figures.sample, 0)
        parts = (self.log_manager, self.coordinators, self.membership)
        for task in (task for part in parts for task in part.periodic_tasks()):
            tasks.add(task.name, task.interval_ms, task.run, task.initial_delay_ms)
        self.log_manager.flusher.hasten = partial(tasks.hasten, self.log_manager.flusher.TASK)

    async def stop(self) -> None:
        """End in order: nothing acknowledged is left unflushed, and the next start is a clean one."""
        await self.membership.leave()
        if self.quorum is not None:
            await self.quorum.leave()
        self.node.stop_accepting()
        self.coordinators.stop()
        self.replicas.purgatory.expire_all()
        await self.node.close_connections()
        await self.membership.close()
        if self.quorum is not None:
            await self.quorum.close()
        self.replicas.close()
        await self.moves.stop()
        self.disk_failures.stop()
        await self.node.close()
        # In a thread, so that a second signal is heeded while the disk takes its time; nothing else touches logs now.
        await self.loop.run_in_executor(None, self.log_manager.shutdown)
        self.membership.release()

    async def give_up(self) -> None:
        """End a start that failed or was ended."""
        self.release()
        await self.membership.close()
        if self.quorum is not None:
            await self.quorum.close()

    def release(self) -> None:
        """Close logs in order, so that no recovery follows; give files back."""
        self.node.listeners.stop_accepting()
        self.log_manager.shutdown()
        self.membership.release()

    # What the parts ask

    def _log_config(self, topic_configs: Mapping[str, str]) -> LogConfig:
        return _log_config(self.settings.config, frozenset(topic_configs.items()))

    def _on_settings(self, config: BrokerConfig) -> None:
        """A broker setting was changed at run time: let requests see it, and the logs and all other parts follow."""
        self.log_manager.follow(config)
        self.quotas.follow(config)
        self.moves.follow(config)
        self.node.tasks.change_interval(COMPACTION_TASK, compaction_interval_ms(config))
        self.node.follow(config)
        self.membership.follow(config)

    def _kept_secret(self) -> bytes:
        manager = self.log_manager
        return kept_secret(manager.environment.files, manager.online_directories())

    def _writing(self) -> int:
        """Activity that may write to disk: fetches are left out, as followers send them all the time."""
        return self.node.activity() - self.node.stats.count(ApiKey.FETCH)


@lru_cache(maxsize=256)
def _log_config(config: BrokerConfig, overrides: frozenset[tuple[str, str]]) -> LogConfig:
    """Most topics share their settings: thousands of logs follow a change within milliseconds."""
    return log_config(config, dict(overrides))


def _controller_part(config: BrokerConfig, node: Node) -> ControllerPart:
    from kbroker.assembly.controller_part import ControllerPart
    from kbroker.assembly.quorum_node import controller_of, replica_of

    return ControllerPart(config, node, replica_of, controller_of, SYSTEM_FILES)


def _between_brokers(config: BrokerConfig) -> ClientSecurity | None:
    """The security of connections to other brokers; None where they are plain.  ClientSecurityError."""
    listener = inter_broker_listener(config)
    if all(each.protocol == "PLAINTEXT" for each in config.listeners if each.name == listener):
        return None
    from kbroker.security.client.between_brokers import between_brokers

    return between_brokers(config, listener)
