"""A classic group: who is in it, what they support, which generation they are in, and the offsets they committed.

A group of a newer protocol is one without classic members, whose `kind` knows the rest.

Pure state: no timer, no I/O, no answers but those of the members it replaces.  The rules of when it changes are in
`rebalance` and `membership`.

Invariants:
- `leader_id` is None exactly while there are no members, else one of them;
- `awaiting_join_count` is the number of members with a parked JoinGroup;
- `static_members` maps each group instance id to the one member that holds it;
- `pending_joins` (ids handed out with MEMBER_ID_REQUIRED) and `members` have no id in common;
- all members have the protocol type of the group, and there is a protocol that all of them support (`_supported` counts
  members, so that one which names a protocol twice counts once);
- `generation_id` only grows.
"""

from __future__ import annotations

import logging
import uuid
from collections import Counter
from collections.abc import Iterable

from kbroker._fast.base.build_facts import CHECKED
from kbroker.coordinator.classic.consumer_protocol import PROTOCOL_TYPE, SubscriptionError, subscribed_topics
from kbroker.coordinator.classic.group_kind import GroupKind
from kbroker.coordinator.classic.group_state import PREDECESSORS, GroupState, IllegalTransitionError
from kbroker.coordinator.classic.member import Member
from kbroker.coordinator.classic.messages import (
    DescribedMember,
    JoinedMember,
    JoinReply,
    JoinResult,
    MemberProtocol,
    SyncResult,
)
from kbroker.coordinator.classic.offsets import OffsetTable
from kbroker.coordinator.modern.group import LastRebalance
from kbroker.coordinator.runtime.timers import Deadline
from kbroker.errors import ErrorCode, FencedInstanceIdError, UnknownMemberIdError
from kbroker.types import MAX_STRING_BYTES

logger = logging.getLogger("kbroker.groups")


