"""A share group, as its records in `__consumer_offsets` make it.

    Empty     no members
    Stable    members; share groups do not rebalance in steps, a member takes its target at its next heartbeat

Epochs: the group's grows with every change of members, subscriptions or topics; the target assignment carries the epoch
that it was worked out for, and a member the one that it has taken.  Partitions are assigned when their state has been
initialized at the share coordinator.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kbroker.coordinator.classic.group_kind import CommitCheck
from kbroker.coordinator.modern.group import SubscribedGroup
from kbroker.coordinator.runtime.plan import KeyValue
from kbroker.coordinator.share.assignor import Assignment
from kbroker.coordinator.share.group_keys import group_tombstones
from kbroker.errors import GroupIdNotFoundError

EMPTY = "Empty"
STABLE = "Stable"


@dataclass(frozen=True, slots=True)
class ShareMember:
    """One member; `assigned` is what it was sent last."""

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    member_epoch: int = 0
    previous_member_epoch: int = 0
    assigned: Assignment = frozenset()


@dataclass(frozen=True, slots=True)
class TopicState:
    """Partitions of a topic whose state is initialized, or is about to be."""

    name: str
    partitions: frozenset[int]


@dataclass(frozen=True, slots=True)
class StatePartitions:
    """How far the state of the group's partitions is, by topic id.  What is initializing or deleting may be under way
    at the share coordinator, or have been left in a crash (`under_way`)."""

    initializing: Mapping[bytes, TopicState] = field(default_factory=dict)
    initialized: Mapping[bytes, TopicState] = field(default_factory=dict)
    deleting: Mapping[bytes, str] = field(default_factory=dict)

    def has(self, topic_id: bytes, partition: int) -> bool:
        """Whether the state of a partition is initialized."""
        return topic_id in self.initialized and partition in self.initialized[topic_id].partitions

    def is_known(self, topic_id: bytes) -> bool:
        """Whether anything is noted of a topic."""
        return any(topic_id in topics for topics in (self.initializing, self.initialized, self.deleting))

    def states(self) -> dict[bytes, TopicState]:
        """All partitions that may have a state, but for those that are being deleted."""
        return _joined(self.initialized, self.initializing)

    def began(self, topics: Mapping[bytes, TopicState]) -> StatePartitions:
        """With these under way."""
        return StatePartitions(_joined(self.initializing, topics), self.initialized, self.deleting)

    def done(self, topics: Mapping[bytes, TopicState]) -> StatePartitions:
        """With these initialized."""
        return StatePartitions(_without(self.initializing, topics), _joined(self.initialized, topics), self.deleting)

    def gave_up(self, topics: Mapping[bytes, TopicState]) -> StatePartitions:
        """With these to be begun another time."""
        return StatePartitions(_without(self.initializing, topics), self.initialized, self.deleting)

    def ending(self, topics: Mapping[bytes, TopicState]) -> StatePartitions:
        """With the state of these topics about to be deleted."""
        left = self.without(topics)
        names = {topic_id: state.name for topic_id, state in topics.items()}
        return StatePartitions(left.initializing, left.initialized, {**left.deleting, **names})

    def without(self, topic_ids: Iterable[bytes]) -> StatePartitions:
        """Without these topics."""
        gone = set(topic_ids)
        return StatePartitions(
            {topic: state for topic, state in self.initializing.items() if topic not in gone},
            {topic: state for topic, state in self.initialized.items() if topic not in gone},
            {topic: name for topic, name in self.deleting.items() if topic not in gone},
        )


def _joined(known: Mapping[bytes, TopicState], more: Mapping[bytes, TopicState]) -> dict[bytes, TopicState]:
    joined = dict(known)
    for topic_id, state in more.items():
        before = joined[topic_id].partitions if topic_id in joined else frozenset()
        joined[topic_id] = TopicState(state.name, before | state.partitions)
    return joined


def _without(known: Mapping[bytes, TopicState], less: Mapping[bytes, TopicState]) -> dict[bytes, TopicState]:
    left = {}
    for topic_id, state in known.items():
        partitions = state.partitions - less[topic_id].partitions if topic_id in less else state.partitions
        if partitions:
            left[topic_id] = TopicState(state.name, partitions)
    return left


class ShareGroup(SubscribedGroup[ShareMember, Assignment]):
    """See the module; a `GroupKind`.

    In no record: `deadlines`, when each member's session ends, in seconds; `changes`, how many records were applied;
    `settled`, the changes and the version of the metadata with which nothing was left to do."""

    __slots__ = ("changes", "deadlines", "settled", "state_partitions")

    group_type = "share"
    protocol_type = "share"

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.state_partitions = StatePartitions()
        self.deadlines: dict[str, float] = {}
        self.changes = 0
        self.settled = (-1, -1)

    # What all kinds of groups are asked

    @property
    def state_name(self) -> str:
        """As clients see it."""
        return STABLE if self.members else EMPTY

    def tombstones(self) -> list[KeyValue]:
        """The records that delete it."""
        return group_tombstones(self.group_id)

    def check_commit(
        self,
        member_id: str,
        instance_id: str | None,
        epoch: int,
        api_version: int,
        *,
        is_transactional: bool = False,
    ) -> CommitCheck | None:
        """Share groups have no committed offsets.  Raises GroupIdNotFoundError."""
        raise GroupIdNotFoundError(f"Group {self.group_id} is a share group: it has no committed offsets.")

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Share groups have no committed offsets.  Raises GroupIdNotFoundError."""
        raise GroupIdNotFoundError(f"Group {self.group_id} is a share group: it has no committed offsets.")

    def count_member(self, old: ShareMember | None, new: ShareMember | None) -> None:
        """The session of a member ends with it."""
        super().count_member(old, new)
        if new is None and old is not None:
            self.deadlines.pop(old.member_id, None)
