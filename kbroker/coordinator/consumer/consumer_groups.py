"""Consumer groups of the new protocol (KIP-848) on the coordinator runtime: the one door to them.

Operations are planned by `heartbeat`, `classic_members` and `departure`; regular expressions are resolved on other
threads.  Groups live in the registry of all groups, as the `kind` of theirs.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from kbroker._fast.net.answer_memo import AnswerRenewal
from kbroker.coordinator.classic.group import Group
from kbroker.coordinator.classic.group_kind_service import GroupKindService
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
from kbroker.coordinator.consumer import classic_members, departure, heartbeat, regexes, targets
from kbroker.coordinator.consumer.assignors.group_spec import Assignment
from kbroker.coordinator.consumer.assignors.table import ASSIGNORS
from kbroker.coordinator.consumer.draft import (
    Draft,
    HeartbeatAnswer,
    HeartbeatContext,
    HeartbeatRequest,
    TargetWork,
    TimerKind,
)
from kbroker.coordinator.consumer.group import GROUP_TYPE, ConsumerGroup
from kbroker.coordinator.consumer.member import MemberState
from kbroker.coordinator.consumer.migration import ClassicState, upgrade
from kbroker.coordinator.consumer.records import ResolvedRegex
from kbroker.coordinator.consumer.settings import GroupSettings
from kbroker.coordinator.consumer.subscriptions import apply_resolved
from kbroker.coordinator.modern.draft import TimerChange
from kbroker.coordinator.runtime.plan import Outcome, Plan, write_error
from kbroker.errors import ErrorCode, GroupIdNotFoundError, KafkaError, UnknownMemberIdError
from kbroker.metadata.features import GROUP_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable

    from kbroker.clock import Clock
    from kbroker.coordinator.classic.group_coordinator import GroupCoordinator
    from kbroker.coordinator.classic.group_registry import GroupPartition
    from kbroker.coordinator.runtime.background import Background
    from kbroker.coordinator.runtime.plan import KeyValue
    from kbroker.metadata.cache import MetadataCache
    from kbroker.metadata.image import ClusterImage, MetadataDelta

T = TypeVar("T")

logger = logging.getLogger("kbroker.groups")


class ConsumerGroups(GroupKindService[ConsumerGroup, Draft, TargetWork, Assignment, GroupSettings]):
    """See the module's docstring."""

    kind_class = ConsumerGroup
    draft_class = Draft
    group_type = GROUP_TYPE
    feature = GROUP_VERSION

    def __init__(
        self,
        coordinator: GroupCoordinator,
        settings: GroupSettings,
        clock: Clock,
        metadata_cache: MetadataCache,
        background: Background,
    ) -> None:
        super().__init__(coordinator, settings, clock, metadata_cache, background)
        self._registry = coordinator.registry
        self._rebalances = coordinator.rebalances
        self._topics_version = metadata_cache.image.version
        metadata_cache.subscribe(self._on_metadata)

    def _begin_sessions(self, kind: ConsumerGroup, draft: Draft) -> None:
        session_ms = self._settings.of_group(kind.group_id).session_timeout_ms
        for member in kind.members.values():
            draft.set_timer(TimerKind.SESSION, member.member_id, session_ms)
            if member.state is MemberState.UNREVOKED_PARTITIONS and member.classic is None:
                draft.set_timer(TimerKind.REBALANCE, member.member_id, member.rebalance_timeout_ms, member.member_epoch)

    # Heartbeats

    def heartbeat(self, request: HeartbeatRequest) -> Outcome[HeartbeatAnswer]:
        """ConsumerGroupHeartbeat.  Raises KafkaError."""
        draft = Draft(describes=request.describes)
        return self._operate(request.group_id, draft, partial(self._heartbeat, request, draft))

    def renewal(self, request: HeartbeatRequest, client_id: str | None, client_host: str) -> AnswerRenewal | None:
        """What a heartbeat does that is equal to this one, whose answer `lasts`."""
        kind = self._groups.find(request.group_id)
        timers = self._groups.timers(request.group_id)
        deadline = timers.find((request.group_id, request.member_id, TimerKind.SESSION))
        if kind is None or deadline is None:
            return None
        seconds = self._settings.of_group(request.group_id).session_timeout_ms / 1000
        return AnswerRenewal(kind.validity(), deadline, seconds, client_id, client_host)

    def end_repetitions(self, *_settings: object) -> None:
        """The settings of groups have changed."""
        for group in self._registry.groups.values():
            if isinstance(group.kind, ConsumerGroup):
                group.kind.end_validity()

    def _heartbeat(
        self, request: HeartbeatRequest, draft: Draft, partition: GroupPartition, now_ms: int
    ) -> Plan[HeartbeatAnswer]:
        context = self._context(request.group_id, now_ms)
        group = partition.groups.get(request.group_id)
        if request.member_epoch < 0:
            answer, becomes = heartbeat.leave(self._groups.of(group, request.group_id), request, context, draft)
            return self._plan(answer, draft, group, becomes)
        kind = self._joined(group, request, context, draft)
        return Plan(heartbeat.heartbeat(kind, request, context, draft), draft.records)

    def _joined(
        self, group: Group | None, request: HeartbeatRequest, context: HeartbeatContext, draft: Draft
    ) -> ConsumerGroup:
        """The group that a heartbeat is for; a member that joins makes it, of a classic one if need be."""
        if group is not None and isinstance(group.kind, ConsumerGroup):
            return group.kind
        joins = request.member_epoch == 0
        if group is None:
            if joins:
                return ConsumerGroup(request.group_id)
            raise GroupIdNotFoundError(f"Consumer group {request.group_id} not found.")
        if group.kind is not None or not joins:
            return self._groups.of(group, request.group_id)
        kind = upgrade(group, context, draft)
        # They join again, and find a group of the new kind.
        for member in group.members.values():
            group.answer_join(member, JoinResult(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
            group.answer_sync(member, SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))
        return kind

    # Members that speak the classic protocol

    def join(self, request: JoinRequest, reply: JoinReply) -> None:
        """JoinGroup of a consumer group that has members."""
        draft = Draft()

        def operation(partition: GroupPartition, now_ms: int) -> Plan[JoinResult]:
            context = self._context(request.group_id, now_ms)
            group = partition.groups.get(request.group_id)
            kind = self._groups.of(group, request.group_id)
            result, becomes = classic_members.join(kind, request, context, draft)
            return self._plan(result, draft, group, becomes)

        try:
            result = self._operate(request.group_id, draft, operation).answer
        except KafkaError as error:
            code = ErrorCode.UNKNOWN_MEMBER_ID if isinstance(error, GroupIdNotFoundError) else write_error(error)
            result = JoinResult(code, request.member_id)
        reply(result)

    def sync(self, request: SyncRequest, reply: SyncReply) -> None:
        """SyncGroup of a consumer group that has members."""
        draft = Draft()
        try:
            kind = self._existing(request.group_id)
            result = classic_members.sync(kind, request, self._context(request.group_id), draft)
        except KafkaError as error:
            result = SyncResult(error.code)
        self._follow(request.group_id, draft)
        reply(result)

    def heartbeat_classic(
        self, group_id: str, member_id: str, instance_id: str | None, generation_id: int
    ) -> ErrorCode:
        """Heartbeat of a member of a consumer group; raises for one that is no member in this generation."""
        draft = Draft()
        code = classic_members.heartbeat(self._existing(group_id), member_id, instance_id, generation_id, draft)
        self._follow(group_id, draft)
        return code

    def leave_classic(self, group_id: str, leaving: Sequence[LeavingMember]) -> list[LeaveResult]:
        """LeaveGroup of a consumer group.  Raises UnknownMemberIdError."""
        draft = Draft()

        def operation(partition: GroupPartition, now_ms: int) -> Plan[list[LeaveResult]]:
            group = partition.groups.get(group_id)
            kind = self._groups.of(group, group_id)
            gone, results = classic_members.leaving_members(kind, leaving)
            becomes = departure.remove(kind, gone, self._context(group_id, now_ms), draft)
            return self._plan(results, draft, group, becomes)

        try:
            return self._operate(group_id, draft, operation).answer
        except GroupIdNotFoundError as error:
            raise UnknownMemberIdError() from error

    def _plan(self, answer: T, draft: Draft, group: Group | None, becomes: ClassicState | None) -> Plan[T]:
        if becomes is None or group is None:
            return Plan(answer, draft.records)
        return Plan(answer, draft.records, apply=partial(self._become_classic, group, becomes))

    def _become_classic(self, group: Group, state: ClassicState) -> None:
        """What replaying the records would do, but for the protocols of the members: the log has only the chosen."""
        classic = state.group
        if isinstance(group.kind, ConsumerGroup):
            group.kind.end_validity()
        group.become(None)
        group.restore(
            list(classic.members.values()),
            classic.generation_id,
            classic.protocol_type,
            classic.protocol_name,
            classic.leader_id,
            classic.state_timestamp,
        )
        for member in group.members.values():
            self._rebalances.watch(group, member)
        if state.reason is not None:
            self._rebalances.prepare(group, state.reason)

    # What follows

    def _expire(self, group: Group, kind: ConsumerGroup, timer: TimerChange, now_ms: int, draft: Draft) -> Plan[bool]:
        member = departure.expires(kind, timer)
        if member is None:
            return Plan(False)
        becomes = departure.remove(kind, [member], self._context(kind.group_id, now_ms), draft)
        return self._plan(True, draft, group, becomes)

    def _note(self, kind: ConsumerGroup, draft: Draft) -> None:
        if draft.image_version is not None:
            kind.image_version = draft.image_version
        if draft.work is not None:
            self._compute(kind, draft.work, partial(ASSIGNORS[draft.work.assignor], draft.work.spec))
        if draft.resolve:
            self._resolve(kind, draft.resolve, draft.describes)

    def _target_records(
        self, kind: ConsumerGroup, work: TargetWork, target: Mapping[str, Assignment], now_ms: int
    ) -> list[KeyValue]:
        return targets.computed_records(kind, work, target, now_ms)

    def _resolve(self, kind: ConsumerGroup, wanted: frozenset[str], describes: Callable[[str], bool] | None) -> None:
        assert not kind.resolving, f"group {kind.group_id}: its regular expressions are resolved already"
        kind.resolving = True
        image = self._cache.image
        look_up = partial(regexes.resolve, wanted, image.topics, image.version, self._clock.now_ms())
        self._background.run(look_up, partial(self._resolved, kind, describes))

    def _resolved(
        self,
        kind: ConsumerGroup,
        describes: Callable[[str], bool] | None,
        found: Mapping[str, ResolvedRegex] | None,
        error: Exception | None,
    ) -> None:
        kind.resolving = False
        if found is None:
            logger.error("group %s: its regular expressions cannot be resolved", kind.group_id, exc_info=error)
            return
        if describes is not None:
            found = {
                regex: each._replace(topics=frozenset(filter(describes, each.topics))) for regex, each in found.items()
            }
        resolved, draft = found, Draft()

        def records(now_ms: int) -> list[KeyValue]:
            apply_resolved(kind, resolved, self._context(kind.group_id, now_ms), draft)
            return draft.records

        if self._groups.write_found(kind, records, "what its regular expressions match"):
            self._follow(kind.group_id, draft)

    # Metadata

    def _on_metadata(self, _old: ClusterImage, new: ClusterImage, delta: MetadataDelta) -> None:
        if delta.created:
            self._topics_version = new.version

    # What is there

    def _context(self, group_id: str, now_ms: int | None = None) -> HeartbeatContext:
        now_ms = self._clock.now_ms() if now_ms is None else now_ms
        return HeartbeatContext(now_ms, self._cache, self._settings.of_group(group_id), self._topics_version)

    def _existing(self, group_id: str) -> ConsumerGroup:
        kind = self._groups.find(group_id)
        if kind is None:
            raise UnknownMemberIdError()
        return kind

    def check_assignor(self, name: str | None) -> None:
        """UNSUPPORTED_ASSIGNOR as a KafkaError for an assignor that `group.consumer.assignors` leaves out."""
        assignors = self._settings.broker.assignors
        if name is not None and name not in assignors:
            raise KafkaError.of(
                ErrorCode.UNSUPPORTED_ASSIGNOR,
                f"ServerAssignor {name} is not supported. Supported assignors: {', '.join(assignors)}.",
            )

    def describe(self, group_id: str) -> tuple[ConsumerGroup, str]:
        """A group, to read, and the assignor that it uses.  GroupIdNotFoundError, or a client's error while it is
        not known whether there is such a group."""
        kind = self.described(group_id)
        return kind, targets.preferred_assignor(kind, self._context(group_id))
