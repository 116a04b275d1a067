"""StreamsGroupHeartbeat: a member joins, tells that it is alive and which tasks it has, or leaves.

A heartbeat goes through these steps; each adds to the draft only where something is new:

    1  who: a new member, or a known one in the epoch that it should have
    2  what it says of itself, and what the application processes
    3  that topology over the topics that there are; it may be found valid, or lack topics
    4  a new epoch of the group, if any of that has changed
    5  the target assignment, if the epoch is ahead of it
    6  one step of the member towards its target

Checks come in Kafka's order.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

from kbroker.coordinator.modern.fencing import fenced
from kbroker.coordinator.modern.group import JOIN_EPOCH
from kbroker.coordinator.modern.topic_hash import metadata_hash
from kbroker.coordinator.streams import records
from kbroker.coordinator.streams.configuration import (
    ConfiguredTopology,
    CountOf,
    Status,
    StatusLine,
    configure,
)
from kbroker.coordinator.streams.draft import Draft, HeartbeatAnswer, HeartbeatContext, HeartbeatRequest, TimerKind
from kbroker.coordinator.streams.endpoints import endpoint_partitions
from kbroker.coordinator.streams.group import GROUP_TYPE, StreamsGroup, StreamsKnowledge
from kbroker.coordinator.streams.member import MemberState, StreamsMember
from kbroker.coordinator.streams.reconciliation import Target, reconcile
from kbroker.coordinator.streams.targets import next_target
from kbroker.coordinator.streams.tasks import Tasks, each_task
from kbroker.coordinator.streams.topology import Topology
from kbroker.errors import ErrorCode, InvalidRequestError, KafkaError
from kbroker.metadata.cache import MetadataCache

logger = logging.getLogger("kbroker.groups")


def heartbeat(
    group: StreamsGroup, request: HeartbeatRequest, context: HeartbeatContext, draft: Draft, *, is_new: bool
) -> HeartbeatAnswer:
    """A member joins, or says that it is alive.  `is_new`: the group has no records yet.  Raises KafkaError."""
    status: list[StatusLine] = []
    before = _member_of(group, request, context)
    answer = _sign_of_life(group, before, request, context)
    if answer is not None:
        draft.set_timer(TimerKind.SESSION, before.member_id, context.settings.session_timeout_ms)
        return answer
    after = _updated(before, request)
    if after != before:
        draft.records.append(records.member_metadata(group.group_id, after))
    topology = _topology(group, request, draft)
    _say_stale(group, after, status)
    known, hash_now = _look_up(group, topology, context)
    configured = known.configured
    assert configured is not None
    validated = _validated(configured, topology, request.tasks)
    configs = context.settings.assignment_configs
    changes = _changes(group, before, after, hash_now, (validated, configured.is_ready), configs)
    epoch = group.epoch + bool(changes)
    if changes:
        draft.records.append(records.group_epoch(group.group_id, epoch, hash_now, validated, configs))
        draft.rebalanced = changes[0]
    if not group.members and context.settings.initial_rebalance_delay_ms > 0:
        if not context.is_delayed:
            draft.set_timer(TimerKind.INITIAL, "", context.settings.initial_rebalance_delay_ms)
        context = context._replace(is_delayed=True)
    target_epoch, tasks = next_target(group, epoch, after, configured, context, status, draft)
    after = _step(group, after, Target(target_epoch, tasks, group), request.tasks, draft)
    draft.set_timer(TimerKind.SESSION, after.member_id, context.settings.session_timeout_ms)
    if request.shutdown_application:
        _shut_down(group, known, request.member_id)
    is_changed = request.member_epoch == JOIN_EPOCH or after.assigned != before.assigned
    # A member that reports other tasks than its assignment has lost an answer, so it gets the tasks again; Kafka does
    # not send them.
    is_sent = is_changed or (request.tasks is not None and request.tasks != after.assigned.as_tasks())
    if is_changed and after.endpoint is not None:
        known.endpoint_epoch += 1
    endpoints = None
    if known.endpoint_epoch != request.endpoint_epoch:
        others = [member for member in group.members.values() if member.member_id != after.member_id]
        endpoints = endpoint_partitions([*others, after], configured, _counter(context.cache))
    if is_new:
        # As in Kafka, which does not keep the epoch of a group that it has just made.
        known.endpoint_epoch = 0
    _say_problem(configured, known, status)
    draft.known = known
    return HeartbeatAnswer(
        after.member_id,
        after.member_epoch,
        context.settings.heartbeat_interval_ms,
        tuple(status),
        after.assigned if is_sent else None,
        known.endpoint_epoch,
        endpoints,
        configured.to_create,
    )


def _changes(
    group: StreamsGroup,
    before: StreamsMember,
    after: StreamsMember,
    hash_now: int,
    validated: tuple[int, bool],
    configs: Mapping[str, str],
) -> list[str]:
    """Why the group gets a new epoch.  `validated`: the epoch of its topology, and whether that can run."""
    changes = []
    if after != before:
        changes.append("a member joined" if before.member_id not in group.members else "a member changed")
    if hash_now != group.metadata_hash:
        changes.append("its topics changed")
    topology_epoch, is_ready = validated
    if topology_epoch != group.validated_topology_epoch:
        changes.append("its topology can run" if is_ready else "its topology cannot run any more")
    if configs != dict(group.configs):
        changes.append("the settings of its assignments changed")
    return changes


def _sign_of_life(
    group: StreamsGroup, member: StreamsMember, request: HeartbeatRequest, context: HeartbeatContext
) -> HeartbeatAnswer | None:
    """The answer where there is nothing to decide, which is nearly always."""
    known, topology = group.known, group.topology
    if (
        not request.says_nothing
        or not (group.epoch == group.assignment_epoch == member.member_epoch == request.member_epoch)
        or member.state is not MemberState.STABLE
        or member.client_id != request.client_id
        or member.client_host != request.client_host
        or known.image_version != context.cache.image.version
        or known.configured is None
        or not known.configured.is_ready
        or known.shutdown_by is not None
        or known.endpoint_epoch != request.endpoint_epoch
        or topology is None
        or member.topology_epoch < topology.epoch
        or context.is_delayed
        or group.configs != context.settings.assignment_configs
    ):
        return None
    interval = context.settings.heartbeat_interval_ms
    return HeartbeatAnswer(member.member_id, member.member_epoch, interval, endpoint_epoch=known.endpoint_epoch)


# Who


def _member_of(group: StreamsGroup, request: HeartbeatRequest, context: HeartbeatContext) -> StreamsMember:
    member_id = request.member_id
    if request.member_epoch == JOIN_EPOCH:
        group.check_room(member_id, context.settings.max_size)
        logger.info("group %s: member %s joins with the streams protocol", group.group_id, member_id)
        return group.members.get(member_id) or StreamsMember(member_id)
    member = group.member(member_id)
    _check_epoch(member, request)
    return member


def _check_epoch(member: StreamsMember, request: HeartbeatRequest) -> None:
    """A member may be one epoch behind, if it has no more than it was given: its last answer was lost."""
    epoch, tasks = request.member_epoch, request.tasks
    if epoch == member.member_epoch:
        return
    is_behind = epoch < member.member_epoch and epoch == member.previous_member_epoch
    if not (is_behind and tasks is not None and tasks.is_within(member.assigned)):
        raise fenced(GROUP_TYPE, member, epoch)


# What it says


def _updated(member: StreamsMember, request: HeartbeatRequest) -> StreamsMember:
    return replace(
        member,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=(
            member.rebalance_timeout_ms if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms
        ),
        topology_epoch=member.topology_epoch if request.topology is None else request.topology.epoch,
        process_id=member.process_id if request.process_id is None else request.process_id,
        endpoint=member.endpoint if request.endpoint is None else request.endpoint,
        client_tags=member.client_tags if request.client_tags is None else request.client_tags,
        client_id=request.client_id,
        client_host=request.client_host,
    )


def _topology(group: StreamsGroup, request: HeartbeatRequest, draft: Draft) -> Topology:
    """The group's topology; the first member brings it, all others must bring the same or an older one."""
    brought, has = request.topology, group.topology
    if has is None:
        if brought is None:
            raise KafkaError.of(
                ErrorCode.UNKNOWN_SERVER_ERROR, f"The group {group.group_id} has lost its topology; its members rejoin."
            )
        draft.records.append(records.topology(group.group_id, brought))
        return brought
    if brought is not None and brought.epoch >= has.epoch and brought != has:
        raise InvalidRequestError("Topology updates are not supported yet.")
    return has


