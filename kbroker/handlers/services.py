"""The arguments of handlers: the parts of one broker, or of one controller, and the context of one request.

`Services` is made once, by the broker, before the first connection is accepted, and never changes.  Settings that
change at run time are read through `config`, which returns the current settings (`BrokerSettings.config`).  Handlers
reach every part through it; parts never see it.  `RequestContext` and `ClientConnection` are the views that handlers
have of the network layer's objects: Protocols, because the real ones are compiled classes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from kbroker.handlers.cluster.cluster_view import ClusterView
from kbroker.handlers.records.conversions import Conversions

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping

    from kbroker._fast.base.slices import Slices
    from kbroker._fast.gate.gate import Gate
    from kbroker._fast.net.answer_memo import AnswerRenewal
    from kbroker.clock import Clock
    from kbroker.cluster.controller.broker_lives import BrokerLives
    from kbroker.cluster.controller.interface import Administration, BrokerRequests
    from kbroker.cluster.kraft.forwarding import Forwarding
    from kbroker.cluster.member import ZooKeeperOffsets
    from kbroker.cluster.node_clients import NodeClients
    from kbroker.cluster.raft.service import RaftService
    from kbroker.config import BrokerConfig
    from kbroker.coordinator.classic.group_coordinator import GroupCoordinator
    from kbroker.coordinator.consumer.consumer_groups import ConsumerGroups
    from kbroker.coordinator.share.share_coordinator import ShareCoordinator
    from kbroker.coordinator.share.share_groups import ShareGroups
    from kbroker.coordinator.share.share_states import ShareStates
    from kbroker.coordinator.streams.internal_topics import InternalTopics
    from kbroker.coordinator.streams.streams_groups import StreamsGroups
    from kbroker.coordinator.transactions.transaction_coordinator import TransactionCoordinator
    from kbroker.metadata.cache import MetadataCache
    from kbroker.metadata.group_configs import GroupConfigs
    from kbroker.metadata.producer_id_manager import ProducerIdManager
    from kbroker.protocol.api import ApiRange
    from kbroker.registry.known_ids import KnownIds
    from kbroker.replication.alter_log_dirs import DirectoryMoves
    from kbroker.replication.fetch_session import FetchSessionCache
    from kbroker.replication.leader_and_isr import ControllerRequests
    from kbroker.replication.replica_manager import ReplicaManager
    from kbroker.replication.share.share_partitions import SharePartitions
    from kbroker.replication.state_log import PartitionStateLog
    from kbroker.replication.transaction_markers import MarkerWriter
    from kbroker.security.authorizer import Authorizer
    from kbroker.security.principal import Session
    from kbroker.storage.manager.log_manager import LogManager
    from kbroker.telemetry.clients import TelemetryClients

# Of a broker that lacks a part: tests make some without storage.
_ABSENT: Any = None


@dataclass(frozen=True, slots=True)
class Services:
    """The parts of one broker."""

    settings: CurrentSettings
    clock: Clock
    node_id: int
    metadata_cache: MetadataCache
    controller: BrokerRequests
    producer_ids: ProducerIdManager = _ABSENT
    administration: Administration = _ABSENT
    """Not of a broker whose controllers get what clients change as it came (`forwarding`)."""
    log_manager: LogManager = _ABSENT
    replica_manager: ReplicaManager = _ABSENT
    group_coordinator: GroupCoordinator = _ABSENT
    consumer_groups: ConsumerGroups = _ABSENT
    transaction_coordinator: TransactionCoordinator = _ABSENT
    markers: MarkerWriter = _ABSENT
    state_log: PartitionStateLog = _ABSENT
    share_partitions: SharePartitions = _ABSENT
    share_coordinator: ShareCoordinator = _ABSENT
    share_groups: ShareGroups = _ABSENT
    share_states: ShareStates = _ABSENT
    streams_groups: StreamsGroups = _ABSENT
    internal_topics: InternalTopics = _ABSENT
    loop: asyncio.AbstractEventLoop | None = None
    advertised_apis: Mapping[str, tuple[ApiRange, ...]] = field(default_factory=dict)
    """What each listener serves, by its name."""
    view: ClusterView = field(default_factory=ClusterView)
    fetch_sessions: FetchSessionCache = _ABSENT
    fetch_max_bytes: int = 57_671_680
    directory_moves: DirectoryMoves = _ABSENT
    slices: Slices = _ABSENT
    group_configs: GroupConfigs = _ABSENT
    controller_requests: ControllerRequests | None = None
    coordinators_elsewhere: NodeClients | None = None
    zookeeper_offsets: ZooKeeperOffsets | None = None
    conversions: Conversions = field(default_factory=Conversions)
    telemetry: TelemetryClients = _ABSENT
    authorizer: Authorizer | None = None
    forwarding: Forwarding | None = None
    raft: RaftService = _ABSENT
    """Of a node with the controller role alone, as `lives`."""
    lives: BrokerLives = _ABSENT
    schema_ids: KnownIds | None = None
    schema_batches: Counter[str] = field(default_factory=Counter)
    """Batches of topics that ask for schemas, by `metrics.sources.SCHEMA_OUTCOMES`."""

    @property
    def config(self) -> BrokerConfig:
        """The broker's settings by now."""
        return self.settings.config


