"""Cells of groups by prebuilt frames: heartbeats of members that have nothing to say, committed offsets, a large
group until it is stable."""

from __future__ import annotations

import heapq
import struct
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

from bench import group_frames, raw
from bench.admin import Admin, AdminError
from bench.brokers import Broker
from bench.cell import Cell, CellError, Load, Result

PATIENCE_SECONDS = 30.0
#: How often the members of a large group beat; the brokers' default of 5 s would be most of what is measured.
HEARTBEAT_SECONDS = 1.0


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


class _Members:
    """Members of one group on one connection, each of which beats as often as the broker says."""

    def __init__(self, admin: Admin, group: str, topic: str, count: int) -> None:
        self._admin, self._group, self._topic = admin, group, topic
        self.epochs = dict.fromkeys((f"member-{number:06d}" for number in range(count)), 0)
        self.owned: dict[str, dict[bytes, list[int]]] = {member: {} for member in self.epochs}
        self._due: list[tuple[float, str]] = []
        self.beats = 0

    def beat(self, member: str, *, confirms: bool = False) -> None:
        """One heartbeat; what it brings is confirmed at once, as clients do."""
        epoch = self.epochs[member]
        topics = [self._topic] if epoch == 0 else None
        owned = self.owned[member] if epoch == 0 or confirms else None
        request = group_frames.consumer_heartbeat(self._group, member, epoch, topics, owned)
        error, self.epochs[member], assigned = group_frames.read_consumer_heartbeat(self._admin.ask(request))
        if error:
            raise CellError(f"ConsumerGroupHeartbeat: error {error}")
        self.beats += 1
        if assigned is not None and assigned != self.owned[member]:
            self.owned[member] = assigned
            self.beat(member, confirms=True)
        else:
            heapq.heappush(self._due, (time.monotonic() + HEARTBEAT_SECONDS, member))

    def beat_next(self) -> None:
        """The next heartbeat that is due; waits for it."""
        due, member = heapq.heappop(self._due)
        time.sleep(max(0.0, due - time.monotonic()))
        self.beat(member)

    def is_stable(self, partitions: int) -> bool:
        """Whether all of them are in one epoch and have everything between them, shared out evenly."""
        sizes = [sum(map(len, owned.values())) for owned in self.owned.values()]
        return (
            len(set(self.epochs.values())) == 1
            and sum(sizes) == partitions
            and max(sizes) - min(sizes) <= (partitions % len(sizes) > 0)
        )


def many_members(cell: Cell, broker: Broker, load: Load) -> Result:
    """Members join one after the other; the time from the last one until all have what they should."""
    count = max(2, round(cell.consumers * load.scale))
    group = f"bench-{cell.name}-{time.monotonic_ns()}"
    with raw.topics(broker, replace(cell, partitions=count)) as places, Admin(broker.host, broker.port) as admin:
        coordinate(admin, group)
        members = _Members(admin, group, places[0][0], count)
        cpu, begin = broker.cpu_seconds(), time.monotonic()
        for member in list(members.epochs):
            members.beat(member)
        joined = time.monotonic()
        while not members.is_stable(count):
            if time.monotonic() > joined + 2 * PATIENCE_SECONDS:
                raise CellError(f"the group is not stable after {2 * PATIENCE_SECONDS:g} s")
            members.beat_next()
        return {
            "seconds": round(time.monotonic() - joined, 3),
            "first_record_s": round(joined - begin, 3),
            "beats": members.beats,
            "broker_cpu_s": round(broker.cpu_seconds() - cpu, 3),
            "errors": 0,
        }
