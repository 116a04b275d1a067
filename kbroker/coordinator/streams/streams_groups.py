"""Streams groups (KIP-1071) on the coordinator runtime: the one door to them.

Each operation is planned on the group as it is (`heartbeat`, `targets`), its records are appended and replayed into the
group, and then what is known to this broker alone follows: timers, the configured topology, and work on other threads,
which comes back as an operation of its own.

Groups live in the registry of all groups, as the `kind` of theirs.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from kbroker.coordinator.classic import state_records
from kbroker.coordinator.classic.group import Group
from kbroker.coordinator.classic.kind_door import KindDoor
from kbroker.coordinator.classic.messages import (
    JoinReply,
    JoinRequest,
    JoinResult,
    LeaveResult,
    LeavingMember,
    SyncReply,
    SyncRequest,
    SyncResult,
)
from kbroker.coordinator.modern.draft import TimerChange
from kbroker.coordinator.modern.group import JOIN_EPOCH
from kbroker.coordinator.runtime.plan import Outcome, Plan
from kbroker.coordinator.streams import heartbeat, targets
from kbroker.coordinator.streams.assignor import assign
from kbroker.coordinator.streams.draft import (
    Draft,
    HeartbeatAnswer,
    HeartbeatContext,
    HeartbeatRequest,
    TargetWork,
    TimerKind,
)
from kbroker.coordinator.streams.group import GROUP_TYPE, StreamsGroup
from kbroker.coordinator.streams.member import MemberState
from kbroker.coordinator.streams.records import GROUP, RECORD_TYPES, parse
from kbroker.coordinator.streams.settings import GroupSettings
from kbroker.coordinator.streams.tasks import Tasks
from kbroker.errors import ErrorCode, GroupIdNotFoundError, KafkaError, UnknownMemberIdError
from kbroker.metadata.features import NO_LEVEL, STREAMS_VERSION

if TYPE_CHECKING:
    from kbroker.clock import Clock
    from kbroker.coordinator.classic.group_coordinator import GroupCoordinator
    from kbroker.coordinator.classic.group_registry import GroupPartition
    from kbroker.coordinator.runtime.background import Background
    from kbroker.metadata.cache import MetadataCache

T = TypeVar("T")

logger = logging.getLogger("kbroker.groups")

# A member that could not be removed, as its records could not be written, is tried again.
RETRY_MS = 1000


class StreamsGroups:
    """See the module's docstring."""

    def __init__(
        self,
        coordinator: GroupCoordinator,
        settings: GroupSettings,
        clock: Clock,
        metadata_cache: MetadataCache,
        background: Background,
    ) -> None:
        self._groups = KindDoor(coordinator.registry, StreamsGroup, GROUP_TYPE)
        self._settings = settings
        self._clock = clock
        self._cache = metadata_cache
        self._background = background
        self.rebalance_count = 0
        for record_type in RECORD_TYPES:
            coordinator.registry.record_kinds[record_type] = self._replay
        coordinator.serve_kind(GROUP_TYPE, self)

    # Records

    def _replay(self, partition: GroupPartition, key: bytes, value: bytes | None) -> None:
        self._groups.replay(partition, parse(key, value), GROUP)

    def on_loaded(self, group_id: str) -> None:
        """Sessions begin anew."""
        kind = self._groups.find(group_id)
        if kind is None:
            return
        draft = Draft()
        session_ms = self._settings.of_group(group_id).session_timeout_ms
        for member in kind.members.values():
            draft.set_timer(TimerKind.SESSION, member.member_id, session_ms)
            if member.state is MemberState.UNREVOKED_TASKS:
                draft.set_timer(TimerKind.REBALANCE, member.member_id, member.rebalance_timeout_ms, member.member_epoch)
        self._follow(group_id, draft)

    # Heartbeats

    def heartbeat(self, request: HeartbeatRequest) -> Outcome[HeartbeatAnswer]:
        """StreamsGroupHeartbeat.  Raises KafkaError."""
        draft = Draft()
        outcome = self._groups.write(request.group_id, partial(self._heartbeat, request, draft))
        self._follow(request.group_id, draft)
        return outcome

    def _heartbeat(
        self, request: HeartbeatRequest, draft: Draft, partition: GroupPartition, now_ms: int
    ) -> Plan[HeartbeatAnswer]:
        group = partition.groups.get(request.group_id)
        if request.member_epoch < 0:
            if group is None:
                raise GroupIdNotFoundError(f"Group {request.group_id} not found.")
            answer = heartbeat.leave(self._groups.of(group, request.group_id), request, draft)
            return Plan(answer, draft.records)
        context = self._context(request.group_id, now_ms)
        kind = self._joined(group, request, draft)
        is_new = group is None or group.kind is not kind
        return Plan(heartbeat.heartbeat(kind, request, context, draft, is_new=is_new), draft.records)

    def _joined(self, group: Group | None, request: HeartbeatRequest, draft: Draft) -> StreamsGroup:
        """The group that a heartbeat is for; a member that joins makes it, in the place of an empty classic one."""
        joins = request.member_epoch == JOIN_EPOCH
        if group is None:
            if joins:
                return StreamsGroup(request.group_id)
            raise GroupIdNotFoundError(f"Streams group {request.group_id} not found.")
        if joins and group.kind is None and group.is_empty and not group.pending_joins:
            draft.records.append((state_records.group_key(request.group_id), None))
            return StreamsGroup(request.group_id)
        return self._groups.of(group, request.group_id)

    # Members that speak the classic protocol have no place here

    def join(self, request: JoinRequest, reply: JoinReply) -> None:
        """JoinGroup of a streams group that has members."""
        reply(JoinResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))

    def sync(self, request: SyncRequest, reply: SyncReply) -> None:
        """SyncGroup of a streams group that has members."""
        reply(SyncResult(ErrorCode.UNKNOWN_MEMBER_ID))

    def heartbeat_classic(
        self, group_id: str, member_id: str, instance_id: str | None, generation_id: int
    ) -> ErrorCode:
        """Heartbeat of a streams group.  Raises UnknownMemberIdError."""
        raise UnknownMemberIdError()

    def leave_classic(self, group_id: str, leaving: Sequence[LeavingMember]) -> list[LeaveResult]:
        """LeaveGroup of a streams group."""
        return [LeaveResult(each.member_id, each.group_instance_id, ErrorCode.UNKNOWN_MEMBER_ID) for each in leaving]

    # Time

    def _on_timer(self, group_id: str, timer: TimerChange) -> None:
        draft = Draft()

        def operation(partition: GroupPartition, now_ms: int) -> Plan[bool]:
            group = partition.groups.get(group_id)
            kind = None if group is None else group.kind
            if not isinstance(kind, StreamsGroup):
                return Plan(False)
            if timer.kind is TimerKind.INITIAL:
                targets.delayed_target(kind, self._context(group_id, now_ms), draft)
                return Plan(False, draft.records)
            member = kind.members.get(timer.member_id)
            if member is None or (timer.kind is TimerKind.REBALANCE and member.member_epoch != timer.member_epoch):
                return Plan(False)
            heartbeat.remove(kind, member, draft)
            return Plan(True, draft.records)

        try:
            is_removed = self._groups.write(group_id, operation).answer
        except KafkaError as error:
            logger.warning("group %s: what was due (%s) cannot be stored: %s", group_id, timer.kind.value, error)
            self._groups.change_timers(group_id, [timer._replace(delay_ms=RETRY_MS)], self._on_timer)
            return
        if is_removed:
            logger.info("group %s: member %s is removed: %s", group_id, timer.member_id, timer.kind.value)
        self._follow(group_id, draft)

    # What follows from what was written

    def _follow(self, group_id: str, draft: Draft) -> None:
        self._groups.change_timers(group_id, draft.timers, self._on_timer)
        if draft.rebalanced is not None:
            self.rebalance_count += 1
            self._groups.rebalanced(group_id, draft.rebalanced, self._clock.now_ms())
        kind = self._groups.find(group_id)
        if kind is None:
            return
        if draft.known is not None:
            kind.know(draft.known)
        if draft.work is not None:
            self._compute(kind, draft.work)

    def _compute(self, kind: StreamsGroup, work: TargetWork) -> None:
        kind.known.computing = True
        self._background.run(partial(assign, work.spec), partial(self._computed, kind, work))

    def _computed(
        self, kind: StreamsGroup, work: TargetWork, result: Mapping[str, Tasks] | None, error: Exception | None
    ) -> None:
        kind.known.computing = False
        if result is None:
            logger.error("group %s: no target for epoch %d", kind.group_id, work.epoch, exc_info=error)
            return

        self._groups.write_found(kind, partial(targets.computed_records, kind, work, result), "its target assignment")

    # What is there

    def _context(self, group_id: str, now_ms: int) -> HeartbeatContext:
        is_delayed = (group_id, "", TimerKind.INITIAL) in self._groups.timers(group_id)
        return HeartbeatContext(now_ms, self._cache, self._settings.of_group(group_id), is_delayed)

    def is_enabled(self) -> bool:
        """Whether the protocol may be spoken: the feature is on, and the broker's settings allow it."""
        return self._settings.serves_streams and self._cache.image.features.level(STREAMS_VERSION) > NO_LEVEL

    def describe(self, group_id: str) -> StreamsGroup:
        """A group, to read.  GroupIdNotFoundError, or a client's error while it is not known whether there is such a
        group."""
        return self._groups.described(group_id)