def _say_stale(group: StreamsGroup, member: StreamsMember, status: list[StatusLine]) -> None:
    if group.topology is not None and member.topology_epoch < group.topology.epoch:
        status.append(
            StatusLine(
                Status.STALE_TOPOLOGY,
                f"The member's topology epoch {member.topology_epoch} is behind the group's topology epoch "
                f"{group.topology.epoch}.",
            )
        )


# The topics


def _look_up(group: StreamsGroup, topology: Topology, context: HeartbeatContext) -> tuple[StreamsKnowledge, int]:
    """What is known of the group from now on, its topology over the topics of now; and the hash of these topics."""
    known, version = replace(group.known), context.cache.image.version
    is_here = group.topology is not None and known.configured is not None
    if is_here and known.image_version == version:
        return known, group.metadata_hash
    value = metadata_hash(context.cache, topology.required_topics())
    if not is_here or value != group.metadata_hash:
        known.configured = configure(topology, _counter(context.cache))
    known.image_version = version
    return known, value


def _counter(cache: MetadataCache) -> CountOf:
    def count_of(name: str) -> int | None:
        topic = cache.topic(name)
        return None if topic is None else len(topic.partitions)

    return count_of


def _validated(configured: ConfiguredTopology, topology: Topology, tasks: Tasks | None) -> int:
    """The epoch of the topology if it can run, else -1.  InvalidRequestError for tasks that it has not."""
    subtopologies = configured.subtopologies
    if not configured.is_ready or subtopologies is None:
        return records.NOT_VALIDATED
    if tasks is not None:
        for role in (tasks.active, tasks.standby, tasks.warmup):
            for subtopology in role:
                if subtopology not in subtopologies:
                    raise InvalidRequestError(f"Subtopology {subtopology} does not exist in the topology.")
            for subtopology, partition in each_task(role):
                if not 0 <= partition < subtopologies[subtopology].task_count:
                    raise InvalidRequestError(
                        f"Task {partition} for subtopology {subtopology} is invalid. Number of tasks for this "
                        f"subtopology: {subtopologies[subtopology].task_count}"
                    )
    return topology.epoch


