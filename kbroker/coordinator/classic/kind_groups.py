"""The groups of one newer kind: find one, write to its partition, keep its timers.

Groups live in the registry of all groups, as the `kind` of theirs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Generic, Protocol, TypeVar

from kbroker.coordinator.classic.group_kind import GroupKind
from kbroker.coordinator.modern.group import LastRebalance
from kbroker.coordinator.runtime.plan import Outcome, Plan
from kbroker.errors import GroupIdNotFoundError, KafkaError

if TYPE_CHECKING:
    from kbroker.coordinator.classic.group import Group
    from kbroker.coordinator.classic.group_registry import GroupPartition, GroupRegistry
    from kbroker.coordinator.modern.draft import TimerChange
    from kbroker.coordinator.modern.kind_records import KindRecord, KindRecords
    from kbroker.coordinator.runtime.plan import KeyValue
    from kbroker.coordinator.runtime.timers import Timers

T = TypeVar("T")


class ReplayedKind(GroupKind, Protocol):
    """A group that its records make."""

    kind_records: ClassVar[KindRecords]

    def __init__(self, group_id: str) -> None: ...

    @property
    def group_id(self) -> str:
        """The id."""

    def replay(self, record: KindRecord) -> None:
        """Apply a record, but for the tombstone of the group itself."""

    def end_validity(self) -> None:
        """What is remembered of the last requests no longer holds."""


KindT = TypeVar("KindT", bound=ReplayedKind)

logger = logging.getLogger("kbroker.groups")


def apply_record(partition: GroupPartition, kind: type[KindT], record: KindRecord) -> None:
    """Apply a record of a group of `kind`; the tombstone of its epoch ends the group."""
    group = partition.groups.get(record.group_id)
    known = None if group is None else group.kind
    if not isinstance(known, kind):
        if record.value is None:
            return
        known = kind(record.group_id)
        partition.group(record.group_id).become(known)
    if record.value is None and record.record_type == kind.kind_records.group:
        known.end_validity()
        partition.end_kind(record.group_id)
    else:
        known.replay(record)


class KindGroups(Generic[KindT]):
    """See the module's docstring; applies the kind's records from now on.  `group_type` names the groups in errors."""

    def __init__(self, registry: GroupRegistry, kind: type[KindT], group_type: str) -> None:
        self._registry = registry
        self._runtime = registry.runtime
        self._kind = kind
        self._group_type = group_type
        for record_type in kind.kind_records.names:
            registry.record_kinds[record_type] = self._replay

    def find(self, group_id: str) -> KindT | None:
        """The group, where there is one of this kind."""
        group = self._registry.groups.get(group_id)
        return group.kind if group is not None and isinstance(group.kind, self._kind) else None

    def of(self, group: Group | None, group_id: str) -> KindT:
        """The group as one of this kind.  GroupIdNotFoundError."""
        if group is None:
            raise GroupIdNotFoundError(f"Group {group_id} not found.")
        if not isinstance(group.kind, self._kind):
            raise GroupIdNotFoundError(f"Group {group_id} is not a {self._group_type} group.")
        return group.kind

    def described(self, group_id: str) -> KindT:
        """A group, to read.  GroupIdNotFoundError, or a client's error while it is not known whether it exists."""
        return self.of(self._registry.find(group_id), group_id)

    def _replay(self, partition: GroupPartition, key: bytes, value: bytes | None) -> None:
        apply_record(partition, self._kind, self._kind.kind_records.parse(key, value))

    def rebalanced(self, group_id: str, reason: str, now_ms: int) -> None:
        """The group has a new epoch, for a reason that goes into the log and stays known until the next."""
        logger.info("group %s: a new epoch, as %s", group_id, reason)
        group = self._registry.groups.get(group_id)
        if group is not None:
            group.last_rebalance = LastRebalance(now_ms, f"a new epoch, as {reason}")

    # Writes

    def write(self, group_id: str, operation: Callable[[GroupPartition, int], Plan[T]]) -> Outcome[T]:
        """Plan, append and apply.  Raises KafkaError."""
        return self._runtime.write(self._index(group_id), operation)

    def write_found(self, kind: KindT, records: Callable[[int], Sequence[KeyValue]], what: str) -> bool:
        """Write another thread's result for a group, unless the group was replaced meanwhile; False when that
        failed."""

        def operation(partition: GroupPartition, now_ms: int) -> Plan[None]:
            group = partition.groups.get(kind.group_id)
            return Plan(None) if group is None or group.kind is not kind else Plan(None, records(now_ms))

        try:
            self.write(kind.group_id, operation)
        except KafkaError as error:
            logger.warning("group %s: %s cannot be stored: %s", kind.group_id, what, error)
            return False
        return True

    def _index(self, group_id: str) -> int:
        # Hashing the id would take longer than the rest of a heartbeat.
        group = self._registry.groups.get(group_id)
        return self._runtime.partition_of(group_id) if group is None else group.partition_index

    # Timers

    def timers(self, group_id: str) -> Timers:
        """Those of the group's partition; keys are the group, the member and the kind of timer."""
        return self._runtime.shard(self._index(group_id)).timers

    def change_timers(
        self, group_id: str, changes: Iterable[TimerChange], expire: Callable[[str, TimerChange], None]
    ) -> None:
        """Set and cancel timers; `expire` is called with the group and the change that set the timer."""
        for change in changes:
            timers = self.timers(group_id)
            key = (group_id, change.member_id, change.kind)
            if change.delay_ms is None:
                timers.cancel(key)
            elif not (change.if_absent and key in timers):
                timers.set(key, change.delay_ms / 1000, partial(expire, group_id, change))
