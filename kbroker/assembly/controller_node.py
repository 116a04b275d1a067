"""A process with the controller role alone (`process.roles=controller`).

It is a `Node` with a replica of the metadata log and the controller that decides over it, without logs of topics,
replicas of partitions and coordinators.

Start: lock the directory of the metadata log, make the replica and the controller, bind the listeners, take part in the
quorum, serve.  The node is ready when it has applied what was committed at its start, which takes a leader.

Stop: let another node lead, while votes and fetches of this one are still answered; then as any node.
"""

from __future__ import annotations

import logging
import random
from functools import partial
from typing import TYPE_CHECKING

from kbroker import __version__
from kbroker._fast.net.socket_part import PlainSocket
from kbroker.assembly.listening import Role, SentFiles
from kbroker.assembly.membership.settings import to_controllers
from kbroker.assembly.node import Node
from kbroker.assembly.quorum import ReplicaParts
from kbroker.assembly.quorum_node import controller_of, replica_of
from kbroker.assembly.security_figures import security_figures
from kbroker.cluster.client import ClientSettings
from kbroker.cluster.controller.registration import LeaderOfQuorum, OwnRegistration, registration_of
from kbroker.cluster.controller_client import ControllerClient
from kbroker.cluster.kraft.cluster_metadata import ClusterMetadata
from kbroker.cluster.kraft.settings import QuorumSettings
from kbroker.cluster.member import StartInterruptedError, unless_stopping
from kbroker.cluster.named_host import named_endpoints
from kbroker.cluster.outbound import Outbound
from kbroker.config import EVERY_HOST
from kbroker.gate.controller_gate import ControllerGatekeeper
from kbroker.gate.enforcement import EXPIRE_INTERVAL_MS, QuotaEnforcement
from kbroker.handlers import dispatch
from kbroker.handlers.raft.controllers import ControllerView
from kbroker.handlers.services import Services
from kbroker.handlers.table import advertised_ranges, narrowed
from kbroker.metadata.broker_settings import BrokerSettings
from kbroker.metadata.cache import MetadataCache
from kbroker.metadata.image import Endpoint
from kbroker.metadata.store import StoreCalls
from kbroker.metrics.readiness import ReadyState
from kbroker.metrics.sources import Sources
from kbroker.protocol.api import ApiKey
from kbroker.quotas.host_names import HostNames
from kbroker.schemas import wire
from kbroker.security.acl.early import EarlyAuthorizer
from kbroker.security.acl.standard_authorizer import authorizer_of
from kbroker.security.http_access import http_access
from kbroker.security.openness import openness, warnings_of_controllers
from kbroker.security.sasl.plain_logins import PlainLogins
from kbroker.storage.directories.kept_secret import kept_secret
from kbroker.storage.directories.log_dirs import LogDir, LogDirError
from kbroker.storage.files.filesystem import SYSTEM_FILES

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping

    from kbroker._fast.base.slices import Pace
    from kbroker._fast.net.connection import Connection
    from kbroker._fast.net.socket_part import SocketPart
    from kbroker.assembly.quorum import ActiveController, MakeController, MakeReplica, Replica
    from kbroker.config import BrokerConfig
    from kbroker.metrics.families import Values
    from kbroker.security.authorizer import Authorizer
    from kbroker.storage.files.filesystem import FileSystem

logger = logging.getLogger("kbroker.broker")

REGISTRATION_SECONDS = 5.0
"""So long one attempt to register may look for the active controller."""


