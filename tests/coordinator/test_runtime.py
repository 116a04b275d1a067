"""The coordinator runtime under a toy coordinator: what is answered is committed, what is applied is in the log.

Also of `kbroker.coordinator.runtime.waiting`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kbroker._fast.base.slices import Slices
from kbroker.coordinator.runtime import shard as shard_module
from kbroker.coordinator.runtime.coordinator_runtime import CoordinatorRuntime
from kbroker.coordinator.runtime.plan import KeyValue, Outcome, Plan, TransactionalProducer
from kbroker.coordinator.runtime.shard import Shard
from kbroker.errors import (
    CoordinatorLoadInProgressError,
    KafkaError,
    NotCoordinatorError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    RequestTimedOutError,
)
from kbroker.metadata.image import MetadataDelta, TopicChange
from kbroker.records.batch import RecordBatchBuilder
from tests.coordinator.harness import STATE_ID, ManualLoop, MemoryLog, create_topics, make_cache, topic_image
from tests.unbroken import HOUR_US

TOPIC = "__toy"
PARTITIONS = 3
NODE = 1


class CommittingLog(MemoryLog):
    """A log whose appends are committed when the test says so."""

    def __init__(self, loop: ManualLoop) -> None:
        super().__init__(None, PARTITIONS)
        self.loop = loop
        self.alone = True
        self.committed = [0] * PARTITIONS
        self.waits: list[tuple[int, int, Callable[[KafkaError | None], None]]] = []

    def append(self, partition_index: int, batch: bytearray) -> int:
        last = super().append(partition_index, batch)
        if self.alone:
            self.commit(partition_index)
        return last

    def commit(self, index: int) -> None:
        self.committed[index] = self.bounds(index)[1]
        ready = [wait for wait in self.waits if wait[0] == index and wait[1] <= self.committed[index]]
        self.waits = [wait for wait in self.waits if wait not in ready]
        for _, _, settled in ready:
            self.loop.call_soon(settled, None)

    def refuse(self, index: int, error: KafkaError) -> None:
        """The leader is elsewhere: what waits will not be committed here, and what is not committed is lost."""
        gone = [wait for wait in self.waits if wait[0] == index]
        self.waits = [wait for wait in self.waits if wait[0] != index]
        for _, _, settled in gone:
            self.loop.call_soon(settled, error)
        self.partitions[index] = [entry for entry in self.partitions[index] if entry[0] < self.committed[index]]

    def is_committed(self, partition_index: int) -> bool:
        return self.bounds(partition_index)[1] <= self.committed[partition_index]

    def when_committed(self, partition_index: int, settled: Callable[[KafkaError | None], None]) -> None:
        self.waits.append((partition_index, self.bounds(partition_index)[1], settled))


class Counters:
    """Counters by name; `pending` those of transactions that have not ended."""

    def __init__(self, shard: Shard[Counters]) -> None:
        self.shard = shard
        self.values: dict[bytes, int] = {}
        self.pending: dict[int, dict[bytes, int]] = {}
        self.is_loaded = False

    def replay(self, key: bytes | None, value: bytes | None, producer_id: int) -> None:
        assert key is not None
        values = self.values if producer_id < 0 else self.pending.setdefault(producer_id, {})
        if value is None:
            values.pop(key, None)
        else:
            values[key] = int(value)

    def replay_end_transaction(self, producer_id: int, committed: bool) -> None:
        changes = self.pending.pop(producer_id, {})
        if committed:
            self.values.update(changes)

    def loaded(self, record_count: int, seconds: float) -> None:
        self.is_loaded = True

    def unloaded(self) -> None:
        self.is_loaded = False


def increment(name: bytes) -> Callable[[Counters, int], Plan[int]]:
    def operation(counters: Counters, now_ms: int) -> Plan[int]:
        value = counters.values.get(name, 0) + 1
        return Plan(value, [(name, b"%d" % value), (b"last", b"%d" % value)])

    return operation


class Toy:
    """A runtime of counters with everything around it."""

    def __init__(self, slice_us: int = HOUR_US) -> None:
        self.loop = ManualLoop()
        self.log = CommittingLog(self.loop)
        self.cache = make_cache()
        self.runtime: CoordinatorRuntime[Counters] = CoordinatorRuntime(
            TOPIC, NODE, self.log, self.loop, self.loop.call_later, Slices(self.loop, slice_us), Counters
        )
        create_topics(self.cache, topic_image(TOPIC, STATE_ID, PARTITIONS))
        self.runtime.start(self.cache)

    def lead(self, index: int, leader: int) -> None:
        """The metadata say that `leader` leads a partition, in a new epoch."""
        topic = self.cache.topic(TOPIC)
        assert topic is not None
        partitions = list(topic.partitions)
        old = partitions[index]
        partitions[index] = replace(old, leader=leader, leader_epoch=old.leader_epoch + 1)
        delta = MetadataDelta(changed=(TopicChange(topic, replace(topic, partitions=tuple(partitions))),))
        self.cache.publish(self.cache.image.with_topics(delta), delta)

    def values(self, index: int) -> dict[bytes, int]:
        return self.runtime.shard(index).active().values


@settings(max_examples=60, stateful_step_count=40, deadline=None)
class RuntimeMachine(RuleBasedStateMachine):
    """Increments, failing appends, late commits and changes of leaders in any order, against a model of what was
    written: lists of names by partition, cut to what is committed when the leader changes."""

    @initialize(alone=st.booleans())
    def start(self, alone: bool) -> None:
        self.toy = Toy()
        self.toy.log.alone = alone
        self.written: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        self.committed = [0] * PARTITIONS
        self.given: list[list[tuple[int, int]]] = [[] for _ in range(PARTITIONS)]
        self.led = [True] * PARTITIONS

    @rule(index=st.integers(0, PARTITIONS - 1), name=st.sampled_from([b"a", b"b"]), fails=st.booleans())
    def write(self, index: int, name: bytes, fails: bool) -> None:
        log = self.toy.log
        log.failure = NotEnoughReplicasError() if fails else None
        try:
            outcome = self.toy.runtime.write(index, increment(name))
        except NotCoordinatorError:
            assert not self.led[index]
            return
        except NotEnoughReplicasError:
            assert fails and self.led[index]
            return
        assert not fails and self.led[index]
        self.written[index].append(name)
        assert outcome.answer == self.written[index].count(name)
        if log.alone:
            self.committed[index] = len(self.written[index])
        assert outcome.is_committed == log.alone
        position = len(self.written[index])
        outcome.when_committed(lambda error: self.answered(index, position, outcome, error))

    def answered(self, index: int, position: int, outcome: Outcome[int], error: KafkaError | None) -> None:
        if error is None:
            assert position <= self.committed[index]
            self.given[index].append((position, outcome.answer))
        else:
            assert isinstance(error, NotLeaderOrFollowerError)

    @rule(index=st.integers(0, PARTITIONS - 1))
    def commit(self, index: int) -> None:
        if self.led[index]:
            self.committed[index] = len(self.written[index])
            self.toy.log.commit(index)

    @rule(index=st.integers(0, PARTITIONS - 1))
    def lose(self, index: int) -> None:
        self.led[index] = False
        self.toy.lead(index, 2)
        self.toy.log.refuse(index, NotLeaderOrFollowerError())
        del self.written[index][self.committed[index] :]

    @rule(index=st.integers(0, PARTITIONS - 1))
    def become_leader(self, index: int) -> None:
        self.led[index] = True
        self.toy.lead(index, NODE)

    @rule()
    def turn(self) -> None:
        self.toy.loop.advance(0.001)

    @invariant()
    def state_is_what_was_written(self) -> None:
        for index in range(PARTITIONS):
            if self.led[index]:
                values = self.toy.values(index)
                assert {name: values[name] for name in values if name != b"last"} == Counter(self.written[index])

    @invariant()
    def answers_of_a_partition_come_in_order(self) -> None:
        for given in self.given:
            assert [position for position, _ in given] == sorted({position for position, _ in given})


TestRuntimeMachine = RuntimeMachine.TestCase
TestRuntimeMachine.__doc__ = "An answer would tell of what is lost, or a failed append leave its change in memory."


def test_a_record_of_a_transaction_waits_for_its_end() -> None:
    """Offsets of a transaction would count before it is decided."""
    toy = Toy()
    producer = TransactionalProducer(7, 0)
    toy.runtime.write(0, lambda counters, now_ms: Plan(None, [(b"a", b"5")], producer))
    assert toy.values(0) == {}
    state = toy.runtime.shard(0).active()
    assert state.pending == {7: {b"a": 5}}
    toy.lead(0, 2)
    toy.lead(0, NODE)
    assert toy.runtime.shard(0).active().pending == {7: {b"a": 5}}
    toy.runtime.shard(0).active().replay_end_transaction(7, True)
    assert toy.values(0) == {b"a": 5}


def test_a_plan_that_may_be_divided_is_applied_as_far_as_it_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a failure in the middle, memory and log would differ."""
    monkeypatch.setattr(shard_module, "MAX_BATCH_BYTES", 200)
    toy = Toy()
    records: list[KeyValue] = [(b"name-%03d" % number, b"1") for number in range(100)]
    append = toy.log.append
    appended = 0

    def third_fails(partition_index: int, batch: bytearray) -> int:
        nonlocal appended
        appended += 1
        if appended == 3:
            raise NotEnoughReplicasError()
        return append(partition_index, batch)

    monkeypatch.setattr(toy.log, "append", third_fails)
    with pytest.raises(NotEnoughReplicasError):
        toy.runtime.write(0, lambda counters, now_ms: Plan(None, records, divisible=True))
    before = dict(toy.values(0))
    assert 0 < len(before) < 100
    toy.lead(0, 2)
    toy.lead(0, NODE)
    assert toy.values(0) == before


