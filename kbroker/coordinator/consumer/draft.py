"""What an operation on a consumer group decides, piece by piece: records, and what follows once they are written.

An operation reads the group and adds to a `Draft`; nothing changes before the draft's records are appended.
`HeartbeatContext` is all that it may know besides the group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from kbroker.coordinator.consumer.assignors.group_spec import GroupSpec
from kbroker.coordinator.modern.draft import ModernDraft

if TYPE_CHECKING:
    from kbroker.coordinator.consumer.settings import ConsumerSettings
    from kbroker.metadata.cache import MetadataCache

# What a member says that it owns.
OwnedByTopic = Mapping[bytes, frozenset[int]]


class TimerKind(Enum):
    """Why a member is removed when the timer goes off."""

    SESSION = "the member session expired"
    REBALANCE = "it failed to give up its partitions within the rebalance timeout"
    JOIN = "the classic member failed to join within the rebalance timeout"
    SYNC = "the member failed to sync within timeout"


class TargetWork(NamedTuple):
    """A target assignment to compute on another thread, for the group's epoch of now."""

    epoch: int
    assignor: str
    spec: GroupSpec


@dataclass(slots=True)
class Draft(ModernDraft):
    """See the module's docstring.  `image_version`: the metadata that the topics were looked up in.  `resolve`:
    regular expressions to resolve on another thread.  `describes`: whether the client that asks may describe a topic;
    its expressions match no others.  None: all."""

    image_version: int | None = None
    resolve: frozenset[str] = frozenset()
    describes: Callable[[str], bool] | None = None
    work: TargetWork | None = None

    @property
    def changes_what_is_known(self) -> bool:
        """See `ModernDraft`."""
        return self.image_version is not None or self.work is not None or bool(self.resolve)

    def cancel_timers(self, member_id: str) -> None:
        """Have all timers of a member cancelled once the records are written."""
        for kind in TimerKind:
            self.cancel_timer(kind, member_id)


class HeartbeatContext(NamedTuple):
    """`topics_version`: the version of the metadata in which topics were last created."""

    now_ms: int
    cache: MetadataCache
    settings: ConsumerSettings
    topics_version: int


class HeartbeatRequest(NamedTuple):
    """ConsumerGroupHeartbeat; None where the member says nothing new.  `describes`: as in `Draft`."""

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topic_names: frozenset[str] | None = None
    topic_regex: str | None = None
    server_assignor: str | None = None
    owned: OwnedByTopic | None = None
    client_id: str = ""
    client_host: str = ""
    describes: Callable[[str], bool] | None = None

    @property
    def is_full(self) -> bool:
        """Whether the member says everything, as it does when it is not sure what the coordinator knows."""
        return (
            self.rebalance_timeout_ms != -1
            and (self.topic_names is not None or self.topic_regex is not None)
            and self.owned is not None
        )

    @property
    def says_nothing(self) -> bool:
        """Whether it is a sign of life and no more."""
        return (
            self.rebalance_timeout_ms == -1
            and self.owned is None
            and self.topic_names is None
            and self.topic_regex is None
            and self.instance_id is None
            and self.rack_id is None
            and self.server_assignor is None
        )


class HeartbeatAnswer(NamedTuple):
    """`assigned` is None where nothing has changed for the member; `lasts`: an equal heartbeat gets the same, for as
    long as the group is what it is."""

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int = 0
    assigned: Mapping[bytes, Mapping[int, int]] | None = None
    lasts: bool = False
