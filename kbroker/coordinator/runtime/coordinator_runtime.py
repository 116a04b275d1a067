"""Runs the state machines of a coordinator over the partitions of one internal topic.

A coordinator defines its state and how records change it; the runtime loads, writes, and decides when an answer may be
given.  For each partition that this broker leads it keeps one state object S (`CoordinatorState`):

    become leader     build(shard) -> S; each record of the log -> S.replay; S.loaded()
    write(operation)  operation(S, now_ms) -> Plan: what to write and to answer, nothing changed yet
                      append the records as one batch; it fails: KafkaError, and the state is what it was
                      S.replay of each record (or `plan.apply`): the state is what the log says
                      Outcome: the answer, and when it may be given: once all that was appended is committed
    read(query)       query(S) -> Outcome: waits in the same way, as it may tell of what is not committed yet
    lose leadership   timers are cancelled, S.unloaded(); requests get NOT_COORDINATOR

Nothing awaits and everything runs on the loop, so the operations of a partition take effect in the order of their
calls.  A partition that commits alone (one replica, no fsync to wait for) is committed when the append returns.

Example: counters by name.

    class Counters:
        def __init__(self, shard):
            self.values = {}
        def replay(self, key, value, producer_id):
            self.values[key] = int(value)
        ...

    def increment(name):
        def operation(counters, now_ms):
            value = counters.values.get(name, 0) + 1
            return Plan(value, [(name, b"%d" % value)])
        return operation

    runtime = CoordinatorRuntime("__counters", node_id, state_log, clock, call_later, slices, Counters)
    runtime.start(metadata_cache)
    outcome = runtime.write(runtime.partition_of("visits"), increment(b"visits"))
    outcome.when_committed(lambda error: reply(outcome.answer if error is None else write_error(error)))

In a handler, `committed_state.answer_when_committed(outcome, to_response, refusal)` does the last line.

Timers: `shard.timers.set(key, seconds, callback)`; the callback calls `runtime.write`.  Periodic work: `periodic`.
Several kinds of state on one topic (all kinds of groups live on `__consumer_offsets`) are parts of one S, which looks
at a record's type first; see `classic/group_registry.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from kbroker._fast.base.build_facts import CHECKED
from kbroker.clock import Clock
from kbroker.coordinator.runtime.partitioner import partition_for
from kbroker.coordinator.runtime.plan import KeyValue, Outcome, Plan
from kbroker.coordinator.runtime.shard import CoordinatorState, Shard, ShardState, StateLog
from kbroker.errors import CoordinatorNotAvailableError, NotCoordinatorError
from kbroker.periodic import PeriodicTask
from kbroker.records.compression import Codec
from kbroker.types import NO_PRODUCER_ID
from kbroker.waiting import CallLater

if TYPE_CHECKING:
    from kbroker._fast.base.slices import Pace, Slices
    from kbroker.metadata.cache import MetadataCache
    from kbroker.metadata.image import ClusterImage, MetadataDelta, PartitionImage, TopicImage

logger = logging.getLogger("kbroker.coordinator")

S = TypeVar("S", bound=CoordinatorState)
T = TypeVar("T")

LOAD_BUFFER_BYTES = 5 << 20


class CoordinatorRuntime(Generic[S]):
    """The shards of the internal topic `topic`; see the module.  It alone makes, loads and ends them."""

    def __init__(
        self,
        topic: str,
        node_id: int,
        state_log: StateLog,
        clock: Clock,
        call_later: CallLater,
        slices: Slices,
        build: Callable[[Shard[S]], S],
        load_buffer_bytes: int = LOAD_BUFFER_BYTES,
        compression: int = Codec.NONE,
        last_superseding_type: int = -1,
    ) -> None:
        self.topic = topic
        self.state_log = state_log
        self._node_id = node_id
        self._clock = clock
        self._call_later = call_later
        self._slices = slices
        self._build = build
        self._load_buffer_bytes = load_buffer_bytes
        self._compression = compression
        self._last_superseding_type = last_superseding_type
        self._running = False
        self.shards: list[Shard[S]] = []

    # Partitions

    def start(self, metadata_cache: MetadataCache) -> None:
        """Begin to load the partitions that this broker leads, and follow the metadata from now on.  Call once the logs
        are open, after the creator of logs has subscribed to the metadata."""
        self._running = True
        self._cache = metadata_cache
        metadata_cache.subscribe(self._on_metadata)
        self.state_log.on_leadership(self._on_leadership)
        topic = metadata_cache.topic(self.topic)
        if topic is not None:
            self._follow(topic)

    def stop(self) -> None:
        """Serve nothing any more; what waits is answered."""
        self._running = False
        self._unload_all()

    def _on_metadata(self, _old: ClusterImage, _new: ClusterImage, delta: MetadataDelta) -> None:
        if not self._running:
            return
        if any(topic.name == self.topic for topic in delta.deleted):
            logger.warning("%s was deleted: all state in it is gone", self.topic)
            self._unload_all()
        for topic in (*delta.created, *(change.new for change in delta.changed)):
            if topic.name == self.topic:
                self._follow(topic)

    def _follow(self, topic: TopicImage) -> None:
        for image in topic.partitions:
            if image.partition == len(self.shards):
                self.shards.append(
                    Shard(
                        image.partition,
                        self.state_log,
                        self._build,
                        self._clock,
                        self._call_later,
                        self._slices,
                        self._load_buffer_bytes,
                        self._compression,
                        self._last_superseding_type,
                    )
                )
            assert image.partition < len(self.shards), f"{self.topic}-{image.partition} comes before those below it"
            self._follow_partition(image)
        if CHECKED:
            self.check_invariants()

    def check_invariants(self) -> None:
        """Raises AssertionError unless each partition of the topic has its shard."""
        assert [shard.index for shard in self.shards] == list(range(len(self.shards))), self.topic
        for shard in self.shards:
            shard.check_invariants()

    def _on_leadership(self, partition_index: int) -> None:
        topic = self._cache.topic(self.topic) if self._running else None
        if topic is not None and partition_index < min(len(topic.partitions), len(self.shards)):
            self._follow_partition(topic.partitions[partition_index])

    def _follow_partition(self, image: PartitionImage) -> None:
        """Serve the partition where both the metadata and the replica say that this broker leads it: either may learn
        it first.  If the replica was a follower in between, its log has records that the state in memory lacks."""
        shard = self.shards[image.partition]
        is_led = image.leader == self._node_id and self._node_id not in image.offline_replicas
        if is_led and self.state_log.leads(image.partition):
            shard.lead(image.leader_epoch)
        elif shard.state is not ShardState.UNLOADED:
            shard.unload()

    def _unload_all(self) -> None:
        shards, self.shards = self.shards, []
        for shard in shards:
            shard.unload(ShardState.CLOSED)
            assert shard.state is ShardState.CLOSED, f"{self.topic}-{shard.index} is served on: {shard.state}"

    def partition_of(self, key: str) -> int:
        """The partition of the topic that the state of `key` (a group id, a transactional id) lives on.
        CoordinatorNotAvailableError while there is no topic."""
        if not self.shards:
            raise CoordinatorNotAvailableError()
        return partition_for(key, len(self.shards))

    def is_elsewhere(self, key: str) -> bool:
        """Whether the partition that the state of `key` lives on is not led by this broker: another one leads it, or
        its disk has failed."""
        return bool(self.shards) and self.shards[self.partition_of(key)].state is ShardState.UNLOADED

    def shard(self, partition_index: int) -> Shard[S]:
        """A partition, served or not.  CoordinatorNotAvailableError where there is none."""
        if not 0 <= partition_index < len(self.shards):
            raise CoordinatorNotAvailableError()
        return self.shards[partition_index]

    def active_states(self) -> Iterator[S]:
        """The states of all partitions that are served."""
        for shard in list(self.shards):
            if shard.state is ShardState.ACTIVE and shard.coordinator is not None:
                yield shard.coordinator

    def check_knows_topic(self) -> None:
        """Raise CoordinatorNotAvailableError while this broker cannot say whether anything is stored at all.

        It has just joined a cluster, and has no metadata from a controller yet; or it serves no longer.
        """
        if not self._running or not (self.shards or self._cache.is_filled):
            raise CoordinatorNotAvailableError()

    def check_coordinates(self, key: str) -> None:
        """Raise unless this broker can say that nothing is stored of `key`.

        Without the topic that is the controller alone: another broker's metadata may be older than the topic, whose
        partition it may lead by now.  Kafka's brokers say NOT_COORDINATOR as well.
        """
        self.check_knows_topic()
        if self.shards:
            self.shards[self.partition_of(key)].check_active()
        elif self._cache.image.controller_id != self._node_id:
            raise NotCoordinatorError()

    def check_complete(self) -> None:
        """Raise unless all that this broker coordinates is known."""
        self.check_knows_topic()
        for shard in self.shards:
            if shard.state is not ShardState.UNLOADED:
                shard.check_active()

    # Operations

    def write(self, partition_index: int, operation: Callable[[S, int], Plan[T]]) -> Outcome[T]:
        """Plan, append, apply.  Raises KafkaError with nothing changed: the error of `operation`, that of a partition
        that is not served, or that of the append, which `write_error` maps to an error for clients."""
        shard = self.shard(partition_index)
        state = shard.active()
        plan = operation(state, self._clock.now_ms())
        if plan.records:
            self._carry_out(shard, state, plan)
        return Outcome(plan.answer, self.state_log, partition_index)

    def _carry_out(self, shard: Shard[S], state: S, plan: Plan[T]) -> None:
        if plan.divisible:
            shard.append_divided(plan.records, partial(self._apply, shard, state))
            return
        shard.append(plan.records, plan.producer)
        if plan.apply is not None:
            plan.apply()
        else:
            self._apply(shard, state, plan.records, plan.producer.producer_id)

    @staticmethod
    def _apply(shard: Shard[S], state: S, records: Iterable[KeyValue], producer_id: int = NO_PRODUCER_ID) -> None:
        try:
            for key, value in records:
                state.replay(key, value, producer_id)
        except Exception:
            # A defect: the log has records that the state lacks.  The log is authoritative, so the state is loaded
            # anew.
            logger.exception("partition %d: an appended record could not be applied; it is loaded anew", shard.index)
            shard.load()
            raise

    def read(self, partition_index: int, query: Callable[[S], T]) -> Outcome[T]:
        """What `query` says of a partition.  Raises what it raises, and what `write` does where it is not served."""
        return Outcome(query(self.shard(partition_index).active()), self.state_log, partition_index)

    # Periodic work

    def periodic(self, name: str, interval_ms: int, work: Callable[[S, int], Iterator[object]]) -> PeriodicTask:
        """A task that runs `work(state, now_ms)` for each partition that is served, one step of it after the other,
        with the loop's other work in between."""
        running = False

        def run() -> None:
            nonlocal running
            if not running:
                running = True
                go_on(self._steps(work), self._slices.pace())

        def go_on(steps: Iterator[None], pace: Pace) -> None:
            nonlocal running
            try:
                for _ in steps:
                    if pace.due() and self._running:
                        pace.then(partial(go_on, steps, pace))
                        return
            except Exception:
                running = False
                raise
            running = False

        return PeriodicTask(name, interval_ms, run)

    def _steps(self, work: Callable[[S, int], Iterator[object]]) -> Iterator[None]:
        for shard in list(self.shards):
            state = shard.coordinator
            if state is None or shard.state is not ShardState.ACTIVE:
                continue
            for _ in work(state, self._clock.now_ms()):
                yield
                if not self._running or shard.coordinator is not state:
                    break
