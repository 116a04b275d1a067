"""A broker of the simulation in a cluster with ZooKeeper: the project's own membership, elections, controller terms and
requests to the controller, over the model of ZooKeeper; and what of it a network adds: calls take a while, and answers
are lost with the session."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kbroker.cluster.controller.interface import Controller
from kbroker.cluster.protocol_version import PROTOCOL_VERSIONS
from kbroker.cluster.zookeeper.member import MemberNetwork, MemberParts, RegistrationError, ZooKeeperMember
from kbroker.cluster.zookeeper.session import (
    ANY_VERSION,
    ConnectionLossError,
    Operation,
    SessionExpiredError,
    SessionState,
    Stat,
    ZooKeeperError,
)
from kbroker.cluster.zookeeper.settings import ZooKeeperSettings
from kbroker.cluster.zookeeper.term import TermState
from kbroker.config import BrokerConfig
from kbroker.handlers.cluster.to_controller import HANDLERS as TO_CONTROLLER
from kbroker.metadata.image import BrokerImage, Endpoint
from kbroker.protocol.api import ApiKey
from kbroker.schemas import wire
from tests.cluster.zookeeper.fake import FakeEnsemble, FakeSession
from tests.replication.simulation.network import Network
from tests.replication.simulation.node import SimNode
from tests.unbroken import UNBROKEN

LISTENER = "PLAINTEXT"
TO_THE_CONTROLLER: dict[int, Callable[..., Any]] = {row.api_key: row.handle for row in TO_CONTROLLER}
NEWEST = {row.api_key: row.max_version for row in TO_CONTROLLER}


class SlowSession(FakeSession):
    """A session over a network."""

    def __init__(self, ensemble: FakeEnsemble, delay: Callable[[], float]) -> None:
        super().__init__(ensemble)
        self._delay = delay

    async def _turn(self) -> None:
        if self.state is SessionState.CONNECTED:
            session = self.session_id
            await asyncio.sleep(self._delay())
            if self.session_id != session:
                raise SessionExpiredError("expired on the way")
        await super()._turn()

    async def _answered(self, session: int) -> None:
        """What was asked is done; the answer may not come."""
        await asyncio.sleep(self._delay())
        if self.state is not SessionState.CONNECTED or self.session_id != session:
            raise ConnectionLossError("the answer was lost")

    async def create(
        self, path: str, data: bytes | None = None, *, ephemeral: bool = False, sequential: bool = False
    ) -> str:
        session = self.session_id
        found = await super().create(path, data, ephemeral=ephemeral, sequential=sequential)
        await self._answered(session)
        return found

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        session = self.session_id
        found = await super().set(path, data, version)
        await self._answered(session)
        return found

    async def multi(self, operations: Sequence[Operation]) -> list[Stat | None]:
        session = self.session_id
        found = await super().multi(operations)
        await self._answered(session)
        return found

    def abandon(self) -> None:
        """The process is gone: it hears nothing any more, and ZooKeeper has yet to notice."""
        self._forget()
        self._listeners.clear()


class ZooKeeperNode(SimNode):
    """`gave_up(node, why)` is called when the process ends by itself."""

    def __init__(
        self,
        node_id: int,
        directory: Path,
        network: Network,
        min_in_sync: int,
        release: str,
        ensemble: FakeEnsemble,
        gave_up: Callable[[ZooKeeperNode, str], None],
    ) -> None:
        super().__init__(node_id, directory, network, min_in_sync, release)
        self._protocol = PROTOCOL_VERSIONS[release]
        self._ensemble = ensemble
        self._gave_up = gave_up
        self._joining: asyncio.Task[None] | None = None
        self._handling: dict[asyncio.Task[Any], None] = {}
        self.session: SlowSession | None = None
        self.member: ZooKeeperMember | None = None

    def make_controller(self, rng: random.Random) -> Controller:
        self.session = SlowSession(self._ensemble, self._zookeeper_delay)
        values = {"broker.id": str(self.node_id), "zookeeper.connect": "model:2181"}
        config = BrokerConfig.from_mapping(values)
        parts = MemberParts(
            config, self.clock, UNBROKEN, self._protocol, LISTENER, lambda why: self._gave_up(self, why)
        )
        outside = MemberNetwork(self.session, self.network.transport(self.node_id), rng)
        self.member = ZooKeeperMember(ZooKeeperSettings("model:2181", 500), parts, self.loop, outside)
        settings: Any = SimpleNamespace(config=config)
        hosts: Any = None
        self.controller = self.member.controller(self.cache, self.channel, settings, hosts)
        return self.controller

    def _zookeeper_delay(self) -> float:
        rng = self.network.rng
        return rng.uniform(0.0002, 0.002) if rng.random() < 0.98 else rng.uniform(0.01, 0.1)

    def start(self, epoch: int) -> None:
        super().start(epoch)
        self.services.controller = self.services.administration = self.controller
        self.services.metadata_cache = self.cache
        self._joining = self.loop.create_task(self._join())

    async def _join(self) -> None:
        assert self.member is not None
        try:
            await self.member.open(None, None)
            await self.member.load(self.cache)
            await self.member.register(BrokerImage(self.node_id, {LISTENER: Endpoint(str(self.node_id), self.node_id)}))
        except (ZooKeeperError, RegistrationError) as error:
            # As a broker's start does where ZooKeeper is not there.
            self._gave_up(self, str(error))

    @property
    def is_controller(self) -> bool:
        """Whether it has been elected, and has taken over."""
        term = getattr(self.controller, "term", None) if self.up else None
        return term is not None and term.state is TermState.ACTIVE

    def live(self) -> Sequence[int]:
        """The brokers that it knows as the controller."""
        return sorted(self.controller.image().brokers)

    def broker_epoch(self) -> int:
        return -1 if self.member is None else self.member.epoch

    async def prepare(self, topics: Any) -> None:
        assert self.member is not None
        await self.member.prepare(topics)

    def configs_of(self, topic: str) -> Mapping[str, str]:
        assert self.member is not None
        return self.member.topic_configs(topic)

    def crash(self, rng: random.Random, *, loses: bool) -> None:
        assert self.member is not None and self.session is not None and self._joining is not None
        self.session.abandon()
        for each in (self._joining, *self._handling):
            each.cancel()
        self.member._resigned()
        for task in self.member._tasks:
            task.cancel()
        if self.member._registration is not None:
            self.member._registration.end()
        super().crash(rng, loses=loses)

    async def _serve(self, header: Any, request: Any) -> Any:
        if header.api_key == ApiKey.API_VERSIONS:
            response = wire.ApiVersionsResponse
            rows = [response.ApiVersion(api_key=key, max_version=newest) for key, newest in NEWEST.items()]
            return response(api_keys=rows)
        handle = TO_THE_CONTROLLER.get(header.api_key)
        if handle is None:
            return await super()._serve(header, request)
        ctx = SimpleNamespace(services=self.services, api_version=header.api_version, gate=None)
        # A lost connection ends no request to a controller that is under way; the end of the process does.
        handling = self.loop.create_task(handle(ctx, request))
        self._handling[handling] = None
        handling.add_done_callback(self._handled)
        return await asyncio.shield(handling)

    def _handled(self, task: asyncio.Task[Any]) -> None:
        self._handling.pop(task, None)