class CurrentSettings(Protocol):
    """Where a broker's settings are (`BrokerSettings`)."""

    @property
    def config(self) -> BrokerConfig:
        """The settings by now."""


class ClientConnection(Protocol):
    """The connection that a request came by."""

    @property
    def peer_host(self) -> str:
        """The client's address."""

    @property
    def peer_port(self) -> int:
        """The client's port."""

    @property
    def local_host(self) -> str:
        """The address that the client dialled."""

    @property
    def local_port(self) -> int:
        """The port that the client dialled."""

    @property
    def closed(self) -> bool:
        """Whether the connection is gone."""

    @property
    def listener_name(self) -> str:
        """The listener that accepted the connection, as `listeners` names it."""

    session: Session
    """Who the client is."""

    @property
    def introduction(self) -> tuple[int, bytes] | None:
        """Version and body of the client's ApiVersions request; None where there was none."""

    def close(self, reason: str) -> None:
        """Hang up; the reason goes to the log."""


class RequestContext(Protocol):
    """One request: its header, its connection and the broker's parts."""

    by_follower: bool
    """Whether it is a follower's fetch, which is counted as such."""

    def note_error(self, code: int) -> None:
        """A part of its answer has an error, which is counted when it is given."""

    @property
    def api_key(self) -> int:
        """The API that the header names."""

    @property
    def api_version(self) -> int:
        """The version that the header names."""

    @property
    def correlation_id(self) -> int:
        """The number that the answer repeats."""

    @property
    def client_id(self) -> str | None:
        """What the client calls itself."""

    @property
    def connection(self) -> ClientConnection:
        """Where the request came from."""

    @property
    def gate(self) -> Gate | None:
        """What the request has passed; None where nothing was asked of it."""

    @property
    def services(self) -> Services:
        """The broker's parts."""

    @property
    def frame(self) -> bytes | None:
        """The request as it came, header included, for a handler whose row says `keeps_frame`."""

    cacheable: bool
    """Set by a handler whose row says `cacheable`: this answer holds until the cluster's metadata change."""
    left: Callable[[], object] | None
    """What a handler that waits for its client alone wants called when that is gone."""
    renewal: AnswerRenewal | None
    """What equal requests of this client do, and how long the answer stands, besides."""

    def forward_answer(self, frame: bytes, throttle_ms: int) -> None:
        """Answer with another node's answer as it is; that node throttles the client for so long."""

    @property
    def open(self) -> bool:
        """Whether the client is still there to be answered."""
