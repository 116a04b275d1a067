"""Groups of all kinds: how far they are behind, who is in them, why they rebalanced last."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING

from kbroker.console.group_lines import GroupLine
from kbroker.console.group_members import Member, members_of
from kbroker.console.parameters import NotThereError, page_of, view_of
from kbroker.coordinator.modern.group import ModernGroup
from kbroker.coordinator.share.group import ShareGroup
from kbroker.coordinator.streams.group import StreamsGroup
from kbroker.errors import KafkaError
from kbroker.handlers.share_offsets import UNKNOWN_LAG, share_position
from kbroker.security.authorizer import Operation, ResourceKind
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.console.parameters import Key, Parameters
    from kbroker.console.parts import Parts, Value
    from kbroker.coordinator.classic.group import Group as AnyGroup
    from kbroker.coordinator.classic.group_kind import GroupKind
    from kbroker.coordinator.modern.group import LastRebalance

MOST_MEMBERS = 500
MOST_OFFSETS = 200


_GROUP_KEYS: Mapping[str, Key[GroupLine]] = {
    "group_id": attrgetter("group_id"),
    "state": attrgetter("state"),
    "group_type": attrgetter("group_type"),
    "member_count": attrgetter("member_count"),
    "lag": lambda line: -1 if line.lag is None else line.lag,
}


async def groups(parts: Parts, parameters: Parameters) -> Value:
    """GET /console/api/groups?q=&sort=&start=&count="""
    view = view_of(parameters, _GROUP_KEYS)
    name_of = attrgetter("group_id")
    lines = await parts.shown(await parts.group_lines.get(), ResourceKind.GROUP, name_of)
    return partial(page_of, lines, view, _GROUP_KEYS, name_of)


@dataclass(frozen=True, slots=True)
class OffsetLine:
    """What the group has committed for a partition, or, of a share group, where it stands.  `owner`: the member that
    reads it; None where a value is not known."""

    topic: str
    partition: int
    committed: int
    end: int | None
    lag: int | None
    committed_at: int | None
    metadata: str
    owner: str


@dataclass(frozen=True, slots=True)
class Rebalance:
    """When the group last began to share its partitions out anew, since the broker's start, and why."""

    at_ms: int
    reason: str


@dataclass(frozen=True, slots=True)
class Group:
    """One group, its first members and a page of its offsets.  `epoch`: its generation, in the classic protocol."""

    now_ms: int
    group_id: str
    group_type: str
    protocol: str
    state: str
    epoch: int
    last_rebalance: Rebalance | None
    member_count: int
    members: Sequence[Member]
    lag: int | None
    matching: int
    start: int
    offsets: Sequence[OffsetLine]


async def group(parts: Parts, parameters: Parameters) -> Value:
    """GET /console/api/group?id=&start="""
    group_id = parameters.text("id")
    start = parameters.number("start", 0, 0, 1 << 31)
    services = parts.services
    found = services.group_coordinator.registry.find(group_id)
    if found is None or not parts.may(Operation.DESCRIBE, ResourceKind.GROUP, group_id):
        raise NotThereError(f"there is no group {group_id}")
    members = [
        _seen(parts, each, found.kind) for each in islice(members_of(found, services.metadata_cache), MOST_MEMBERS)
    ]
    owners = {
        (each.topic, index): member.client_id or member.member_id
        for member in members
        for each in member.assigned
        for index in each.partitions
    }
    if isinstance(found.kind, ShareGroup):
        count, lag, lines = await _share_offsets(parts, found.kind, start)
    else:
        count, lag, lines = await _offsets(parts, found, start, owners)
    kind = found.kind
    state, group_type, protocol, epoch, member_count = (
        (found.state.value, "classic", found.protocol_name or "", found.generation_id, len(found.members))
        if kind is None
        else (kind.state_name, kind.group_type, "", _epoch(kind), kind.member_count)
    )
    last: LastRebalance | None = found.last_rebalance
    return partial(
        Group,
        services.clock.now_ms(),
        group_id,
        group_type,
        protocol,
        state,
        epoch,
        None if last is None else Rebalance(*last),
        member_count,
        members,
        lag,
        count,
        start,
        lines,
    )


def _seen(parts: Parts, member: Member, kind: GroupKind | None) -> Member:
    """A member without topics that the viewer may not describe."""
    return replace(
        member,
        subscribed=[each for each in member.subscribed if parts.may(Operation.DESCRIBE, ResourceKind.TOPIC, each)],
        assigned=[
            each
            for each in member.assigned
            if isinstance(kind, StreamsGroup) or parts.may(Operation.DESCRIBE, ResourceKind.TOPIC, each.topic)
        ],
    )


async def _offsets(
    parts: Parts, found: AnyGroup, start: int, owners: Mapping[tuple[str, int], str]
) -> tuple[int, int, list[OffsetLine]]:
    """How many there are, the lag of all, and a page of them by topic and partition."""
    ends = (await parts.logs.get()).ends
    pace = parts.sources.slices.pace()
    keys, lag = [], 0
    for topic, index, committed in list(found.offsets):
        await pace
        if not parts.may(Operation.DESCRIBE, ResourceKind.TOPIC, topic):
            continue
        end = ends.get((topic, index))
        lag += 0 if end is None else max(0, end - committed.offset)
        keys.append((topic, index))
    keys.sort()
    logs = parts.services.log_manager.logs
    lines = []
    for topic, index in keys[start : start + MOST_OFFSETS]:
        known = found.offsets.get(topic, index)
        log = logs.get(TopicPartition(topic, index))
        if known is None:
            continue
        end = None if log is None else log.high_watermark
        lines.append(
            OffsetLine(
                topic,
                index,
                known.offset,
                end,
                None if end is None else max(0, end - known.offset),
                known.commit_timestamp if known.commit_timestamp >= 0 else None,
                known.metadata[:200],
                owners.get((topic, index), ""),
            )
        )
    return len(keys), lag, lines


async def _share_offsets(parts: Parts, kind: ShareGroup, start: int) -> tuple[int, int | None, list[OffsetLine]]:
    services = parts.services
    keys = sorted(key for key in _share_keys(kind) if parts.may(Operation.DESCRIBE, ResourceKind.TOPIC, key[0]))
    lines = []
    for topic, index in keys[start : start + MOST_OFFSETS]:
        image = services.metadata_cache.topic(topic)
        if image is None:
            continue
        log = services.log_manager.logs.get(TopicPartition(topic, index))
        end = None if log is None else log.high_watermark
        try:
            position = await share_position(services, kind.group_id, image, index)
        except KafkaError:
            continue
        if position is not None:
            lag = None if position.lag == UNKNOWN_LAG else position.lag
            lines.append(OffsetLine(topic, index, position.start_offset, end, lag, None, "", ""))
    known = [line.lag for line in lines if line.lag is not None]
    return len(keys), sum(known) if known and len(lines) == len(keys) else None, lines


def _share_keys(kind: ShareGroup) -> Iterator[tuple[str, int]]:
    for state in kind.state_partitions.initialized.values():
        yield from ((state.name, index) for index in state.partitions)


def _epoch(kind: GroupKind) -> int:
    return kind.epoch if isinstance(kind, ModernGroup) else 0
