"""What a coordinator knows, to compare."""

from __future__ import annotations

from typing import Any

from tests.coordinator.harness import World


def snapshot(world: World) -> dict[str, Any]:
    """All that must survive a restart."""
    return {
        group_id: (
            group.state,
            group.generation_id,
            group.protocol_type,
            group.protocol_name,
            group.leader_id,
            group.subscribed_topics,
            sorted(group.static_members.items()),
            sorted(group.offsets),
            [
                (
                    member.member_id,
                    member.group_instance_id,
                    member.client_id,
                    member.client_host,
                    member.rebalance_timeout_ms,
                    member.session_timeout_ms,
                    member.metadata_for(group.protocol_name),
                    member.assignment,
                )
                for member in group.members.values()
            ],
        )
        for group_id, group in sorted(world.coordinator.registry.groups.items())
    }
