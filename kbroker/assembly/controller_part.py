"""The controller role of a node: its listeners, its replica of the metadata log, and the controller over it.

A process with that role alone has it (`controller_node`), and a broker that is a controller as well (`broker`), which
shares the image and the settings with it.  It begins before the broker's part does: other voters need it for a leader
to be elected, and the broker needs a leader to begin.
"""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING

from kbroker.assembly.listening import Role, SentFiles
from kbroker.assembly.membership.settings import to_controllers
from kbroker.assembly.quorum import ReplicaParts
from kbroker.assembly.quorum_figures import image_figures
from kbroker.cluster.client import ClientSettings
from kbroker.cluster.controller.registration import LeaderOfQuorum, OwnRegistration, registration_of
from kbroker.cluster.controller_client import ControllerClient
from kbroker.cluster.kraft.cluster_metadata import ClusterMetadata
from kbroker.cluster.kraft.settings import QuorumSettings
from kbroker.cluster.member import unless_stopping
from kbroker.cluster.named_host import named_endpoints, near_host
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
from kbroker.quotas.host_names import HostNames
from kbroker.schemas import wire
from kbroker.security.acl.early import EarlyAuthorizer
from kbroker.security.acl.standard_authorizer import authorizer_of
from kbroker.storage.directories.kept_secret import kept_secret

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kbroker._fast.base.slices import Pace
    from kbroker.assembly.node import Node
    from kbroker.assembly.quorum import ActiveController, MakeController, MakeReplica, Replica
    from kbroker.cluster.client import Transport
    from kbroker.cluster.kraft.member import FollowedLog
    from kbroker.config import BrokerConfig
    from kbroker.metrics.families import Values
    from kbroker.metrics.recent import Counters
    from kbroker.security.authorizer import Authorizer
    from kbroker.storage.directories.log_dirs import LogDir
    from kbroker.storage.files.filesystem import FileSystem

REGISTRATION_SECONDS = 5.0
"""So long one attempt to register may look for the active controller."""


class ControllerPart:
    """See the module.  `prepare` and `begin` come first; `leave`, `end_requests` and `close` end it."""

    metadata: ClusterMetadata
    cache: MetadataCache
    settings: BrokerSettings
    authorizer: Authorizer | None
    quotas: QuotaEnforcement
    replica: Replica
    controller: ActiveController
    services: Services

    def __init__(
        self,
        config: BrokerConfig,
        node: Node,
        make_replica: MakeReplica,
        make_controller: MakeController,
        files: FileSystem,
    ) -> None:
        """ValueError where settings name no quorum."""
        self.config = config
        self.node = node
        self.quorum = QuorumSettings.of(config)
        self.transport: Transport = Outbound(node.loop, partial(to_controllers, config)).transport()
        self._make_replica = make_replica
        self._make_controller = make_controller
        self._files = files
        self.has_begun = False
        """Whether the replica takes part in the quorum."""

    def prepare(self, cluster_id: str, directory: LogDir) -> None:
        """Make the image and what follows it: settings, rights, quotas.  `directory`: that of the metadata log."""
        config, node = self.config, self.node
        self._directory = directory
        metadata = self.metadata = ClusterMetadata(cluster_id, node.slices)
        cache = self.cache = MetadataCache(metadata.image)
        rules = authorizer_of(config, cache)
        self._early = None if rules is None else EarlyAuthorizer(rules, config)
        self.authorizer = self._early
        settings = self.settings = BrokerSettings(config, cache, config.node_id)
        node.take(settings, lambda: kept_secret(self._files, [directory]))
        self._hosts = HostNames(StoreCalls(node.listeners.cold_reads))
        self.quotas = QuotaEnforcement(
            settings.config, node.clock, cache, self._hosts, self.authorizer, ControllerGatekeeper
        )
        settings.subscribe(self.quotas.follow)

    async def begin(self) -> None:
        """Serve other nodes of the quorum, and take part in it.  LogDirError, BindError."""
        node = self.node
        parts = ReplicaParts(
            self.config,
            self.quorum,
            node.loop,
            node.clock,
            node.slices,
            self.metadata.image.cluster_id,
            self._directory,
            self.metadata,
            self.transport,
            self._files,
            self._hosts,
            node.halt,
        )
        replica = self.replica = self._make_replica(parts)
        controller = self.controller = self._make_controller(parts, replica, self.settings)
        self.metadata.attach(self.cache)
        self.cache.subscribe(controller.on_metadata)
        listeners = node.listeners.bind([self._role(replica, controller)], SentFiles(), self.settings.config)
        for task in controller.tasks:
            node.tasks.add(task.name, task.interval_ms, task.run, task.initial_delay_ms)
        node.tasks.add("forget idle quota meters of controllers", EXPIRE_INTERVAL_MS, self.quotas.expire)
        ports = {each.name: each.port for each in listeners}
        self._near = self._near_endpoint(ports)
        endpoints = await self._endpoints(ports)
        await replica.start(endpoints)
        self.has_begun = True
        self._register(endpoints, parts, replica, controller)
        await node.listeners.accept(listeners)

    async def caught_up(self) -> None:
        """Return once all that was committed at the start is applied: from then on rights are those of the image.
        StartInterruptedError."""
        await unless_stopping(self.node.stopping, self.replica.caught_up())
        if self._early is not None:
            self._early.open()
        self.node.readiness.watch(self.replica.problems)

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

    def _near_endpoint(self, ports: Mapping[str, int]) -> Endpoint | None:
        """Where the node's own broker reaches its controller, whose advertised name this machine may not know;
        None where the certificate is that of the name."""
        assert self.config.controller_listener is not None
        name, protocol = self.config.controller_listener
        own = next(each for each in self.config.controller_listeners if each.name == name)
        is_encrypted = protocol in ("SSL", "SASL_SSL")
        return None if is_encrypted else Endpoint(near_host(own.host), own.port or ports[own.name])

    async def _endpoints(self, ports: Mapping[str, int]) -> Mapping[str, Endpoint]:
        """Where others reach this node, by the names of its listeners."""
        return await named_endpoints(
            {
                each.name: Endpoint("" if each.host in EVERY_HOST else each.host, each.port or ports[each.name])
                for each in self.config.shown_controllers
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

    def followed_log(self, _cluster_id: str) -> tuple[ClusterMetadata, FollowedLog]:
        """The image, and the log as a broker in the same process follows it."""
        return self.metadata, self.replica.own_log(self._near)

    # What a scrape shows

    async def figures(self, pace: Pace) -> Values:
        """Of the quorum and of the controller; nothing before `begin`."""
        if not self.has_begun:
            return {}
        of_image = await image_figures(self.cache.image, pace)
        return {**of_image, **self.replica.figures(), **self.controller.figures()}

    def counters(self) -> Counters:
        """What rates and recent times are worked out of."""
        return {**self.replica.counters(), **self.controller.counters()} if self.has_begun else {}

    # The end

    async def leave(self) -> None:
        """Decide nothing any more, and let another node lead; others are still answered."""
        if not self.has_begun:
            return
        self.controller.close()
        self.registration.close()
        self._to_active.close()
        await self.replica.leave()

    async def close(self) -> None:
        """End, behind the last request."""
        if self.has_begun:
            self.has_begun = False
            await self.replica.close()
