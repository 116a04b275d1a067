"""ConsumerGroupHeartbeat: a member joins, tells that it is alive and what it owns, or leaves.

A heartbeat goes through these steps; each adds to the draft only where something is new:

    1  who: a new member, a known one in the epoch that it should have, a static one that takes its place again
    2  what it says of itself; a change of subscription raises the group's epoch
    3  the target assignment, if the epoch is ahead of it
    4  one step of the member towards its target

Checks come in Kafka's order.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from kbroker.coordinator.consumer import records
from kbroker.coordinator.consumer.departure import remove
from kbroker.coordinator.consumer.draft import (
    Draft,
    HeartbeatAnswer,
    HeartbeatContext,
    HeartbeatRequest,
    OwnedByTopic,
    TimerKind,
)
from kbroker.coordinator.consumer.group import GROUP_TYPE, ConsumerGroup
from kbroker.coordinator.consumer.member import (
    NOTHING_OWNED,
    ConsumerMember,
    MemberState,
    Owned,
)
from kbroker.coordinator.consumer.migration import ClassicState
from kbroker.coordinator.consumer.reconciliation import Target, reconcile
from kbroker.coordinator.consumer.subscriptions import (
    RegexChange,
    bump_epoch,
    change_regex,
    group_is_homogeneous,
    refresh_due,
    write_member,
)
from kbroker.coordinator.consumer.targets import next_target
from kbroker.coordinator.modern.fencing import fenced
from kbroker.coordinator.modern.group import JOIN_EPOCH, STATIC_LEAVE_EPOCH
from kbroker.errors import ErrorCode, FencedInstanceIdError, KafkaError, UnknownMemberIdError

logger = logging.getLogger("kbroker.groups")


def heartbeat(
    group: ConsumerGroup, request: HeartbeatRequest, context: HeartbeatContext, draft: Draft
) -> HeartbeatAnswer:
    """A member joins, or says that it is alive.  Raises KafkaError."""
    group.check_room(request.member_id, context.settings.max_size)
    before = _member_of(group, request, draft)
    answer = _sign_of_life(group, before, request, context)
    if answer is not None:
        draft.set_timer(TimerKind.SESSION, before.member_id, context.settings.session_timeout_ms)
        return answer
    after = _updated(before, request)
    after = follow(group, before, after, request.owned, context, draft)
    draft.set_timer(TimerKind.SESSION, after.member_id, context.settings.session_timeout_ms)
    is_sent = request.member_epoch == JOIN_EPOCH or request.is_full or after.assigned != before.assigned
    return HeartbeatAnswer(
        after.member_id,
        after.member_epoch,
        context.settings.heartbeat_interval_ms,
        after.assigned if is_sent else None,
    )


def follow(
    group: ConsumerGroup,
    before: ConsumerMember,
    after: ConsumerMember,
    reported: OwnedByTopic | None,
    context: HeartbeatContext,
    draft: Draft,
) -> ConsumerMember:
    """Steps 2 to 4: the member as it is then."""
    names_changed = write_member(group, before, after, draft)
    regex_change = change_regex(group, before, after, context, draft)
    # An unknown regular expression raises the epoch when its topics are known; with another of them, now.
    rises = names_changed or regex_change is RegexChange.CHANGED_AND_KNOWN
    epoch = group.epoch
    if rises or group.image_version != context.cache.image.version:
        epoch, homogeneous = bump_epoch(group, before, after, context, draft, changed=rises)
    else:
        homogeneous = group_is_homogeneous(group) if group.assignment_epoch < epoch else True
    target_epoch, assignment = next_target(group, epoch, before, after, context, draft, is_homogeneous=homogeneous)
    changed = names_changed or regex_change is not RegexChange.NONE
    if not changed and after.is_reconciled_to(target_epoch):
        return after
    target = Target(target_epoch, assignment, _topic_ids(group, after, context), group.is_owned)
    stepped = reconcile(after, target, reported, subscription_changed=changed)
    if stepped != after:
        assert after.member_epoch <= stepped.member_epoch <= target_epoch, (
            group.group_id,
            after,
            stepped,
            target_epoch,
        )
        assert not stepped.owns_any(stepped.pending_revocation), f"{group.group_id}: {stepped} keeps what it gives up"
        write_current(group, stepped, draft)
    return stepped


def write_current(group: ConsumerGroup, member: ConsumerMember, draft: Draft) -> None:
    """Store where a member stands; one that has to give partitions up is given time for it."""
    draft.records.append(records.current_assignment(group.group_id, member))
    if member.classic is not None:
        return
    if member.state is MemberState.UNREVOKED_PARTITIONS:
        draft.set_timer(
            TimerKind.REBALANCE, member.member_id, member.rebalance_timeout_ms, member_epoch=member.member_epoch
        )
    else:
        draft.cancel_timer(TimerKind.REBALANCE, member.member_id)


def _topic_ids(group: ConsumerGroup, member: ConsumerMember, context: HeartbeatContext) -> frozenset[bytes]:
    topics = map(context.cache.topic, group.topics_of(member))
    return frozenset(topic.topic_id for topic in topics if topic is not None)


def _sign_of_life(
    group: ConsumerGroup, member: ConsumerMember, request: HeartbeatRequest, context: HeartbeatContext
) -> HeartbeatAnswer | None:
    """The answer where there is nothing to decide, which is nearly always."""
    if (
        request.member_epoch == JOIN_EPOCH
        or not request.says_nothing
        or group.epoch != group.assignment_epoch
        or member.member_epoch != group.epoch
        or member.state is not MemberState.STABLE
        or member.client_id != request.client_id
        or member.client_host != request.client_host
        or member.classic is not None
        or group.image_version != context.cache.image.version
        or (group.regexes and refresh_due(group, group.regexes, context))
    ):
        return None
    # Regular expressions are looked at again when their time has come.
    lasts = not group.regexes
    return HeartbeatAnswer(member.member_id, member.member_epoch, context.settings.heartbeat_interval_ms, lasts=lasts)


def _updated(member: ConsumerMember, request: HeartbeatRequest) -> ConsumerMember:
    return replace(
        member,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=(
            member.rebalance_timeout_ms if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms
        ),
        server_assignor=member.server_assignor if request.server_assignor is None else request.server_assignor,
        topic_names=member.topic_names if request.topic_names is None else request.topic_names,
        topic_regex=member.topic_regex if request.topic_regex is None else request.topic_regex,
        client_id=request.client_id,
        client_host=request.client_host,
        classic=None,
    )


# Who


def _member_of(group: ConsumerGroup, request: HeartbeatRequest, draft: Draft) -> ConsumerMember:
    joins = request.member_epoch == JOIN_EPOCH
    member_id, instance_id = request.member_id, request.instance_id
    current = group.static_member(instance_id)
    if instance_id is not None and not joins:
        member = known_static(group, member_id, instance_id, current)
    elif current is not None:
        if current.classic is None and current.member_epoch != STATIC_LEAVE_EPOCH:
            raise KafkaError.of(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance "
                f"id is owned by {current.member_id} member.",
            )
        return replace_static(group, current, member_id, draft)
    elif joins:
        member = group.members.get(member_id) or ConsumerMember(member_id)
        logger.info("group %s: member %s joins with the consumer protocol", group.group_id, member_id)
    else:
        member = group.member(member_id)
    _check_epoch(member, request)
    return member


def replace_static(group: ConsumerGroup, current: ConsumerMember, member_id: str, draft: Draft) -> ConsumerMember:
    """The holder of an instance id comes back as `member_id`: it has what it had, and begins at epoch 0."""
    member = replace(current, member_id=member_id, member_epoch=0, previous_member_epoch=0)
    assert current.instance_id is not None, f"{group.group_id}: {current} has no place that {member_id} could take"
    draft.records += records.removal(group.group_id, current.member_id)
    draft.records.append(records.member_metadata(group.group_id, member))
    target = group.targets.get(current.member_id, {})
    draft.records.append(records.target_assignment(group.group_id, member_id, target))
    draft.records.append(records.current_assignment(group.group_id, member))
    if current.member_id != member_id:
        draft.cancel_timers(current.member_id)
    logger.info(
        "group %s: %s takes the place of %s (%s)", group.group_id, member_id, current.member_id, current.instance_id
    )
    return member


def known_static(
    group: ConsumerGroup, member_id: str, instance_id: str, current: ConsumerMember | None
) -> ConsumerMember:
    """The holder of an instance id, which must be `member_id`.  Raises FencedInstanceIdError, UnknownMemberIdError."""
    if current is None:
        raise UnknownMemberIdError(f"Instance id {instance_id} is unknown.")
    if current.member_id != member_id:
        logger.info("group %s: member %s is fenced by %s", group.group_id, member_id, current.member_id)
        raise FencedInstanceIdError(
            f"Static member {member_id} with instance id {instance_id} was fenced by member {current.member_id}."
        )
    return current


def _check_epoch(member: ConsumerMember, request: HeartbeatRequest) -> None:
    """A member may be one epoch behind, if it owns no more than it was given: its last answer was lost."""
    epoch, owned = request.member_epoch, request.owned
    if epoch in (JOIN_EPOCH, member.member_epoch):
        return
    is_behind = epoch < member.member_epoch and epoch == member.previous_member_epoch
    if not (is_behind and owned is not None and member.owns_all(owned.items())):
        raise fenced(GROUP_TYPE, member, epoch)


# Leaving


def leave(
    group: ConsumerGroup, request: HeartbeatRequest, context: HeartbeatContext, draft: Draft
) -> tuple[HeartbeatAnswer, ClassicState | None]:
    """A member goes for good (epoch -1), or a static one for a while (-2), until its session ends; what the group
    becomes, if only classic members are left."""
    if request.instance_id is None:
        member = group.member(request.member_id)
    else:
        current = group.static_member(request.instance_id)
        member = known_static(group, request.member_id, request.instance_id, current)
        if request.member_epoch == STATIC_LEAVE_EPOCH:
            gone = replace(
                member,
                member_epoch=STATIC_LEAVE_EPOCH,
                assigned=_since_zero(member.assigned),
                pending_revocation=NOTHING_OWNED,
            )
            draft.records.append(records.current_assignment(group.group_id, gone))
            return HeartbeatAnswer(member.member_id, STATIC_LEAVE_EPOCH), None
    logger.info("group %s: member %s left", group.group_id, member.member_id)
    becomes = remove(group, [member], context, draft)
    return HeartbeatAnswer(request.member_id, request.member_epoch), becomes


def _since_zero(owned: Owned) -> Owned:
    """The next holder of the instance id will own them from its own beginning."""
    return {topic_id: dict.fromkeys(epochs, 0) for topic_id, epochs in owned.items()}
