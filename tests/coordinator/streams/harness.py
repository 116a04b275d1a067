"""One streams group on a clock that tests move, over a log in memory: operations, their records, their timers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kbroker.config import BrokerConfig
from kbroker.config.group import group_config
from kbroker.coordinator.modern.draft import TimerChange
from kbroker.coordinator.runtime.plan import KeyValue
from kbroker.coordinator.streams import heartbeat, records, targets
from kbroker.coordinator.streams.assignor import assign
from kbroker.coordinator.streams.configuration import InternalTopic
from kbroker.coordinator.streams.draft import (
    Draft,
    HeartbeatAnswer,
    HeartbeatRequest,
    Surroundings,
    TargetWork,
    TimerKind,
)
from kbroker.coordinator.streams.group import StreamsGroup
from kbroker.coordinator.streams.settings import StreamsSettings
from kbroker.coordinator.streams.tasks import NO_TASKS, Tasks
from kbroker.coordinator.streams.topology import Subtopology, TopicInfo, Topology
from kbroker.metadata.cache import MetadataCache
from kbroker.metadata.image import BrokerImage, ClusterImage, MetadataDelta, TopicChange
from tests.coordinator.harness import topic_image

GROUP = "g"
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
class PureWorld:
    """The group is None while it does not exist; `log` holds every record that was written.  Internal topics that a
    heartbeat finds missing are made after it, while `makes_topics`."""

    settings: StreamsSettings = field(default_factory=settings)
    topology: Topology = WORDS
    now_ms: int = 1_700_000_000_000
    group: StreamsGroup | None = None
    log: list[KeyValue] = field(default_factory=list)
    timers: dict[tuple[TimerKind, str], tuple[int, TimerChange]] = field(default_factory=dict)
    works: list[TargetWork] = field(default_factory=list)
    makes_topics: bool = True
    topic_number: int = 0

    def __post_init__(self) -> None:
        topics = [topic_image("a", b"a" * 16, 3)]
        self.cache = MetadataCache(ClusterImage.of("cluster", brokers=[BrokerImage(1, {})], topics=topics))

    # Operations

    @property
    def around(self) -> Surroundings:
        return Surroundings(self.now_ms, self.cache, self.settings, (TimerKind.INITIAL, "") in self.timers)

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
        group = self.group or StreamsGroup(GROUP)
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
        """Replay what was decided, from bytes as after a restart, and do what follows."""
        self.replay(draft.records)
        self.log += draft.records
        for change in draft.timers:
            if change.delay_ms is None:
                self.timers.pop((change.kind, change.member_id), None)
            else:
                self.timers[change.kind, change.member_id] = (self.now_ms + change.delay_ms, change)
        if self.group is None:
            return
        if draft.known is not None:
            self.group.know(draft.known)
        if draft.work is not None:
            self.group.known.computing = True
            self.works.append(draft.work)

    def compute(self) -> None:
        """Finish a target assignment that another thread has begun."""
        work = self.works.pop(0)
        assert self.group is not None
        self.group.known.computing = False
        self.write(Draft(targets.computed_records(self.group, work, assign(work.spec), self.now_ms)))

    def replay(self, pairs: list[KeyValue]) -> None:
        for key, value in pairs:
            record = records.parse(key, value)
            if record.record_type == records.GROUP and record.value is None:
                self.group = None
            elif self.group is not None or record.value is not None:
                self.group = self.group or StreamsGroup(GROUP)
                self.group.replay(record)

    # Time and topics

    def pass_time(self, ms: int) -> None:
        """Let timers go off at their moments."""
        end = self.now_ms + ms
        while due := min((at for at, _ in self.timers.values() if at <= end), default=None):
            key, (_, change) = next((key, each) for key, each in self.timers.items() if each[0] == due)
            self.now_ms = max(self.now_ms, due)
            del self.timers[key]
            self.expire(change)
        self.now_ms = end

    def publish(self, delta: MetadataDelta) -> None:
        self.cache.publish(self.cache.image.with_topics(delta), delta)

    def create_topic(self, name: str, partition_count: int) -> None:
        self.topic_number += 1
        topic = topic_image(name, self.topic_number.to_bytes(16, "big"), partition_count)
        self.publish(MetadataDelta(created=(topic,)))

    def grow_topic(self, name: str, partition_count: int) -> None:
        old = self.cache.topic(name)
        assert old is not None
        self.publish(MetadataDelta(changed=(TopicChange(old, topic_image(name, old.topic_id, partition_count)),)))

    def delete_topic(self, name: str) -> None:
        topic = self.cache.topic(name)
        assert topic is not None
        self.publish(MetadataDelta(deleted=(topic,)))

    # What is there

    @property
    def state(self) -> str:
        return "Dead" if self.group is None else self.group.state.value

    def reloaded(self) -> StreamsGroup | None:
        """The group as another broker finds it."""
        other = PureWorld()
        other.replay(self.log)
        return other.group


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
