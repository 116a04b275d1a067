"""How a group gets from one generation to the next, and who is dropped on the way.

    any member joins anew, changes, leaves or falls silent
        -> prepare(reason): PreparingRebalance; members learn of it by their heartbeats and join again
        -> complete_join: everybody is here, or the rebalance timeout has passed: those who are missing are dropped,
           the others get the new generation: CompletingRebalance (Empty when no member is left)
        -> the leader's SyncGroup (see `membership`) makes it Stable; members that send no SyncGroup within the
           rebalance timeout are dropped, with a new rebalance

Static members (with a group instance id) are not dropped for failing to join again; only their session's end does that.
The first rebalance of an empty group waits `initial_rebalance_delay_ms`, and on for as long as members keep coming, up
to the rebalance timeout.

Each rebalance logs one INFO line with its reason.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from kbroker.clock import Clock
from kbroker.coordinator.classic.group import Group
from kbroker.coordinator.classic.group_state import GroupState, can_rebalance
from kbroker.coordinator.classic.member import Member
from kbroker.coordinator.classic.messages import SyncResult
from kbroker.coordinator.modern.group import LastRebalance
from kbroker.coordinator.runtime.timers import Deadline
from kbroker.errors import ErrorCode
from kbroker.waiting import CallLater

logger = logging.getLogger("kbroker.groups")

# How long the JoinGroup of a new member may be parked.  Its client does not know the member id yet, so
# it may be gone, and each of its retries adds a member under another id.
NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """The settings that rebalances depend on."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    max_size: int = 2_147_483_647
    new_member_join_timeout_ms: int = NEW_MEMBER_JOIN_TIMEOUT_MS


class GroupStore(Protocol):
    """Makes a group's metadata durable."""

    def can_store(self, sizes: Iterable[int]) -> bool:
        """Whether assignments of these sizes can ever be stored."""

    def store_group(self, group: Group, assignments: Mapping[str, bytes]) -> ErrorCode:
        """Write the group with these assignments; NONE once it is safe, else what to tell the members."""


