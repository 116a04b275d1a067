"""What holds of every group between two requests, whatever clients have sent."""

from __future__ import annotations

from typing import Any

from kbroker.coordinator.classic.group import Group
from kbroker.coordinator.classic.group_state import GroupState


def check_group(group: Group, waiting: int | None = None) -> None:
    """`waiting`: how many requests of this group's clients have no answer yet, where the test counts them."""
    members = group.members
    assert (group.leader_id is None) == (not members)
    assert group.leader_id is None or group.leader_id in members
    assert group.awaiting_join_count == sum(member.awaits_join for member in members.values())
    assert {m.group_instance_id: m.member_id for m in members.values() if m.is_static} == group.static_members
    assert not set(group.pending_joins) & set(members)
    assert group.pending_syncs <= set(members)
    parked = sum(member.awaits_join + member.awaits_sync for member in members.values())
    assert waiting is None or parked == waiting, "a request waits that no member holds"
    if group.state is GroupState.EMPTY:
        assert not members
    if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
        assert members
        assert all(any(p.name == group.protocol_name for p in m.protocols) for m in members.values())
        assert not any(member.awaits_join for member in members.values())
    for member in members.values():
        assert member.session is not None
        assert member.session.armed or member.is_excused
    if group.state is GroupState.PREPARING_REBALANCE:
        assert group.join_deadline is not None and group.join_deadline.armed


def snapshot(group: Group | None) -> Any:
    """All of a group that a refused request must leave as it is: sessions go on, everything else stays."""
    if group is None:
        return None
    members = {
        member.member_id: (
            member.group_instance_id,
            member.protocol_type,
            member.protocols,
            member.rebalance_timeout_ms,
            member.session_timeout_ms,
            member.assignment,
            member.awaits_join,
            member.awaits_sync,
        )
        for member in group.members.values()
    }
    return (
        (group.state, group.previous_state, group.state_timestamp, group.generation_id),
        (group.protocol_type, group.protocol_name, group.leader_id, group.subscribed_topics),
        members,
        dict(group.static_members),
        set(group.pending_joins),
        set(group.pending_syncs),
        group.awaiting_join_count,
        list(group.offsets),
    )