class Group:
    """One group on the partition `partition_index` of the state topic.

    Only the package `classic` (members, rebalances, commits) and the replay of its records change it.
    """

    __slots__ = (
        "awaiting_join_count",
        "generation_id",
        "group_id",
        "join_deadline",
        "kind",
        "last_rebalance",
        "leader_id",
        "members",
        "new_member_added",
        "offsets",
        "partition_index",
        "pending_joins",
        "pending_syncs",
        "previous_state",
        "protocol_name",
        "protocol_type",
        "state",
        "state_timestamp",
        "static_members",
        "subscribed_topics",
        "sync_deadline",
        "_supported",
        "_unreadable",
    )

    def __init__(self, group_id: str, partition_index: int, now_ms: int | None) -> None:
        self.group_id = group_id
        self.partition_index = partition_index
        self.state = GroupState.EMPTY
        self.previous_state: GroupState | None = None
        self.state_timestamp = now_ms
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.generation_id = 0
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        self.pending_joins: dict[str, Deadline] = {}
        self.pending_syncs: set[str] = set()
        self.awaiting_join_count = 0
        self.new_member_added = False
        self.subscribed_topics: frozenset[str] | None = None
        self.offsets = OffsetTable()
        self.kind: GroupKind | None = None
        self.last_rebalance: LastRebalance | None = None
        self.join_deadline: Deadline | None = None
        self.sync_deadline: Deadline | None = None
        self._supported: Counter[str] = Counter()
        self._unreadable = False

    # State

    def transition_to(self, state: GroupState, now_ms: int) -> None:
        """Enter `state`.  IllegalTransitionError when the table forbids it."""
        if self.state not in PREDECESSORS[state]:
            raise IllegalTransitionError(self.group_id, self.state, state)
        assert self.members or state not in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE), (self.group_id, state)
        assert not self.members or state is not GroupState.EMPTY, (self.group_id, list(self.members))
        self.previous_state = self.state
        self.state = state
        self.state_timestamp = now_ms

    def start_generation(self, now_ms: int) -> None:
        """Close the join phase: the next generation, with the members and the protocol of now."""
        self.generation_id += 1
        self.pending_syncs.clear()
        if self.members:
            self.protocol_name = self.select_protocol()
            assert self._supported[self.protocol_name] == len(self.members), (self.group_id, self.protocol_name)
            assert self.leader_id in self.members, (self.group_id, self.leader_id)
            self.subscribed_topics = self.compute_subscribed_topics()
            self.transition_to(GroupState.COMPLETING_REBALANCE, now_ms)
        else:
            self.protocol_name = None
            self.subscribed_topics = self.compute_subscribed_topics()
            self.transition_to(GroupState.EMPTY, now_ms)
        if CHECKED:
            self.check_invariants()

    def check_invariants(self) -> None:
        """Raises AssertionError unless what the class says of its members is so."""
        members = self.members
        assert self.leader_id in members if members else self.leader_id is None, (self.group_id, self.leader_id)
        awaiting = sum(member.awaits_join for member in members.values())
        assert self.awaiting_join_count == awaiting, (self.group_id, self.awaiting_join_count, awaiting)
        assert set(self.static_members.values()) <= members.keys(), (self.group_id, self.static_members)
        assert not self.pending_joins.keys() & members.keys(), (self.group_id, list(self.pending_joins))
        assert all(member.protocol_type == self.protocol_type for member in members.values()), self.group_id
        votes = Counter(name for member in members.values() for name in _names(member.protocols))
        assert self._supported == votes, (self.group_id, self._supported, votes)

    @property
    def is_empty(self) -> bool:
        """Whether it has no members, of any kind."""
        return self.state is GroupState.EMPTY and (self.kind is None or self.kind.is_empty)

    # Protocols

    @property
    def is_consumer_group(self) -> bool:
        """Whether its members speak the embedded consumer protocol."""
        return self.protocol_type == PROTOCOL_TYPE

    def supports(self, protocol_type: str, protocols: tuple[MemberProtocol, ...]) -> bool:
        """Whether a member with these protocols may be in the group."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and bool(protocols)
        if self.protocol_type != protocol_type:
            return False
        return any(self._supported[protocol.name] == len(self.members) for protocol in protocols)

    def select_protocol(self) -> str:
        """The protocol with the most votes among those that all members support; the older member's choice on a tie."""
        everyone = len(self.members)
        votes: Counter[str] = Counter()
        for member in self.members.values():
            choice = member.vote(lambda name: self._supported[name] == everyone)
            if choice is not None:
                votes[choice] += 1
        return votes.most_common(1)[0][0]

    def compute_subscribed_topics(self) -> frozenset[str] | None:
        """The topics that the members read; None when this is no consumer group or a subscription is unreadable."""
        if not self.is_consumer_group:
            return None
        if not self.members:
            return frozenset()
        if self.protocol_name is None:
            return None
        try:
            topics = subscribed_topics(member.metadata_for(self.protocol_name) for member in self.members.values())
        except SubscriptionError as error:
            if not self._unreadable:
                # Once, not at each rebalance.
                logger.warning(
                    "cannot read the subscriptions of group %s (%s): its offsets will not expire", self, error
                )
            self._unreadable = True
            return None
        self._unreadable = False
        return topics

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether the members read `topic`; True where a consumer group's subscriptions are unknown."""
        if self.kind is not None:
            return self.kind.is_subscribed_to(topic)
        if not self.is_consumer_group:
            return False
        return self.subscribed_topics is None or topic in self.subscribed_topics

    # Members

    def generate_member_id(self, client_id: str, group_instance_id: str | None) -> str:
        """A new unique id that still shows whose it is, cut to what a string on the wire may hold."""
        unique = f"-{uuid.uuid4()}"
        owner = (client_id if group_instance_id is None else group_instance_id).encode()
        return owner[: MAX_STRING_BYTES - len(unique)].decode(errors="ignore") + unique

    def add(self, member: Member, reply: JoinReply | None) -> None:
        """Take a member in; the first one gives the group its protocol type and its leader."""
        if not self.members:
            self.protocol_type = member.protocol_type
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._supported.update(_names(member.protocols))
        self.park_join(member, reply)
        self.remove_pending(member.member_id)
        if CHECKED:
            self.check_invariants()

    def remove(self, member_id: str) -> Member | None:
        """Let a member (or a pending one) go: its session timer is cancelled, and its parked requests are answered with
        UNKNOWN_MEMBER_ID, so that a live client joins anew."""
        self.remove_pending(member_id)
        self.pending_syncs.discard(member_id)
        member = self.members.get(member_id)
        if member is None:
            return None
        self.answer_join(member, JoinResult(ErrorCode.UNKNOWN_MEMBER_ID))
        self.answer_sync(member, SyncResult(ErrorCode.UNKNOWN_MEMBER_ID))
        del self.members[member_id]
        self._forget_protocols(member)
        if member.group_instance_id is not None:
            self.static_members.pop(member.group_instance_id, None)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        member.stop_session()
        assert not member.awaits_join and not member.awaits_sync, f"{self.group_id}: {member_id} waits for nothing"
        if CHECKED:
            self.check_invariants()
        return member

    def _forget_protocols(self, member: Member) -> None:
        if self.members.keys() <= {member.member_id}:
            # However many they are, none is left.
            self._supported.clear()
            return
        for name in _names(member.protocols):
            self._supported[name] -= 1
            if not self._supported[name]:
                del self._supported[name]

    def update(
        self,
        member: Member,
        protocols: tuple[MemberProtocol, ...],
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        reply: JoinReply | None,
    ) -> None:
        """What a member says of itself when it joins again."""
        self._forget_protocols(member)
        self._supported.update(_names(protocols))
        member.protocols = protocols
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms
        self.park_join(member, reply)

    def replace_static(self, group_instance_id: str, old_member_id: str, new_member_id: str) -> Member:
        """Give the place of a static member to its new incarnation; a request that waits under the old id is fenced."""
        old = self.members[old_member_id]
        assert self.static_members[group_instance_id] == old_member_id, (self.group_id, group_instance_id)
        assert new_member_id not in self.members, (self.group_id, new_member_id)
        self.answer_join(old, JoinResult(ErrorCode.FENCED_INSTANCE_ID, old_member_id))
        self.answer_sync(old, SyncResult(ErrorCode.FENCED_INSTANCE_ID))
        old.stop_session()
        del self.members[old_member_id]
        new = Member(
            new_member_id,
            group_instance_id,
            old.client_id,
            old.client_host,
            old.rebalance_timeout_ms,
            old.session_timeout_ms,
            old.protocol_type,
            old.protocols,
            old.assignment,
        )
        self.members[new_member_id] = new
        self.static_members[group_instance_id] = new_member_id
        if self.leader_id == old_member_id:
            self.leader_id = new_member_id
        if old_member_id in self.pending_syncs:
            self.pending_syncs.discard(old_member_id)
            self.pending_syncs.add(new_member_id)
        if CHECKED:
            self.check_invariants()
        return new

    def remove_pending(self, member_id: str) -> bool:
        """Forget an id that was handed out and not used yet.  False when it was not."""
        deadline = self.pending_joins.pop(member_id, None)
        if deadline is None:
            return False
        deadline.end()
        return True

    def check_member(self, member_id: str, group_instance_id: str | None) -> Member:
        """The member with that id.  UnknownMemberIdError; FencedInstanceIdError when its instance has a newer id."""
        if group_instance_id is not None:
            current = self.static_members.get(group_instance_id)
            if current is None:
                raise UnknownMemberIdError()
            if current != member_id:
                logger.info(
                    "group %s: member %s is fenced: %s now holds group instance id %s",
                    self.group_id,
                    member_id,
                    current,
                    group_instance_id,
                )
                raise FencedInstanceIdError()
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMemberIdError()
        return member

    def elect_joined_leader(self) -> bool:
        """Make sure that the leader is a member that has joined.  False when none has."""
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].awaits_join:
            return True
        for member in self.members.values():
            if member.awaits_join:
                logger.info("group %s: %s leads in place of %s", self.group_id, member.member_id, self.leader_id)
                self.leader_id = member.member_id
                return True
        return False

    @property
    def rebalance_timeout_ms(self) -> int:
        """How long a rebalance may take: what the most patient member grants."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    @property
    def all_joined(self) -> bool:
        """Whether every member has a parked JoinGroup, and no member id is handed out and not yet used."""
        return self.awaiting_join_count == len(self.members) and not self.pending_joins

    def members_not_joined(self) -> list[Member]:
        """The members without a parked JoinGroup, for which the rebalance waits."""
        return [member for member in self.members.values() if not member.awaits_join]

    # Answers

    def park_join(self, member: Member, reply: JoinReply | None) -> None:
        """Let a JoinGroup wait.  An earlier parked JoinGroup is abandoned by its client and answered with
        REBALANCE_IN_PROGRESS."""
        if member.awaits_join:
            self.answer_join(member, JoinResult(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
        if reply is not None:
            member.join_reply = reply
            self.awaiting_join_count += 1

    def answer_join(self, member: Member, result: JoinResult) -> bool:
        """Answer a parked JoinGroup.  False when there is none."""
        reply = member.join_reply
        if reply is None:
            return False
        member.join_reply = None
        self.awaiting_join_count -= 1
        reply(result)
        return True

    @staticmethod
    def answer_sync(member: Member, result: SyncResult) -> bool:
        """Answer a parked SyncGroup.  False when there is none."""
        reply = member.sync_reply
        if reply is None:
            return False
        member.sync_reply = None
        reply(result)
        return True

    def join_result(self, member_id: str, *, with_members: bool, skip_assignment: bool = False) -> JoinResult:
        """The answer that tells a member its generation."""
        return JoinResult(
            member_id=member_id,
            generation_id=self.generation_id,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader_id=self.leader_id or "",
            skip_assignment=skip_assignment,
            members=self.joined_members() if with_members else (),
        )

    def joined_members(self) -> tuple[JoinedMember, ...]:
        """All members with their subscriptions, for the leader."""
        return tuple(
            JoinedMember(member.member_id, member.group_instance_id, member.metadata_for(self.protocol_name))
            for member in self.members.values()
        )

    def described_members(self) -> tuple[DescribedMember, ...]:
        """All members for DescribeGroups; subscriptions belong to a chosen protocol, so only Stable shows them."""
        stable = self.state is GroupState.STABLE
        return tuple(
            DescribedMember(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                member.metadata_for(self.protocol_name) if stable else b"",
                member.assignment,
            )
            for member in self.members.values()
        )

    def assignments(self) -> dict[str, bytes]:
        """Who has which assignment."""
        return {member.member_id: member.assignment for member in self.members.values()}

    # Restoring

    def restore(
        self,
        members: Iterable[Member],
        generation_id: int,
        protocol_type: str | None,
        protocol_name: str | None,
        leader_id: str | None,
        state_timestamp: int | None,
    ) -> None:
        """Become what a record of the state topic says; offsets stay, their records have keys of their own."""
        for member in self.members.values():
            member.stop_session()
        self.members.clear()
        self.static_members.clear()
        self._supported.clear()
        self.leader_id = None
        self.awaiting_join_count = 0
        for member in members:
            self.add(member, None)
        self.state = GroupState.STABLE if self.members else GroupState.EMPTY
        self.previous_state = None
        self.generation_id = generation_id
        self.protocol_type = protocol_type or None
        self.protocol_name = protocol_name
        if leader_id in self.members:
            self.leader_id = leader_id
        assert self.awaiting_join_count == 0 and (self.leader_id is None) == (not self.members), self.group_id
        self.state_timestamp = state_timestamp
        self.subscribed_topics = self.compute_subscribed_topics()

    def become(self, kind: GroupKind | None) -> None:
        """A group of a newer kind, or none, takes the place of the classic one; offsets stay."""
        self.stop_timers()
        self.forget_everyone()
        assert not self.members and not self.pending_joins and self.state is GroupState.EMPTY, self.group_id
        self.kind = kind

    def forget_everyone(self) -> None:
        """Back to a simple group: what is left when its metadata was deleted and offsets remain."""
        self.restore((), 0, None, None, None, None)

    def stop_timers(self) -> None:
        """No timer of this group goes off any more."""
        for deadline in (self.join_deadline, self.sync_deadline, *self.pending_joins.values()):
            if deadline is not None:
                deadline.end()
        self.pending_joins.clear()
        for member in self.members.values():
            member.stop_session()

    def __str__(self) -> str:
        return self.group_id


def _names(protocols: Iterable[MemberProtocol]) -> set[str]:
    return {protocol.name for protocol in protocols}
