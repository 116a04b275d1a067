"""One consumer group on a clock that tests move, over a log in memory: operations, their records, their timers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kbroker.config import BrokerConfig
from kbroker.coordinator.consumer import departure, heartbeat, records, regexes, targets
from kbroker.coordinator.consumer.assignors.table import ASSIGNORS
from kbroker.coordinator.consumer.draft import (
    Draft,
    HeartbeatAnswer,
    HeartbeatRequest,
    Surroundings,
    TargetWork,
    TimerKind,
)
from kbroker.coordinator.consumer.group import ConsumerGroup
from kbroker.coordinator.consumer.settings import ConsumerSettings
from kbroker.coordinator.consumer.subscriptions import apply_resolved
from kbroker.coordinator.modern.draft import TimerChange
from kbroker.coordinator.runtime.plan import KeyValue
from kbroker.metadata.cache import MetadataCache
from kbroker.metadata.image import BrokerImage, ClusterImage, MetadataDelta, PartitionImage, TopicChange, TopicImage

GROUP = "g"
A_ID, B_ID, C_ID = (bytes([n]) * 16 for n in (1, 2, 3))


def topic_image(name: str, topic_id: bytes, partition_count: int) -> TopicImage:
    partitions = tuple(PartitionImage(index, 1, 0, (1,), (1,)) for index in range(partition_count))
    return TopicImage(name, topic_id, partitions)


def settings(**changes: Any) -> ConsumerSettings:
    values = {"group.consumer.assignment.interval.ms": 0} | {key.replace("_", "."): v for key, v in changes.items()}
    return ConsumerSettings.of(BrokerConfig.from_mapping(values))


@dataclass
class PureWorld:
    """The group is None while it does not exist; `log` holds every record that was written."""

    settings: ConsumerSettings = field(default_factory=settings)
    now_ms: int = 1_700_000_000_000
    group: ConsumerGroup | None = None
    log: list[KeyValue] = field(default_factory=list)
    timers: dict[tuple[TimerKind, str], tuple[int, TimerChange]] = field(default_factory=dict)
    works: list[TargetWork] = field(default_factory=list)
    topics_version: int = 0

    def __post_init__(self) -> None:
        broker = BrokerImage(1, {})
        topics = [topic_image("a", A_ID, 4), topic_image("b", B_ID, 2)]
        self.cache = MetadataCache(ClusterImage.of("cluster", brokers=[broker], topics=topics))

    # Operations

    @property
    def around(self) -> Surroundings:
        return Surroundings(self.now_ms, self.cache, self.settings, self.topics_version)

    def beat(self, member_id: str, epoch: int, **fields: Any) -> HeartbeatAnswer:
        """ConsumerGroupHeartbeat; a member that joins says all that it must unless told otherwise."""
        if epoch == 0:
            fields = {"rebalance_timeout_ms": 300_000, "topic_names": frozenset({"a"}), "owned": {}} | fields
        request = HeartbeatRequest(GROUP, member_id, epoch, **fields)
        draft = Draft()
        group = self.group or ConsumerGroup(GROUP)
        if epoch < 0:
            answer, _ = heartbeat.leave(group, request, self.around, draft)
        else:
            answer = heartbeat.heartbeat(group, request, self.around, draft)
        self.write(draft)
        return answer

    def expire(self, timer: TimerChange) -> bool:
        """A timer goes off; whether its member was removed."""
        member = None if self.group is None else departure.expires(self.group, timer)
        if member is None or self.group is None:
            return False
        draft = Draft()
        departure.remove(self.group, [member], self.around, draft)
        self.write(draft)
        return True

    def write(self, draft: Draft) -> None:
        """Replay what was decided, from bytes as after a restart, and do what follows."""
        self.replay(draft.records)
        self.log += draft.records
        for change in draft.timers:
            if change.delay_ms is None:
                self.timers.pop((change.kind, change.member_id), None)
            else:
                self.timers[change.kind, change.member_id] = (self.now_ms + change.delay_ms, change)
        if self.group is not None and draft.image_version is not None:
            self.group.image_version = draft.image_version
        if draft.work is not None:
            assert self.group is not None
            self.group.computing = True
            self.works.append(draft.work)
        if draft.resolve:
            names = list(self.cache.image.topics)
            found = regexes.resolve(draft.resolve, names, self.cache.image.version, self.now_ms)
            assert self.group is not None
            resolved = Draft()
            apply_resolved(self.group, found, self.around, resolved)
            self.write(resolved)

    def compute(self) -> None:
        """Finish a target assignment that another thread has begun."""
        work = self.works.pop(0)
        assert self.group is not None
        self.group.computing = False
        result = ASSIGNORS[work.assignor](work.spec)
        self.write(Draft(targets.computed_records(self.group, work, result, self.now_ms)))

    def replay(self, pairs: list[KeyValue]) -> None:
        for key, value in pairs:
            record = records.parse(key, value)
            if record.record_type == records.GROUP and record.value is None:
                self.group = None
            elif self.group is not None or record.value is not None:
                self.group = self.group or ConsumerGroup(GROUP)
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
        if delta.created:
            self.topics_version = self.cache.image.version

    def create_topic(self, name: str, topic_id: bytes, partition_count: int) -> None:
        self.publish(MetadataDelta(created=(topic_image(name, topic_id, partition_count),)))

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

    def reloaded(self) -> ConsumerGroup | None:
        """The group as another broker finds it."""
        other = PureWorld()
        other.replay(self.log)
        return other.group


def facts(group: ConsumerGroup | None) -> Mapping[str, Any]:
    """All that a group's records say."""
    if group is None:
        return {}
    names = (
        "epoch",
        "metadata_hash",
        "assignment_epoch",
        "assignment_timestamp",
        "members",
        "static_members",
        "targets",
        "resolved",
        "names",
        "regex_names",
        "regexes",
        "server_assignors",
        "classic_count",
        "classic_protocols",
        "_owners",
    )
    return {name: getattr(group, name) for name in names} | {"state": group.state}


def owned(answer: HeartbeatAnswer) -> dict[bytes, frozenset[int]] | None:
    """The partitions of an answer."""
    if answer.assigned is None:
        return None
    return {topic_id: frozenset(partitions) for topic_id, partitions in answer.assigned.items()}
