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
    HeartbeatContext,
    HeartbeatRequest,
    TargetWork,
)
from kbroker.coordinator.consumer.group import ConsumerGroup
from kbroker.coordinator.consumer.settings import ConsumerSettings
from kbroker.coordinator.consumer.subscriptions import apply_resolved
from kbroker.coordinator.modern.draft import TimerChange
from kbroker.coordinator.modern.kind_records import KindRecord
from kbroker.metadata.image import MetadataDelta, TopicImage
from tests.coordinator.harness import topic_image
from tests.coordinator.modern_world import GROUP, ModernWorld

A_ID, B_ID, C_ID = (bytes([n]) * 16 for n in (1, 2, 3))


def settings(**changes: Any) -> ConsumerSettings:
    values = {"group.consumer.assignment.interval.ms": 0} | {key.replace("_", "."): v for key, v in changes.items()}
    return ConsumerSettings.of(BrokerConfig.from_mapping(values))


@dataclass
class PureWorld(ModernWorld[ConsumerGroup]):
    """The group is None while it does not exist; `log` holds every record that was written."""

    settings: ConsumerSettings = field(default_factory=settings)
    works: list[TargetWork] = field(default_factory=list)
    topics_version: int = 0

    def first_topics(self) -> list[TopicImage]:
        return [topic_image("a", A_ID, 4), topic_image("b", B_ID, 2)]

    def new_group(self) -> ConsumerGroup:
        return ConsumerGroup(GROUP)

    def parse(self, key: bytes, value: bytes | None) -> KindRecord:
        return records.parse(key, value)

    def is_end(self, record: KindRecord) -> bool:
        return record.record_type == records.GROUP and record.value is None

    # Operations

    @property
    def around(self) -> HeartbeatContext:
        return HeartbeatContext(self.now_ms, self.cache, self.settings, self.topics_version)

    def beat(self, member_id: str, epoch: int, **fields: Any) -> HeartbeatAnswer:
        """ConsumerGroupHeartbeat; a member that joins says all that it must unless told otherwise."""
        if epoch == 0:
            fields = {"rebalance_timeout_ms": 300_000, "topic_names": frozenset({"a"}), "owned": {}} | fields
        request = HeartbeatRequest(GROUP, member_id, epoch, **fields)
        draft = Draft()
        group = self.group or self.new_group()
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
        """Store what was decided, and do what follows."""
        self.store(draft)
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

    # Topics

    def publish(self, delta: MetadataDelta) -> None:
        super().publish(delta)
        if delta.created:
            self.topics_version = self.cache.image.version

    def create_topic(self, name: str, topic_id: bytes, partition_count: int) -> None:
        self.publish(MetadataDelta(created=(topic_image(name, topic_id, partition_count),)))


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
