"""This broker's membership in a KRaft cluster: the metadata that it follows, and its life there, from start to stop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from kbroker.cluster.client import ClientSettings
from kbroker.cluster.controller_client import ControllerClient
from kbroker.cluster.controller_stats import ControllerStats
from kbroker.cluster.kraft.lifecycle import Lifecycle, OwnIdentity, State
from kbroker.cluster.kraft.lifecycle_client import LifecycleClient, LifecycleView
from kbroker.cluster.named_host import with_host
from kbroker.metadata.features import KRAFT_FEATURES
from kbroker.metrics.readiness import Problem
from kbroker.schemas import wire
from kbroker.security.protocols import protocol_number
from kbroker.types import random_uuid

if TYPE_CHECKING:
    import random

    from kbroker.cluster.client import NodeClient, Transport
    from kbroker.cluster.kraft.cluster_metadata import ClusterMetadata
    from kbroker.cluster.kraft.quorum_steps import Leader
    from kbroker.config import BrokerConfig
    from kbroker.metadata.image import BrokerImage, Endpoint

logger = logging.getLogger("kbroker.cluster")

LEAVE_SECONDS = 300.0
"""As long as Kafka's brokers wait to be let go."""


class FollowedLog(Protocol):
    """The metadata log as the broker follows it: `kraft.observer.QuorumObserver`, or `raft.own_log.OwnLog` of a broker
    that is a controller as well."""

    @property
    def leader(self) -> Leader | None:
        """The active controller as known by now."""

    @property
    def log_end_offset(self) -> int:
        """Where the copy of the log ends."""

    @property
    def high_watermark(self) -> int:
        """Records below it are committed; -1: not known."""

    @property
    def client(self) -> NodeClient:
        """The connection to the controllers."""

    @property
    def last_fetch_ms(self) -> int:
        """When it was followed last; -1: never."""

    @property
    def has_given_up(self) -> bool:
        """What this broker knows of the cluster stays as it is."""

    def on_leader(self, changed: Callable[[], None]) -> None:
        """Call `changed` when another controller becomes active, or none is."""

    def start(self) -> None:
        """Follow the log."""

    async def first_high_watermark(self) -> None:
        """Return once all is applied that was committed when the leader first answered.  MetadataLogError."""

    async def close(self) -> None:
        """Stop."""


class QuorumLeader:
    """`ControllerFinder`: the active controller, as the observer knows it."""

    def __init__(self, observer: FollowedLog) -> None:
        self._observer = observer

    def endpoint(self) -> Endpoint | None:
        """See `ControllerFinder`."""
        leader = self._observer.leader
        return None if leader is None else leader.endpoint

    def on_change(self, changed: Callable[[], None]) -> None:
        """See `ControllerFinder`."""
        self._observer.on_leader(changed)


def served_ranges() -> tuple[wire.BrokerRegistrationRequest.Feature, ...]:
    """The features that a registration shows: the controllers refuse a broker without one that is finalized."""
    return tuple(
        wire.BrokerRegistrationRequest.Feature(
            name=each.name, min_supported_version=each.min_level, max_supported_version=each.max_level
        )
        for each in KRAFT_FEATURES
    )


@dataclass(frozen=True, slots=True)
class KRaftParts:
    """What a membership stands on.  `log_dirs()`: the ids of the log directories that work; `cordoned_dirs()`: of those
    among them that take no new replicas; `failed_dirs()`: of those that do not work, as far as they are known."""

    config: BrokerConfig
    loop: asyncio.AbstractEventLoop
    transport: Transport
    rng: random.Random
    log_dirs: Callable[[], list[bytes]]
    cordoned_dirs: Callable[[], list[bytes]]
    failed_dirs: Callable[[], set[bytes]]
    failed: Callable[[str], None]


