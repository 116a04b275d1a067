"""The interface between a broker and its cluster: the steps of a start and a stop, for every kind of cluster.

A start calls, in this order:

    join             which cluster, and the metadata as they are known before the logs load
    connect          the controller as this broker reaches it
    catch_up         register or read what the logs are loaded with
    report_logs      the logs are open: the controller hears of them, and replicas begin to lead and to follow
    wait_for_others  what has to be there before clients are served
    prepare          the listeners have their ports and accept no connection yet
    serve            the listeners are open: others may hear of this broker

A stop calls `leave`, which moves leadership to other brokers while this one still serves, then `close`, and `release`
once the logs are closed.  A start that fails or is interrupted, at whichever step, calls `close` and `release`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kbroker.handlers import dispatch
from kbroker.handlers.cluster.cluster_view import ClusterView

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from kbroker._fast.base.slices import Pace, Slices
    from kbroker.assembly.controller_part import ControllerPart
    from kbroker.clock import Clock
    from kbroker.cluster.controller.interface import Administration, BrokerRequests
    from kbroker.cluster.kraft.forwarding import Forwarding
    from kbroker.cluster.member import ZooKeeperOffsets
    from kbroker.cluster.node_clients import NodeClients
    from kbroker.cluster.outbound import Outbound
    from kbroker.cluster.requests import BrokerEpoch
    from kbroker.config import BrokerConfig
    from kbroker.coordinator.transactions.completion import Markers
    from kbroker.handlers.table import Handler
    from kbroker.metadata.broker_settings import BrokerSettings
    from kbroker.metadata.cache import MetadataCache
    from kbroker.metadata.image import ClusterImage
    from kbroker.metrics.families import Values
    from kbroker.metrics.readiness import Problem
    from kbroker.metrics.recent import Counters
    from kbroker.network.listener import Listener
    from kbroker.periodic import PeriodicTask
    from kbroker.quotas.host_names import HostNames
    from kbroker.replication.leader_and_isr import ControllerRequests
    from kbroker.replication.replica_manager import ReplicaManager
    from kbroker.replication.transaction_markers import MarkerWriter
    from kbroker.storage.directories.log_dirs import OpenedDirs
    from kbroker.storage.manager.log_manager import LogManager
    from kbroker.types import TopicPartition


@dataclass(frozen=True, slots=True)
class BrokerParts:
    """The parts of the broker that a membership needs from the beginning.

    `stopping`: the broker is to stop; `halt` is called with the reason why it cannot go on.
    """

    config: BrokerConfig
    loop: asyncio.AbstractEventLoop
    clock: Clock
    slices: Slices
    stopping: asyncio.Event
    halt: Callable[[str], None]
    log_manager: LogManager
    outbound: Outbound
    quorum: ControllerPart | None = None
    """The broker's controller role, where it has that."""


@dataclass(frozen=True, slots=True)
class MetadataParts:
    """The parts of the broker that are made from the metadata that `join` returns."""

    cache: MetadataCache
    settings: BrokerSettings
    hosts: HostNames
    replicas: ReplicaManager


