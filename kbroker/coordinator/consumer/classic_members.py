"""Members of a consumer group that speak the classic protocol, while a group migrates (KIP-848).

Their generation is their epoch.  The answer to a heartbeat (REBALANCE_IN_PROGRESS) notifies a member of a new target,
of partitions to give up, or of partitions that have become free.  The member then joins again with the partitions that
it owns, which is one step of its reconciliation, and SyncGroup gives it the partitions that it has after that step.  No
member waits for the others, and none is the leader.  A member that does not join, or sync, within the rebalance timeout
is removed.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace

from kbroker.coordinator.classic.consumer_protocol import PROTOCOL_TYPE, SubscriptionError
from kbroker.coordinator.classic.messages import (
    UNKNOWN_MEMBER_ID,
    JoinRequest,
    JoinResult,
    LeaveResult,
    LeavingMember,
    SyncRequest,
    SyncResult,
)
from kbroker.coordinator.consumer.draft import Draft, HeartbeatContext, TimerKind
from kbroker.coordinator.consumer.embedded import assignment_bytes, owned_by_id, read_subscription
from kbroker.coordinator.consumer.group import ConsumerGroup
from kbroker.coordinator.consumer.heartbeat import follow, known_static, replace_static
from kbroker.coordinator.consumer.member import ClassicMember, ConsumerMember, MemberState
from kbroker.coordinator.consumer.migration import ClassicState, downgrade, may_downgrade
from kbroker.coordinator.consumer.settings import MigrationPolicy
from kbroker.coordinator.modern.draft import TimerChange
from kbroker.errors import (
    ErrorCode,
    FencedInstanceIdError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)


def join(
    group: ConsumerGroup, request: JoinRequest, context: HeartbeatContext, draft: Draft
) -> tuple[JoinResult, ClassicState | None]:
    """JoinGroup of a consumer group that has members; what the group becomes, if only classic members are in it then.
    Raises KafkaError."""
    if context.settings.migration is MigrationPolicy.DISABLED:
        raise InconsistentGroupProtocolError()
    is_new = request.member_id == UNKNOWN_MEMBER_ID
    member_id = str(uuid.uuid4()) if is_new else request.member_id
    group.check_room(member_id, context.settings.max_size)
    if not _supports(group, request):
        raise InconsistentGroupProtocolError(f"Member {member_id}'s protocols are not supported.")
    if is_new and request.requires_known_member_id and request.group_instance_id is None:
        return JoinResult(ErrorCode.MEMBER_ID_REQUIRED, member_id), None
    try:
        subscription = read_subscription(request.protocols[0].metadata)
    except SubscriptionError as error:
        raise InconsistentGroupProtocolError(f"The subscription of {member_id} cannot be read: {error}.") from error
    instance_id = request.group_instance_id
    current = group.static_member(instance_id)
    before = _member_of(group, member_id, instance_id, draft, is_new=is_new)
    after = replace(
        before,
        instance_id=before.instance_id if instance_id is None else instance_id,
        rack_id=before.rack_id if subscription.rack_id is None else subscription.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topic_names=subscription.topics,
        topic_regex="",
        client_id=request.client_id,
        client_host=request.client_host,
        classic=ClassicMember(request.session_timeout_ms, request.protocols),
    )
    becomes = None
    if current is not None and may_downgrade(group, [current], context, replaced=True):
        # Its records go with the consumer group's; only what the group becomes is stored.
        draft.records.clear()
        rebalance = group.assignment_epoch < group.epoch or after.topic_names != before.topic_names
        reason = f"Downgrade group {group.group_id} from consumer to classic with stale assignment."
        becomes = downgrade(group, [current], after, reason if rebalance else None, context, draft)
        after = replace(after, member_epoch=group.epoch)
    else:
        after = follow(group, before, after, owned_by_id(subscription.owned, context.cache), context, draft)
        draft.cancel_timer(TimerKind.JOIN, after.member_id)
        draft.set_timer(TimerKind.SESSION, after.member_id, request.session_timeout_ms)
        draft.set_timer(TimerKind.SYNC, after.member_id, request.rebalance_timeout_ms)
    result = JoinResult(
        member_id=after.member_id,
        generation_id=after.member_epoch,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=request.protocols[0].name,
    )
    return result, becomes


def _supports(group: ConsumerGroup, request: JoinRequest) -> bool:
    if request.protocol_type != PROTOCOL_TYPE or not request.protocols:
        return False
    return any(group.classic_protocols[name] == group.classic_count for name, _ in request.protocols)


def _member_of(
    group: ConsumerGroup, member_id: str, instance_id: str | None, draft: Draft, *, is_new: bool
) -> ConsumerMember:
    if instance_id is None:
        return group.members.get(member_id) or ConsumerMember(member_id)
    current = group.static_member(instance_id)
    if not is_new:
        return known_static(group, member_id, instance_id, current)
    return ConsumerMember(member_id) if current is None else replace_static(group, current, member_id, draft)


def sync(group: ConsumerGroup, request: SyncRequest, context: HeartbeatContext, draft: Draft) -> SyncResult:
    """SyncGroup: what the member has, in the protocol that it named first.  Raises KafkaError."""
    member, classic = _classic_member(group, request.member_id, request.group_instance_id)
    _check_generation(member, request.generation_id)
    protocol = classic.protocols[0]
    if request.protocol_type not in (None, PROTOCOL_TYPE) or request.protocol_name not in (None, protocol.name):
        raise InconsistentGroupProtocolError()
    if group.assignment_epoch > member.member_epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
        draft.timers.append(_join_timer(member))
        raise RebalanceInProgressError()
    draft.cancel_timer(TimerKind.SYNC, member.member_id)
    draft.set_timer(TimerKind.SESSION, member.member_id, classic.session_timeout_ms)
    try:
        data = assignment_bytes(member.assigned, protocol.metadata, context.cache)
    except SubscriptionError as error:
        raise InconsistentGroupProtocolError() from error
    return SyncResult(ErrorCode.NONE, request.protocol_type, request.protocol_name, data)


def heartbeat(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation_id: int, draft: Draft
) -> ErrorCode:
    """Heartbeat: NONE, or REBALANCE_IN_PROGRESS for a member that should join again.  Raises KafkaError."""
    member, classic = _classic_member(group, member_id, instance_id)
    _check_generation(member, generation_id)
    draft.set_timer(TimerKind.SESSION, member_id, classic.session_timeout_ms)
    if (
        member.member_epoch < group.assignment_epoch
        or member.state is MemberState.UNREVOKED_PARTITIONS
        or (member.state is MemberState.UNRELEASED_PARTITIONS and not group.waits_for_others(member))
    ):
        draft.timers.append(_join_timer(member))
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _join_timer(member: ConsumerMember) -> TimerChange:
    return TimerChange(TimerKind.JOIN, member.member_id, member.rebalance_timeout_ms, if_absent=True)


def leaving_members(
    group: ConsumerGroup, leaving: Sequence[LeavingMember]
) -> tuple[list[ConsumerMember], list[LeaveResult]]:
    """LeaveGroup: the members that go, of any protocol, and the outcome for each that was named."""
    gone: dict[str, ConsumerMember] = {}
    results: list[LeaveResult] = []
    for member_id, instance_id, _ in leaving:
        code = ErrorCode.NONE
        try:
            if instance_id is None:
                member = group.member(member_id)
            else:
                current = group.static_member(instance_id)
                # An administrator may name a static member by its instance id alone.
                known = member_id or ("" if current is None else current.member_id)
                member = known_static(group, known, instance_id, current)
            gone[member.member_id] = member
        except (UnknownMemberIdError, FencedInstanceIdError) as error:
            code = error.code
        results.append(LeaveResult(member_id, instance_id, code))
    return list(gone.values()), results


def _classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None
) -> tuple[ConsumerMember, ClassicMember]:
    if instance_id is None:
        member = group.member(member_id)
    else:
        member = known_static(group, member_id, instance_id, group.static_member(instance_id))
    if member.classic is None:
        raise UnknownMemberIdError(f"Member {member_id} does not use the classic protocol.")
    return member, member.classic


def _check_generation(member: ConsumerMember, generation_id: int) -> None:
    if member.member_epoch != generation_id:
        raise IllegalGenerationError()
