"""Random members against the group: they join, sync, beat, leave, fall silent and come back, while time passes.

After each step: nobody has two answers, nobody who is gone waits, one generation and one leader at a time, no two
members with the same partitions, and what is in memory is what a restart would find.
"""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kbroker.coordinator.classic.group_state import GroupState
from kbroker.coordinator.classic.messages import LeavingMember
from kbroker.errors import ErrorCode
from tests.coordinator.harness import Waiting, World, protocols, subscription
from tests.coordinator.invariants import check_group

SLOTS = st.integers(0, 4)
SUBSCRIPTION = subscription("t1")


class Consumer:
    """A client's view: what it has been told, and what it waits for."""

    def __init__(self, instance: str | None) -> None:
        self.instance = instance
        self.member_id = ""
        self.generation = -1
        self.is_leader = False
        self.others: list[str] = []
        self.joining: Waiting | None = None
        self.syncing: Waiting | None = None
        self.assignment: bytes | None = None

    def forget(self) -> None:
        self.member_id = ""
        self.generation = -1
        self.assignment = None


class GroupMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World({"group.initial.rebalance.delay.ms": 3_000, "group.max.size": 4})
        self.consumers = [Consumer(f"i{slot}" if slot >= 3 else None) for slot in range(5)]
        self.waiting: list[Waiting] = []
        self.generations: list[int] = []
        self.leaders: dict[int, set[str]] = {}

    # What clients do

    @rule(slot=SLOTS, with_id=st.booleans(), names=st.sampled_from([("a", "b"), ("b", "a"), ("b",), ("c",)]))
    def join(self, slot: int, with_id: bool, names: tuple[str, ...]) -> None:
        consumer = self.consumers[slot]
        self.collect()
        consumer.joining = self.world.join(
            member_id=consumer.member_id,
            group_instance_id=consumer.instance,
            protocols=protocols(*names, metadata=SUBSCRIPTION),
            requires_known_member_id=with_id,
            supports_skipping_assignment=with_id,
        )
        consumer.assignment = None
        self.waiting.append(consumer.joining)
        self.collect()

    @rule(slot=SLOTS, stale=st.booleans())
    def sync(self, slot: int, stale: bool) -> None:
        consumer = self.consumers[slot]
        generation = consumer.generation - 1 if stale else consumer.generation
        assignments = {}
        if consumer.is_leader and not stale:
            assignments = {member: f"{generation}:{index}".encode() for index, member in enumerate(consumer.others)}
        consumer.syncing = self.world.sync(
            "g", consumer.member_id, generation, assignments, group_instance_id=consumer.instance
        )
        self.waiting.append(consumer.syncing)
        self.collect()

    @rule(slot=SLOTS)
    def heartbeat(self, slot: int) -> None:
        consumer = self.consumers[slot]
        code = self.world.heartbeat("g", consumer.member_id, consumer.generation, consumer.instance)
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            consumer.forget()
        elif code in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION):
            consumer.assignment = None

    @rule(slot=SLOTS)
    def leave(self, slot: int) -> None:
        consumer = self.consumers[slot]
        self.world.coordinator.leave("g", [LeavingMember(consumer.member_id, consumer.instance)])
        self.collect()
        consumer.forget()

    @rule(slot=SLOTS)
    def crash(self, slot: int) -> None:
        self.consumers[slot].forget()

    @rule(slot=SLOTS, offset=st.integers(0, 1000))
    def commit(self, slot: int, offset: int) -> None:
        consumer = self.consumers[slot]
        who = {"member_id": consumer.member_id, "generation_id": consumer.generation}
        code = self.world.commit("g", offset, group_instance_id=consumer.instance, **who)
        if code is ErrorCode.NONE:
            assert self.world.committed("g") == offset

    @rule(seconds=st.sampled_from([0.5, 3.0, 9.0, 61.0, 400.0]))
    def pass_time(self, seconds: float) -> None:
        self.world.loop.advance(seconds)
        self.collect()
        if seconds > 10:
            for consumer in self.consumers:
                consumer.assignment = None

    @rule()
    def expire(self) -> None:
        self.world.coordinator.expire_offsets()
        if "g" not in self.world.coordinator.registry.groups:
            # Deleted for having neither members nor offsets: its successor counts anew.
            self.generations.clear()

    def collect(self) -> None:
        """Let clients read their answers."""
        for consumer in self.consumers:
            if consumer.joining is not None and not consumer.joining.waits:
                self._joined(consumer, consumer.joining.answer)
                consumer.joining = None
            if consumer.syncing is not None and not consumer.syncing.waits:
                answer = consumer.syncing.answer
                consumer.assignment = answer.assignment if answer.error is ErrorCode.NONE else None
                consumer.syncing = None
        self.waiting = [waiting for waiting in self.waiting if self._check_once(waiting)]

    @staticmethod
    def _check_once(waiting: Waiting) -> bool:
        assert len(waiting.answers) <= 1
        return waiting.waits

    def _joined(self, consumer: Consumer, answer: Any) -> None:
        if answer.error is ErrorCode.NONE:
            assert answer.generation_id >= max([*self.generations, 0])
            self.generations.append(answer.generation_id)
            consumer.member_id = answer.member_id
            consumer.generation = answer.generation_id
            consumer.is_leader = answer.leader_id == answer.member_id
            consumer.others = [member.member_id for member in answer.members]
            assert answer.protocol_name in ("a", "b", "c")
            if answer.members:
                assert consumer.is_leader and answer.member_id in consumer.others
        elif answer.error is ErrorCode.MEMBER_ID_REQUIRED:
            consumer.member_id = answer.member_id
        elif answer.error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            consumer.forget()

    # What must hold

    @invariant()
    def the_group_is_consistent(self) -> None:
        group = self.world.coordinator.registry.groups.get("g")
        if group is None:
            assert not self.waiting
            return
        check_group(group, len(self.waiting))
        assert group.awaiting_join_count <= 4

    @invariant()
    def no_partition_has_two_owners(self) -> None:
        group = self.world.coordinator.registry.groups.get("g")
        if group is None or group.state is not GroupState.STABLE:
            return
        owned = [member.assignment for member in group.members.values() if member.assignment]
        assert len(owned) == len(set(owned))

    def teardown(self) -> None:
        before = self.world.coordinator.registry.groups.get("g")
        after = self.world.restarted().coordinator.registry.groups.get("g")
        if before is not None and before.state is GroupState.STABLE:
            assert after is not None
            assert after.generation_id == before.generation_id
            assert after.assignments() == before.assignments()
            assert after.leader_id == before.leader_id
            assert list(after.offsets) == list(before.offsets)


TestGroupMachine = GroupMachine.TestCase
TestGroupMachine.settings = settings(
    max_examples=100, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
