"""How a member moves towards its target assignment: pure (Kafka's CurrentAssignmentBuilder).

    keep    = assigned and in the target, in the same role
    revoke  = assigned - keep              first, in the epoch that it has
    assign  = target - keep - unreleased   then, in the target's epoch

Unreleased is an active task that any member still runs, and a task in any role that the member's own process still has
in another: a process has one state store for a task.  A member is asked to revoke tasks, and advances only when it has
reported that it no longer has them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from kbroker.coordinator.streams.member import MemberState, StreamsMember
from kbroker.coordinator.streams.tasks import NOTHING_OWNED, OwnedTasks, Partitions, Tasks
from kbroker.errors import ErrorCode, KafkaError


class Owners(Protocol):
    """Who has which task now; a group is one."""

    def is_active(self, subtopology: str, partition: int) -> bool:
        """Whether a member runs the task, or has not given it up yet."""

    def is_active_in(self, process_id: str, subtopology: str, partition: int) -> bool:
        """Whether a member of the process runs the task, or has not given it up yet."""

    def is_kept_in(self, process_id: str, subtopology: str, partition: int) -> bool:
        """Whether a member of the process has the task as standby or warm-up, or has not given it up yet."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where a member should get to."""

    epoch: int
    tasks: Tasks
    owners: Owners


def reconcile(member: StreamsMember, target: Target, reported: Tasks | None) -> StreamsMember:
    """The member after one step; itself where there is none to make.  `reported`: what it says that it has.

    Raises KafkaError."""
    if member.state is MemberState.STABLE:
        return member if member.member_epoch == target.epoch else _step(member, target, reported, member.member_epoch)
    if member.state is MemberState.UNREVOKED_TASKS:
        if reported is None or reported.has_any(member.pending_revocation):
            return member
        return _step(member, target, reported, member.member_epoch + 1)
    if member.state is MemberState.UNRELEASED_TASKS:
        return _step(member, target, reported, member.member_epoch)
    if reported is None or reported.active or reported.standby or reported.warmup:
        raise KafkaError.of(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "The streams group member is in a unknown state. The member must abandon all its tasks and rejoin.",
        )
    return _step(member, target, reported, target.epoch)


@dataclass(slots=True)
class _Difference:
    """One role: what stays, what goes, what comes; whether something has to be waited for."""

    keep: dict[str, frozenset[int]]
    revoke: dict[str, frozenset[int]]
    gain: dict[str, frozenset[int]]
    is_unreleased: bool = False


def _difference(
    has: Mapping[str, frozenset[int]], wanted: Partitions, is_unreleased: Callable[[str, int], bool]
) -> _Difference:
    found = _Difference({}, {}, {})
    for subtopology in has.keys() | wanted.keys():
        mine, target = has.get(subtopology, frozenset()), wanted.get(subtopology, frozenset())
        new = target - mine
        waits = frozenset(partition for partition in new if is_unreleased(subtopology, partition))
        found.is_unreleased = found.is_unreleased or bool(waits)
        for part, partitions in ((found.keep, mine & target), (found.revoke, mine - target), (found.gain, new - waits)):
            if partitions:
                part[subtopology] = partitions
    return found


def _step(member: StreamsMember, target: Target, reported: Tasks | None, epoch: int) -> StreamsMember:
    process_id, owners, has = member.process_id, target.owners, member.assigned

    def kept(subtopology: str, partition: int) -> bool:
        return owners.is_kept_in(process_id, subtopology, partition)

    def runs_or_keeps(subtopology: str, partition: int) -> bool:
        return owners.is_active_in(process_id, subtopology, partition) or kept(subtopology, partition)

    active = _difference(
        has.active_partitions,
        target.tasks.active,
        lambda subtopology, partition: owners.is_active(subtopology, partition) or kept(subtopology, partition),
    )
    standby = _difference(has.standby, target.tasks.standby, runs_or_keeps)
    warmup = _difference(has.warmup, target.tasks.warmup, runs_or_keeps)
    keep = OwnedTasks(
        {name: {each: has.active[name][each] for each in partitions} for name, partitions in active.keep.items()},
        standby.keep,
        warmup.keep,
    )
    revoke = OwnedTasks(
        {name: {each: has.active[name][each] for each in partitions} for name, partitions in active.revoke.items()},
        standby.revoke,
        warmup.revoke,
    )
    gain = OwnedTasks(
        {name: dict.fromkeys(partitions, target.epoch) for name, partitions in active.gain.items()},
        standby.gain,
        warmup.gain,
    )
    if revoke and (reported is None or reported.has_any(revoke)):
        return replace(
            member,
            state=MemberState.UNREVOKED_TASKS,
            member_epoch=epoch,
            previous_member_epoch=member.member_epoch,
            assigned=keep,
            pending_revocation=revoke,
        )
    is_unreleased = active.is_unreleased or standby.is_unreleased or warmup.is_unreleased
    return replace(
        member,
        state=MemberState.UNRELEASED_TASKS if is_unreleased else MemberState.STABLE,
        member_epoch=target.epoch,
        previous_member_epoch=member.member_epoch,
        assigned=keep.merged(gain) if gain else keep,
        pending_revocation=NOTHING_OWNED,
    )