class Rebalances:
    """Runs the rebalances of all groups; keeps no state but in the groups."""

    __slots__ = ("_call_later", "_clock", "_limits", "_store", "rebalance_count")

    def __init__(self, limits: GroupLimits, clock: Clock, call_later: CallLater, store: GroupStore) -> None:
        self._limits = limits
        self._clock = clock
        self._call_later = call_later
        self._store = store
        self.rebalance_count = 0

    # Sessions

    def watch(self, group: Group, member: Member, timeout_ms: int | None = None) -> None:
        """Expect a sign of life within the session timeout (or the given time) from now."""
        session = member.session
        if session is None:
            expire = partial(self._on_session_end, group, member)
            session = member.session = Deadline(self._clock, self._call_later, expire)
        session.move((member.session_timeout_ms if timeout_ms is None else timeout_ms) / 1000)

    def watch_pending(self, group: Group, member_id: str, timeout_ms: int) -> None:
        """Expect the bearer of a fresh member id to join with it in time."""
        expire = partial(self._on_pending_end, group, member_id)
        assert member_id not in group.members, f"group {group}: {member_id} is a member already"
        deadline = group.pending_joins[member_id] = Deadline(self._clock, self._call_later, expire)
        deadline.move(timeout_ms / 1000)

    def _on_session_end(self, group: Group, member: Member) -> None:
        if group.state is GroupState.DEAD or group.members.get(member.member_id) is not member:
            return
        if not member.is_excused:
            if group.state is GroupState.PREPARING_REBALANCE:
                logger.info("group %s: member %s has failed during the rebalance", group, member.member_id)
            self.drop(group, member.member_id, f"removing member {member.member_id} on heartbeat expiration.")

    def _on_pending_end(self, group: Group, member_id: str) -> None:
        logger.debug("group %s: pending member %s did not come back", group, member_id)
        group.remove_pending(member_id)
        self.complete_join_if_ready(group)

    # Members that go

    def drop(self, group: Group, member_id: str, reason: str) -> None:
        """Remove a member and let the others go on without it."""
        group.remove(member_id)
        self.after_removal(group, reason)

    def after_removal(self, group: Group, reason: str) -> None:
        """What follows from one or more members having been removed."""
        if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            self.prepare(group, reason)
        else:
            self.complete_join_if_ready(group)

    # The join phase

    def prepare_or_complete(self, group: Group, reason: str) -> None:
        """A member joined: start a rebalance, or see whether the running one has now got everybody."""
        if can_rebalance(group.state):
            self.prepare(group, reason)
        else:
            self.complete_join_if_ready(group)

    def prepare(self, group: Group, reason: str) -> None:
        """Start a rebalance."""
        if group.state is GroupState.COMPLETING_REBALANCE:
            self.fail_syncs(group, ErrorCode.REBALANCE_IN_PROGRESS)
        _end(group.sync_deadline)
        assert not any(each.awaits_sync for each in group.members.values()), f"group {group}: a SyncGroup is forgotten"
        first = group.state is GroupState.EMPTY
        logger.info(
            "preparing to rebalance group %s in state %s with old generation %d (reason: %s)",
            group,
            group.state,
            group.generation_id,
            reason,
        )
        self.rebalance_count += 1
        now_ms = self._clock.now_ms()
        group.last_rebalance = LastRebalance(now_ms, reason)
        group.transition_to(GroupState.PREPARING_REBALANCE, now_ms)
        delay_ms = self._limits.initial_rebalance_delay_ms
        if first and delay_ms <= 0:
            # Pending ids do not delay the first generation: a member that joins with one later starts the next
            # rebalance.
            self._complete_join(group)
        elif first:
            group.new_member_added = False
            left_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
            self._schedule_join(group, delay_ms, partial(self._on_initial_delay, group, delay_ms, left_ms))
        elif group.all_joined:
            self._complete_join(group)
        else:
            self._schedule_join(group, group.rebalance_timeout_ms, partial(self._on_join_timeout, group))

    def complete_join_if_ready(self, group: Group) -> None:
        """Close the join phase when all members have joined; the initial one always waits its full delay."""
        if (
            group.state is GroupState.PREPARING_REBALANCE
            and group.all_joined
            and group.previous_state is not GroupState.EMPTY
        ):
            self._complete_join(group)

    def _schedule_join(self, group: Group, delay_ms: int, expire: partial[None]) -> None:
        _end(group.join_deadline)
        group.join_deadline = Deadline(self._clock, self._call_later, expire)
        group.join_deadline.move(delay_ms / 1000)

    def _on_initial_delay(self, group: Group, delay_ms: int, left_ms: int) -> None:
        if group.state is not GroupState.PREPARING_REBALANCE:
            return
        if group.new_member_added and left_ms:
            group.new_member_added = False
            next_ms = min(self._limits.initial_rebalance_delay_ms, left_ms)
            left_ms = max(left_ms - delay_ms, 0)
            self._schedule_join(group, next_ms, partial(self._on_initial_delay, group, next_ms, left_ms))
        else:
            self._complete_join(group)

    def _on_join_timeout(self, group: Group) -> None:
        if group.state is GroupState.PREPARING_REBALANCE:
            self._complete_join(group)

    def _complete_join(self, group: Group) -> None:
        assert not can_rebalance(group.state), f"group {group} forms a generation in {group.state}"
        _end(group.join_deadline)
        missing = [member.member_id for member in group.members_not_joined() if not member.is_static]
        for member_id in missing:
            group.remove(member_id)
        if missing:
            logger.info("group %s: dropped members that did not join again: %s", group, ", ".join(missing))
        if group.members and not group.elect_joined_leader():
            # Only static members that have not joined are left: wait again, until they join or their sessions expire.
            logger.info("group %s: no member has joined within the rebalance timeout, waiting on", group)
            self._schedule_join(group, group.rebalance_timeout_ms, partial(self._on_join_timeout, group))
            return
        before = group.generation_id
        group.start_generation(self._clock.now_ms())
        assert group.generation_id > before, f"group {group}: two generations {before}"
        if group.state is GroupState.EMPTY:
            logger.info("group %s with generation %d is now empty", group, group.generation_id)
            error = self._store.store_group(group, {})
            if error is not ErrorCode.NONE:
                logger.warning("group %s: could not write its empty state: %s", group, error.name)
            return
        self._announce_generation(group)

    def _announce_generation(self, group: Group) -> None:
        logger.debug(
            "stabilized group %s generation %d with %d members", group, group.generation_id, len(group.members)
        )
        group.sync_deadline = Deadline(
            self._clock, self._call_later, partial(self._on_sync_timeout, group, group.generation_id)
        )
        group.sync_deadline.move(group.rebalance_timeout_ms / 1000)
        for member in list(group.members.values()):
            member.is_new = False
            group.pending_syncs.add(member.member_id)
            self.watch(group, member)
            is_leader = member.member_id == group.leader_id
            group.answer_join(member, group.join_result(member.member_id, with_members=is_leader))
        assert group.awaiting_join_count == 0, f"group {group}: {group.awaiting_join_count} JoinGroups are forgotten"

    # The sync phase

    def sync_received(self, group: Group, member_id: str) -> None:
        """A member asked for its assignment; when all have, the wait is over."""
        group.pending_syncs.discard(member_id)
        if not group.pending_syncs:
            _end(group.sync_deadline)

    def hand_out(self, group: Group, assignments: Mapping[str, bytes]) -> None:
        """Give everybody its assignment; the group is Stable."""
        assert assignments.keys() == group.members.keys(), f"group {group}: an assignment of other members"
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, b"")
        group.transition_to(GroupState.STABLE, self._clock.now_ms())
        for member in list(group.members.values()):
            result = SyncResult(ErrorCode.NONE, group.protocol_type, group.protocol_name, member.assignment)
            if group.answer_sync(member, result):
                # Its session could not expire while the request was parked: it starts anew.
                self.watch(group, member)

    def fail_syncs(self, group: Group, error: ErrorCode) -> None:
        """Forget all assignments and refuse the members that wait for one."""
        for member in list(group.members.values()):
            member.assignment = b""
            if group.answer_sync(member, SyncResult(error)):
                self.watch(group, member)

    def _on_sync_timeout(self, group: Group, generation_id: int) -> None:
        if group.generation_id != generation_id or not group.pending_syncs:
            return
        if group.state not in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            return
        assert group.pending_syncs <= group.members.keys(), f"group {group} waits for {group.pending_syncs}"
        silent = sorted(group.pending_syncs)
        for member_id in silent:
            group.remove(member_id)
        self.prepare(group, f"Removing {silent} on pending sync request expiration")


def _end(deadline: Deadline | None) -> None:
    if deadline is not None:
        deadline.end()