class ControllerNode:
    """One running controller.  `start` and `stop` are called once each, on the loop."""

    is_judging = False
    """Whether a thread still works for a client that is gone: a controller has none."""

    def __init__(
        self,
        config: BrokerConfig,
        loop: asyncio.AbstractEventLoop,
        stopping: asyncio.Event | None = None,
        *,
        make_replica: MakeReplica = replica_of,
        make_controller: MakeController = controller_of,
        make_socket: Callable[[Connection], SocketPart] = PlainSocket,
        files: FileSystem = SYSTEM_FILES,
    ) -> None:
        """`make_socket` is for connections that are not TCP's.  ValueError where settings name no quorum."""
        self.config = config
        self.quorum = QuorumSettings.of(config)
        self.node = Node(config, loop, stopping, lambda: self.cache.image.security, make_socket)
        self.readiness = self.node.readiness
        self._make_replica = make_replica
        self._make_controller = make_controller
        self._files = files
        self._directory = LogDir(files, config.get("metadata.log.dir") or config.log_dirs[0])
        self._replica: Replica | None = None
        self._has_left = False

    @property
    def directories(self) -> list[str]:
        """The paths of what it keeps data in."""
        return [self._directory.path]

    async def start(self) -> None:
        """Bring everything up; a part's own error when it cannot be.

        A signal ends a start that waits for a leader, and leaves all for `stop`.
        """
        node = self.node
        cluster_id = self._open_directory()
        metadata = self.metadata = ClusterMetadata(cluster_id, node.slices)
        cache = self.cache = MetadataCache(metadata.image)
        self._follow_metadata()
        await self._start_metrics()
        transport = Outbound(node.loop, partial(to_controllers, self.config)).transport()
        parts = ReplicaParts(
            self.config,
            self.quorum,
            node.loop,
            node.clock,
            node.slices,
            cluster_id,
            self._directory,
            metadata,
            transport,
            node.halt,
        )
        replica = self._make_replica(parts)
        controller = self.controller = self._make_controller(parts, replica, self.settings)
        metadata.attach(cache)
        await node.sasl.start()
        node.security.describe()
        node.listeners.bind([self._role(replica, controller)], SentFiles(), self.settings.config)
        self._schedule(controller)
        endpoints = await self._endpoints()
        await replica.start(endpoints)
        self._replica = replica
        self._register(endpoints, parts, replica, controller)
        await node.listeners.accept()
        self._tell_openness()
        try:
            await unless_stopping(node.stopping, replica.caught_up())
        except StartInterruptedError:
            return  # All that `stop` ends is there.
        if self._early is not None:
            self._early.open()
        self.readiness.watch(replica.problems)
        self.readiness.move(ReadyState.READY)

    def _open_directory(self) -> str:
        """Lock the directory of the metadata log; the cluster's id.  LogDirError."""
        directory = self._directory
        directory.open()
        if directory.meta is None or not directory.meta.cluster_id:
            raise LogDirError(
                f"{directory.path} does not say which cluster this controller belongs to; format it with the id that "
                "all nodes of the cluster have: kbroker format --cluster-id ID server.properties"
            )
        directory.bind(directory.meta.cluster_id, self.config.node_id)
        return directory.meta.cluster_id

    def _follow_metadata(self) -> None:
        """Rights, settings and quotas are those of the image."""
        config, cache, node = self.config, self.cache, self.node
        rules = authorizer_of(config, cache)
        self._early = None if rules is None else EarlyAuthorizer(rules, config)
        self.authorizer: Authorizer | None = self._early
        settings = self.settings = BrokerSettings(config, cache, config.node_id)
        node.security.begin(settings.config)
        node.sasl.follow(settings.config)
        node.sasl.keep_salts(self._kept_secret)
        settings.guard(node.security.check)
        settings.guard(node.sasl.check)
        self._hosts = HostNames(StoreCalls(node.listeners.cold_reads))
        self.quotas = QuotaEnforcement(
            settings.config, node.clock, cache, self._hosts, self.authorizer, ControllerGatekeeper
        )
        settings.subscribe(self._on_settings)

    def _role(self, replica: Replica, controller: ActiveController) -> Role:
        config, node, quotas = self.config, self.node, self.quotas
        served = dispatch.controller_rows(quotas.gatekeeper, controller.is_active)
        rows = narrowed(served, config.get("kbroker.api.versions"))
        names = [each.name for each in config.controller_listeners]
        self.services = Services(
            settings=self.settings,
            clock=node.clock,
            node_id=config.node_id,
            metadata_cache=self.cache,
            controller=controller.requests,
            administration=controller.administration,
            loop=node.loop,
            advertised_apis=dict.fromkeys(names, advertised_ranges(rows)),
            view=ControllerView(),
            slices=node.slices,
            authorizer=self.authorizer,
            raft=replica,
            lives=controller.lives,
        )
        routes = dispatch.routes(rows)
        on_metadata = self.cache.subscribe
        return Role(
            self.services,
            dict.fromkeys(names, routes),
            dispatch.unsupported,
            quotas.guard,
            quotas.admit,
            on_metadata,
        )

    async def _endpoints(self) -> Mapping[str, Endpoint]:
        """Where others reach this node, by the names of its listeners."""
        ports = {each.name: each.port for each in self.node.listeners.all}
        advertised = {each.name: each for each in self.config.advertised_listeners}
        shown = [advertised.get(each.name, each) for each in self.config.controller_listeners]
        return await named_endpoints(
            {
                each.name: Endpoint("" if each.host in EVERY_HOST else each.host, each.port or ports[each.name])
                for each in shown
            }
        )

    def _register(
        self, endpoints: Mapping[str, Endpoint], parts: ReplicaParts, replica: Replica, controller: ActiveController
    ) -> None:
        """Register at the active controller, from now on."""
        node_id, rng = self.config.node_id, random.Random()
        finder = LeaderOfQuorum(replica, self.metadata, self.quorum, node_id)
        client = ControllerClient(
            parts.loop, parts.transport, finder, ClientSettings(str(node_id), negotiates=True), rng
        )
        self._to_active = client

        async def ask(request: wire.ControllerRegistrationRequest) -> wire.ControllerRegistrationResponse:
            if controller.is_active():
                return await controller.lives.register_controller(request)
            answer = await client.ask(request, 0, REGISTRATION_SECONDS)
            assert isinstance(answer, wire.ControllerRegistrationResponse)
            return answer

        protocols = {each.name: each.protocol for each in self.config.controller_listeners}
        request = registration_of(node_id, endpoints, protocols)
        self.registration = OwnRegistration(parts.loop, self.metadata, request, ask, rng)
        self.registration.start()

    def _tell_openness(self) -> None:
        """Log what is open to whom, and warn where any host may change the quorum."""
        for each in openness(self.config):
            logger.info("%s", each)
        for text in warnings_of_controllers(self.config):
            logger.warning("%s", text)

    # Metrics

    async def _start_metrics(self) -> None:
        node = self.node
        node.loop_delay.start(node.loop)
        sources = Sources(
            version=__version__,
            node_id=self.config.node_id,
            cluster_id=self.cache.image.cluster_id,
            requests=node.stats,
            api_name=_api_name,
            loop_delay=node.loop_delay,
            quotas=self.quotas.rows,
            connections=node.listeners.figures,
            counted=self._figures,
            gathered=self._security_figures,
            slices=node.slices,
        )
        is_plain = PlainLogins(lambda: self.settings.config).accepts
        access = http_access(self.config, lambda: self.cache.image.security.scram, self.authorizer, is_plain)
        await node.start_metrics(self.config.get("metrics.listener"), sources, {}, {}, access, {})

    def _figures(self) -> Values:
        metadata = self.metadata
        lag_ms = max(0, self.node.clock.now_ms() - metadata.applied_ms) if metadata.applied_ms >= 0 else 0
        return {
            "kbroker_metadata_applied_offset": metadata.applied_offset,
            "kbroker_metadata_applied_lag_seconds": lag_ms / 1000,
            **({} if self._replica is None else self._replica.figures()),
        }

    async def _security_figures(self, _pace: Pace) -> Values:
        node, acls = self.node, len(self.cache.image.security.acls)
        return security_figures(node.security, node.sasl, node.clock, acls, self.quotas.gatekeeper.denials)

    # While it runs

    def _schedule(self, controller: ActiveController) -> None:
        tasks = self.node.tasks
        self.node.schedule(lambda: self.settings.config)
        tasks.add("forget idle quota meters", EXPIRE_INTERVAL_MS, self.quotas.expire)
        for task in controller.tasks:
            tasks.add(task.name, task.interval_ms, task.run, task.initial_delay_ms)

    def _on_settings(self, config: BrokerConfig) -> None:
        """A setting was changed at run time."""
        self.quotas.follow(config)
        self.node.follow(config)

    def _kept_secret(self) -> bytes:
        """That of delegation tokens, which all nodes have, or one of this node's own."""
        common = self.config.get("delegation.token.secret.key")
        return common.encode() if common is not None else kept_secret(self._files, [self._directory])

    # The end

    async def stop(self) -> None:
        """End in order: another node leads before this one answers nothing any more."""
        self.readiness.move(ReadyState.STOPPING)
        self.controller.close()
        replica = self._replica
        if replica is not None:
            self.registration.close()
            self._to_active.close()
            await replica.leave()
        self.node.stop_accepting()
        await self.node.close_connections()
        if replica is not None:
            await replica.close()
        await self.node.close()
        self._directory.release()

    async def give_up(self) -> None:
        """End a start that failed."""
        self.node.listeners.stop_accepting()
        if self._replica is not None:
            await self._replica.close()
        self._directory.release()


def _api_name(api_key: int) -> str:
    try:
        return ApiKey(api_key).message_name
    except ValueError:
        return str(api_key)
