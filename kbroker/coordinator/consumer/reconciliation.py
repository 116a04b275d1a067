"""How a member moves towards its target assignment: pure (Kafka's CurrentAssignmentBuilder).

    keep    = assigned and in the target, of topics that it still subscribes to
    revoke  = assigned - keep                  first, in the epoch that it has
    assign  = target - keep - owned by others  then, in the target's epoch

A member that has to revoke partitions is notified by the answer to its heartbeat.  It goes on to the next step only
when it has reported that it no longer owns them.  Partitions that another member still owns are assigned when they are
free.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from kbroker.coordinator.consumer.assignors.group_spec import Assignment
from kbroker.coordinator.consumer.member import NOTHING_OWNED, ConsumerMember, MemberState, Owned
from kbroker.errors import ErrorCode, KafkaError

# What a member says that it owns; None when it says nothing.
Reported = Mapping[bytes, Collection[int]] | None


@dataclass(frozen=True, slots=True)
class Target:
    """The target that a member is reconciled with.  `is_owned(topic_id, partition)` tells whether any member has the
    partition."""

    epoch: int
    assignment: Assignment
    topic_ids: frozenset[bytes]
    is_owned: Callable[[bytes, int], bool]


def reconcile(
    member: ConsumerMember, target: Target, reported: Reported, *, subscription_changed: bool
) -> ConsumerMember:
    """The member after one step; itself where there is none to make.  Raises KafkaError."""
    if member.state is MemberState.STABLE:
        if member.member_epoch != target.epoch:
            return _step(member, target, reported, member.member_epoch)
        return _drop_unsubscribed(member, target, reported) if subscription_changed else member
    if member.state is MemberState.UNREVOKED_PARTITIONS:
        if _still_owns(reported, member.pending_revocation):
            return _drop_unsubscribed(member, target, reported) if subscription_changed else member
        return _step(member, target, reported, member.member_epoch)
    if member.state is MemberState.UNRELEASED_PARTITIONS:
        return _step(member, target, reported, member.member_epoch)
    if reported is None or any(reported.values()):
        raise KafkaError.of(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "The consumer group member is in a unknown state. The member must abandon all its partitions and rejoin.",
        )
    return _step(member, target, reported, target.epoch)


def _still_owns(reported: Reported, partitions: Owned) -> bool:
    if reported is None:
        return True
    return any(
        partition in partitions.get(topic_id, ()) for topic_id, indexes in reported.items() for partition in indexes
    )


def _drop_unsubscribed(member: ConsumerMember, target: Target, reported: Reported) -> ConsumerMember:
    """Partitions of topics that the new subscription no longer has are revoked at once, before there is a new
    target."""
    gone = member.assigned.keys() - target.topic_ids
    if not gone:
        return member
    kept = {topic_id: epochs for topic_id, epochs in member.assigned.items() if topic_id not in gone}
    revoked: dict[bytes, Mapping[int, int]] = dict(member.pending_revocation)
    for topic_id in gone:
        revoked[topic_id] = {**revoked.get(topic_id, {}), **member.assigned[topic_id]}
    if _still_owns(reported, revoked):
        return replace(
            member,
            state=MemberState.UNREVOKED_PARTITIONS,
            previous_member_epoch=member.member_epoch,
            assigned=kept,
            pending_revocation=revoked,
        )
    return replace(member, previous_member_epoch=member.member_epoch, assigned=kept)


def _step(member: ConsumerMember, target: Target, reported: Reported, epoch: int) -> ConsumerMember:
    kept: dict[bytes, Mapping[int, int]] = {}
    revoked: dict[bytes, Mapping[int, int]] = {}
    gained: dict[bytes, list[int]] = {}
    unreleased = False
    for topic_id in target.assignment.keys() | member.assigned.keys():
        wanted = target.assignment.get(topic_id, frozenset()) if topic_id in target.topic_ids else frozenset()
        has = member.assigned.get(topic_id, {})
        keep = {partition: since for partition, since in has.items() if partition in wanted}
        if keep:
            kept[topic_id] = keep
        if len(keep) < len(has):
            revoked[topic_id] = {partition: since for partition, since in has.items() if partition not in wanted}
        own = member.pending_revocation.get(topic_id, {})
        for partition in wanted:
            if partition in keep:
                continue
            # What it is about to give up itself belongs to no other member.
            if target.is_owned(topic_id, partition) and partition not in own:
                unreleased = True
            else:
                gained.setdefault(topic_id, []).append(partition)
    if revoked and _still_owns(reported, revoked):
        return replace(
            member,
            state=MemberState.UNREVOKED_PARTITIONS,
            member_epoch=epoch,
            previous_member_epoch=member.member_epoch,
            assigned=kept,
            pending_revocation=revoked,
        )
    for topic_id, partitions in gained.items():
        kept[topic_id] = {**kept.get(topic_id, {}), **dict.fromkeys(partitions, target.epoch)}
    return replace(
        member,
        state=MemberState.UNRELEASED_PARTITIONS if unreleased else MemberState.STABLE,
        member_epoch=target.epoch,
        previous_member_epoch=member.member_epoch,
        assigned=kept,
        pending_revocation=NOTHING_OWNED,
    )
