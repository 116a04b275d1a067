"""The decision of an operation on a streams group, built step by step: records, and actions once they are written.

An operation reads the group and adds to a `Draft`; nothing changes before the draft's records are appended.  Its only
other input is the `HeartbeatContext`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from kbroker.coordinator.modern.draft import ModernDraft
from kbroker.coordinator.streams.assignor import GroupSpec
from kbroker.coordinator.streams.configuration import InternalTopic, StatusLine
from kbroker.coordinator.streams.group import StreamsKnowledge
from kbroker.coordinator.streams.member import Endpoint
from kbroker.coordinator.streams.tasks import OwnedTasks, Partitions, Tasks
from kbroker.coordinator.streams.topology import Topology

if TYPE_CHECKING:
    from kbroker.coordinator.streams.settings import StreamsSettings
    from kbroker.metadata.cache import MetadataCache


class TimerKind(Enum):
    """The kind of a timer; the value is what happens when it fires, for a member's timer why the member is removed."""

    SESSION = "the member session expired"
    REBALANCE = "it failed to give up its tasks within the rebalance timeout"
    INITIAL = "the first assignment is made"


class TargetWork(NamedTuple):
    """A target assignment to compute on another thread, for the group's epoch of now."""

    epoch: int
    spec: GroupSpec


@dataclass(slots=True)
class Draft(ModernDraft):
    """See the module's docstring.  `known`: what the broker knows of the group from now on; `rebalanced`: why the group
    has a new epoch."""

    known: StreamsKnowledge | None = None
    work: TargetWork | None = None

    @property
    def changes_what_is_known(self) -> bool:
        """See `ModernDraft`."""
        return self.known is not None or self.work is not None

    def cancel_timers(self, member_id: str) -> None:
        """Have the timers of a member cancelled once the records are written."""
        for kind in (TimerKind.SESSION, TimerKind.REBALANCE):
            self.cancel_timer(kind, member_id)


class HeartbeatContext(NamedTuple):
    """`is_delayed`: the group's first assignment waits for more members."""

    now_ms: int
    cache: MetadataCache
    settings: StreamsSettings
    is_delayed: bool = False


class HeartbeatRequest(NamedTuple):
    """StreamsGroupHeartbeat; None where the member says nothing new."""

    group_id: str
    member_id: str
    member_epoch: int
    endpoint_epoch: int = -1
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topology: Topology | None = None
    tasks: Tasks | None = None
    process_id: str | None = None
    endpoint: Endpoint | None = None
    client_tags: Mapping[str, str] | None = None
    shutdown_application: bool = False
    client_id: str = ""
    client_host: str = ""

    @property
    def says_nothing(self) -> bool:
        """Whether it is a sign of life and no more."""
        return (
            self.tasks is None
            and self.topology is None
            and self.rebalance_timeout_ms == -1
            and self.process_id is None
            and self.rack_id is None
            and self.endpoint is None
            and self.client_tags is None
            and not self.shutdown_application
        )


class EndpointPartitions(NamedTuple):
    """Where the partitions of some topics are queried: those with an active task, and those with a standby."""

    endpoint: Endpoint
    active: Partitions
    standby: Partitions


class HeartbeatAnswer(NamedTuple):
    """`assigned` and `endpoints` are None where nothing has changed for the member.  `to_create`: internal topics that
    are missing."""

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int = 0
    status: tuple[StatusLine, ...] = ()
    assigned: OwnedTasks | None = None
    endpoint_epoch: int = 0
    endpoints: tuple[EndpointPartitions, ...] | None = None
    to_create: Mapping[str, InternalTopic] = {}
