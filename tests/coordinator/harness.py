"""A coordinator on a clock and a loop that tests move by hand, over a state log in memory."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

from kbroker._fast.base.slices import Slices
from kbroker._fast.records.record_batch import iterate_batches, stamp
from kbroker.config import BrokerConfig
from kbroker.coordinator.classic.group import Group
from kbroker.coordinator.classic.group_coordinator import GroupCoordinator
from kbroker.coordinator.classic.messages import (
    JoinRequest,
    JoinResult,
    LeavingMember,
    MemberProtocol,
    PartitionCommit,
    SyncRequest,
    SyncResult,
)
from kbroker.coordinator.classic.offset_commits import Committer
from kbroker.coordinator.consumer.consumer_groups import ConsumerGroups
from kbroker.coordinator.consumer.settings import GroupSettings
from kbroker.coordinator.runtime.background import NextTurn
from kbroker.coordinator.streams.settings import GroupSettings as StreamsGroupSettings
from kbroker.coordinator.streams.streams_groups import StreamsGroups
from kbroker.errors import ErrorCode, KafkaError, UnknownTopicOrPartitionError
from kbroker.metadata.cache import MetadataCache
from kbroker.metadata.image import BrokerImage, ClusterImage, Endpoint, MetadataDelta, PartitionImage, TopicImage
from kbroker.metadata.topic_names import GROUP_METADATA_TOPIC
from kbroker.schemas import message
from tests.unbroken import HOUR_US

T1_ID = bytes(range(16))
T2_ID = bytes(range(16, 32))
STATE_ID = bytes(range(32, 48))


class Timer:
    """A scheduled call."""

    def __init__(self, due: float, order: int, callback: Callable[[], None]) -> None:
        self.due = due
        self.order = order
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None

    def __lt__(self, other: Timer) -> bool:
        return (self.due, self.order) < (other.due, other.order)


class ManualLoop:
    """Clock and loop in one: time passes only in `advance`."""

    def __init__(self, start: float = 1_000.0) -> None:
        self.time = start
        self.scheduled = 0
        self._timers: list[Timer] = []

    def monotonic(self) -> float:
        return self.time

    def now_ms(self) -> int:
        return 1_700_000_000_000 + round(self.time * 1000)

    def call_later(self, delay: float, callback: Callable[[], None]) -> Timer:
        self.scheduled += 1
        timer = Timer(self.time + delay, self.scheduled, callback)
        heapq.heappush(self._timers, timer)
        return timer

    def call_soon(self, callback: Callable[..., None], *arguments: Any) -> Timer:
        return self.call_later(0.0, lambda: callback(*arguments))

    def advance(self, seconds: float) -> None:
        """Let time pass, running what falls due at its own moment."""
        end = self.time + seconds
        while self._timers and self._timers[0].due <= end:
            timer = heapq.heappop(self._timers)
            self.time = max(self.time, timer.due)
            if timer.callback is not None:
                timer.callback()
        self.time = end


class MemoryLog:
    """A StateLog of byte strings; `failure` makes appends fail, `reads` counts what was read."""

    def __init__(self, cache: MetadataCache | None, partition_count: int = 4) -> None:
        self.cache = cache
        self.partitions: list[list[tuple[int, bytes]]] = [[] for _ in range(partition_count)]
        self.failure: KafkaError | None = None
        self.read_sizes: list[int] = []
        self.followed: set[int] = set()
        self.leadership_changed: Callable[[int], None] = lambda _index: None

    def ensure_topic(self) -> None:
        if self.cache is not None and self.cache.topic(GROUP_METADATA_TOPIC) is None:
            create_topics(self.cache, topic_image(GROUP_METADATA_TOPIC, STATE_ID, len(self.partitions)))

    def max_batch_bytes(self) -> int:
        return 1 << 20

    def bounds(self, partition_index: int) -> tuple[int, int]:
        batches = self.partitions[partition_index]
        if not batches:
            return 0, 0
        return batches[0][0], _next_offset(batches[-1])

    def leads(self, partition_index: int) -> bool:
        return partition_index not in self.followed

    def on_leadership(self, changed: Callable[[int], None]) -> None:
        self.leadership_changed = changed

    def append(self, partition_index: int, batch: bytearray) -> int:
        if self.failure is not None:
            raise self.failure
        if partition_index >= len(self.partitions):
            raise UnknownTopicOrPartitionError()
        base = self.bounds(partition_index)[1]
        stamp(batch, 0, base, 0)
        self.partitions[partition_index].append((base, bytes(batch)))
        return _next_offset(self.partitions[partition_index][-1]) - 1

    def is_committed(self, partition_index: int) -> bool:
        return True

    def when_committed(self, partition_index: int, settled: Callable[[KafkaError | None], None]) -> None:
        settled(None)

    def read(self, partition_index: int, offset: int, max_bytes: int) -> bytes:
        chunk = b""
        for entry in self.partitions[partition_index]:
            if _next_offset(entry) > offset and (not chunk or len(chunk) + len(entry[1]) <= max_bytes):
                chunk += entry[1]
            elif chunk:
                break
        self.read_sizes.append(len(chunk))
        return chunk

    def load_file(self, partition_index: int, data: bytes) -> None:
        """Take over the bytes of a segment file."""
        for info in iterate_batches(data):
            batch = data[info.position : info.position + info.size_in_bytes]
            self.partitions[partition_index].append((info.base_offset, batch))


def _next_offset(entry: tuple[int, bytes]) -> int:
    return entry[0] + int.from_bytes(entry[1][23:27], "big") + 1


def topic_image(name: str, topic_id: bytes, partition_count: int) -> TopicImage:
    partitions = tuple(PartitionImage(index, 1, 0, (1,), (1,)) for index in range(partition_count))
    return TopicImage(name, topic_id, partitions, name.startswith("__"))


def create_topics(cache: MetadataCache, *topics: TopicImage) -> None:
    delta = MetadataDelta(created=topics)
    cache.publish(cache.image.with_topics(delta), delta)


def delete_topic(cache: MetadataCache, name: str) -> None:
    topic = cache.topic(name)
    assert topic is not None
    delta = MetadataDelta(deleted=(topic,))
    cache.publish(cache.image.with_topics(delta), delta)


def make_cache() -> MetadataCache:
    broker = BrokerImage(1, {"PLAINTEXT": Endpoint("127.0.0.1", 9092)})
    topics = [topic_image("t1", T1_ID, 3), topic_image("t2", T2_ID, 1)]
    return MetadataCache(ClusterImage.of("cluster", controller_id=1, brokers=[broker], topics=topics))


class World:
    """A coordinator with everything around it."""

    def __init__(
        self,
        settings: dict[str, object] | None = None,
        log: MemoryLog | None = None,
        start: float = 1_000.0,
        *,
        with_topic: bool = True,
        slice_us: int = HOUR_US,
    ) -> None:
        self.loop = ManualLoop(start)
        self.slices = Slices(self.loop, slice_us)
        self.cache = make_cache()
        self.log = log or MemoryLog(self.cache)
        self.log.cache = self.cache
        if with_topic:
            create_topics(self.cache, topic_image(GROUP_METADATA_TOPIC, STATE_ID, len(self.log.partitions)))
        values = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 4} | (settings or {})
        self.config = BrokerConfig.from_mapping(values)
        self.may_be_superseded = False
        self.coordinator = GroupCoordinator(
            self.config, self.loop, self.loop, self.log, self.cache, self.slices, lambda: self.may_be_superseded
        )
        self.consumer_groups = ConsumerGroups(
            self.coordinator,
            GroupSettings(self.config, self.cache),
            self.loop,
            self.cache,
            NextTurn(self.loop.call_later),
        )
        self.streams_groups = StreamsGroups(
            self.coordinator,
            StreamsGroupSettings(self.config, self.cache),
            self.loop,
            self.cache,
            NextTurn(self.loop.call_later),
        )
        self.coordinator.start()

    def restarted(self, settings: dict[str, object] | None = None) -> World:
        """Another broker over the same log, at the same time."""
        self.coordinator.stop()
        return World(settings, self.log, self.loop.time)

    # Requests, with defaults

    def join(self, group_id: str = "g", member_id: str = "", **fields: Any) -> Waiting:
        waiting = Waiting()
        self.coordinator.join(join_request(group_id, member_id, **fields), waiting.answers.append)
        return waiting

    def sync(
        self,
        group_id: str,
        member_id: str,
        generation_id: int,
        assignments: dict[str, bytes] | None = None,
        **fields: Any,
    ) -> Waiting:
        waiting = Waiting()
        values = {"group_instance_id": None, "protocol_type": None, "protocol_name": None} | fields
        request = SyncRequest(
            group_id=group_id,
            generation_id=generation_id,
            member_id=member_id,
            assignments=assignments or {},
            **values,
        )
        self.coordinator.sync(request, waiting.answers.append)
        return waiting

    def heartbeat(self, group_id: str, member_id: str, generation_id: int, instance: str | None = None) -> ErrorCode:
        try:
            return self.coordinator.heartbeat(group_id, member_id, instance, generation_id)
        except KafkaError as error:
            return error.code

    def leave(self, group_id: str, *member_ids: str) -> list[ErrorCode]:
        return [each.error for each in self.coordinator.leave(group_id, [LeavingMember(m) for m in member_ids])]

    def commit(self, group_id: str, offset: int, topic: Any = "t1", partition: Any = 0, **who: Any) -> ErrorCode:
        commit = PartitionCommit(topic, partition, offset, topic_id=T1_ID if topic == "t1" else T2_ID)
        try:
            return self.coordinator.commit_offsets(Committer(group_id, **who), [commit], 9)[0]
        except KafkaError as error:
            return error.code

    def committed(self, group_id: str, topic: str = "t1", partition: int = 0) -> int | None:
        table = self.coordinator.offsets_of(group_id)
        found = None if table is None else table.get(topic, partition)
        return None if found is None else found.offset

    def state(self, group_id: str = "g") -> str:
        return self.coordinator.describe(group_id).state

    def group(self, group_id: str = "g") -> Group:
        return self.coordinator.registry.groups[group_id]

    def stable_member(self, group_id: str = "g", **fields: Any) -> JoinResult:
        """A member that is alone in a stable group."""
        joined: JoinResult = self.join(group_id, **fields).answer
        self.sync(group_id, joined.member_id, joined.generation_id, {joined.member_id: b"all"})
        return joined


class Waiting:
    """The answer to a request that may have to wait."""

    def __init__(self) -> None:
        self.answers: list[Any] = []

    @property
    def answer(self) -> Any:
        """The one answer, which must be there."""
        assert len(self.answers) == 1, f"{len(self.answers)} answers"
        return self.answers[0]

    @property
    def waits(self) -> bool:
        return not self.answers


def subscription(*topics: str) -> bytes:
    subscription_class = message("ConsumerProtocolSubscription")
    return b"\0\0" + bytes(subscription_class.program(0).encode(subscription_class(topics=list(topics))))


def join_request(group_id: str = "g", member_id: str = "", **fields: Any) -> JoinRequest:
    values: dict[str, Any] = {
        "group_instance_id": None,
        "client_id": "client",
        "client_host": "/127.0.0.1",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 60_000,
        "protocol_type": "consumer",
        "protocols": (MemberProtocol("range", subscription("t1")),),
    }
    return JoinRequest(group_id=group_id, member_id=member_id, **(values | fields))


def protocols(*names: str, metadata: bytes = b"") -> tuple[MemberProtocol, ...]:
    return tuple(MemberProtocol(name, metadata) for name in names)


__all__ = ["JoinResult", "ManualLoop", "MemoryLog", "SyncResult", "Waiting", "World"]
