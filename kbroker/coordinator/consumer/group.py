"""A consumer group (KIP-848), exactly as its records say it.

    EMPTY        no members
    ASSIGNING    the group's epoch is ahead of the target assignment's
    RECONCILING  a target assignment is there, and members are on their way to it
    STABLE       every member has its target assignment
    DEAD         not in memory any more

A change of who is in the group, what they subscribe to or what those topics are raises the group's epoch.  The next
target assignment is made for that epoch, and each member follows at its own pace (`reconciliation`).

Only `replay` changes the group; what depends on its members is counted as they change.  `image_version` and what
follows it are known to this broker alone.
"""

from __future__ import annotations

import logging
from collections import Counter
from enum import Enum
from typing import TYPE_CHECKING

from kbroker._fast.net.answer_memo import Validity
from kbroker.coordinator.consumer import records
from kbroker.coordinator.consumer.assignors.group_spec import NOTHING, Assignment
from kbroker.coordinator.consumer.member import ConsumerMember, MemberState, Owned
from kbroker.coordinator.consumer.records import ResolvedRegex
from kbroker.coordinator.modern.fencing import CommittingGroup
from kbroker.coordinator.modern.group import FIRST_EPOCH, CommitCheck, SubscribedGroup, count
from kbroker.coordinator.modern.kind_records import KindRecord
from kbroker.coordinator.runtime.plan import KeyValue
from kbroker.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kbroker.schemas import wire

logger = logging.getLogger("kbroker.groups")

GROUP_TYPE = PROTOCOL_TYPE = "consumer"


