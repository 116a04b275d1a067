"""The target assignment of a group: when it is due, the assignor's input, and the records of its result.

A target is computed for the group's epoch at most once per `streams.assignment.interval.ms`, and not within
`streams.initial.rebalance.delay.ms` after the first member joined an empty group.  Until then members follow the last
target, and their answers say that the assignment is delayed.  The assignor runs at once in a small group and on a
thread in a large one.
"""

from __future__ import annotations

from collections.abc import Mapping

from kbroker.coordinator.runtime.plan import KeyValue
from kbroker.coordinator.streams.assignor import GroupSpec, MemberSpec, SubtopologySpec, assign
from kbroker.coordinator.streams.configuration import ConfiguredTopology, Status, StatusLine
from kbroker.coordinator.streams.draft import Draft, HeartbeatContext, TargetWork
from kbroker.coordinator.streams.group import StreamsGroup
from kbroker.coordinator.streams.member import StreamsMember
from kbroker.coordinator.streams.tasks import NO_TASKS, Tasks

# Members and tasks that the assignor handles within a few milliseconds.
AT_ONCE = 300
_DELAYED_AT_FIRST = StatusLine(
    Status.ASSIGNMENT_DELAYED, "Assignment delayed due to the configured initial rebalance delay."
)
_DELAYED = StatusLine(Status.ASSIGNMENT_DELAYED, "Assignment delayed due to the configured assignment interval.")
_COMPUTING = StatusLine(Status.ASSIGNMENT_DELAYED, "Assignment delayed while it is computed.")


def next_target(
    group: StreamsGroup,
    epoch: int,
    member: StreamsMember,
    configured: ConfiguredTopology,
    context: HeartbeatContext,
    status: list[StatusLine],
    draft: Draft,
) -> tuple[int, Tasks]:
    """The epoch of the target assignment that `member` goes by, and its part of it."""
    if context.is_delayed:
        status.append(_DELAYED_AT_FIRST)
        return group.assignment_epoch, NO_TASKS
    last = group.assignment_epoch, group.target_of(member.member_id)
    if group.assignment_epoch >= epoch:
        return last
    interval = context.settings.assignment_interval_ms
    if group.assignment_timestamp and interval and context.now_ms < group.assignment_timestamp + interval:
        status.append(_DELAYED)
        return last
    members = {**group.members, member.member_id: member}
    spec = group_spec(group, members, configured, context.settings.num_standby_replicas)
    if _is_large(spec):
        status.append(_COMPUTING)
        if not group.computing:
            draft.work = TargetWork(epoch, spec)
        return last
    result = assign(spec)
    draft.records += group.target_records(sorted(result.items()), epoch, context.now_ms)
    return epoch, result[member.member_id]


def _is_large(spec: GroupSpec) -> bool:
    return len(spec.members) + sum(each.task_count for each in spec.subtopologies.values()) > AT_ONCE


def group_spec(
    group: StreamsGroup,
    members: Mapping[str, StreamsMember],
    configured: ConfiguredTopology,
    num_standby_replicas: int,
) -> GroupSpec:
    """The group as the assignor sees it; without tasks while the topology is not ready."""
    subtopologies = configured.subtopologies if configured.is_ready else None
    return GroupSpec(
        {member_id: MemberSpec(member.process_id, group.target_of(member_id)) for member_id, member in members.items()},
        {name: SubtopologySpec(each.task_count, each.is_stateful) for name, each in (subtopologies or {}).items()},
        num_standby_replicas,
    )


def delayed_target(group: StreamsGroup, context: HeartbeatContext, draft: Draft) -> None:
    """The first assignment of a group that has waited for members; nothing where there is none to make."""
    configured = group.known.configured
    if not group.members or configured is None or group.epoch <= group.assignment_epoch:
        return
    standby = int(group.configs.get("num.standby.replicas", "0"))
    spec = group_spec(group, group.members, configured, standby)
    if _is_large(spec):
        draft.work = TargetWork(group.epoch, spec)
    else:
        draft.records += group.target_records(sorted(assign(spec).items()), group.epoch, context.now_ms)


def computed_records(group: StreamsGroup, work: TargetWork, result: Mapping[str, Tasks], now_ms: int) -> list[KeyValue]:
    """The records of a target that was computed while the group went on; tasks of members that have left since wait for
    the next target."""
    if group.assignment_epoch >= work.epoch:
        return []
    still_here = sorted(each for each in result.items() if each[0] in group.members)
    return group.target_records(still_here, work.epoch, now_ms)
