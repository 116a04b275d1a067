"""This broker's membership in a ZooKeeper cluster: session, registration, elections and settings, from start to stop.

A broker that loses its session registers again by itself, with a new epoch; if another broker has taken its id
meanwhile, it stops.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from kbroker.cluster.client import ClientSettings, NodeClient
from kbroker.cluster.controller_stats import ControllerStats
from kbroker.cluster.named_host import with_host
from kbroker.cluster.protocol_version import NOT_SENT
from kbroker.cluster.zookeeper.acl_znodes import AclZnodes
from kbroker.cluster.zookeeper.channels import NodeChannels
from kbroker.cluster.zookeeper.cluster_controller import ClusterController
from kbroker.cluster.zookeeper.consumer_groups import ConsumerGroupZnodes
from kbroker.cluster.zookeeper.election import Election, Fence
from kbroker.cluster.zookeeper.entity_configs import EntityConfigs
from kbroker.cluster.zookeeper.isr_writer import IsrWriter
from kbroker.cluster.zookeeper.kazoo_session import KazooSession
from kbroker.cluster.zookeeper.registration import (
    BrokerRegistration,
    OwnZnode,
    RegistrationError,
    agreed_cluster_id,
    chosen_node_id,
    make_roots,
)
from kbroker.cluster.zookeeper.session import Session, SessionState
from kbroker.cluster.zookeeper.settings import ZooKeeperSettings
from kbroker.cluster.zookeeper.starting import through_losses
from kbroker.cluster.zookeeper.term import Term, TermServices
from kbroker.cluster.zookeeper.token_znodes import TokenZnodes
from kbroker.cluster.zookeeper.znodes import BrokerEndpoint, BrokerZnode, encode_broker
from kbroker.metrics.readiness import Problem
from kbroker.types import random_uuid, uuid_to_text

if TYPE_CHECKING:
    from kbroker._fast.base.slices import Slices
    from kbroker.clock import Clock
    from kbroker.cluster.client import Transport
    from kbroker.cluster.controller.interface import Controller
    from kbroker.cluster.controller_channel import ControllerChannel
    from kbroker.cluster.outbound import Outbound
    from kbroker.cluster.protocol_version import ProtocolVersion
    from kbroker.config import BrokerConfig
    from kbroker.metadata.broker_settings import BrokerSettings
    from kbroker.metadata.cache import MetadataCache
    from kbroker.metadata.image import BrokerImage, Endpoint
    from kbroker.quotas.host_names import HostNames

logger = logging.getLogger("kbroker.cluster")

_Value = TypeVar("_Value")
PATIENCE_MS = 3_000
"""How much longer than its session an earlier registration may last, as ZooKeeper counts in ticks."""


@dataclass(frozen=True, slots=True)
class MemberParts:
    """What of the broker a membership stands on."""

    config: BrokerConfig
    clock: Clock
    slices: Slices
    versions: ProtocolVersion
    listener: str
    failed: Callable[[str], None]


@dataclass(frozen=True, slots=True)
class MemberNetwork:
    """What a membership reaches others by; `rng` spreads its attempts."""

    session: Session
    transport: Transport
    rng: random.Random

    @staticmethod
    def over_network(settings: ZooKeeperSettings, loop: asyncio.AbstractEventLoop, outbound: Outbound) -> MemberNetwork:
        """Kazoo, and what the broker reaches others by."""
        return MemberNetwork(KazooSession(settings, loop), outbound.transport(), random.Random())


class ZooKeeperMember:
    """See `cluster.member.Member`."""

    def __init__(
        self,
        settings: ZooKeeperSettings,
        parts: MemberParts,
        loop: asyncio.AbstractEventLoop,
        network: MemberNetwork,
    ) -> None:
        self._settings = settings
        self._parts = parts
        self._loop = loop
        self._network = network
        self._session = self._network.session
        self.configs = EntityConfigs(self._session)
        # Without an authorizer no request is about ACLs.
        self.acls = AclZnodes(self._session) if parts.config.get("authorizer.class.name") else None
        secret = parts.config.get("delegation.token.secret.key")
        self.tokens = None if secret is None else TokenZnodes(self._session)
        self.zookeeper_offsets = ConsumerGroupZnodes(self._session)
        self._registration: BrokerRegistration | None = None
        self._controller: ClusterController | None = None
        self._services: TermServices | None = None
        self._cluster_id = ""
        self.controller_stats = ControllerStats()
        self._shown: BrokerImage | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._protocols = {each.name: each.protocol for each in parts.config.listeners}

    @property
    def epoch(self) -> int:
        """This broker's epoch by now; -1 while it is not registered."""
        return -1 if self._registration is None else self._registration.epoch

    async def open(self, known_cluster_id: str | None, known_node_id: int | None) -> str:
        """Connect, and see to it that the broker's id is its own.  The cluster's id.

        RegistrationError where the log directories belong to another cluster or broker, or another broker has the id.
        ConnectionLossError where ZooKeeper is not there in time.
        """
        await self._session.open()
        proposed = uuid_to_text(random_uuid())
        await self._through(lambda: make_roots(self._session))
        self._cluster_id = await self._through(lambda: agreed_cluster_id(self._session, known_cluster_id, proposed))
        config = self._parts.config
        config.take_node_id(await self._through(lambda: chosen_node_id(self._session, config, known_node_id)))
        own = OwnZnode(config.node_id, self._encoded, self._settings.session_timeout_ms + PATIENCE_MS)
        registration = self._registration = BrokerRegistration(self._session, own, self._loop)
        registration.failure = lambda error: self._parts.failed(str(error))
        await self._through(registration.free)
        return self._cluster_id

    async def _through(self, step: Callable[[], Awaitable[_Value]]) -> _Value:
        return await through_losses(self._session, self._settings, step)

    async def load(self, cache: MetadataCache) -> None:
        """Read the settings of all topics, brokers and users, all ACLs and delegation tokens."""
        self.configs.publish_to(cache)
        await self._through(self.configs.load)
        for znodes in (self.acls, self.tokens):
            if znodes is not None:
                znodes.publish_to(cache)
                await self._through(znodes.load)

    def controller(
        self, cache: MetadataCache, channel: ControllerChannel, settings: BrokerSettings, hosts: HostNames
    ) -> Controller:
        """The controller as this broker reaches it."""
        parts, node_id = self._parts, self._parts.config.node_id
        writes_isrs = parts.versions.alter_partition == NOT_SENT
        controller = self._controller = ClusterController(
            node_id,
            self._session,
            cache,
            channel,
            settings,
            self.configs,
            hosts,
            parts.slices,
            IsrWriter(self._session, node_id) if writes_isrs else None,
            self.acls,
            self.tokens,
        )
        self._services = TermServices(
            self._session,
            NodeChannels(self._loop, self._client),
            self.configs,
            lambda: settings.config,
            parts.versions,
            parts.listener,
            self.controller_stats,
        )
        self.configs.on_topics(self._topic_configs_changed)
        return controller

    async def prepare(self, topics: Mapping[str, bytes]) -> None:
        """Read the settings of topics that are not known yet."""
        await self.configs.prepare(topics)

    def topic_configs(self, topic: str) -> Mapping[str, str]:
        """What is set on a topic."""
        return self.configs.of_topic(topic)

    async def register(self, broker: BrokerImage) -> None:
        """Become a member, and take part in elections."""
        assert self._registration is not None
        self._shown = await with_host(broker)
        await self._through(self._registration.register)
        election = self._election = Election(
            self._session, self._parts.config.node_id, self._parts.clock, self._elected, self._resigned
        )
        self._start(election.run())
        self._start(self.configs.run())
        for znodes in (self.acls, self.tokens):
            if znodes is not None:
                self._start(znodes.run())

    def _start(self, work: Coroutine[object, None, None]) -> None:
        task = self._loop.create_task(work)
        task.add_done_callback(self._ended)
        self._tasks.append(task)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            logger.error("a part of the membership has failed", exc_info=task.exception())
            self._parts.failed(f"a part of the membership has failed: {task.exception()}")

    def _encoded(self) -> bytes:
        assert self._shown is not None
        return encode_broker(self._described(self._shown))

    def _described(self, broker: BrokerImage) -> BrokerZnode:
        endpoints = tuple(
            BrokerEndpoint(name, self._protocols.get(name, "PLAINTEXT"), each.host, each.port)
            for name, each in broker.endpoints.items()
        )
        return BrokerZnode(endpoints, broker.rack, self._parts.clock.now_ms())

    # The office of the controller

    def _elected(self, fence: Fence) -> None:
        controller, services = self._controller, self._services
        assert controller is not None and services is not None
        controller.term = Term(services, self._parts.config.node_id, self._cluster_id, fence, self._election.resign)

    def _resigned(self) -> None:
        controller = self._controller
        if controller is not None and controller.term is not None:
            controller.term.end()
            controller.term = None

    def _topic_configs_changed(self, configs: Mapping[str, Mapping[str, str]]) -> None:
        if self._controller is not None and self._controller.term is not None:
            self._controller.term.topic_configs_changed(configs)

    def _client(self, node_id: int) -> NodeClient:
        parts = self._parts

        def find() -> Endpoint | None:
            term = None if self._controller is None else self._controller.term
            broker = None if term is None else term.context.image.brokers.get(node_id)
            return None if broker is None else broker.endpoints.get(parts.listener)

        settings = ClientSettings(
            client_id=str(parts.config.node_id),
            request_seconds=parts.config.get("controller.socket.timeout.ms") / 1000,
        )
        return NodeClient(self._loop, self._network.transport, find, settings, self._network.rng)

    def renew(self) -> None:
        """See `Member`."""
        if self._registration is not None:
            self._registration.renew()

    def is_heard(self) -> bool:
        """Whether the session goes on that the registration is of."""
        return self._session.state is SessionState.CONNECTED and self.epoch >= 0

    def problems(self) -> Iterable[Problem]:
        """Whether ZooKeeper is there, and znodes that were left out because their content makes no sense."""
        if self._session.state is not SessionState.CONNECTED:
            yield Problem("there is no connection to ZooKeeper: leaders and settings stay as they are")
        elif self.epoch < 0:
            yield Problem("the broker is not registered in ZooKeeper")
        term = None if self._controller is None else self._controller.term
        nonsense = {**self.configs.nonsense, **({} if term is None else term.reader.nonsense)}
        for path, reason in sorted(nonsense.items()):
            yield Problem(f"{path} in ZooKeeper is left out: {reason}")

    async def close(self) -> None:
        """Leave the cluster: the registration goes with the session."""
        if self._registration is not None:
            self._registration.end()
        self._resigned()
        for task in self._tasks:
            task.cancel()
        await self._session.close()


__all__ = ["RegistrationError", "MemberParts", "ZooKeeperMember"]
