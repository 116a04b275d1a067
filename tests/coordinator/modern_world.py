"""One group of a newer kind on a clock that tests move, over a log in memory: its records, their timers, topics."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from kbroker.coordinator.classic.kind_groups import ReplayedKind
from kbroker.coordinator.modern.draft import ModernDraft, TimerChange
from kbroker.coordinator.modern.kind_records import KindRecord
from kbroker.coordinator.runtime.plan import KeyValue
from kbroker.metadata.cache import MetadataCache
from kbroker.metadata.image import BrokerImage, ClusterImage, MetadataDelta, TopicChange, TopicImage
from tests.coordinator.harness import topic_image

GROUP = "g"

KindT = TypeVar("KindT", bound=ReplayedKind)


@dataclass
class ModernWorld(Generic[KindT]):
    """The group is None while it does not exist; `log` holds every record that was written."""

    now_ms: int = 1_700_000_000_000
    group: KindT | None = None
    log: list[KeyValue] = field(default_factory=list)
    timers: dict[tuple[object, str], tuple[int, TimerChange]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        image = ClusterImage.of("cluster", brokers=[BrokerImage(1, {})], topics=self.first_topics())
        self.cache = MetadataCache(image)

    # What a kind says

    def first_topics(self) -> list[TopicImage]:
        raise NotImplementedError

    def new_group(self) -> KindT:
        raise NotImplementedError

    def parse(self, key: bytes, value: bytes | None) -> KindRecord:
        raise NotImplementedError

    def is_end(self, record: KindRecord) -> bool:
        """Whether the record says that the group is gone."""
        raise NotImplementedError

    def expire(self, timer: TimerChange) -> None:
        """A timer goes off."""
        raise NotImplementedError

    # Records

    def store(self, draft: ModernDraft) -> None:
        """Replay what was decided, from bytes as after a restart, and set its timers."""
        self.replay(draft.records)
        self.log += draft.records
        for change in draft.timers:
            if change.delay_ms is None:
                self.timers.pop((change.kind, change.member_id), None)
            else:
                self.timers[change.kind, change.member_id] = (self.now_ms + change.delay_ms, change)

    def replay(self, pairs: list[KeyValue]) -> None:
        for key, value in pairs:
            record = self.parse(key, value)
            if self.is_end(record):
                self.group = None
            elif self.group is not None or record.value is not None:
                self.group = self.group or self.new_group()
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
        return "Dead" if self.group is None else self.group.state_name

    def reloaded(self) -> KindT | None:
        """The group as another broker finds it."""
        other = type(self)()
        other.replay(self.log)
        return other.group
