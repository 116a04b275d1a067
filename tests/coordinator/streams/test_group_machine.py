"""Random members, crashes, time-outs and topics against what must always hold.

Each client behaves as a thread of Kafka Streams does: it closes what it was not given again before it says so, and
drops everything when it is fenced.  Then a task is never run by two clients, a process never has a task twice, and
after some calm everybody has a share.

Also of `kbroker.coordinator.streams.reconciliation`, `kbroker.coordinator.streams.endpoints`.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kbroker.coordinator.streams.draft import HeartbeatAnswer
from kbroker.coordinator.streams.tasks import NO_TASKS, Tasks, each_task
from kbroker.errors import ErrorCode, InvalidRequestError, KafkaError
from tests.coordinator.streams.harness import PureWorld, facts, settings, told

SLOTS = st.integers(0, 5)
STANDBYS = 1


@dataclass
class Thread:
    """`tasks` is what it runs; `to_confirm`: that has changed, and it has not said so yet; `is_unsure`: an answer was
    lost, so it says everything the next time."""

    member_id: str
    process: str
    epoch: int = 0
    tasks: Tasks = NO_TASKS
    to_confirm: bool = False
    is_unsure: bool = False


class Groups(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = PureWorld(
            settings=settings(
                group_streams_assignment_interval_ms=1_000,
                group_streams_initial_rebalance_delay_ms=2_000,
                group_streams_num_standby_replicas=STANDBYS,
            )
        )
        self.threads: dict[int, Thread] = {}
        self.count = 0
        self.epoch = 0

    # What members do

    @rule(slot=SLOTS)
    def join(self, slot: int) -> None:
        if slot not in self.threads:
            self.count += 1
            # Two threads of a process, each.
            self.threads[slot] = Thread(f"m{self.count}", f"p{slot // 2}")
            self.beat(self.threads[slot])

    @rule(slot=SLOTS, is_lost=st.booleans())
    def heartbeat(self, slot: int, is_lost: bool) -> None:
        if slot in self.threads:
            self.beat(self.threads[slot], is_lost=is_lost)

    def beat(self, thread: Thread, *, is_lost: bool = False) -> None:
        fields: dict[str, object] = {}
        if thread.epoch == 0:
            fields = {"process": thread.process, "tasks": thread.tasks}
        elif thread.is_unsure or thread.to_confirm:
            fields = {"tasks": thread.tasks}
        try:
            answer = self.world.beat(thread.member_id, thread.epoch, **fields)  # type: ignore[arg-type]
        except InvalidRequestError:
            # The topic of a task is gone: the task fails, and so does the thread, which begins anew.
            assert thread.tasks != NO_TASKS
            self.drop(thread)
            return
        except KafkaError as error:
            assert error.code in (
                ErrorCode.FENCED_MEMBER_EPOCH,
                ErrorCode.UNKNOWN_MEMBER_ID,
                ErrorCode.GROUP_ID_NOT_FOUND,
            )
            self.drop(thread)
            return
        if is_lost and thread.epoch > 0:
            thread.is_unsure = True
            return
        self.take(thread, answer)

    @staticmethod
    def drop(thread: Thread) -> None:
        thread.tasks, thread.epoch, thread.to_confirm, thread.is_unsure = NO_TASKS, 0, False, False

    @staticmethod
    def take(thread: Thread, answer: HeartbeatAnswer) -> None:
        assert answer.member_epoch >= thread.epoch, "a member's epoch went down"
        thread.epoch = answer.member_epoch
        thread.to_confirm = thread.is_unsure = False
        tasks = told(answer)
        if tasks is not None and tasks != thread.tasks:
            thread.tasks, thread.to_confirm = tasks, True

    @rule(slot=SLOTS)
    def leave(self, slot: int) -> None:
        thread = self.threads.pop(slot, None)
        if thread is not None and thread.epoch > 0:
            try:
                self.world.beat(thread.member_id, -1)
            except KafkaError as error:
                assert error.code is ErrorCode.UNKNOWN_MEMBER_ID

    @rule(slot=SLOTS)
    def crash(self, slot: int) -> None:
        self.threads.pop(slot, None)

    # What happens around them

    @rule(ms=st.sampled_from([100, 1_000, 5_000]))
    def time_passes(self, ms: int) -> None:
        self.world.pass_time(ms)

    @rule()
    def a_long_time_passes(self) -> None:
        """Long enough for sessions to end; those who are alive stop before theirs does."""
        self.world.pass_time(46_000)
        self.forget_the_fenced()

    @rule(count=st.integers(2, 5))
    def grow_source(self, count: int) -> None:
        """As the repartition topic keeps its partitions, this is INCORRECTLY_PARTITIONED_TOPICS until they are gone."""
        topic = self.world.cache.topic("a")
        if topic is not None and count > len(topic.partitions):
            self.world.grow_topic("a", count)
            for name in "rc":
                if self.world.cache.topic(name) is not None:
                    self.world.delete_topic(name)

    @rule()
    def lose_changelog(self) -> None:
        if self.world.cache.topic("c") is not None:
            self.world.delete_topic("c")

    @rule()
    def reload(self) -> None:
        """Another broker takes over: it knows what the log says, and sessions begin anew."""
        group = self.world.reloaded()
        assert facts(group) == facts(self.world.group)
        self.world.group = group

    def forget_the_fenced(self) -> None:
        group = self.world.group
        for thread in self.threads.values():
            if group is None or thread.member_id not in group.members:
                thread.tasks = NO_TASKS

    # What must hold

    @invariant()
    def a_task_runs_once(self) -> None:
        # A rebalance timeout fences as well; the client learns it from its session.
        self.forget_the_fenced()
        active: set[tuple[str, int]] = set()
        in_process: set[tuple[str, str, int]] = set()
        for thread in self.threads.values():
            for task in each_task(thread.tasks.active):
                assert task not in active
                active.add(task)
            for role in (thread.tasks.active, thread.tasks.standby):
                for task in each_task(role):
                    assert (thread.process, *task) not in in_process
                    in_process.add((thread.process, *task))

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
            for thread in list(self.threads.values()):
                self.beat(thread)
        group = self.world.group
        if group is None:
            return
        assert self.world.state == ("Stable" if self.threads else "Empty")
        assert facts(self.world.reloaded()) == facts(group)
        if not self.threads:
            return
        configured = group.known.configured
        assert configured is not None and configured.subtopologies is not None
        wanted = {(name, index) for name, each in configured.subtopologies.items() for index in range(each.task_count)}
        active = [task for thread in self.threads.values() for task in each_task(thread.tasks.active)]
        assert sorted(active) == sorted(wanted)
        standby = [task for thread in self.threads.values() for task in each_task(thread.tasks.standby)]
        replicas = min(STANDBYS, len({thread.process for thread in self.threads.values()}) - 1)
        assert sorted(standby) == sorted([task for task in wanted if task[0] == "1"] * replicas)


Groups.TestCase.settings = hypothesis_settings(max_examples=50, stateful_step_count=40, deadline=None)


class TestGroups(Groups.TestCase):  # type: ignore[misc]
    """A task would run twice, or never, after some order of events that nobody thought of."""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_many_more_random_histories() -> None:
    """Rare orders of events would only be met in production."""
    from hypothesis.stateful import run_state_machine_as_test

    run_state_machine_as_test(
        Groups, settings=hypothesis_settings(max_examples=400, stateful_step_count=60, deadline=None)
    )