class KRaftMember:
    """See the module, and `assembly.membership.replicated_membership.RegisteredBroker`."""

    def __init__(
        self,
        parts: KRaftParts,
        cluster_id: str,
        previous_epoch: int,
        metadata: ClusterMetadata,
        observer: FollowedLog,
    ) -> None:
        """`previous_epoch`: of the last life, where all directories say that it ended in order; else -1."""
        self._parts = parts
        self.metadata = metadata
        self.observer = observer
        self.place = QuorumLeader(observer)
        self.controller_stats = ControllerStats()
        config = parts.config
        self._node_id = config.node_id
        identity = OwnIdentity(
            config.node_id,
            cluster_id,
            random_uuid(),
            config.get("broker.rack"),
            served_ranges(),
            parts.log_dirs,
            parts.cordoned_dirs,
        )
        self.lifecycle = Lifecycle(identity, previous_epoch, config.get("broker.heartbeat.interval.ms") / 1000)
        settings = ClientSettings(
            client_id=str(config.node_id),
            negotiates=True,
            request_seconds=config.get("broker.session.timeout.ms") / 2000,
        )
        client = ControllerClient(parts.loop, parts.transport, self.place, settings, parts.rng)
        view = LifecycleView(lambda: metadata.applied_offset, self._registered_epoch, self._is_fenced)
        self.life = LifecycleClient(
            parts.loop,
            client,
            self.lifecycle,
            view,
            parts.failed,
            session_seconds=config.get("broker.session.timeout.ms") / 1000,
            registration_seconds=config.get("initial.broker.registration.timeout.ms") / 1000,
            failure_seconds=config.get("log.dir.failure.timeout.ms") / 1000,
        )
        observer.on_leader(self.life.hasten)
        metadata.subscribe(self.life.image_changed)

    def _own(self) -> BrokerImage | None:
        return self.metadata.image.brokers.get(self._node_id)

    def _registered_epoch(self) -> int:
        own = self._own()
        return -1 if own is None else own.epoch

    def _is_fenced(self) -> bool:
        own = self._own()
        return own is None or own.is_fenced

    @property
    def epoch(self) -> int:
        """This broker's epoch by now; -1 while it is not registered."""
        return self.life.epoch

    def is_heard(self) -> bool:
        """Whether the active controller has answered a heartbeat of late, so that it cannot have fenced this broker."""
        return self.life.is_heard()

    async def begin(self, broker: BrokerImage) -> None:
        """Register, and return once the image is as new as the controllers', with the registration in it."""
        shown = await with_host(broker)
        self.life.start(self._listeners(shown))
        await self.life.caught_up()

    def _listeners(self, broker: BrokerImage) -> list[wire.BrokerRegistrationRequest.Listener]:
        protocols = {each.name: each.protocol for each in self._parts.config.listeners}
        return [
            wire.BrokerRegistrationRequest.Listener(
                name=name,
                host=each.host,
                port=each.port,
                security_protocol=protocol_number(protocols.get(name, "PLAINTEXT")),
            )
            for name, each in broker.endpoints.items()
        ]

    async def register(self, _broker: BrokerImage) -> None:
        """The broker serves: return once it is unfenced."""
        await self.life.unfenced()

    def disks_failed(self) -> None:
        """Log directories have failed: the controllers are to hear of them at once."""
        self.life.log_dirs_failed(self._parts.failed_dirs())

    async def leave(self) -> None:
        """A controlled shutdown; the broker serves and follows the log meanwhile.

        A broker that has given up following the log stops at once: it would serve stale metadata.
        """
        if self.observer.has_given_up:
            return
        if not self._parts.config.get("controlled.shutdown.enable") or self.epoch < 0:
            return
        if self.observer.leader is None:
            logger.warning("no controller is there to move this broker's leaders: it stops without that")
            return
        if not await self.life.leave(LEAVE_SECONDS):
            logger.warning("the controllers have not let this broker go: it stops all the same")

    def problems(self) -> Iterable[Problem]:
        """Whether the controllers are there and have this broker."""
        if self.observer.leader is None:
            yield Problem("there is no active controller: leaders and settings stay as they are")
        if self.epoch < 0:
            yield Problem("the broker is not registered in the cluster")
        elif self.life.state is State.FENCED and self.lifecycle.is_ready:
            yield Problem("the controllers have fenced this broker")

    async def close(self) -> None:
        """Send the controllers nothing any more."""
        await self.life.close()
        await self.observer.close()


def previous_epoch(epochs: Sequence[int]) -> int:
    """The epoch of the last life, where the clean-shutdown markers of all directories have the same one; else -1."""
    return epochs[0] if epochs and len(set(epochs)) == 1 else -1
