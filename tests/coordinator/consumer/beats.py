"""Heartbeats of members."""

from __future__ import annotations

from kbroker.coordinator.consumer.draft import HeartbeatAnswer, HeartbeatRequest
from tests.coordinator.harness import World


def beat(world: World, member_id: str, epoch: int, **fields: object) -> HeartbeatAnswer:
    if epoch == 0:
        fields = {"rebalance_timeout_ms": 60_000, "topic_names": frozenset({"t1"}), "owned": {}} | fields
    request = HeartbeatRequest("g", member_id, epoch, **fields)  # type: ignore[arg-type]
    return world.consumer_groups.heartbeat(request).answer
