"""Members that leave the group: by their own request, by an administrator's, or because their session or rebalance
timeout has passed."""

from __future__ import annotations

from collections.abc import Sequence

from kbroker.coordinator.consumer import records
from kbroker.coordinator.consumer.draft import Draft, HeartbeatContext, TimerKind
from kbroker.coordinator.consumer.group import ConsumerGroup
from kbroker.coordinator.consumer.member import ConsumerMember
from kbroker.coordinator.consumer.migration import ClassicState, downgrade, may_downgrade
from kbroker.coordinator.consumer.subscriptions import epoch_without
from kbroker.coordinator.modern.draft import TimerChange


def remove(
    group: ConsumerGroup, members: Sequence[ConsumerMember], context: HeartbeatContext, draft: Draft
) -> ClassicState | None:
    """Take members out of the group, with one new epoch for all of them; what the group becomes, if only classic
    members are left."""
    if not members:
        return None
    if may_downgrade(group, members, context):
        reason = f"Downgrade group {group.group_id} from consumer to classic for member leaving."
        return downgrade(group, members, None, reason, context, draft)
    assert all(group.members.get(member.member_id) is member for member in members), (group.group_id, members)
    for member in members:
        draft.records += records.removal(group.group_id, member.member_id)
        draft.cancel_timers(member.member_id)
    epoch_without(group, members, context, draft)
    return None


def expires(group: ConsumerGroup, timer: TimerChange) -> ConsumerMember | None:
    """The member whose timer went off, if it is to go; None when it is gone, or has moved on in the meantime."""
    member = group.members.get(timer.member_id)
    if member is None or (timer.kind is TimerKind.REBALANCE and member.member_epoch != timer.member_epoch):
        return None
    return member
