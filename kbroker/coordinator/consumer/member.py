"""One member of a consumer group (KIP-848), as its records say it: a value that never changes.

States of a member on its way to its target assignment:

    STABLE                 it has what the target of its epoch says
    UNREVOKED_PARTITIONS   it was asked to give partitions up and has not confirmed it yet; its epoch stays
    UNRELEASED_PARTITIONS  it is in the target's epoch, and waits for partitions that others have not given up yet
    UNKNOWN                a newer broker wrote a state that this one does not know

Invariants: `assigned` and `pending_revocation` have no partition in common; a partition is in the one or the other of
at most one member of the group.  Both map topic ids and partitions to the epoch in which the member got the partition,
so that a commit of an earlier owner is recognised.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import NamedTuple

from kbroker.coordinator.classic.messages import MemberProtocol

Owned = Mapping[bytes, Mapping[int, int]]
NOTHING_OWNED: Owned = MappingProxyType({})


class MemberState(IntEnum):
    """The numbers are those of the records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127

    @classmethod
    def of(cls, number: int) -> MemberState:
        """The state of a record."""
        try:
            return cls(number)
        except ValueError:
            return cls.UNKNOWN


class ClassicMember(NamedTuple):
    """What a member that still speaks the classic protocol said when it joined."""

    session_timeout_ms: int
    protocols: tuple[MemberProtocol, ...]


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """See the module's docstring.  `classic` is None for a member that speaks the consumer protocol."""

    member_id: str
    member_epoch: int = 0
    previous_member_epoch: int = -1
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    topic_regex: str | None = ""
    server_assignor: str | None = None
    assigned: Owned = field(default_factory=lambda: NOTHING_OWNED)
    pending_revocation: Owned = field(default_factory=lambda: NOTHING_OWNED)
    classic: ClassicMember | None = None

    def is_reconciled_to(self, target_epoch: int) -> bool:
        """Whether it has the target assignment of that epoch."""
        return self.state is MemberState.STABLE and self.member_epoch == target_epoch

    def epoch_of(self, topic_id: bytes, partition: int) -> int | None:
        """The epoch in which it got a partition that is still its own; None when it is not."""
        for owned in (self.assigned, self.pending_revocation):
            epoch = owned.get(topic_id, {}).get(partition)
            if epoch is not None:
                return epoch
        return None

    def owns_all(self, partitions: Iterable[tuple[bytes, Iterable[int]]]) -> bool:
        """Whether each of the partitions is assigned to it."""
        return all(
            partition in self.assigned.get(topic_id, {}) for topic_id, indexes in partitions for partition in indexes
        )

    def owns_any(self, partitions: Owned) -> bool:
        """Whether one of the partitions is assigned to it."""
        return any(not self.assigned.get(topic_id, {}).keys().isdisjoint(each) for topic_id, each in partitions.items())
