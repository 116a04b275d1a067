"""A controller registers at the active one (KIP-919), so that feature levels are changed with its ranges in view, and
clients of controllers find it.

It does so once the log has a metadata.version that knows registrations, and again whenever the log does not have this
process's.  A controller that decides itself is asked without a connection.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from kbroker.backoff import ExponentialBackoff
from kbroker.errors import KafkaError, refuse
from kbroker.metadata.features import CONTROLLERS_REGISTER_FROM, KRAFT_FEATURES, METADATA_VERSION
from kbroker.outage import Outage
from kbroker.schemas import wire
from kbroker.security.protocols import protocol_number
from kbroker.types import random_uuid

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable, Mapping

    from kbroker.cluster.kraft.cluster_metadata import ClusterMetadata
    from kbroker.cluster.kraft.settings import QuorumSettings
    from kbroker.cluster.raft.service import RaftService
    from kbroker.metadata.image import Endpoint

    Ask = Callable[[wire.ControllerRegistrationRequest], Awaitable[wire.ControllerRegistrationResponse]]

logger = logging.getLogger("kbroker.cluster")

BACKOFF: Final = ExponentialBackoff(0.1, 120.0)
"""Seconds, as Kafka's `ControllerRegistrationManager` has them."""
SEEN_SECONDS = 5.0
"""So long an accepted registration may take to come back by the log."""


class OwnRegistration:
    """The registration of this process.  `ask` gives the active controller's answer; KafkaError where there is none."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        metadata: ClusterMetadata,
        request: wire.ControllerRegistrationRequest,
        ask: Ask,
        rng: random.Random,
    ) -> None:
        self._loop = loop
        self._metadata = metadata
        self._request = request
        self._ask = ask
        self._random = rng
        self._task: asyncio.Task[None] | None = None
        self._outage = Outage(logger, now=loop.time)
        self._is_closed = False

    def start(self) -> None:
        """Register now, and whenever the log says that it is due."""
        self._metadata.subscribe(self.look)
        self.look()

    def look(self) -> None:
        """Begin to register where that is due and not under way."""
        if self._task is None and not self._is_closed and self._is_due():
            self._task = self._loop.create_task(self._register())

    def _is_due(self) -> bool:
        image = self._metadata.image
        if image.features.level(METADATA_VERSION) < CONTROLLERS_REGISTER_FROM:
            return False
        known = image.controllers.get(self._request.controller_id)
        return known is None or known.incarnation_id != self._request.incarnation_id

    async def _register(self) -> None:
        attempts = 0
        try:
            while self._is_due():
                try:
                    answer = await self._ask(self._request)
                    refuse(answer.error_code, answer.error_message)
                    if await self._metadata.wait_until(lambda: not self._is_due(), SEEN_SECONDS):
                        self._outage.over("this controller is registered")
                        return
                except KafkaError as error:
                    self._outage.failed("this controller cannot be registered: %s", error)
                await asyncio.sleep(BACKOFF.backoff(attempts, self._random.uniform))
                attempts += 1
        finally:
            self._task = None

    def close(self) -> None:
        """Register no more."""
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()


def registration_of(
    node_id: int, endpoints: Mapping[str, Endpoint], protocols: Mapping[str, str]
) -> wire.ControllerRegistrationRequest:
    """The request of a new incarnation; `protocols`: the security protocols of its listeners."""
    message = wire.ControllerRegistrationRequest
    return message(
        controller_id=node_id,
        incarnation_id=random_uuid(),
        listeners=[
            message.Listener(
                name=name, host=each.host, port=each.port, security_protocol=protocol_number(protocols[name])
            )
            for name, each in endpoints.items()
        ],
        features=[
            message.Feature(name=each.name, min_supported_version=each.min_level, max_supported_version=each.max_level)
            for each in KRAFT_FEATURES
        ],
    )


class LeaderOfQuorum:
    """`ControllerFinder`: the node that leads, unless it is this one, by the log's voters, by settings, or by its
    registration."""

    def __init__(self, raft: RaftService, metadata: ClusterMetadata, settings: QuorumSettings, node_id: int) -> None:
        self._raft = raft
        self._metadata = metadata
        self._settings = settings
        self._node_id = node_id

    def endpoint(self) -> Endpoint | None:
        """See `ControllerFinder`."""
        leader, settings = self._raft.leader_id, self._settings
        if leader in (-1, self._node_id):
            return None
        voter = self._metadata.voter_endpoints(settings.listener).get(leader) or settings.voters.get(leader)
        registered = self._metadata.image.controllers.get(leader)
        return voter or (None if registered is None else registered.endpoints.get(settings.listener))

    def on_change(self, changed: Callable[[], None]) -> None:
        """See `ControllerFinder`."""
        self._metadata.subscribe(changed)