class ConsumerGroupState(Enum):
    """The value is the name that Kafka puts into answers."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class ConsumerGroup(CommittingGroup[ConsumerMember, Assignment], SubscribedGroup[ConsumerMember, Assignment]):
    """See the module's docstring.  Records change it (`replay`), `ConsumerGroups` what no record has."""

    __slots__ = (
        "classic_count",
        "classic_protocols",
        "computing",
        "has_partition_metadata",
        "image_version",
        "regex_names",
        "regexes",
        "resolved",
        "resolving",
        "server_assignors",
        "static_members",
        "_owners",
        "_validity",
        "_unreconciled",
    )

    group_type = GROUP_TYPE
    protocol_type = PROTOCOL_TYPE
    kind_records = records.RECORDS
    new_member = ConsumerMember
    read_member = staticmethod(records.read_member)
    read_current = staticmethod(records.read_current)
    read_target = staticmethod(records.read_target)
    target_record = staticmethod(records.target_assignment)
    # The first member of a new group has nothing until there is a target.
    first_assignment_epoch = FIRST_EPOCH
    no_assignment_epoch = -1

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.static_members: dict[str, str] = {}
        self.resolved: dict[str, ResolvedRegex] = {}
        self.has_partition_metadata = False
        # How many of the resolved regexes match a topic, how many members have a regex, and so on.
        self.regex_names: Counter[str] = Counter()
        self.regexes: Counter[str] = Counter()
        self.server_assignors: Counter[str] = Counter()
        self.classic_count = 0
        self.classic_protocols: Counter[str] = Counter()
        self._owners: dict[tuple[bytes, int], str] = {}
        self._unreconciled: set[str] | None = None
        # Known to this broker alone: the metadata that the topics were last looked up in, and what goes on elsewhere.
        self.image_version = -1
        self.resolving = False
        self.computing = False
        self._validity: Validity | None = None

    # What all kinds of groups have in common (`GroupKind`)

    @property
    def state_name(self) -> str:
        """As answers name it."""
        return self.state.value

    def tombstones(self) -> list[KeyValue]:
        """The records that delete the group with all its members."""
        return records.group_tombstones(self.group_id, self.members, self.resolved)

    def speaks_classic(self, member: ConsumerMember) -> bool:
        """See `CommittingGroup`."""
        return member.classic is not None

    def stale(self, member: ConsumerMember, reason: str) -> KafkaError:
        """Members that speak the classic protocol have their epoch as generation, and its error."""
        code = ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION
        return KafkaError.of(code, reason)

    def late_check(self, member: ConsumerMember, epoch: int) -> CommitCheck:
        """A partition has been the member's since that epoch or longer."""

        def check(_topic: str, topic_id: bytes, partition: int) -> None:
            self.check_since(member, epoch, member.epoch_of(topic_id, partition), "Partition", str(partition))

        return check

    # What it is

    @property
    def state(self) -> ConsumerGroupState:
        """See the module's docstring."""
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        if self._unreconciled is None:
            self._unreconciled = {
                member.member_id
                for member in self.members.values()
                if not member.is_reconciled_to(self.assignment_epoch)
            }
        return ConsumerGroupState.RECONCILING if self._unreconciled else ConsumerGroupState.STABLE

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        """The member that holds a group instance id."""
        member_id = None if instance_id is None else self.static_members.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    def target_of(self, member: ConsumerMember) -> Assignment:
        """A member's target assignment; that of the member which a static one replaces."""
        member_id = member.member_id
        if member.instance_id is not None:
            member_id = self.static_members.get(member.instance_id, member_id)
        return self.targets.get(member_id, NOTHING)

    def is_owned(self, topic_id: bytes, partition: int) -> bool:
        """Whether a member owns the partition, or has not given it up yet."""
        return (topic_id, partition) in self._owners

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member subscribes to the topic, by its name or by a regular expression that matches it."""
        return super().is_subscribed_to(topic) or topic in self.regex_names

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """The names of the topics that a member subscribes to; a regex that is not resolved yet matches none."""
        resolved = self.resolved.get(member.topic_regex) if member.topic_regex else None
        return member.topic_names if resolved is None else member.topic_names | resolved.topics

    def waits_for_others(self, member: ConsumerMember) -> bool:
        """Whether a partition of a member's target is still another's."""
        return member.state is MemberState.UNRELEASED_PARTITIONS and any(
            self.is_owned(topic_id, partition)
            for topic_id, partitions in self.targets.get(member.member_id, NOTHING).items()
            for partition in partitions
            if partition not in member.assigned.get(topic_id, {})
        )

    # What its records say

    def validity(self) -> Validity:
        """Holds until a record changes the group, or `end_validity` is called."""
        if self._validity is None:
            self._validity = Validity()
        return self._validity

    def end_validity(self) -> None:
        """Heartbeats are to be looked at again."""
        if self._validity is not None:
            self._validity.end()
            self._validity = None

    def replay(self, record: KindRecord) -> None:
        """See ModernGroup."""
        self.end_validity()
        super().replay(record)
        if record.record_type == records.PARTITIONS:
            self.has_partition_metadata = record.value is not None
        elif record.record_type == records.REGEX:
            self._replay_regex(record.key.regular_expression, record.value)

    def apply_assignment_epoch(self, epoch: int, timestamp_ms: int) -> None:
        """The epoch that members are on their way to."""
        super().apply_assignment_epoch(epoch, timestamp_ms)
        self._unreconciled = None

    def _replay_regex(self, expression: str, value: wire.ConsumerGroupRegularExpressionValue | None) -> None:
        """ConsumerGroupRegularExpressionValue."""
        old = self.resolved.pop(expression, None)
        if old is not None:
            count(self.regex_names, old.topics, -1)
        if value is not None:
            topics = frozenset(value.topics)
            self.resolved[expression] = ResolvedRegex(topics, value.version, value.timestamp)
            count(self.regex_names, topics, 1)

    # What is counted

    def count_member(self, old: ConsumerMember | None, new: ConsumerMember | None) -> None:
        """Count what depends on members: topics, regexes, assignors, protocols, owners, who is reconciled."""
        super().count_member(old, new)
        if old is not None:
            self._uncount(old)
        if new is None:
            return
        if new.topic_regex:
            count(self.regexes, (new.topic_regex,), 1)
        if new.server_assignor is not None:
            count(self.server_assignors, (new.server_assignor,), 1)
        if new.classic is not None:
            self.classic_count += 1
            count(self.classic_protocols, {name for name, _ in new.classic.protocols}, 1)
        if new.instance_id is not None:
            self.static_members[new.instance_id] = new.member_id
        self._own(new.assigned, new.member_id)
        self._own(new.pending_revocation, new.member_id)
        if self._unreconciled is not None:
            if new.is_reconciled_to(self.assignment_epoch):
                self._unreconciled.discard(new.member_id)
            else:
                self._unreconciled.add(new.member_id)

    def check_invariants(self) -> None:
        """See ModernGroup."""
        super().check_invariants()
        members = self.members.values()
        assert self.classic_count == sum(member.classic is not None for member in members), self.group_id
        assert self.regexes == Counter(member.topic_regex for member in members if member.topic_regex), self.group_id
        assert set(self._owners.values()) <= self.members.keys(), (self.group_id, self._owners)
        for instance_id, member_id in self.static_members.items():
            assert self.members[member_id].instance_id == instance_id, (self.group_id, instance_id, member_id)

    def _uncount(self, old: ConsumerMember) -> None:
        if old.topic_regex:
            count(self.regexes, (old.topic_regex,), -1)
        if old.server_assignor is not None:
            count(self.server_assignors, (old.server_assignor,), -1)
        if old.classic is not None:
            self.classic_count -= 1
            count(self.classic_protocols, {name for name, _ in old.classic.protocols}, -1)
        if old.instance_id is not None and self.static_members.get(old.instance_id) == old.member_id:
            del self.static_members[old.instance_id]
        self._disown(old.assigned, old.member_id)
        self._disown(old.pending_revocation, old.member_id)
        if self._unreconciled is not None:
            self._unreconciled.discard(old.member_id)

    def _own(self, owned: Owned, member_id: str) -> None:
        for topic_id, epochs in owned.items():
            for partition in epochs:
                other = self._owners.setdefault((topic_id, partition), member_id)
                if other != member_id:
                    logger.error(
                        "group %s: a record gives a partition of %s to %s and to %s",
                        self.group_id,
                        topic_id.hex(),
                        other,
                        member_id,
                    )
                    self._owners[topic_id, partition] = member_id

    def _disown(self, owned: Owned, member_id: str) -> None:
        for topic_id, epochs in owned.items():
            for partition in epochs:
                if self._owners.get((topic_id, partition)) == member_id:
                    del self._owners[topic_id, partition]