def test_timers_end_with_their_shard() -> None:
    """A broker that no longer leads a partition would go on writing to it."""
    toy = Toy()
    fired: list[str] = []
    timers = toy.runtime.shard(0).timers
    timers.set("session", 5, lambda: fired.append("early"))
    timers.set("session", 10, lambda: fired.append("late"))
    timers.set("other", 7, lambda: fired.append("other"))
    toy.loop.advance(8)
    assert fired == ["other"]
    timers.cancel("unknown")
    toy.lead(0, 2)
    toy.loop.advance(100)
    assert fired == ["other"]
    assert len(timers) == 0


def test_a_state_that_cannot_apply_its_own_record_is_loaded_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """One defect would leave a state in memory that differs from its log until the next restart."""
    toy = Toy()
    toy.runtime.write(0, increment(b"a"))
    state = toy.runtime.shard(0).active()
    monkeypatch.setattr(state, "replay", lambda key, value, producer_id: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        toy.runtime.write(0, increment(b"a"))
    assert toy.values(0)[b"a"] == 2
    assert not state.is_loaded


def test_reads_wait_for_what_they_have_seen() -> None:
    """A client would be told of a state that is then lost with the leader."""
    toy = Toy()
    toy.log.alone = False
    toy.runtime.write(0, increment(b"a"))
    outcome = toy.runtime.read(0, lambda counters: counters.values[b"a"])
    assert not outcome.is_committed
    answers: list[KafkaError | None] = []
    outcome.when_committed(answers.append)
    toy.loop.advance(1)
    assert answers == []
    toy.log.commit(0)
    toy.loop.advance(1)
    assert answers == [None]
    assert toy.runtime.read(1, lambda counters: len(counters.values)).is_committed


def test_a_wait_for_the_commit_ends_with_its_time_and_settles_once() -> None:
    """A client would wait for ever for a replica that does not come back, or be answered twice."""
    toy = Toy()
    toy.log.alone = False
    settled: list[object] = []
    for timeout_ms in (3_000, 9_000):
        toy.runtime.write(0, increment(b"a")).settle_within(
            timeout_ms, toy.loop.call_later, lambda error: settled.append(type(error))
        )
    toy.loop.advance(4)
    assert settled == [RequestTimedOutError]
    toy.log.commit(0)
    toy.loop.advance(20)
    assert settled == [RequestTimedOutError, type(None)]


def test_periodic_work_leaves_the_loop_its_turns_and_ends_with_the_shard() -> None:
    """Looking through very many groups would stop the loop, or go on with those of another broker."""
    toy = Toy(0)
    toy.loop.advance(1)
    seen: list[int] = []

    def work(counters: Counters, now_ms: int) -> Iterator[None]:
        for _ in range(3):
            seen.append(counters.shard.index)
            yield

    task = toy.runtime.periodic("look", 1000, work)
    task.run()
    task.run()
    assert seen == [0]
    toy.lead(0, 2)
    toy.loop.advance(1)
    assert seen == [0, 1, 1, 1, 2, 2, 2]
    task.run()
    toy.loop.advance(1)
    assert seen[7:] == [1, 1, 1, 2, 2, 2]


def test_a_partition_that_loads_is_not_served() -> None:
    """Half of a state would be taken for the whole."""
    toy = Toy(0)
    for _ in range(3):
        toy.runtime.write(0, increment(b"a"))
    toy.lead(0, 2)
    toy.lead(0, NODE)
    with pytest.raises(CoordinatorLoadInProgressError):
        toy.runtime.write(0, increment(b"a"))
    with pytest.raises(CoordinatorLoadInProgressError):
        toy.runtime.check_complete()
    toy.lead(0, 2)
    with pytest.raises(NotCoordinatorError):
        toy.runtime.read(0, lambda counters: None)
    toy.lead(0, NODE)
    toy.loop.advance(1)
    assert toy.values(0)[b"a"] == 3


def test_a_partition_is_loaded_when_its_replica_leads_not_when_the_metadata_say_so() -> None:
    """A controller that takes over tells all of the metadata first: loading failed, and was tried again after 30 s."""
    toy = Toy()
    toy.lead(0, NODE + 1)
    toy.log.followed.add(0)
    toy.lead(0, NODE)
    with pytest.raises(NotCoordinatorError):
        toy.values(0)
    toy.log.followed.remove(0)
    toy.log.leadership_changed(0)
    assert toy.values(0) == {}


def test_what_another_leader_wrote_in_between_is_loaded() -> None:
    """The metadata may never have shown that leader: what they say next is this broker again, in a later epoch."""
    toy = Toy()
    toy.runtime.write(0, increment(b"a"))
    toy.log.followed.add(0)
    toy.log.leadership_changed(0)
    with pytest.raises(NotCoordinatorError):
        toy.values(0)
    builder = RecordBatchBuilder()
    builder.append(b"a", b"7", toy.loop.now_ms())
    toy.log.append(0, builder.build())
    toy.log.followed.remove(0)
    toy.log.leadership_changed(0)
    toy.lead(0, NODE)
    assert toy.values(0)[b"a"] == 7
