"""Streams groups (KIP-1071) on the coordinator runtime: the one door to them.

Operations are planned by `heartbeat` and `targets`; the configured topology of a group is in no record, but in this
broker's memory.  The registry of all groups holds each streams group as the `kind` of its group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from kbroker.coordinator.classic import state_records
from kbroker.coordinator.classic.group import Group
from kbroker.coordinator.classic.group_kind_service import GroupKindService
from kbroker.coordinator.classic.messages import (
    JoinReply,
    JoinRequest,
    JoinResult,
    LeaveResult,
    LeavingMember,
    SyncReply,
    SyncRequest,
    SyncResult,
)
from kbroker.coordinator.modern.draft import TimerChange
from kbroker.coordinator.modern.group import JOIN_EPOCH
from kbroker.coordinator.runtime.plan import Outcome, Plan
from kbroker.coordinator.streams import heartbeat, targets
from kbroker.coordinator.streams.assignor import assign
from kbroker.coordinator.streams.draft import (
    Draft,
    HeartbeatAnswer,
    HeartbeatContext,
    HeartbeatRequest,
    TargetWork,
    TimerKind,
)
from kbroker.coordinator.streams.group import GROUP_TYPE, StreamsGroup
from kbroker.coordinator.streams.member import MemberState
from kbroker.coordinator.streams.settings import GroupSettings
from kbroker.coordinator.streams.tasks import Tasks
from kbroker.errors import ErrorCode, GroupIdNotFoundError, UnknownMemberIdError
from kbroker.metadata.features import STREAMS_VERSION

if TYPE_CHECKING:
    from kbroker.coordinator.classic.group_registry import GroupPartition
    from kbroker.coordinator.runtime.plan import KeyValue


class StreamsGroups(GroupKindService[StreamsGroup, Draft, TargetWork, Tasks, GroupSettings]):
    """See the module's docstring."""

    kind_class = StreamsGroup
    draft_class = Draft
    group_type = GROUP_TYPE
    feature = STREAMS_VERSION

    def _begin_sessions(self, kind: StreamsGroup, draft: Draft) -> None:
        session_ms = self._settings.of_group(kind.group_id).session_timeout_ms
        for member in kind.members.values():
            draft.set_timer(TimerKind.SESSION, member.member_id, session_ms)
            if member.state is MemberState.UNREVOKED_TASKS:
                draft.set_timer(TimerKind.REBALANCE, member.member_id, member.rebalance_timeout_ms, member.member_epoch)

    # Heartbeats

    def heartbeat(self, request: HeartbeatRequest) -> Outcome[HeartbeatAnswer]:
        """StreamsGroupHeartbeat.  Raises KafkaError."""
        draft = Draft()
        return self._operate(request.group_id, draft, partial(self._heartbeat, request, draft))

    def _heartbeat(
        self, request: HeartbeatRequest, draft: Draft, partition: GroupPartition, now_ms: int
    ) -> Plan[HeartbeatAnswer]:
        group = partition.groups.get(request.group_id)
        if request.member_epoch < 0:
            if group is None:
                raise GroupIdNotFoundError(f"Group {request.group_id} not found.")
            answer = heartbeat.leave(self._groups.of(group, request.group_id), request, draft)
            return Plan(answer, draft.records)
        context = self._context(request.group_id, now_ms)
        kind = self._joined(group, request, draft)
        is_new = group is None or group.kind is not kind
        return Plan(heartbeat.heartbeat(kind, request, context, draft, is_new=is_new), draft.records)

    def _joined(self, group: Group | None, request: HeartbeatRequest, draft: Draft) -> StreamsGroup:
        """The group that a heartbeat is for; a member that joins makes it, in the place of an empty classic one."""
        joins = request.member_epoch == JOIN_EPOCH
        if group is None:
            if joins:
                return StreamsGroup(request.group_id)
            raise GroupIdNotFoundError(f"Streams group {request.group_id} not found.")
        if joins and group.kind is None and group.is_empty and not group.pending_joins:
            draft.records.append((state_records.group_key(request.group_id), None))
            return StreamsGroup(request.group_id)
        return self._groups.of(group, request.group_id)

    # Members that speak the classic protocol have no place here

    def join(self, request: JoinRequest, reply: JoinReply) -> None:
        """JoinGroup of a streams group that has members."""
        reply(JoinResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))

    def sync(self, request: SyncRequest, reply: SyncReply) -> None:
        """SyncGroup of a streams group that has members."""
        reply(SyncResult(ErrorCode.UNKNOWN_MEMBER_ID))

    def heartbeat_classic(
        self, group_id: str, member_id: str, instance_id: str | None, generation_id: int
    ) -> ErrorCode:
        """Heartbeat of a streams group.  Raises UnknownMemberIdError."""
        raise UnknownMemberIdError()

    def leave_classic(self, group_id: str, leaving: Sequence[LeavingMember]) -> list[LeaveResult]:
        """LeaveGroup of a streams group."""
        return [LeaveResult(each.member_id, each.group_instance_id, ErrorCode.UNKNOWN_MEMBER_ID) for each in leaving]

    # What follows

    def _expire(self, group: Group, kind: StreamsGroup, timer: TimerChange, now_ms: int, draft: Draft) -> Plan[bool]:
        if timer.kind is TimerKind.INITIAL:
            targets.delayed_target(kind, self._context(kind.group_id, now_ms), draft)
            return Plan(False, draft.records)
        member = kind.members.get(timer.member_id)
        if member is None or (timer.kind is TimerKind.REBALANCE and member.member_epoch != timer.member_epoch):
            return Plan(False)
        heartbeat.remove(kind, member, draft)
        return Plan(True, draft.records)

    def _note(self, kind: StreamsGroup, draft: Draft) -> None:
        if draft.known is not None:
            kind.know(draft.known)
        if draft.work is not None:
            self._compute(kind, draft.work, partial(assign, draft.work.spec))

    def _target_records(
        self, kind: StreamsGroup, work: TargetWork, target: Mapping[str, Tasks], now_ms: int
    ) -> list[KeyValue]:
        return targets.computed_records(kind, work, target, now_ms)

    def _context(self, group_id: str, now_ms: int) -> HeartbeatContext:
        is_delayed = (group_id, "", TimerKind.INITIAL) in self._groups.timers(group_id)
        return HeartbeatContext(now_ms, self._cache, self._settings.of_group(group_id), is_delayed)
