"""Cells of groups by prebuilt frames: heartbeats of members that have nothing to say, and committed offsets."""

from __future__ import annotations

import struct
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from bench import group_frames, raw
from bench.admin import Admin, AdminError
from bench.brokers import Broker
from bench.cell import Cell, CellError, Load, Result

PATIENCE_SECONDS = 30.0


def coordinate(admin: Admin, group: str) -> None:
    """Wait until a group has a coordinator that serves it."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while struct.unpack_from(">h", admin.ask(group_frames.find_coordinator(group)), 8)[0]:
        if time.monotonic() > deadline:
            raise AdminError(f"{group} has no coordinator after {PATIENCE_SECONDS:g} s")
        time.sleep(0.05)


def heartbeat(cell: Cell, broker: Broker, load: Load) -> Result:
    """ConsumerGroupHeartbeat of members of one group, each with a connection and a partition of its own."""
    group = f"bench-{cell.name}-{time.monotonic_ns()}"
    with raw.topics(broker, cell) as places, Admin(broker.host, broker.port) as admin:
        coordinate(admin, group)
        members = {f"member-{number:018d}": 0 for number in range(cell.connections)}
        requests = settle(admin, group, places[0][0], members, cell.partitions)
        return raw.run_closed(broker, requests, cell, load, check_at=group_frames.HEARTBEAT_LAYOUT.error_at)


def settle(admin: Admin, group: str, topic: str, members: dict[str, int], partitions: int) -> list[bytes]:
    """Have all members join and get what they should; the heartbeats that they send from then on."""
    owned: dict[str, dict[bytes, list[int]]] = {member: {} for member in members}
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        for member, epoch in members.items():
            topics = [topic] if epoch == 0 else None
            request = group_frames.consumer_heartbeat(group, member, epoch, topics, owned[member])
            error, members[member], assigned = group_frames.read_consumer_heartbeat(admin.ask(request))
            if error:
                raise CellError(f"ConsumerGroupHeartbeat: error {error}")
            if assigned is not None:
                owned[member] = assigned
        have = [sum(map(len, topics_of.values())) for topics_of in owned.values()]
        if sum(have) == partitions and min(have) == partitions // len(members) and len(set(members.values())) == 1:
            return [group_frames.consumer_heartbeat(group, member, epoch) for member, epoch in members.items()]
        if time.monotonic() > deadline:
            raise CellError(f"{sum(have)} partitions are assigned after {PATIENCE_SECONDS:g} s")
        time.sleep(0.05)


def heartbeat_classic(cell: Cell, broker: Broker, load: Load) -> Result:
    """Heartbeat of members of the classic protocol, each alone in its group."""
    groups = [f"bench-{cell.name}-{number}-{time.monotonic_ns()}" for number in range(cell.connections)]
    # A group's first generation waits for more members.
    with ThreadPoolExecutor(cell.connections) as threads:
        requests = list(threads.map(partial(_joined, broker), groups))
    return raw.run_closed(broker, requests, cell, load, check_at=group_frames.HEARTBEAT_LAYOUT.error_at)


def _joined(broker: Broker, group: str) -> bytes:
    """The heartbeat of a member that has joined."""
    with Admin(broker.host, broker.port) as admin:
        coordinate(admin, group)
        generation, member = group_frames.joined(admin.ask(group_frames.join(group)))
        admin.ask(group_frames.sync(group, generation, member))
    return group_frames.heartbeat(group, generation, member)


def commit_offsets(cell: Cell, broker: Broker, load: Load) -> Result:
    """OffsetCommit of `records` partitions a request, each connection for a group of its own."""
    with raw.topics(broker, cell) as places, Admin(broker.host, broker.port) as admin:
        topic = places[0][0]
        requests = []
        for number in range(cell.connections):
            group = f"bench-{cell.name}-{number}-{time.monotonic_ns()}"
            coordinate(admin, group)
            requests.append(group_frames.commit(group, topic, range(cell.records), 1_000 + number))
        layout = group_frames.commit_layout(topic, cell.records)
        result = raw.run_closed(broker, requests, cell, load, check_at=layout.error_at)
    result["records"] = result["requests"] * cell.records
    return result
