"""The target assignment of a group: when it is due, the assignor's input, and the records of the assignor's result.

A target is computed for the group's epoch at most once per `consumer.assignment.interval.ms`; until then members keep
to the last one.  So a thousand members that join at the same time do not have it computed a thousand times.  The
assignor runs at once in a small group, where the member that asks gets its partitions with this answer, and on a thread
in a large one.
"""

from __future__ import annotations

from collections.abc import Mapping

from kbroker.coordinator.consumer.assignors.group_spec import NOTHING, Assignment, GroupSpec, MemberSpec
from kbroker.coordinator.consumer.assignors.table import ASSIGNORS
from kbroker.coordinator.consumer.draft import Draft, HeartbeatContext, TargetWork
from kbroker.coordinator.consumer.group import ConsumerGroup
from kbroker.coordinator.consumer.member import ConsumerMember
from kbroker.coordinator.runtime.plan import KeyValue

# Members and partitions that an assignor handles within a few milliseconds.
AT_ONCE = 300


def next_target(
    group: ConsumerGroup,
    epoch: int,
    before: ConsumerMember,
    after: ConsumerMember,
    context: HeartbeatContext,
    draft: Draft,
    *,
    is_homogeneous: bool,
) -> tuple[int, Assignment]:
    """The epoch of the target assignment that the member `after` goes by, and its part of it."""
    last = group.assignment_epoch, group.target_of(after)
    if group.assignment_epoch >= epoch or group.computing:
        return last
    interval = context.settings.assignment_interval_ms
    if group.assignment_timestamp and interval and context.now_ms < group.assignment_timestamp + interval:
        return last
    assignor = preferred_assignor(group, context, before, after)
    spec = group_spec(group, after, context, is_homogeneous=is_homogeneous)
    is_large = len(spec.members) + sum(spec.partition_counts.values()) > AT_ONCE
    # The first target has one member to think of, who need not wait.
    if is_large and group.targets:
        draft.work = TargetWork(epoch, assignor, spec)
        return last
    result = ASSIGNORS[assignor](spec)
    draft.records += group.target_records(result.items(), epoch, context.now_ms)
    return epoch, result.get(after.member_id, NOTHING)


def preferred_assignor(
    group: ConsumerGroup,
    context: HeartbeatContext,
    before: ConsumerMember | None = None,
    after: ConsumerMember | None = None,
) -> str:
    """The assignor that most members ask for; the default where none does."""
    votes = group.server_assignors
    if before is not None and after is not None and before.server_assignor != after.server_assignor:
        votes = votes.copy()
        if before.server_assignor is not None:
            votes[before.server_assignor] -= 1
        if after.server_assignor is not None:
            votes[after.server_assignor] += 1
    wanted = [(votes[name], name) for name in context.settings.assignors if votes[name] > 0]
    return max(wanted, key=lambda each: each[0])[1] if wanted else context.settings.assignors[0]


def group_spec(
    group: ConsumerGroup, member: ConsumerMember, context: HeartbeatContext, *, is_homogeneous: bool
) -> GroupSpec:
    """The group as an assignor sees it, with `member` as it is about to be."""
    replaced = group.static_members.get(member.instance_id) if member.instance_id is not None else None
    members = {member_id: each for member_id, each in group.members.items() if member_id != replaced}
    members[member.member_id] = member
    counts: dict[bytes, int] = {}
    # Most members have equal subscriptions.
    known: dict[frozenset[str], frozenset[bytes]] = {}
    specs: dict[str, MemberSpec] = {}
    for member_id, each in members.items():
        names = group.topics_of(each)
        topic_ids = known.get(names)
        if topic_ids is None:
            topics = [topic for topic in map(context.cache.topic, names) if topic is not None]
            counts.update((topic.topic_id, len(topic.partitions)) for topic in topics)
            topic_ids = known[names] = frozenset(topic.topic_id for topic in topics)
        specs[member_id] = MemberSpec(topic_ids, group.target_of(each), each.instance_id)
    return GroupSpec(specs, counts, is_homogeneous)


def computed_records(
    group: ConsumerGroup, work: TargetWork, result: Mapping[str, Assignment], now_ms: int
) -> list[KeyValue]:
    """The records of a target that was computed while the group went on.

    Members that have left since are left out; their partitions stay unassigned until the next target.  A static
    member's part goes to the member that has replaced it.
    """
    if group.assignment_epoch >= work.epoch:
        return []
    still_here: dict[str, Assignment] = {}
    for member_id, assignment in result.items():
        instance_id = work.spec.members[member_id].instance_id
        holder = member_id if instance_id is None else group.static_members.get(instance_id, member_id)
        if holder in group.members:
            still_here[holder] = assignment
    return group.target_records(still_here.items(), work.epoch, now_ms)
