"""A live group goes from the classic to the consumer protocol, and back (KIP-848).

Upgrade: the first member of the consumer protocol joins a classic group.  The generation becomes the group's epoch;
each member's assignment becomes both its target and its owned partitions.  The classic members stay in the group and go
on reading: their heartbeats and joins are served by `classic_members`.

Downgrade: the last member of the consumer protocol goes.  The epoch becomes the generation, and the targets become the
assignments.  The group then rebalances, which hands out the partitions of the member that left.

`group.consumer.migration.policy` says which of them may happen.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass

from kbroker.coordinator.classic import state_records
from kbroker.coordinator.classic.consumer_protocol import PROTOCOL_TYPE, SubscriptionError
from kbroker.coordinator.classic.group import Group
from kbroker.coordinator.classic.member import Member
from kbroker.coordinator.consumer import records
from kbroker.coordinator.consumer.draft import Draft, HeartbeatContext, TimerKind
from kbroker.coordinator.consumer.embedded import assignment_bytes, read_assignment, read_subscription
from kbroker.coordinator.consumer.group import ConsumerGroup
from kbroker.coordinator.consumer.member import ClassicMember, ConsumerMember
from kbroker.coordinator.modern.topic_hash import metadata_hash
from kbroker.errors import GroupIdNotFoundError

logger = logging.getLogger("kbroker.groups")


@dataclass(frozen=True, slots=True)
class ClassicState:
    """What a consumer group becomes when its last member of the consumer protocol goes; `reason` for a rebalance, None
    where none is needed."""

    group: Group
    reason: str | None


# Classic to consumer


def upgrade(group: Group, context: HeartbeatContext, draft: Draft) -> ConsumerGroup:
    """The consumer group that a classic group becomes.  GroupIdNotFoundError, in Kafka's words, where it may not."""
    group_id = group.group_id
    draft.records.append((state_records.group_key(group_id), None))
    if not group.members:
        return ConsumerGroup(group_id)
    _check_upgrade(group, context)
    epoch = group.generation_id
    try:
        members = [_upgraded(group, member, context) for member in group.members.values()]
    except SubscriptionError as error:
        logger.warning("group %s cannot be upgraded: a member's bytes cannot be read: %s", group_id, error)
        raise GroupIdNotFoundError(
            f"Cannot upgrade classic group {group_id} to consumer group because the embedded consumer protocol is "
            "malformed."
        ) from error
    names: set[str] = set().union(*(member.topic_names for member in members))
    pairs = [
        *(records.member_metadata(group_id, member) for member in members),
        records.group_epoch(group_id, epoch, metadata_hash(context.cache, names)),
        *(
            records.target_assignment(
                group_id, member.member_id, {topic: frozenset(owned) for topic, owned in member.assigned.items()}
            )
            for member in members
        ),
        records.target_epoch(group_id, epoch, 0),
        *(records.current_assignment(group_id, member) for member in members),
    ]
    draft.records += pairs
    for member in members:
        assert member.classic is not None
        draft.set_timer(TimerKind.SESSION, member.member_id, member.classic.session_timeout_ms)
    upgraded = ConsumerGroup(group_id)
    for key, value in pairs:
        upgraded.replay(records.parse(key, value))
    assert upgraded.members.keys() == group.members.keys() == upgraded.targets.keys(), (group_id, upgraded.members)
    assert upgraded.epoch == upgraded.assignment_epoch == group.generation_id, (group_id, upgraded.epoch)
    assert upgraded.classic_count == len(members), (group_id, upgraded.classic_count, len(members))
    logger.info("group %s becomes a consumer group with %d classic members", group_id, len(members))
    return upgraded


def _check_upgrade(group: Group, context: HeartbeatContext) -> None:
    why = None
    if not context.settings.migration.upgrades:
        why = "online upgrade is disabled"
    elif not group.is_consumer_group:
        why = "the group does not use the consumer embedded protocol"
    elif len(group.members) > context.settings.max_size:
        why = "the group size exceeds the consumer group maximum size"
    if why is not None:
        logger.info("group %s cannot be upgraded: %s", group, why)
        raise GroupIdNotFoundError(f"Cannot upgrade classic group {group} to consumer group because {why}.")


