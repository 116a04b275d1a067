"""What consumer (KIP-848) and streams (KIP-1071) groups do alike on the coordinator runtime.

Each operation is planned on the current state of the group; its records are appended and replayed into the group.  Then
`_follow` updates the state that is not in records: it sets timers and starts work on other threads, whose result comes
back as an operation of its own.  Only records change a group; a service changes its timers and the state that a kind
keeps in memory alone.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from kbroker.coordinator.classic.group_kind import KindServer
from kbroker.coordinator.classic.kind_groups import KindGroups, ReplayedKind
from kbroker.coordinator.modern.draft import ModernDraft, TimerChange
from kbroker.coordinator.runtime.plan import Plan
from kbroker.errors import KafkaError
from kbroker.metadata.features import NO_LEVEL

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kbroker.clock import Clock
    from kbroker.coordinator.classic.group import Group
    from kbroker.coordinator.classic.group_coordinator import GroupCoordinator
    from kbroker.coordinator.classic.group_registry import GroupPartition
    from kbroker.coordinator.runtime.background import Background
    from kbroker.coordinator.runtime.plan import KeyValue, Outcome
    from kbroker.metadata.cache import MetadataCache
    from kbroker.metadata.features import Features

logger = logging.getLogger("kbroker.groups")

RETRY_MS = 1000
"""When a member is tried again that could not be removed, as its records could not be written."""


class TargetWork(Protocol):
    """A target assignment to compute on another thread."""

    @property
    def epoch(self) -> int:
        """The group's epoch that it is for."""


class ServedKind(ReplayedKind, Protocol):
    """A group whose target assignment another thread may compute.  `computing`: one does so now."""

    computing: bool


class ServedProtocol(Protocol):
    """The settings of a kind of groups; see `KindSettings`."""

    @property
    def is_served(self) -> bool:
        """Whether the broker's settings allow the protocol."""


KindT = TypeVar("KindT", bound=ServedKind)
DraftT = TypeVar("DraftT", bound=ModernDraft)
WorkT = TypeVar("WorkT", bound=TargetWork)
TargetT = TypeVar("TargetT")
SettingsT = TypeVar("SettingsT", bound=ServedProtocol)
AnswerT = TypeVar("AnswerT")


class GroupKindService(KindServer, ABC, Generic[KindT, DraftT, WorkT, TargetT, SettingsT]):
    """See the module's docstring.  `TargetT`: a member's part of a target assignment; `group_type` names the groups in
    errors; `feature` has to be on for the protocol."""

    kind_class: type[KindT]
    draft_class: type[DraftT]
    group_type: str
    feature: str

    def __init__(
        self,
        coordinator: GroupCoordinator,
        settings: SettingsT,
        clock: Clock,
        metadata_cache: MetadataCache,
        background: Background,
    ) -> None:
        self._groups = KindGroups(coordinator.registry, self.kind_class, self.group_type)
        self._refusals = coordinator.refusals
        self._settings = settings
        self._clock = clock
        self._cache = metadata_cache
        self._background = background
        self._features: Features | None = None
        self._is_on = False
        self.rebalance_count = 0
        coordinator.serve_kind(self.group_type, self)

    # What a kind says

    @abstractmethod
    def _begin_sessions(self, kind: KindT, draft: DraftT) -> None:
        """Set the timers of all members of a group that was loaded."""

    @abstractmethod
    def _expire(self, group: Group, kind: KindT, timer: TimerChange, now_ms: int, draft: DraftT) -> Plan[bool]:
        """The plan for a timer that went off; its answer is whether a member is removed."""

    @abstractmethod
    def _note(self, kind: KindT, draft: DraftT) -> None:
        """Update the group's state that is not in records, and begin work on other threads."""

    @abstractmethod
    def _target_records(self, kind: KindT, work: WorkT, target: Mapping[str, TargetT], now_ms: int) -> list[KeyValue]:
        """The records of a target that was computed while the group went on."""

    # Operations

    def on_loaded(self, group_id: str) -> None:
        """Sessions begin anew."""
        kind = self._groups.find(group_id)
        if kind is None:
            return
        draft = self.draft_class()
        self._begin_sessions(kind, draft)
        self._follow(group_id, draft)

    def _operate(
        self, group_id: str, draft: DraftT, operation: Callable[[GroupPartition, int], Plan[AnswerT]]
    ) -> Outcome[AnswerT]:
        """Plan, append, apply, and what follows.  Raises KafkaError; then nothing has changed."""
        with self._refusals.raised():
            outcome = self._groups.write(group_id, operation)
        self._follow(group_id, draft)
        return outcome

    def _on_timer(self, group_id: str, timer: TimerChange) -> None:
        draft = self.draft_class()

        def operation(partition: GroupPartition, now_ms: int) -> Plan[bool]:
            group = partition.groups.get(group_id)
            kind = None if group is None else group.kind
            if group is None or not isinstance(kind, self.kind_class):
                return Plan(False)
            return self._expire(group, kind, timer, now_ms, draft)

        try:
            is_removed = self._groups.write(group_id, operation).answer
        except KafkaError as error:
            logger.warning(
                "group %s: what is due for member %s (%s) cannot be stored: %s",
                *(group_id, timer.member_id, timer.kind.value, error),
            )
            self._groups.change_timers(group_id, [timer._replace(delay_ms=RETRY_MS)], self._on_timer)
            return
        if is_removed:
            logger.info("group %s: member %s is removed: %s", group_id, timer.member_id, timer.kind.value)
        self._follow(group_id, draft)

    def _follow(self, group_id: str, draft: DraftT) -> None:
        """Set timers, log the rebalance and start work, after the records were written."""
        if draft.timers:
            self._groups.change_timers(group_id, draft.timers, self._on_timer)
        if draft.rebalanced is not None:
            self.rebalance_count += 1
            self._groups.rebalanced(group_id, draft.rebalanced, self._clock.now_ms())
        if not draft.changes_what_is_known:
            return
        kind = self._groups.find(group_id)
        if kind is not None:
            self._note(kind, draft)

    # Target assignments on other threads

    def _compute(self, kind: KindT, work: WorkT, assign: Callable[[], Mapping[str, TargetT]]) -> None:
        kind.computing = True
        self._background.run(assign, partial(self._computed, kind, work))

    def _computed(
        self, kind: KindT, work: WorkT, target: Mapping[str, TargetT] | None, error: Exception | None
    ) -> None:
        kind.computing = False
        if target is None:
            logger.error("group %s: no target for epoch %d", kind.group_id, work.epoch, exc_info=error)
            return

        self._groups.write_found(kind, partial(self._target_records, kind, work, target), "its target assignment")

    # What is there

    def is_enabled(self) -> bool:
        """Whether the protocol may be spoken: the feature is on, and the broker's settings allow it."""
        features = self._cache.image.features
        if features is not self._features:
            self._features = features
            self._is_on = features.level(self.feature) > NO_LEVEL
        return self._is_on and self._settings.is_served

    def described(self, group_id: str) -> KindT:
        """A group, to read.  GroupIdNotFoundError, or a client's error while it is not known whether it exists."""
        return self._groups.described(group_id)
