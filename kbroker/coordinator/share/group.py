"""A share group, as its records in `__consumer_offsets` make it.

    Empty     no members
    Stable    members; share groups do not rebalance in steps, a member takes its target at its next heartbeat

Epochs: the group's epoch grows with every change of members, subscriptions or topics.  The target assignment has the
epoch that it was computed for, and a member has the epoch of the target that it has taken.  Partitions are assigned
when their state has been initialized at the share coordinator.
"""

from __future__ import annotations

from kbroker.coordinator.modern.group import CommitCheck, SubscribedGroup
from kbroker.coordinator.modern.kind_records import KindRecord
from kbroker.coordinator.runtime.plan import KeyValue
from kbroker.coordinator.share import group_records as records
from kbroker.coordinator.share.assignor import Assignment
from kbroker.coordinator.share.member import ShareMember
from kbroker.coordinator.share.state_partitions import StatePartitions
from kbroker.errors import GroupIdNotFoundError

GROUP_TYPE = "share"
EMPTY = "Empty"
STABLE = "Stable"


class ShareGroup(SubscribedGroup[ShareMember, Assignment]):
    """See the module; a `GroupKind`.  Records change it (`replay`), `ShareGroups` what no record has.

    In no record: `deadlines`, when each member's session ends, in seconds; `changes`, how many records were applied;
    `settled`, the values of `changes` and of the metadata's version at which nothing was left to do."""

    __slots__ = ("changes", "deadlines", "settled", "state_partitions")

    group_type = GROUP_TYPE
    protocol_type = "share"
    kind_records = records.RECORDS
    new_member = ShareMember
    read_member = staticmethod(records.read_member)
    read_current = staticmethod(records.read_current)
    read_target = staticmethod(records.read_target)
    target_record = staticmethod(records.target_record)

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
        return records.group_tombstones(self.group_id)

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

    # Records

    def replay(self, record: KindRecord) -> None:
        """See ModernGroup."""
        self.changes += 1
        super().replay(record)
        if record.record_type == records.STATE_PARTITIONS:
            value = record.value
            self.state_partitions = StatePartitions() if value is None else records.read_state_partitions(value)

    def end_validity(self) -> None:
        """There may be something to do at the next heartbeat."""
        self.settled = (-1, -1)

    def count_member(self, old: ShareMember | None, new: ShareMember | None) -> None:
        """The session of a member ends with it."""
        super().count_member(old, new)
        if new is None and old is not None:
            self.deadlines.pop(old.member_id, None)

    def check_invariants(self) -> None:
        """See ModernGroup."""
        super().check_invariants()
        assert self.deadlines.keys() <= self.members.keys(), (self.group_id, self.deadlines)
        assert self.settled[0] <= self.changes, (self.group_id, self.settled, self.changes)
