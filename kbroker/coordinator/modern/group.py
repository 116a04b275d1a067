"""What groups of the newer protocols (consumer, share, streams) have in common: members, target assignments, epochs.

    epoch              grows with each change of members, subscriptions or topics
    assignment_epoch   the group's epoch that the target assignment was made for, at `assignment_timestamp`, in ms
    targets            the target assignment of each member, by id
    metadata_hash      of the topics that the group subscribes to (`topic_hash`)

Records alone change a group (`replay`); a kind adds what its own types of records say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, ClassVar, Generic, NamedTuple, Protocol, TypeVar

from kbroker._fast.base.build_facts import CHECKED
from kbroker.errors import GroupMaxSizeReachedError, UnknownMemberIdError

if TYPE_CHECKING:
    from kbroker._fast.wire.codec import Struct
    from kbroker.coordinator.modern.kind_records import KindRecord, KindRecords
    from kbroker.coordinator.runtime.plan import KeyValue

# Raises KafkaError for a partition, by topic name, topic id and index, whose offset may not be committed.
CommitCheck = Callable[[str, bytes, int], None]
# Of a group without records.
FIRST_EPOCH = 1
# What a member says in a heartbeat in place of its epoch; a static one leaves for a while.
JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2


class LastRebalance(NamedTuple):
    """When a group last began to share out anew what it reads, in ms since the epoch, and why; it is not stored."""

    at_ms: int
    reason: str


class ModernMember(Protocol):
    """A member of a group: a value that never changes."""

    @property
    def member_id(self) -> str:
        """The id, made by the client."""


class SubscribedMember(ModernMember, Protocol):
    """A member that subscribes to topics by their names."""

    @property
    def topic_names(self) -> frozenset[str]:
        """The names."""


M = TypeVar("M", bound=ModernMember)
S = TypeVar("S", bound=SubscribedMember)
A = TypeVar("A")


class ModernGroup(Generic[M, A]):
    """See the module; members are of type M, target assignments of type A.  A kind is a `GroupKind`, too."""

    __slots__ = (
        "assignment_epoch",
        "assignment_timestamp",
        "epoch",
        "group_id",
        "members",
        "metadata_hash",
        "targets",
    )

    # As ListGroups names them.
    group_type: ClassVar[str]
    protocol_type: ClassVar[str]
    # How the kind writes and reads its records: a member from the one before and a value, None for a tombstone.
    kind_records: ClassVar[KindRecords]
    new_member: Callable[[str], M]
    read_member: Callable[..., M]
    read_current: Callable[..., M]
    read_target: Callable[..., A]
    target_record: Callable[[str, str, A], KeyValue]
    # The assignment's epoch of a group without records, and after the tombstone of its assignment.
    first_assignment_epoch: ClassVar[int] = 0
    no_assignment_epoch: ClassVar[int] = 0

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = self.first_assignment_epoch
        self.assignment_timestamp = 0
        self.members: dict[str, M] = {}
        self.targets: dict[str, A] = {}

    @property
    def member_count(self) -> int:
        """How many members it has."""
        return len(self.members)

    @property
    def is_empty(self) -> bool:
        """Whether it has no members, and may be deleted."""
        return not self.members

    def member(self, member_id: str) -> M:
        """The member with that id.  UnknownMemberIdError."""
        found = self.members.get(member_id)
        if found is None:
            raise UnknownMemberIdError(f"Member {member_id} is not a member of group {self.group_id}.")
        return found

    def check_room(self, member_id: str, limit: int) -> None:
        """GroupMaxSizeReachedError for one member too many."""
        if len(self.members) >= limit and member_id not in self.members:
            raise GroupMaxSizeReachedError(
                f"The {self.group_type} group has reached its maximum capacity of {limit} members."
            )

    def target_records(self, targets: Iterable[tuple[str, A]], epoch: int, now_ms: int) -> list[KeyValue]:
        """The records that make these, by member, the target assignment: those that are new, and the epoch."""
        assert epoch > self.assignment_epoch, (self.group_id, epoch, self.assignment_epoch)
        changed = [
            self.target_record(self.group_id, member_id, target)
            for member_id, target in targets
            if self.targets.get(member_id) != target
        ]
        return [*changed, self.kind_records.target_epoch(self.group_id, epoch, now_ms)]

    def end_validity(self) -> None:
        """Forget that a request like the last one changes nothing; a kind that remembers such has it in here."""

    # What records say

    def replay(self, record: KindRecord) -> None:
        """Apply a record, but for the tombstone of the group itself."""
        types = self.kind_records
        record_type, key, value = record
        if record_type == types.group:
            if value is not None:
                self.apply_epoch(value.epoch, value.metadata_hash)
        elif record_type == types.target:
            if value is None:
                self.apply_no_assignment()
            else:
                self.apply_assignment_epoch(value.assignment_epoch, value.assignment_timestamp)
        elif record_type == types.member_target:
            self.apply_target(key.member_id, None if value is None else self.read_target(value))
        elif record_type in (types.member, types.current):
            self._replay_member(record_type == types.current, key.member_id, value)

    def apply_epoch(self, epoch: int, metadata_hash: int) -> None:
        """The group's epoch and the hash of its topics."""
        self.epoch = epoch
        self.metadata_hash = metadata_hash

    def apply_assignment_epoch(self, epoch: int, timestamp_ms: int) -> None:
        """The epoch of the target assignment, and when it was made."""
        self.assignment_epoch = epoch
        self.assignment_timestamp = timestamp_ms

    def apply_no_assignment(self) -> None:
        """The tombstone of the target assignment."""
        self.apply_assignment_epoch(self.no_assignment_epoch, 0)

    def apply_target(self, member_id: str, target: A | None) -> None:
        """A member's target assignment; None for its tombstone."""
        if target is None:
            self.targets.pop(member_id, None)
        else:
            self.targets[member_id] = target

    def _replay_member(self, is_current: bool, member_id: str, value: Struct | None) -> None:
        """What a member says of itself, or where it stands; the log may have either first."""
        known = self.members.get(member_id)
        if value is None and not is_current:
            self.apply_no_member(member_id)
        elif value is not None or known is not None:
            read = self.read_current if is_current else self.read_member
            self.apply_member(read(known or self.new_member(member_id), value))

    def apply_member(self, member: M) -> None:
        """A member that is new or has changed."""
        old = self.members.get(member.member_id)
        self.members[member.member_id] = member
        self.count_member(old, member)
        if CHECKED:
            self.check_invariants()

    def apply_no_member(self, member_id: str) -> None:
        """The tombstone of a member."""
        old = self.members.pop(member_id, None)
        if old is not None:
            self.count_member(old, None)
        if CHECKED:
            self.check_invariants()

    def check_invariants(self) -> None:
        """Raises AssertionError unless what is counted is what its members are; a kind adds what it counts."""
        assert all(member_id == member.member_id for member_id, member in self.members.items()), self.group_id
        assert self.epoch >= 0 and self.assignment_epoch >= -1, (self.group_id, self.epoch, self.assignment_epoch)

    def count_member(self, old: M | None, new: M | None) -> None:
        """A member was added (`old` is None), changed or removed (`new` is None); a kind counts here what it needs."""


class SubscribedGroup(ModernGroup[S, A]):
    """A group whose members subscribe to topics; `names` has how many members subscribe to each."""

    __slots__ = ("names",)

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.names: Counter[str] = Counter()

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member subscribes to the topic, so that its offsets stay."""
        return topic in self.names

    def count_member(self, old: S | None, new: S | None) -> None:
        """Count the topics' names."""
        before = frozenset[str]() if old is None else old.topic_names
        after = frozenset[str]() if new is None else new.topic_names
        if before != after:
            count(self.names, after, 1)
            count(self.names, before, -1)

    def check_invariants(self) -> None:
        """See ModernGroup."""
        super().check_invariants()
        names = Counter(name for member in self.members.values() for name in member.topic_names)
        assert self.names == names, (self.group_id, self.names, names)


def count(counter: Counter[str], names: Iterable[str], step: int) -> None:
    """Add `step` to the count of each name; a count of 0 has no entry."""
    for name in names:
        counter[name] += step
        if counter[name] <= 0:
            del counter[name]