class ClusterMembership(ABC):
    """This broker in its cluster.  All is called on the broker's loop, each step of a start once."""

    keeps_metadata: bool
    """Whether the first log directory has the cluster's metadata store: that directory cannot fail alone."""
    shows_losses: bool = True
    """Whether this broker's image is to show at once what a failed disk has taken, before the controller says so; not
    where the image is what a log says."""
    controller: BrokerRequests
    """From `connect` on."""
    administration: Administration | None = None
    """What carries out the changes of clients, from `connect` on; None where they go on to the controllers."""
    controller_requests: ControllerRequests | None = None
    """What carries out a controller's LeaderAndIsr, StopReplica and UpdateMetadata requests, from `report_logs` on;
    None where replicas follow images: `handlers` has no such requests then."""
    forwarding: Forwarding | None = None
    """What passes requests of clients on to the controller, from `connect` on, where `handlers` has such rows."""
    watches_addresses: bool = True
    """Whether clients that ask for this broker's address and do not come there are noticed: not where other brokers
    send them."""
    has_other_brokers: bool = False
    """Whether brokers of other processes ask this one, as clients of its inter-broker listener."""
    zookeeper_offsets: ZooKeeperOffsets | None = None
    """Where OffsetCommit and OffsetFetch v0 keep offsets; None: where all other versions do."""

    @abstractmethod
    async def join(self, dirs: OpenedDirs) -> ClusterImage:
        """Find the cluster and bind the log directories to it; returns the metadata that is known by then.

        LogDirError where the directories belong elsewhere; StartInterruptedError; ValueError; ConnectionLossError.
        """

    @abstractmethod
    def connect(self, parts: MetadataParts) -> None:
        """Make `controller`."""

    @abstractmethod
    async def catch_up(self) -> ClusterImage | None:
        """The image whose topics the logs are loaded with; None where the topics are not known yet."""

    @abstractmethod
    async def report_logs(self) -> None:
        """All logs are open: report them to the controller, and let replicas lead and follow as it decides."""

    async def wait_for_others(self) -> None:
        """Return when clients may be served.  StartInterruptedError."""
        return

    async def prepare(self, listeners: Sequence[Listener]) -> None:
        """The listeners have their ports: return when requests may be answered.  StartInterruptedError."""
        return

    async def serve(self, listeners: Sequence[Listener]) -> None:
        """The listeners are open, with the ports that they have.  StartInterruptedError."""
        return

    def handlers(self, listener: str) -> Sequence[Handler]:
        """The rows that a listener serves."""
        return dispatch.broker_rows()

    def view(self) -> ClusterView:
        """What clients are shown of the cluster; from `report_logs` on."""
        return ClusterView()

    @abstractmethod
    def broker(self) -> BrokerEpoch:
        """This broker's id and its current epoch."""

    def may_be_superseded(self) -> bool:
        """Whether other brokers may lead what this one leads, and it cannot know: no controller hears it."""
        return False

    def markers(self, writer: MarkerWriter) -> Markers:
        """What writes markers into the partitions of all brokers; `writer` writes into those that are led here."""
        return writer

    def coordinators_elsewhere(self) -> NodeClients | None:
        """The clients with which partition leaders here ask coordinators on other brokers; None without others."""
        return None

    def share_coordinators_elsewhere(self) -> NodeClients | None:
        """The same for the share coordinators, of which groups and leaders here ask for their states."""
        return None

    def leaders_elsewhere(self) -> NodeClients | None:
        """The clients with which metrics ask where partitions end that others lead; None without others."""
        return None

    @abstractmethod
    def follow(self, config: BrokerConfig) -> None:
        """A broker setting was changed at run time."""

    def lost(self, names: Collection[TopicPartition]) -> None:
        """The disks of these partitions have failed."""
        return

    def periodic_tasks(self) -> Sequence[PeriodicTask]:
        """What the loop runs from time to time."""
        return ()

    def problems(self) -> Iterable[Problem]:
        """What is wrong with the membership, for `/readyz`."""
        return ()

    @abstractmethod
    async def figures(self, pace: Pace) -> Values:
        """What metrics say of the controller and of replication."""

    def counters(self) -> Counters:
        """Counters that metrics show the growth of: requests to leaders, the end of the metadata log."""
        return {}

    @property
    def metrics_listener(self) -> str | None:
        """The address that serves metrics instead of `metrics.listener`; None: `metrics.listener` does."""
        return None

    async def leave(self) -> None:
        """Move leadership of this broker's partitions to other brokers, before it stops serving."""
        return

    async def close(self) -> None:
        """Leave the cluster: stop fetching replicas and sending requests to other brokers."""
        return

    def release(self) -> None:
        """The logs are closed: give back what is left."""
        return
