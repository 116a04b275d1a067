"""ShareGroupHeartbeat: a member joins, tells that it is alive, or leaves; pure operations over a share group.

Each gives the records to write and the answer, or raises in Kafka's words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from kbroker.coordinator.modern.fencing import fenced
from kbroker.coordinator.modern.group import JOIN_EPOCH, LEAVE_EPOCH
from kbroker.coordinator.runtime.plan import KeyValue
from kbroker.coordinator.share import group_records as records
from kbroker.coordinator.share.assignor import Assignment, assign
from kbroker.coordinator.share.group import GROUP_TYPE, ShareGroup
from kbroker.coordinator.share.member import ShareMember
from kbroker.coordinator.share.state_partitions import TopicState
from kbroker.errors import InvalidRequestError


@dataclass(frozen=True, slots=True)
class HeartbeatRequest:
    """What a member says; None: as before."""

    group_id: str
    member_id: str
    member_epoch: int
    rack_id: str | None
    topics: tuple[str, ...] | None
    client_id: str
    client_host: str


class HeartbeatAnswer(NamedTuple):
    """`assignment` None: as before.  `initialize`: partitions whose state has to be made first.  `is_complete`: there
    are none, not even topics that are being made."""

    member_epoch: int
    assignment: Assignment | None
    initialize: Mapping[bytes, TopicState]
    state_epoch: int = 0
    is_complete: bool = True


@dataclass(frozen=True, slots=True)
class Topics:
    """The topics of the cluster: partition count and id by name, and the hash of several (KIP-1101)."""

    find: Callable[[str], tuple[bytes, int] | None]
    hash_of: Callable[[Iterable[str]], int]


def check_request(request: HeartbeatRequest) -> None:
    """Refuse a request that makes no sense for any group.  Raises InvalidRequestError."""
    if not request.group_id:
        raise InvalidRequestError("GroupId can't be empty.")
    if not request.member_id:
        raise InvalidRequestError("MemberId can't be empty.")
    if request.member_epoch < LEAVE_EPOCH:
        raise InvalidRequestError("MemberEpoch is invalid.")
    if request.rack_id is not None and not request.rack_id.strip():
        raise InvalidRequestError("RackId can't be empty.")
    if request.member_epoch == JOIN_EPOCH and not request.topics:
        raise InvalidRequestError("SubscribedTopicNames must be set in first request.")


def heartbeat(
    group: ShareGroup,
    request: HeartbeatRequest,
    topics: Topics,
    max_size: int,
    now_ms: int,
    *,
    assignment_interval_ms: int = 0,
    is_under_way: Callable[[tuple[bytes, int]], bool] = lambda _partition: False,
) -> tuple[HeartbeatAnswer, list[KeyValue]]:
    """A member joins or says that it is alive.

    A target assignment with at least one partition is kept for `assignment_interval_ms`; until then new members have no
    target.  `is_under_way`: whether the state of a partition is being initialized now; the group's note that it is
    about to be may be left from an attempt that has ended.
    """
    before = _member_of(group, request, max_size)
    after = replace(
        before,
        rack_id=before.rack_id if request.rack_id is None else request.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        topic_names=before.topic_names if request.topics is None else frozenset(request.topics),
    )
    written: list[KeyValue] = []
    members = {**group.members, after.member_id: after}
    subscribed = frozenset(topic for member in members.values() for topic in member.topic_names)
    if after != before or after.member_id not in group.members:
        written.append(records.member_record(group.group_id, after))
    resubscribed = after.member_id not in group.members or after.topic_names != before.topic_names
    # Each of the names, of which there may be thousands, is looked up once.
    topics = Topics({name: topics.find(name) for name in subscribed}.get, topics.hash_of)
    metadata_hash = topics.hash_of(subscribed)
    epoch = group.epoch
    if resubscribed or metadata_hash != group.metadata_hash or _is_ready(group, subscribed, topics):
        epoch += 1
        written.append(records.epoch_record(group.group_id, epoch, metadata_hash))
    target = group.targets.get(after.member_id, frozenset())
    target_epoch = group.assignment_epoch
    is_new = any(group.targets.values()) and now_ms < group.assignment_timestamp + assignment_interval_ms
    if target_epoch < epoch and not is_new:
        targets = _targets(group, members, topics)
        written += group.target_records(targets.items(), epoch, now_ms)
        target, target_epoch = targets[after.member_id], epoch
    # A target that is older than the subscription may have topics that the member no longer wants.
    target = _of_topics(target, _topic_ids(after, topics))
    if after.member_epoch != target_epoch or after.assigned != target:
        assert target_epoch <= epoch, (group.group_id, target_epoch, epoch)
        after = replace(after, member_epoch=target_epoch, previous_member_epoch=after.member_epoch, assigned=target)
        written.append(records.current_record(group.group_id, after))
    missing = _missing(group, subscribed, topics)
    initialize = _to_begin(group, missing, is_under_way)
    assert initialize.keys() <= missing.keys(), (group.group_id, initialize, missing)
    began = group.state_partitions.began(initialize)
    if began != group.state_partitions:
        written.append(records.state_partitions_record(group.group_id, began))
    is_sent = request.member_epoch == JOIN_EPOCH or request.topics is not None or after.assigned != before.assigned
    assignment = after.assigned if is_sent else None
    return HeartbeatAnswer(after.member_epoch, assignment, initialize, epoch, not missing), written


def sign_of_life(group: ShareGroup, request: HeartbeatRequest) -> HeartbeatAnswer | None:
    """The answer to a heartbeat that changes nothing, in a group that is settled; None where it may change
    something."""
    member = group.members.get(request.member_id)
    if (
        member is None
        or request.member_epoch == JOIN_EPOCH
        or request.topics is not None
        or not request.member_epoch == member.member_epoch == group.epoch
        or request.rack_id not in (None, member.rack_id)
        or (request.client_id, request.client_host) != (member.client_id, member.client_host)
        or member.assigned != group.targets.get(request.member_id, frozenset())
    ):
        return None
    return HeartbeatAnswer(member.member_epoch, None, {}, group.epoch)


def leave(group: ShareGroup, member_id: str, topics: Topics) -> list[KeyValue]:
    """A member goes, or its session has ended."""
    gone = group.member(member_id).topic_names
    left = frozenset(name for name, members in group.names.items() if members > (name in gone))
    return [
        *records.removal(group.group_id, member_id),
        records.epoch_record(group.group_id, group.epoch + 1, topics.hash_of(left)),
    ]


def _member_of(group: ShareGroup, request: HeartbeatRequest, max_size: int) -> ShareMember:
    if request.member_epoch == JOIN_EPOCH and request.member_id not in group.members:
        group.check_room(request.member_id, max_size)
        return ShareMember(request.member_id)
    member = group.member(request.member_id)
    known = (JOIN_EPOCH, member.member_epoch, member.previous_member_epoch)
    if request.member_epoch > member.member_epoch or request.member_epoch not in known:
        raise fenced(GROUP_TYPE, member, request.member_epoch)
    return member


def _initialized(group: ShareGroup, names: Iterable[str], topics: Topics) -> dict[bytes, list[int]]:
    """The partitions of these topics that can be assigned, by topic id."""
    ready: dict[bytes, list[int]] = {}
    for name in names:
        found = topics.find(name)
        if found is not None:
            topic_id, count = found
            state = group.state_partitions.initialized.get(topic_id)
            if state is not None:
                ready[topic_id] = sorted(index for index in state.partitions if index < count)
    return ready


def _is_ready(group: ShareGroup, names: Iterable[str], topics: Topics) -> bool:
    """Whether partitions have been initialized since the targets were worked out."""
    assigned = {each for target in group.targets.values() for each in target}
    ready = {(topic, index) for topic, some in _initialized(group, names, topics).items() for index in some}
    return not ready <= assigned


def _missing(group: ShareGroup, names: Iterable[str], topics: Topics) -> dict[bytes, TopicState]:
    """The partitions without a state."""
    missing: dict[bytes, TopicState] = {}
    for name in sorted(names):
        found = topics.find(name)
        if found is not None:
            topic_id, count = found
            new = frozenset(index for index in range(count) if not group.state_partitions.has(topic_id, index))
            if new:
                missing[topic_id] = TopicState(name, new)
    return missing


def _to_begin(
    group: ShareGroup, missing: Mapping[bytes, TopicState], is_under_way: Callable[[tuple[bytes, int]], bool]
) -> dict[bytes, TopicState]:
    """Those of them that are not being made, and whose state of before is not being deleted."""
    begin: dict[bytes, TopicState] = {}
    for topic_id, state in missing.items():
        idle = frozenset(index for index in state.partitions if not is_under_way((topic_id, index)))
        if idle and topic_id not in group.state_partitions.deleting:
            begin[topic_id] = TopicState(state.name, idle)
    return begin


def _topic_ids(member: ShareMember, topics: Topics) -> frozenset[bytes]:
    found = (topics.find(name) for name in member.topic_names)
    return frozenset(each[0] for each in found if each is not None)


def _of_topics(target: Assignment, topic_ids: frozenset[bytes]) -> Assignment:
    if all(topic_id in topic_ids for topic_id, _ in target):
        return target
    return frozenset(each for each in target if each[0] in topic_ids)


def _targets(group: ShareGroup, members: Mapping[str, ShareMember], topics: Topics) -> dict[str, Assignment]:
    ids: dict[str, frozenset[bytes]] = {}
    for member_id, member in members.items():
        ids[member_id] = _topic_ids(member, topics)
    names = frozenset(name for member in members.values() for name in member.topic_names)
    return assign(ids, _initialized(group, names, topics), group.targets)
