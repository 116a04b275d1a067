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

from kbroker.coordinator.modern.fencing import CommittingGroup
from kbroker.coordinator.modern.group import FIRST_EPOCH, CommitCheck
from kbroker.coordinator.modern.kind_records import KindRecord, UnknownRecordError
from kbroker.coordinator.runtime.plan import KeyValue
from kbroker.coordinator.streams import records
from kbroker.coordinator.streams.configuration import ConfiguredTopology
from kbroker.coordinator.streams.member import StreamsMember
from kbroker.coordinator.streams.tasks import NO_TASKS, OwnedTasks, Tasks, each_task
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


class StreamsGroup(CommittingGroup[StreamsMember, Tasks]):
    """See the module's docstring; a `GroupKind`.  Records change it (`replay`), `StreamsGroups` what no record has."""

    __slots__ = ("computing", "configs", "known", "topology", "validated_topology_epoch", "_active", "_others")

    group_type = GROUP_TYPE
    protocol_type = PROTOCOL_TYPE
    kind_records = records.RECORDS
    new_member = StreamsMember
    read_member = staticmethod(records.read_member)
    read_current = staticmethod(records.read_current)
    read_target = staticmethod(records.read_target)
    target_record = staticmethod(records.target_assignment)
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

    def late_check(self, member: StreamsMember, epoch: int) -> CommitCheck:
        """The topic is a source of an active task that has been the member's since that epoch or longer."""
        topology = self.topology
        if topology is None:
            raise self.stale(member, "Topology is not available for offset commit validation.")

        def check(topic: str, _topic_id: bytes, partition: int) -> None:
            subtopology = topology.subtopology_of(topic)
            if subtopology is None:
                raise self.stale(member, f"Topic {topic} is not in the topology.")
            since = member.epoch_of(subtopology, partition)
            self.check_since(member, epoch, since, "Task", f"{subtopology}-{partition}")

        return check

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
        """See ModernGroup.  UnknownRecordError, and nothing has changed."""
        super().replay(record)
        record_type, _, value = record
        if record_type == records.GROUP and value is not None:
            self.validated_topology_epoch = value.validated_topology_epoch
            self.configs = {each.key: each.value for each in value.last_assignment_configs or ()}
        elif record_type == records.TOPOLOGY:
            self._replay_topology(value)

    def _replay_topology(self, value: wire.StreamsGroupTopologyValue | None) -> None:
        """StreamsGroupTopologyValue."""
        try:
            self.topology = None if value is None else records.read_topology(value)
        except KafkaError as error:
            raise UnknownRecordError(f"topology of {self.group_id}: {error}") from error
        self.known.configured = None

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
