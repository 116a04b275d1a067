"""What a node with the controller role has and others lack: its replica of the metadata log, and the controller that
decides while that replica leads.

A node is given two functions that make them (`assembly.quorum_node`), and tests give it others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kbroker.cluster.raft.service import RaftService

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping

    from kbroker._fast.base.slices import Slices
    from kbroker.clock import Clock
    from kbroker.cluster.client import Transport
    from kbroker.cluster.controller.broker_lives import BrokerLives
    from kbroker.cluster.controller.interface import Administration, BrokerRequests
    from kbroker.cluster.kraft.cluster_metadata import ClusterMetadata
    from kbroker.cluster.kraft.member import FollowedLog
    from kbroker.cluster.kraft.settings import QuorumSettings
    from kbroker.config import BrokerConfig
    from kbroker.metadata.broker_settings import BrokerSettings
    from kbroker.metadata.image import ClusterImage, Endpoint, MetadataDelta
    from kbroker.metrics.families import Values
    from kbroker.metrics.readiness import Problem
    from kbroker.metrics.recent import Counters
    from kbroker.periodic import PeriodicTask
    from kbroker.quotas.host_names import HostNames
    from kbroker.storage.directories.log_dirs import LogDir
    from kbroker.storage.files.filesystem import FileSystem


@dataclass(frozen=True, slots=True)
class ReplicaParts:
    """What a replica stands on.

    `directory`: the log directory that holds the metadata log; it is locked, and its `meta` has the cluster's id and
    the directory's.  `metadata`: what the replica applies committed batches to.  `transport`: for connections to other
    voters.  `hosts` looks names of hosts up beside the loop.  `halt(reason)` ends the node.
    """

    config: BrokerConfig
    settings: QuorumSettings
    loop: asyncio.AbstractEventLoop
    clock: Clock
    slices: Slices
    cluster_id: str
    directory: LogDir
    metadata: ClusterMetadata
    transport: Transport
    files: FileSystem
    hosts: HostNames
    halt: Callable[[str], None]


class Replica(RaftService, Protocol):
    """A node's replica of the metadata log, from start to stop."""

    async def start(self, endpoints: Mapping[str, Endpoint]) -> None:
        """Read the log and take part in the quorum.  `endpoints`: where others reach this node, by the names of its
        listeners.  LogDirError where it must not vote with what is in its directory."""

    async def caught_up(self) -> None:
        """Return once all that was committed at the start is applied."""

    async def leave(self) -> None:
        """Lead no more, and return when another node leads or could not be awaited; requests are still answered."""

    async def close(self) -> None:
        """End, behind the last request."""

    def own_log(self, near: Endpoint | None) -> FollowedLog:
        """The log as a broker in the same process follows it.  `near`: where it reaches this node's controller; None:
        where others do."""

    def problems(self) -> Iterable[Problem]:
        """What is wrong by now, for `/readyz`."""

    def figures(self) -> Values:
        """What a scrape of the metrics shows."""

    def counters(self) -> Counters:
        """What rates and recent times are worked out of."""


class ActiveController(NamedTuple):
    """The controller of a node, which decides while the node's replica leads and refuses with NotControllerError
    otherwise.  `is_active`: whether it decides by now, with all applied that was decided before; `close` ends what it
    does by itself.  `figures()` and `counters()`: what a scrape of the metrics shows, as a replica's; `on_metadata`
    hears of each image."""

    requests: BrokerRequests
    administration: Administration
    lives: BrokerLives
    is_active: Callable[[], bool]
    tasks: Sequence[PeriodicTask] = ()
    close: Callable[[], object] = lambda: None
    figures: Callable[[], Values] = dict
    counters: Callable[[], Counters] = dict
    on_metadata: Callable[[ClusterImage, ClusterImage, MetadataDelta], None] = lambda _old, _new, _delta: None


MakeReplica = Callable[[ReplicaParts], Replica]
MakeController = Callable[[ReplicaParts, Replica, "BrokerSettings"], ActiveController]
