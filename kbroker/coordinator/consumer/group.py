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
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING

from kbroker._fast.net.answer_memo import Validity
from kbroker.coordinator.classic.group_kind import CommitCheck
from kbroker.coordinator.consumer import fencing, records
from kbroker.coordinator.consumer.assignors.group_spec import NOTHING, Assignment
from kbroker.coordinator.consumer.member import (
    NOTHING_OWNED,
    ConsumerMember,
    MemberState,
    Owned,
)
from kbroker.coordinator.consumer.records import ResolvedRegex
from kbroker.coordinator.modern.group import FIRST_EPOCH, LEAVE_EPOCH, SubscribedGroup, count
from kbroker.coordinator.modern.kind_records import KindRecord
from kbroker.coordinator.runtime.plan import KeyValue

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


class ConsumerGroup(SubscribedGroup[ConsumerMember, Assignment]):
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
        group_id = self.group_id
        return [
            *(records.current_tombstone(group_id, member_id) for member_id in self.members),
            *(records.target_tombstone(group_id, member_id) for member_id in self.members),
            records.target_epoch_tombstone(group_id),
            *(records.member_tombstone(group_id, member_id) for member_id in self.members),
            *(records.regex_tombstone(group_id, regex) for regex in self.resolved),
            records.partitions_tombstone(group_id),
            records.group_tombstone(group_id),
        ]

    def check_commit(
        self,
        member_id: str,
        instance_id: str | None,
        epoch: int,
        api_version: int,
        *,
        is_transactional: bool = False,
    ) -> CommitCheck | None:
        """A member commits in its own epoch, or in an earlier one for partitions that it has owned since then (see
        `fencing`)."""
        return fencing.check_commit(
            self.members, member_id, instance_id, epoch, api_version, is_transactional=is_transactional
        )

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """A member that says who it is must be one, in its epoch."""
        fencing.check_fetch(self.members, member_id, epoch)

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
        """Apply a record, but for the tombstone of the group itself."""
        self.end_validity()
        record_type, key, value = record
        if record_type == records.GROUP:
            if value is not None:
                self.apply_epoch(value.epoch, value.metadata_hash)
        elif record_type == records.PARTITIONS:
            self.has_partition_metadata = value is not None
        elif record_type == records.TARGET:
            if value is None:
                self.apply_no_assignment()
            else:
                self.apply_assignment_epoch(value.assignment_epoch, value.assignment_timestamp)
        elif record_type == records.REGEX:
            self._replay_regex(key.regular_expression, value)
        elif record_type == records.MEMBER:
            self._replay_member(key.member_id, value)
        elif record_type == records.MEMBER_TARGET:
            self.apply_target(key.member_id, None if value is None else records.read_assignment(value.topic_partitions))
        else:
            self._replay_current(key.member_id, value)

    def apply_assignment_epoch(self, epoch: int, timestamp_ms: int) -> None:
        """The epoch that members are on their way to."""
        super().apply_assignment_epoch(epoch, timestamp_ms)
        self._unreconciled = None

    def _replay_member(self, member_id: str, value: wire.ConsumerGroupMemberMetadataValue | None) -> None:
        """ConsumerGroupMemberMetadataValue."""
        if value is None:
            self.apply_no_member(member_id)
            return
        self.apply_member(
            replace(
                self.members.get(member_id) or ConsumerMember(member_id),
                instance_id=value.instance_id,
                rack_id=value.rack_id,
                client_id=value.client_id,
                client_host=value.client_host,
                topic_names=frozenset(value.subscribed_topic_names),
                topic_regex=value.subscribed_topic_regex,
                rebalance_timeout_ms=value.rebalance_timeout_ms,
                server_assignor=value.server_assignor,
                classic=records.read_classic(value.classic_member_metadata),
            )
        )

    def _replay_current(self, member_id: str, value: wire.ConsumerGroupCurrentMemberAssignmentValue | None) -> None:
        """ConsumerGroupCurrentMemberAssignmentValue."""
        old = self.members.get(member_id)
        if value is None:
            if old is not None:
                self.apply_member(
                    replace(
                        old,
                        member_epoch=LEAVE_EPOCH,
                        previous_member_epoch=LEAVE_EPOCH,
                        assigned=NOTHING_OWNED,
                        pending_revocation=NOTHING_OWNED,
                    )
                )
            return
        self.apply_member(
            replace(
                old or ConsumerMember(member_id),
                member_epoch=value.member_epoch,
                previous_member_epoch=value.previous_member_epoch,
                state=MemberState.of(value.state),
                assigned=records.read_owned(value.assigned_partitions, value.member_epoch),
                pending_revocation=records.read_owned(value.partitions_pending_revocation, value.member_epoch),
            )
        )

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