# Towards the target


def _step(
    group: StreamsGroup, member: StreamsMember, target: Target, reported: Tasks | None, draft: Draft
) -> StreamsMember:
    if member.is_reconciled_to(target.epoch):
        return member
    stepped = reconcile(member, target, reported)
    if stepped != member:
        assert member.member_epoch <= stepped.member_epoch <= target.epoch, (group.group_id, member, stepped)
        kept = stepped.assigned.as_tasks()
        assert not kept.has_any(stepped.pending_revocation), f"{group.group_id}: {stepped} keeps what it gives up"
        draft.records.append(records.current_assignment(group.group_id, stepped))
        if stepped.state is MemberState.UNREVOKED_TASKS:
            draft.set_timer(
                TimerKind.REBALANCE, stepped.member_id, stepped.rebalance_timeout_ms, member_epoch=stepped.member_epoch
            )
        else:
            draft.cancel_timer(TimerKind.REBALANCE, stepped.member_id)
    return stepped


# The end


def _shut_down(group: StreamsGroup, known: StreamsKnowledge, member_id: str) -> None:
    if known.shutdown_by is None:
        logger.info("group %s: member %s asks the application to shut down", group.group_id, member_id)
        known.shutdown_by = member_id


def _say_problem(configured: ConfiguredTopology, known: StreamsKnowledge, status: list[StatusLine]) -> None:
    if configured.problem is not None:
        status.append(configured.problem)
    if known.shutdown_by is not None:
        status.append(
            StatusLine(
                Status.SHUTDOWN_APPLICATION,
                f"Streams group member {known.shutdown_by} encountered a fatal error and requested a shutdown for the "
                "entire application.",
            )
        )


def leave(group: StreamsGroup, request: HeartbeatRequest, draft: Draft) -> HeartbeatAnswer:
    """A member goes.  Raises KafkaError."""
    member = group.member(request.member_id)
    logger.info("group %s: member %s left", group.group_id, member.member_id)
    remove(group, member, draft)
    if request.shutdown_application:
        draft.known = replace(group.known)
        _shut_down(group, draft.known, request.member_id)
    return HeartbeatAnswer(request.member_id, request.member_epoch)


def remove(group: StreamsGroup, member: StreamsMember, draft: Draft) -> None:
    """Take a member out of the group, which has a new epoch then."""
    assert group.members.get(member.member_id) is member, (group.group_id, member)
    draft.records += records.removal(group.group_id, member.member_id)
    draft.records.append(
        records.group_epoch(
            group.group_id, group.epoch + 1, group.metadata_hash, group.validated_topology_epoch, group.configs
        )
    )
    draft.cancel_timers(member.member_id)
    draft.rebalanced = "a member is gone"
