"""One member of a streams group (KIP-1071), as its records say it: a value that never changes.

States of a member on its way to its target assignment:

    STABLE            it has what the target of its epoch says
    UNREVOKED_TASKS   it was asked to give tasks up and has not confirmed it yet; its epoch stays
    UNRELEASED_TASKS  it is in the target's epoch, and waits for tasks that others have not given up yet
    UNKNOWN           a newer broker wrote a state that this one does not know

A member is one thread of an application; `process_id` names the process that it runs in, which has the state stores.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import NamedTuple

from kbroker.coordinator.streams.tasks import NOTHING_OWNED, OwnedTasks

NO_TOPOLOGY_EPOCH = -1


class MemberState(IntEnum):
    """The numbers are those of the records."""

    STABLE = 1
    UNREVOKED_TASKS = 2
    UNRELEASED_TASKS = 3
    UNKNOWN = 127

    @classmethod
    def of(cls, number: int) -> MemberState:
        """The state of a record."""
        try:
            return cls(number)
        except ValueError:
            return cls.UNKNOWN


class Endpoint(NamedTuple):
    """Where a process answers interactive queries."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class StreamsMember:
    """See the module's docstring."""

    member_id: str
    member_epoch: int = 0
    previous_member_epoch: int = 0
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = NO_TOPOLOGY_EPOCH
    process_id: str = ""
    endpoint: Endpoint | None = None
    client_tags: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    assigned: OwnedTasks = NOTHING_OWNED
    pending_revocation: OwnedTasks = NOTHING_OWNED

    def is_reconciled_to(self, target_epoch: int) -> bool:
        """Whether it has the target assignment of that epoch."""
        return self.state is MemberState.STABLE and self.member_epoch == target_epoch

    def epoch_of(self, subtopology: str, partition: int) -> int | None:
        """The epoch in which it got an active task that is still its own; None when it is not."""
        for owned in (self.assigned, self.pending_revocation):
            epoch = owned.active.get(subtopology, {}).get(partition)
            if epoch is not None:
                return epoch
        return None
