"""Random members, crashes, time-outs and topics against what must always hold.

Each client behaves as a consumer does: it gives up what it was not given again before it says so, and drops everything
when it is fenced.  Then a partition is never owned by two clients, and after some calm everybody has its share.

Also of `kbroker.coordinator.classic.group_kind_service`, `kbroker.coordinator.consumer.member`,
`kbroker.coordinator.consumer.reconciliation`,
`kbroker.coordinator.modern.fencing`, `kbroker.coordinator.modern.group`, `kbroker.coordinator.modern.topic_hash`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kbroker.coordinator.consumer.draft import HeartbeatAnswer
from kbroker.errors import ErrorCode, KafkaError
from tests.coordinator.consumer.harness import PureWorld, facts, owned, settings

SUBSCRIPTIONS = st.sampled_from(
    [{"topic_names": frozenset(names)} for names in ("a", "b", "ab", "c")]
    + [{"topic_names": None, "topic_regex": "a|b"}, {"topic_names": frozenset({"b"}), "topic_regex": "a"}]
)
SLOTS = st.integers(0, 4)


@dataclass
class Consumer:
    """`owned` is what it reads; `to_confirm`: it has given something up, and has not said so yet; `is_unsure`: an
    answer was lost, so it says everything the next time."""

    member_id: str
    instance_id: str | None = None
    epoch: int = 0
    owned: dict[bytes, frozenset[int]] = field(default_factory=dict)
    to_confirm: bool = False
    is_unsure: bool = False
    subscription: dict[str, object] = field(default_factory=dict)


class Groups(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = PureWorld(settings=settings(group_consumer_assignment_interval_ms=1_000))
        self.consumers: dict[int, Consumer] = {}
        self.count = 0
        self.epoch = 0

    # What members do

    def new_id(self) -> str:
        self.count += 1
        return f"m{self.count}"

    @rule(slot=SLOTS, subscription=SUBSCRIPTIONS, is_static=st.booleans())
    def join(self, slot: int, subscription: dict[str, object], is_static: bool) -> None:
        if slot not in self.consumers:
            consumer = Consumer(self.new_id(), f"i{slot}" if is_static else None, subscription=subscription)
            self.consumers[slot] = consumer
            self.beat(consumer, full=True)

    @rule(slot=SLOTS, is_lost=st.booleans())
    def heartbeat(self, slot: int, is_lost: bool) -> None:
        if slot in self.consumers:
            self.beat(self.consumers[slot], is_lost=is_lost)

    @rule(slot=SLOTS, subscription=SUBSCRIPTIONS)
    def subscribe(self, slot: int, subscription: dict[str, object]) -> None:
        consumer = self.consumers.get(slot)
        if consumer is not None and consumer.epoch > 0:
            consumer.subscription = subscription
            self.beat(consumer, full=True)

    def beat(self, consumer: Consumer, *, full: bool = False, is_lost: bool = False) -> None:
        fields: dict[str, object] = {}
        if consumer.instance_id is not None:
            fields["instance_id"] = consumer.instance_id
        if full or consumer.is_unsure or consumer.epoch == 0:
            names = consumer.subscription.get("topic_names")
            fields["topic_names"] = frozenset() if names is None else names
            fields["topic_regex"] = consumer.subscription.get("topic_regex", "")
            fields["rebalance_timeout_ms"] = 30_000
            fields["owned"] = consumer.owned
        elif consumer.to_confirm:
            fields["owned"] = consumer.owned
        try:
            answer = self.world.beat(consumer.member_id, consumer.epoch, **fields)
        except KafkaError as error:
            self.refused(consumer, error.code)
            return
        if is_lost and consumer.epoch > 0:
            consumer.is_unsure = True
            return
        self.take(consumer, answer)

    @staticmethod
    def take(consumer: Consumer, answer: HeartbeatAnswer) -> None:
        assert answer.member_epoch >= consumer.epoch, "a member's epoch went down"
        consumer.epoch = answer.member_epoch
        consumer.to_confirm = consumer.is_unsure = False
        told = owned(answer)
        if told is not None and told != consumer.owned:
            consumer.owned = {topic: partitions for topic, partitions in told.items() if partitions}
            consumer.to_confirm = True

    def refused(self, consumer: Consumer, code: ErrorCode) -> None:
        assert code in (
            ErrorCode.FENCED_MEMBER_EPOCH,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.UNRELEASED_INSTANCE_ID,
            ErrorCode.FENCED_INSTANCE_ID,
        )
        consumer.owned = {}
        consumer.epoch = 0
        consumer.to_confirm = consumer.is_unsure = False
        if code in (ErrorCode.UNRELEASED_INSTANCE_ID, ErrorCode.FENCED_INSTANCE_ID):
            self.consumers = {slot: each for slot, each in self.consumers.items() if each is not consumer}

    @rule(slot=SLOTS)
    def leave(self, slot: int) -> None:
        consumer = self.consumers.pop(slot, None)
        if consumer is not None and consumer.epoch > 0:
            fields = {} if consumer.instance_id is None else {"instance_id": consumer.instance_id}
            try:
                self.world.beat(consumer.member_id, -1, **fields)
            except KafkaError as error:
                assert error.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)

    @rule(slot=SLOTS)
    def restart_static(self, slot: int) -> None:
        consumer = self.consumers.get(slot)
        if consumer is None or consumer.instance_id is None or consumer.epoch <= 0:
            return
        try:
            self.world.beat(consumer.member_id, -2, instance_id=consumer.instance_id)
        except KafkaError as error:
            self.refused(consumer, error.code)
            return
        consumer.member_id = self.new_id()
        consumer.owned, consumer.epoch, consumer.to_confirm, consumer.is_unsure = {}, 0, False, False
        self.beat(consumer, full=True)

    @rule(slot=SLOTS)
    def crash(self, slot: int) -> None:
        self.consumers.pop(slot, None)

    # What happens around them

    @rule(ms=st.sampled_from([100, 1_000, 5_000]))
    def time_passes(self, ms: int) -> None:
        self.world.pass_time(ms)

    @rule()
    def a_long_time_passes(self) -> None:
        """Long enough for sessions to end; those who are alive stop reading before theirs does."""
        self.world.pass_time(46_000)
        self.forget_the_fenced()

    @rule(name=st.sampled_from("abc"), count=st.integers(1, 6))
    def change_topic(self, name: str, count: int) -> None:
        topic = self.world.cache.topic(name)
        if topic is None:
            self.count += 1
            self.world.create_topic(name, self.count.to_bytes(16, "big"), count)
        elif count > len(topic.partitions):
            self.world.grow_topic(name, count)
        elif count == 1:
            self.world.delete_topic(name)

    @rule()
    def reload(self) -> None:
        """Another broker takes over: it knows what the log says, and sessions begin anew."""
        group = self.world.reloaded()
        assert facts(group) == facts(self.world.group)
        self.world.group = group

    def forget_the_fenced(self) -> None:
        group = self.world.group
        for consumer in self.consumers.values():
            known = None if group is None else group.members.get(consumer.member_id)
            if known is None:
                consumer.owned = {}

    # What must hold

    @invariant()
    def a_partition_has_one_reader(self) -> None:
        # A rebalance timeout fences as well; the client learns it from its session.
        self.forget_the_fenced()
        seen: set[tuple[bytes, int]] = set()
        for consumer in self.consumers.values():
            for topic, partitions in consumer.owned.items():
                for partition in partitions:
                    assert (topic, partition) not in seen
                    seen.add((topic, partition))

    @invariant()
    def epochs_only_grow(self) -> None:
        if self.world.group is not None:
            assert self.world.group.epoch >= self.epoch
            assert self.world.group.assignment_epoch <= self.world.group.epoch
            self.epoch = self.world.group.epoch

    def teardown(self) -> None:
        """Calm: those who are gone time out, the others beat until nothing is left to do."""
        for _ in range(60):
            self.world.pass_time(3_000)
            for consumer in list(self.consumers.values()):
                self.beat(consumer)
        group = self.world.group
        if group is None:
            return
        assert self.world.state == ("Stable" if self.consumers else "Empty")
        assert facts(self.world.reloaded()) == facts(group)
        wanted = {
            (topic.topic_id, partition.partition)
            for member in group.members.values()
            for topic in map(self.world.cache.topic, group.topics_of(member))
            if topic is not None
            for partition in topic.partitions
        }
        read = {
            (topic, partition)
            for consumer in self.consumers.values()
            for topic, partitions in consumer.owned.items()
            for partition in partitions
        }
        assert read == wanted


Groups.TestCase.settings = hypothesis_settings(max_examples=60, stateful_step_count=40, deadline=None)


class TestGroups(Groups.TestCase):  # type: ignore[misc]
    """Records would be read twice, or never, after some order of events that nobody thought of."""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_many_more_random_histories() -> None:
    """Rare orders of events would only be met in production."""
    from hypothesis.stateful import run_state_machine_as_test

    run_state_machine_as_test(
        Groups, settings=hypothesis_settings(max_examples=400, stateful_step_count=60, deadline=None)
    )
