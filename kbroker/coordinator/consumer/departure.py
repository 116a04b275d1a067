"""Members that go: by their own wish, an administrator's, or because they were silent for too long."""

from __future__ import annotations

from collections.abc import Sequence

from kbroker.coordinator.consumer import records
from kbroker.coordinator.consumer.draft import Draft, Surroundings, TimerChange, TimerKind
from kbroker.coordinator.consumer.group import ConsumerGroup
from kbroker.coordinator.consumer.member import ConsumerMember
from kbroker.coordinator.consumer.records import KeyValue
from kbroker.coordinator.consumer.subscriptions import epoch_without


def remove(group: ConsumerGroup, members: Sequence[ConsumerMember], around: Surroundings, draft: Draft) -> None:
    """Take members out of the group, with one new epoch for all of them."""
    if not members:
        return
    for member in members:
        draft.records += records.removal(group.group_id, member.member_id)
        draft.cancel_timers(member.member_id)
    epoch_without(group, members, around, draft)


def expires(group: ConsumerGroup, timer: TimerChange) -> ConsumerMember | None:
    """The member whose timer went off, if it is to go; None when it is gone, or has moved on in the meantime."""
    member = group.members.get(timer.member_id)
    if member is None or (timer.kind is TimerKind.REBALANCE and member.member_epoch != timer.member_epoch):
        return None
    return member


def tombstones(group: ConsumerGroup) -> list[KeyValue]:
    """The records that delete a group with all its members."""
    group_id = group.group_id
    return [
        *(records.current_tombstone(group_id, member_id) for member_id in group.members),
        *(records.target_tombstone(group_id, member_id) for member_id in group.members),
        records.target_epoch_tombstone(group_id),
        *(records.member_tombstone(group_id, member_id) for member_id in group.members),
        *(records.regex_tombstone(group_id, regex) for regex in group.resolved),
        records.partitions_tombstone(group_id),
        records.group_tombstone(group_id),
    ]
