"""What members ask for: JoinGroup, SyncGroup, Heartbeat and LeaveGroup of the classic protocol.

Each method is one request on one existing group.  Checks come in Kafka's order, so that a request that is wrong in two
ways gets the same error.  JoinGroup and SyncGroup answer through a callback, at once or when the rebalance gets there.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from kbroker.coordinator.classic.group import Group
from kbroker.coordinator.classic.group_state import GroupState
from kbroker.coordinator.classic.member import Member
from kbroker.coordinator.classic.messages import (
    NO_REASON,
    UNKNOWN_MEMBER_ID,
    JoinReply,
    JoinRequest,
    JoinResult,
    LeaveResult,
    LeavingMember,
    SyncReply,
    SyncRequest,
    SyncResult,
)
from kbroker.coordinator.classic.rebalance import GroupLimits, GroupStore, Rebalances
from kbroker.errors import ErrorCode, IllegalGenerationError, KafkaError, UnknownMemberIdError

logger = logging.getLogger("kbroker.groups")


class GroupMembers:
    """The requests of members."""

    __slots__ = ("_limits", "_rebalances", "_store")

    def __init__(self, limits: GroupLimits, rebalances: Rebalances, store: GroupStore) -> None:
        self._limits = limits
        self._rebalances = rebalances
        self._store = store

    # JoinGroup

    def join(self, group: Group, request: JoinRequest, reply: JoinReply) -> None:
        """Take a member in, or let one that is known come along into the next generation."""
        known = request.member_id != UNKNOWN_MEMBER_ID
        if not self._has_room(group, request.member_id):
            group.remove(request.member_id)
            reply(JoinResult(ErrorCode.GROUP_MAX_SIZE_REACHED))
            self._rebalances.complete_join_if_ready(group)
            return
        if not group.supports(request.protocol_type, request.protocols):
            reply(JoinResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id))
        elif not known:
            self._join_new(group, request, reply)
        elif request.member_id in group.pending_joins:
            if request.group_instance_id is not None:
                # A pending id never belongs to a static member, so the client was not given this one.
                reply(JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id))
            else:
                self._add(group, request, request.member_id, reply)
        else:
            self._join_known(group, request, reply)

    def _has_room(self, group: Group, member_id: str) -> bool:
        member = group.members.get(member_id)
        if group.state is GroupState.EMPTY:
            return True
        if group.state is GroupState.PREPARING_REBALANCE:
            # Counting those who joined, not all members, drops the late ones of a group that has grown too large.
            return (member is not None and member.awaits_join) or group.awaiting_join_count < self._limits.max_size
        return member is not None or len(group.members) < self._limits.max_size

    def _join_new(self, group: Group, request: JoinRequest, reply: JoinReply) -> None:
        member_id = group.generate_member_id(request.client_id, request.group_instance_id)
        if request.group_instance_id is not None:
            current = group.static_members.get(request.group_instance_id)
            if current is not None:
                self._replace_static(group, request, current, member_id, reply)
                return
        elif request.requires_known_member_id:
            # A client that never gets its id cannot come back with it: without this round trip (KIP-394) each of its
            # retries would leave a member behind.
            self._rebalances.watch_pending(group, member_id, request.session_timeout_ms)
            reply(JoinResult(ErrorCode.MEMBER_ID_REQUIRED, member_id))
            return
        self._add(group, request, member_id, reply)

    def _add(self, group: Group, request: JoinRequest, member_id: str, reply: JoinReply) -> None:
        member = Member(
            member_id,
            request.group_instance_id,
            request.client_id,
            request.client_host,
            request.rebalance_timeout_ms,
            request.session_timeout_ms,
            request.protocol_type,
            request.protocols,
        )
        assert member_id not in group.members, f"group {group}: {member_id} is a member already"
        member.is_new = True
        if group.state is GroupState.PREPARING_REBALANCE and group.previous_state is GroupState.EMPTY:
            group.new_member_added = True
        group.add(member, reply)
        self._rebalances.watch(group, member, self._limits.new_member_join_timeout_ms)
        self._rebalances.prepare_or_complete(
            group,
            f"Adding new member {member_id} with group instance id {request.group_instance_id}; "
            f"client reason: {request.client_reason}",
        )

    def _join_known(self, group: Group, request: JoinRequest, reply: JoinReply) -> None:
        try:
            member = group.check_member(request.member_id, request.group_instance_id)
        except KafkaError as error:
            reply(JoinResult(error.code, request.member_id))
            return
        unchanged = member.protocols == request.protocols
        is_leader = group.leader_id == member.member_id
        if group.state is GroupState.EMPTY:
            reply(JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id))
            return
        if group.state is GroupState.PREPARING_REBALANCE:
            why = f"Member {member.member_id} is joining group during {group.state}"
        elif group.state is GroupState.COMPLETING_REBALANCE and unchanged:
            # It may have missed the answer to its first JoinGroup.
            reply(group.join_result(member.member_id, with_members=is_leader))
            return
        elif group.state is GroupState.STABLE and is_leader:
            # The leader joins again after a change that no member's metadata show, such as new partitions of a topic.
            why = f"Leader {member.member_id} re-joining group during {group.state}"
        elif unchanged:
            reply(group.join_result(member.member_id, with_members=False))
            return
        else:
            why = f"Updating metadata for member {member.member_id} during {group.state}"
        group.update(member, request.protocols, request.rebalance_timeout_ms, request.session_timeout_ms, reply)
        self._rebalances.prepare_or_complete(group, f"{why}; client reason: {request.client_reason}")

    def _replace_static(
        self, group: Group, request: JoinRequest, old_member_id: str, member_id: str, reply: JoinReply
    ) -> None:
        """A static member came back without its id: it takes its old place, without a rebalance if nothing changes."""
        instance_id = request.group_instance_id or ""
        old = group.members[old_member_id]
        before = (old.protocols, old.rebalance_timeout_ms, old.session_timeout_ms)
        old_leader_id = group.leader_id or ""
        member = group.replace_static(instance_id, old_member_id, member_id)
        self._rebalances.watch(group, member)
        group.update(member, request.protocols, request.rebalance_timeout_ms, request.session_timeout_ms, reply)
        assert old_member_id not in group.members and group.static_members[instance_id] == member_id, instance_id
        tail = f"{member_id} with instance id {instance_id}"
        if group.state is GroupState.COMPLETING_REBALANCE:
            # The leader may already be computing an assignment for the old member id.
            reason = f"Updating metadata for static member {tail}; client reason: {request.client_reason}"
            self._rebalances.prepare(group, reason)
        elif group.state is GroupState.PREPARING_REBALANCE:
            self._rebalances.complete_join_if_ready(group)
        elif group.select_protocol() != group.protocol_name:
            self._rebalances.prepare_or_complete(
                group,
                f"Group's selectedProtocol will change because static member {tail} joined with change of protocol; "
                f"client reason: {request.client_reason}",
            )
        else:
            error = self._store.store_group(group, group.assignments())
            if error is not ErrorCode.NONE:
                failure = replace(group.join_result("", with_members=False), error=error, leader_id=old_leader_id)
                group.answer_join(member, failure)
                group.update(member, *before, None)
                self._rebalances.watch(group, group.replace_static(instance_id, member_id, old_member_id))
                return
            group.answer_join(member, self._replacement_result(group, request, member, old_leader_id))

    @staticmethod
    def _replacement_result(group: Group, request: JoinRequest, member: Member, old_leader_id: str) -> JoinResult:
        is_leader = group.leader_id == member.member_id
        if request.supports_skipping_assignment:
            return group.join_result(member.member_id, with_members=is_leader, skip_assignment=is_leader)
        # An older client that saw itself lead would compute an assignment; the old leader's id keeps it a follower.
        return JoinResult(
            member_id=member.member_id,
            generation_id=group.generation_id,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            leader_id=old_leader_id,
        )

    # SyncGroup

    def sync(self, group: Group, request: SyncRequest, reply: SyncReply) -> None:
        """Give a member its assignment; the leader's request brings the assignments of all."""
        if group.state is GroupState.EMPTY:
            reply(SyncResult(ErrorCode.UNKNOWN_MEMBER_ID))
            return
        try:
            member = group.check_member(request.member_id, request.group_instance_id)
        except KafkaError as error:
            reply(SyncResult(error.code))
            return
        if request.generation_id != group.generation_id:
            reply(SyncResult(ErrorCode.ILLEGAL_GENERATION))
        elif _differs(request.protocol_type, group.protocol_type) or _differs(
            request.protocol_name, group.protocol_name
        ):
            reply(SyncResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        elif group.state is GroupState.PREPARING_REBALANCE:
            reply(SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))
        elif group.state is GroupState.STABLE:
            self._rebalances.sync_received(group, member.member_id)
            reply(SyncResult(ErrorCode.NONE, group.protocol_type, group.protocol_name, member.assignment))
        else:
            group.answer_sync(member, SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))
            member.sync_reply = reply
            self._rebalances.sync_received(group, member.member_id)
            if group.leader_id == member.member_id:
                self._assign(group, request)

    def _assign(self, group: Group, request: SyncRequest) -> None:
        fits = self._store.can_store(map(len, request.assignments.values()))
        # Not copied, where they are large (`Decoding`), unless they can be stored.
        assignments = {
            member_id: bytes(request.assignments.get(member_id, b"")) if fits else b"" for member_id in group.members
        }
        forgotten = [member_id for member_id in assignments if member_id not in request.assignments]
        if forgotten:
            logger.warning(
                "group %s generation %d: the leader left out %s", group, group.generation_id, ", ".join(forgotten)
            )
        logger.debug(
            "group %s generation %d: assignment received from leader %s for %d members",
            group,
            group.generation_id,
            request.member_id,
            len(assignments),
        )
        assert group.state is GroupState.COMPLETING_REBALANCE, f"group {group}: an assignment in {group.state}"
        error = self._store.store_group(group, assignments) if fits else ErrorCode.UNKNOWN_SERVER_ERROR
        if error is ErrorCode.NONE:
            self._rebalances.hand_out(group, assignments)
            return
        self._rebalances.fail_syncs(group, error)
        self._rebalances.prepare_or_complete(
            group,
            f"Error {error.name} when storing group assignment during SyncGroup (member: {request.member_id}).",
        )

    # Heartbeat

    def heartbeat(self, group: Group, member_id: str, group_instance_id: str | None, generation_id: int) -> ErrorCode:
        """A sign of life; the answer tells whether a rebalance is going on.  Raises KafkaError for an
        id that is no member's (any more)."""
        member = group.members.get(member_id)
        if member is None or group_instance_id is not None:
            member = group.check_member(member_id, group_instance_id)
        if generation_id != group.generation_id:
            raise IllegalGenerationError()
        if group.state is GroupState.EMPTY:
            raise UnknownMemberIdError()
        self._rebalances.watch(group, member)
        if group.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    # LeaveGroup

    def leave(self, group: Group, leaving: Sequence[LeavingMember]) -> list[LeaveResult]:
        """Remove members at their own wish or an administrator's."""
        members_before = len(group.members)
        results = [self._leave_one(group, member) for member in leaving]
        assert len(group.members) >= members_before - len(leaving), f"group {group}: others are gone as well"
        gone = [result.member_id or result.group_instance_id or "" for result in results if not result.error]
        if len(group.members) == members_before:
            # Only pending ids were removed: they belong to no generation, but a rebalance may wait for them.
            self._rebalances.complete_join_if_ready(group)
        else:
            reasons = sorted({m.reason for m in leaving if m.reason is not None and m.reason.strip()}) or [NO_REASON]
            self._rebalances.after_removal(
                group,
                f"explicit `LeaveGroup` request for ({', '.join(gone)}) members; client reason: {', '.join(reasons)}",
            )
        return results

    @staticmethod
    def _leave_one(group: Group, leaving: LeavingMember) -> LeaveResult:
        member_id, instance_id, _ = leaving
        if member_id == UNKNOWN_MEMBER_ID:
            current = None if instance_id is None else group.static_members.get(instance_id)
            if current is None:
                return LeaveResult(member_id, instance_id, ErrorCode.UNKNOWN_MEMBER_ID)
            group.remove(current)
        elif not group.remove_pending(member_id):
            try:
                group.check_member(member_id, instance_id)
            except KafkaError as error:
                return LeaveResult(member_id, instance_id, error.code)
            group.remove(member_id)
        return LeaveResult(member_id, instance_id, ErrorCode.NONE)


def _differs(asked: str | None, actual: str | None) -> bool:
    return asked is not None and actual is not None and asked != actual
