"""A classic group of two members."""

from __future__ import annotations

from tests.coordinator.harness import World


def two_members(world: World) -> tuple[str, str, int]:
    """Leader and follower of a stable group, and its generation."""
    first = world.stable_member()
    second = world.join()
    again = world.join(member_id=first.member_id).answer
    follower = second.answer
    parked = world.sync("g", follower.member_id, again.generation_id)
    world.sync("g", first.member_id, again.generation_id, {first.member_id: b"a", follower.member_id: b"b"})
    assert parked.answer.assignment == b"b"
    return first.member_id, follower.member_id, again.generation_id