def _upgraded(group: Group, member: Member, context: HeartbeatContext) -> ConsumerMember:
    assigned, has_user_data = read_assignment(member.assignment, context.cache)
    if has_user_data:
        raise GroupIdNotFoundError(
            f"Cannot upgrade classic group {group} to consumer group because an unsupported custom assignor is in use. "
            "Please refer to the documentation or switch to a default assignor before re-attempting the upgrade."
        )
    # Before its first generation a group has not chosen a protocol yet.
    subscription = read_subscription(member.metadata_for(group.protocol_name or group.select_protocol()))
    epoch = group.generation_id
    return ConsumerMember(
        member.member_id,
        member_epoch=epoch,
        previous_member_epoch=epoch,
        instance_id=member.group_instance_id,
        rack_id=subscription.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        client_id=member.client_id,
        client_host=member.client_host,
        topic_names=subscription.topics,
        assigned={topic: dict.fromkeys(partitions, epoch) for topic, partitions in assigned.items()},
        classic=ClassicMember(member.session_timeout_ms, member.protocols),
    )


# Consumer to classic


def may_downgrade(
    group: ConsumerGroup, leaving: Collection[ConsumerMember], context: HeartbeatContext, *, replaced: bool = False
) -> bool:
    """Whether only classic members are left once the members `leaving` have left; with `replaced`, a classic member
    takes the place of one of them."""
    left = len(group.members) - len(leaving)
    classic = group.classic_count - sum(member.classic is not None for member in leaving)
    remaining = left + replaced
    if classic != left or remaining <= 0 or (replaced and all(member.classic is not None for member in leaving)):
        return False
    if not context.settings.migration.downgrades:
        logger.info("group %s cannot be downgraded: online downgrade is disabled", group.group_id)
        return False
    if remaining > context.settings.classic_max_size:
        logger.info("group %s cannot be downgraded: it has more members than group.max.size", group.group_id)
        return False
    return True


def downgrade(
    group: ConsumerGroup,
    leaving: Collection[ConsumerMember],
    joining: ConsumerMember | None,
    reason: str | None,
    context: HeartbeatContext,
    draft: Draft,
) -> ClassicState:
    """The classic group that a consumer group becomes without `leaving`; `joining`, a static member, takes the target
    of the one that it replaces.  GroupIdNotFoundError where a member's bytes cannot be read."""
    group_id = group.group_id
    staying = [member for member in group.members.values() if member not in leaving]
    if joining is not None:
        staying.append(joining)
    classic = Group(group_id, -1, context.now_ms)
    members = [_downgraded(member) for member in staying]
    classic.restore(members, group.epoch, PROTOCOL_TYPE, None, None, context.now_ms)
    protocol_name = classic.select_protocol()
    try:
        for member, was in zip(members, staying, strict=True):
            target = group.target_of(was)
            member.assignment = assignment_bytes(target, member.metadata_for(protocol_name), context.cache)
    except SubscriptionError as error:
        logger.warning("group %s cannot be downgraded: a member's bytes cannot be read: %s", group_id, error)
        raise GroupIdNotFoundError(f"Cannot downgrade the classic group {group_id}: {error}.") from error
    classic.restore(members, group.epoch, PROTOCOL_TYPE, protocol_name, None, context.now_ms)
    assert classic.generation_id == group.epoch and classic.leader_id in classic.members, (group_id, classic.leader_id)
    assert len(classic.members) == len(staying) > 0, (group_id, len(staying))
    draft.records += group.tombstones()
    value = state_records.group_value(classic, classic.assignments())
    draft.records.append((state_records.group_key(group_id), value))
    for member_id in group.members:
        draft.cancel_timers(member_id)
    logger.info("group %s becomes a classic group with %d members", group_id, len(members))
    return ClassicState(classic, reason)


def _downgraded(member: ConsumerMember) -> Member:
    assert member.classic is not None
    return Member(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        member.classic.session_timeout_ms,
        PROTOCOL_TYPE,
        member.classic.protocols,
    )
