"""A streams group (KIP-1071), exactly as its records say it.

    EMPTY        no members
    NOT_READY    the topology has not been found valid yet: topics are missing or have the wrong partitions
    ASSIGNING    the group's epoch is ahead of the target assignment's
    RECONCILING  a target assignment is there, and members are on their way to it
    STABLE       every member has its target assignment

A change of the members, of the topology's topics or of the assignment settings raises the group's epoch.  The next
target assignment is made for that epoch, and each member follows at its own pace (`reconciliation`).

Only `replay` changes what records say; `StreamsKnowledge` is known to this broker alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING

from kbroker.coordinator.classic.group_kind import CommitCheck
from kbroker.coordinator.modern.group import FIRST_EPOCH, LEAVE_EPOCH, ModernGroup
from kbroker.coordinator.modern.kind_records import KindRecord, UnknownRecordError
from kbroker.coordinator.runtime.plan import KeyValue
from kbroker.coordinator.streams import fencing, records
from kbroker.coordinator.streams.configuration import ConfiguredTopology
from kbroker.coordinator.streams.member import StreamsMember
from kbroker.coordinator.streams.tasks import NO_TASKS, NOTHING_OWNED, OwnedTasks, Tasks, each_task
from kbroker.coordinator.streams.topology import Topology
from kbroker.errors import KafkaError

if TYPE_CHECKING:
    from kbroker.schemas import wire

GROUP_TYPE = PROTOCOL_TYPE = "streams"


class StreamsGroupState(Enum):
    """The value is the name that Kafka puts into answers."""

    EMPTY = "Empty"
    NOT_READY = "NotReady"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


@dataclass(slots=True)
class StreamsKnowledge:
    """State that is in no record: the topology configured with the topics of `image_version`; the epoch of the members'
    endpoints; the member that asked the whole application to shut down."""

    configured: ConfiguredTopology | None = None
    image_version: int = -1
    endpoint_epoch: int = 0
    shutdown_by: str | None = None


class StreamsGroup(ModernGroup[StreamsMember, Tasks]):
    """See the module's docstring; a `GroupKind`.  Records change it (`replay`), `StreamsGroups` what no record has."""

    __slots__ = ("computing", "configs", "known", "topology", "validated_topology_epoch", "_active", "_others")

    group_type = GROUP_TYPE
    protocol_type = PROTOCOL_TYPE
    # The first member of a new group has nothing until there is a target.
    first_assignment_epoch = FIRST_EPOCH
    no_assignment_epoch = -1

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.topology: Topology | None = None
        self.validated_topology_epoch = 0
        self.configs: Mapping[str, str] = MappingProxyType({})
        self.known = StreamsKnowledge()
        self.computing = False
        # The process that has an active task; how many members of a process have a task in the other roles.
        self._active: dict[tuple[str, int], str] = {}
        self._others: Counter[tuple[str, int, str]] = Counter()

    # What all kinds of groups have in common (`GroupKind`)

    @property
    def state_name(self) -> str:
        """As answers name it."""
        return self.state.value

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether the application reads the topic, so that its offsets stay."""
        return bool(self.members) and self.topology is not None and self.topology.subtopology_of(topic) is not None

    def tombstones(self) -> list[KeyValue]:
        """The records that delete the group with all its members."""
        return records.group_tombstones(self.group_id, self.members)

    def check_commit(
        self,
        member_id: str,
        instance_id: str | None,
        epoch: int,
        api_version: int,
        *,
        is_transactional: bool = False,
    ) -> CommitCheck | None:
        """A member commits in its epoch, or what it has had since the epoch that it says (see `fencing`)."""
        return fencing.check_commit(
            self.members, self.topology, member_id, instance_id, epoch, api_version, is_transactional=is_transactional
        )

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """A member that says who it is must be one, in its epoch."""
        fencing.check_fetch(self.members, member_id, epoch)

    # What it is

    @property
    def state(self) -> StreamsGroupState:
        """See the module's docstring."""
        if not self.members:
            return StreamsGroupState.EMPTY
        if self.topology is None or self.topology.epoch != self.validated_topology_epoch:
            return StreamsGroupState.NOT_READY
        if self.epoch > self.assignment_epoch:
            return StreamsGroupState.ASSIGNING
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return StreamsGroupState.STABLE
        return StreamsGroupState.RECONCILING

    def know(self, known: StreamsKnowledge) -> None:
        """What this broker knows of the group from now on; a request to shut down ends with the last member."""
        self.known = known if self.members else replace(known, shutdown_by=None)

    def target_of(self, member_id: str) -> Tasks:
        """A member's target assignment."""
        return self.targets.get(member_id, NO_TASKS)

    def is_active(self, subtopology: str, partition: int) -> bool:
        """Whether a member runs the task, or has not given it up yet."""
        return (subtopology, partition) in self._active

    def is_active_in(self, process_id: str, subtopology: str, partition: int) -> bool:
        """Whether a member of the process runs the task, or has not given it up yet."""
        return self._active.get((subtopology, partition)) == process_id

    def is_kept_in(self, process_id: str, subtopology: str, partition: int) -> bool:
        """Whether a member of the process has the task as standby or warm-up, or has not given it up yet."""
        return self._others[subtopology, partition, process_id] > 0

    # What its records say

    def replay(self, record: KindRecord) -> None:
        """Apply a record, but for the tombstone of the group itself.  UnknownRecordError, and nothing has changed."""
        record_type, key, value = record
        if record_type == records.GROUP:
            if value is not None:
                self.apply_epoch(value.epoch, value.metadata_hash)
                self.validated_topology_epoch = value.validated_topology_epoch
                self.configs = {each.key: each.value for each in value.last_assignment_configs or ()}
        elif record_type == records.TOPOLOGY:
            self._replay_topology(value)
        elif record_type == records.TARGET:
            if value is None:
                self.apply_no_assignment()
            else:
                self.apply_assignment_epoch(value.assignment_epoch, value.assignment_timestamp)
        elif record_type == records.MEMBER:
            self._replay_member(key.member_id, value)
        elif record_type == records.MEMBER_TARGET:
            self.apply_target(key.member_id, None if value is None else records.read_target(value))
        else:
            self._replay_current(key.member_id, value)

    def _replay_topology(self, value: wire.StreamsGroupTopologyValue | None) -> None:
        """StreamsGroupTopologyValue."""
        try:
            self.topology = None if value is None else records.read_topology(value)
        except KafkaError as error:
            raise UnknownRecordError(f"topology of {self.group_id}: {error}") from error
        self.known.configured = None

    def _replay_member(self, member_id: str, value: wire.StreamsGroupMemberMetadataValue | None) -> None:
        """StreamsGroupMemberMetadataValue."""
        if value is None:
            self.apply_no_member(member_id)
            return
        self.apply_member(
            replace(
                self.members.get(member_id) or StreamsMember(member_id),
                instance_id=value.instance_id,
                rack_id=value.rack_id,
                client_id=value.client_id,
                client_host=value.client_host,
                rebalance_timeout_ms=value.rebalance_timeout_ms,
                topology_epoch=value.topology_epoch,
                process_id=value.process_id,
                endpoint=records.read_endpoint(value.user_endpoint),
                client_tags={each.key: each.value for each in value.client_tags},
            )
        )

    def _replay_current(self, member_id: str, value: wire.StreamsGroupCurrentMemberAssignmentValue | None) -> None:
        """StreamsGroupCurrentMemberAssignmentValue."""
        old = self.members.get(member_id)
        if value is None:
            if old is not None:
                self.apply_member(
                    replace(
                        old,
                        member_epoch=LEAVE_EPOCH,
                        previous_member_epoch=LEAVE_EPOCH,
                        assigned=NOTHING_OWNED,
                        pending_revocation=NOTHING_OWNED,
                    )
                )
            return
        state, assigned, pending = records.read_current(value)
        self.apply_member(
            replace(
                old or StreamsMember(member_id),
                member_epoch=value.member_epoch,
                previous_member_epoch=value.previous_member_epoch,
                state=state,
                assigned=assigned,
                pending_revocation=pending,
            )
        )

    # What is counted

    def count_member(self, old: StreamsMember | None, new: StreamsMember | None) -> None:
        """Count which process has which task."""
        if old is not None:
            self._disown(old.assigned, old.process_id)
            self._disown(old.pending_revocation, old.process_id)
        if new is not None:
            self._own(new.assigned, new.process_id)
            self._own(new.pending_revocation, new.process_id)
        if not self.members:
            self.known.shutdown_by = None

    def check_invariants(self) -> None:
        """See ModernGroup."""
        super().check_invariants()
        processes = {member.process_id for member in self.members.values()}
        assert set(self._active.values()) <= processes, (self.group_id, self._active)
        assert all(count > 0 for count in self._others.values()), (self.group_id, self._others)
        assert self.members or self.known.shutdown_by is None, self.group_id

    def _own(self, tasks: OwnedTasks, process_id: str) -> None:
        for task in each_task(tasks.active):
            self._active[task] = process_id
        for role in (tasks.standby, tasks.warmup):
            for subtopology, partition in each_task(role):
                self._others[subtopology, partition, process_id] += 1

    def _disown(self, tasks: OwnedTasks, process_id: str) -> None:
        for task in each_task(tasks.active):
            if self._active.get(task) == process_id:
                del self._active[task]
        for role in (tasks.standby, tasks.warmup):
            for subtopology, partition in each_task(role):
                key = subtopology, partition, process_id
                self._others[key] -= 1
                if self._others[key] <= 0:
                    del self._others[key]
