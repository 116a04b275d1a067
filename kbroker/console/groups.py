"""Groups of all kinds: how far they are behind, who is in them, why they rebalanced last."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING

from kbroker.console.group_lag import lag_at, places_of
from kbroker.console.group_lines import GroupLine, standing_of
from kbroker.console.group_members import Member, members_of
from kbroker.console.parameters import NotThereError, keys_of, page_of, view_of
from kbroker.console.partition_source import bounds_elsewhere
from kbroker.coordinator.modern.group import ModernGroup
from kbroker.coordinator.share.group import ShareGroup
from kbroker.coordinator.streams.group import StreamsGroup
from kbroker.errors import KafkaError, NotCoordinatorError
from kbroker.handlers.share.share_offsets import UNKNOWN_LAG, share_position
from kbroker.security.authorizer import Operation, ResourceKind
from kbroker.types import TopicPartition

if TYPE_CHECKING:
    from kbroker.console.parameters import Key, Parameters
    from kbroker.console.parts import ConsoleParts, Value
    from kbroker.coordinator.classic.group import Group as AnyGroup
    from kbroker.coordinator.classic.group_kind import GroupKind
    from kbroker.coordinator.modern.group import LastRebalance

MOST_MEMBERS = 500
MOST_OFFSETS = 200


_GROUP_KEYS: Mapping[str, Key[GroupLine]] = {
    **keys_of("group_id", "state", "group_type", "member_count"),
    "lag": lambda line: -1 if line.lag is None else line.lag,
}


async def groups(parts: ConsoleParts, parameters: Parameters) -> Value:
    """GET /console/api/groups?q=&sort=&start=&count="""
    view = view_of(parameters, _GROUP_KEYS)
    name_of = attrgetter("group_id")
    lines = await parts.shown(await parts.group_lines.get(), ResourceKind.GROUP, name_of)
    return partial(page_of, lines, view, _GROUP_KEYS, name_of)


@dataclass(frozen=True, slots=True)
class OffsetLine:
    """What the group has committed for a partition, or, of a share group, where it stands.  `committed`: None where it
    never committed, and `lag` counts all records then.  `owner`: the member that reads it; None where a value is not
    known."""

    topic: str
    partition: int
    committed: int | None
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


async def group(parts: ConsoleParts, parameters: Parameters) -> Value:
    """GET /console/api/group?id=&start="""
    group_id = parameters.text("id")
    start = parameters.number("start", 0, 0, 1 << 31)
    services = parts.services
    try:
        found = services.group_coordinator.registry.find(group_id)
    except NotCoordinatorError:
        raise NotThereError(f"another broker coordinates the group {group_id}: look at its console") from None
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
    state, group_type, member_count = standing_of(found)
    protocol, epoch = (found.protocol_name or "", found.generation_id) if kind is None else ("", _epoch(kind))
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


def _seen(parts: ConsoleParts, member: Member, kind: GroupKind | None) -> Member:
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
    parts: ConsoleParts, found: AnyGroup, start: int, owners: Mapping[tuple[str, int], str]
) -> tuple[int, int, list[OffsetLine]]:
    """How many there are, the lag of all, and a page of them by topic and partition."""
    services = parts.services
    known = await places_of(
        found, services.metadata_cache.image.topics, await parts.bounds.get(), parts.sources.slices.pace()
    )
    known = [each for each in known if parts.may(Operation.DESCRIBE, ResourceKind.TOPIC, each.topic)]
    elsewhere = await bounds_elsewhere(parts, ((each.topic, each.partition) for each in known if each.lag is None))
    places = [
        each if each.lag is not None else replace(each, lag=lag_at(each.committed, elsewhere.get(each.key)))
        for each in sorted(known, key=attrgetter("key"))
    ]
    logs = services.log_manager.logs
    lines = []
    for place in places[start : start + MOST_OFFSETS]:
        committed = found.offsets.get(*place.key)
        log = logs.get(TopicPartition(*place.key))
        bounds = elsewhere.get(place.key) if log is None else (log.log_start_offset, log.high_watermark)
        lines.append(
            OffsetLine(
                place.topic,
                place.partition,
                None if committed is None else committed.offset,
                None if bounds is None else bounds[1],
                lag_at(None if committed is None else committed.offset, bounds),
                committed.commit_timestamp if committed is not None and committed.commit_timestamp >= 0 else None,
                "" if committed is None else committed.metadata[:200],
                owners.get(place.key, ""),
            )
        )
    return len(places), sum(each.lag or 0 for each in places), lines


async def _share_offsets(parts: ConsoleParts, kind: ShareGroup, start: int) -> tuple[int, int | None, list[OffsetLine]]:
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
