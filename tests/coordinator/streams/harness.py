"""One streams group on a clock that tests move, over a log in memory: operations, their records, their timers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kbroker.config import BrokerConfig
from kbroker.config.group import group_config
from kbroker.coordinator.modern.draft import TimerChange
from kbroker.coordinator.modern.kind_records import KindRecord
from kbroker.coordinator.streams import heartbeat, records, targets
from kbroker.coordinator.streams.assignor import assign
from kbroker.coordinator.streams.configuration import InternalTopic
from kbroker.coordinator.streams.draft import (
    Draft,
    HeartbeatAnswer,
    HeartbeatContext,
    HeartbeatRequest,
    TargetWork,
    TimerKind,
)
from kbroker.coordinator.streams.group import StreamsGroup
from kbroker.coordinator.streams.settings import StreamsSettings
from kbroker.coordinator.streams.tasks import NO_TASKS, Tasks
from kbroker.coordinator.streams.topology import Subtopology, TopicInfo, Topology
from kbroker.metadata.image import MetadataDelta, TopicImage
from tests.coordinator.harness import topic_image
from tests.coordinator.modern_world import GROUP, ModernWorld

# Words of `a` by a repartition topic into a table.
WORDS = Topology.of(
    0,
    [
        Subtopology("0", ("a",), repartition_sinks=("r",)),
        Subtopology("1", repartition_sources=(TopicInfo("r"),), changelogs=(TopicInfo("c"),)),
    ],
)


def settings(**changes: Any) -> StreamsSettings:
    values = {
        "group.streams.assignment.interval.ms": 0,
        "group.streams.initial.rebalance.delay.ms": 0,
    } | {key.replace("_", "."): value for key, value in changes.items()}
    config = BrokerConfig.from_mapping(values)
    return StreamsSettings.of(group_config(config, {}), config.get("group.streams.max.size"))


@dataclass
class PureWorld(ModernWorld[StreamsGroup]):
    """The group is None while it does not exist; `log` holds every record that was written.  Internal topics that a
    heartbeat finds missing are made after it, while `makes_topics`."""

    settings: StreamsSettings = field(default_factory=settings)
    topology: Topology = WORDS
    works: list[TargetWork] = field(default_factory=list)
    makes_topics: bool = True
    topic_number: int = 0

    def first_topics(self) -> list[TopicImage]:
        return [topic_image("a", b"a" * 16, 3)]

    def new_group(self) -> StreamsGroup:
        return StreamsGroup(GROUP)

    def parse(self, key: bytes, value: bytes | None) -> KindRecord:
        return records.parse(key, value)

    def is_end(self, record: KindRecord) -> bool:
        return record.record_type == records.GROUP and record.value is None

    # Operations

    @property
    def around(self) -> HeartbeatContext:
        return HeartbeatContext(self.now_ms, self.cache, self.settings, (TimerKind.INITIAL, "") in self.timers)

    def beat(self, member_id: str, epoch: int, process: str = "", **fields: Any) -> HeartbeatAnswer:
        """StreamsGroupHeartbeat; a member that joins says all that it must unless told otherwise."""
        if epoch == 0:
            fields = {
                "rebalance_timeout_ms": 30_000,
                "topology": self.topology,
                "tasks": NO_TASKS,
                "process_id": process or member_id,
            } | fields
        request = HeartbeatRequest(GROUP, member_id, epoch, **fields)
        draft = Draft()
        group = self.group or self.new_group()
        if epoch < 0:
            answer = heartbeat.leave(group, request, draft)
        else:
            answer = heartbeat.heartbeat(group, request, self.around, draft, is_new=self.group is None)
        self.write(draft)
        if self.makes_topics:
            self.make(answer.to_create)
        return answer

    def make(self, topics: Mapping[str, InternalTopic]) -> None:
        for name, topic in topics.items():
            self.create_topic(name, topic.partitions)

    def expire(self, timer: TimerChange) -> None:
        """A timer goes off."""
        group = self.group
        if group is None:
            return
        draft = Draft()
        member = group.members.get(timer.member_id)
        if timer.kind is TimerKind.INITIAL:
            targets.delayed_target(group, self.around, draft)
        elif member is not None and (timer.kind is TimerKind.SESSION or member.member_epoch == timer.member_epoch):
            heartbeat.remove(group, member, draft)
        self.write(draft)

    def write(self, draft: Draft) -> None:
        """Store what was decided, and do what follows."""
        self.store(draft)
        if self.group is None:
            return
        if draft.known is not None:
            self.group.know(draft.known)
        if draft.work is not None:
            self.group.computing = True
            self.works.append(draft.work)

    def compute(self) -> None:
        """Finish a target assignment that another thread has begun."""
        work = self.works.pop(0)
        assert self.group is not None
        self.group.computing = False
        self.write(Draft(targets.computed_records(self.group, work, assign(work.spec), self.now_ms)))

    # Topics

    def create_topic(self, name: str, partition_count: int) -> None:
        self.topic_number += 1
        topic = topic_image(name, self.topic_number.to_bytes(16, "big"), partition_count)
        self.publish(MetadataDelta(created=(topic,)))


def facts(group: StreamsGroup | None) -> Mapping[str, Any]:
    """All that a group's records say."""
    if group is None:
        return {}
    names = (
        "epoch",
        "metadata_hash",
        "validated_topology_epoch",
        "configs",
        "topology",
        "assignment_epoch",
        "assignment_timestamp",
        "members",
        "targets",
        "_active",
        "_others",
    )
    return {name: getattr(group, name) for name in names} | {"state": group.state}


def told(answer: HeartbeatAnswer) -> Tasks | None:
    """The tasks of an answer."""
    return None if answer.assigned is None else answer.assigned.as_tasks()
