"""The sticky assignor of streams groups: complete, balanced, and no task moves without need."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker.coordinator.streams.assignor import GroupSpec, MemberSpec, SubtopologySpec, assign
from kbroker.coordinator.streams.tasks import Tasks, each_task

SUBTOPOLOGIES = st.dictionaries(
    st.sampled_from("012"), st.builds(SubtopologySpec, st.integers(1, 6), st.booleans()), min_size=1
)
PROCESSES = st.lists(st.sampled_from("pqrs"), min_size=1, max_size=6)


def spec(
    processes: list[str],
    subtopologies: dict[str, SubtopologySpec],
    standbys: int,
    previous: dict[str, Tasks] | None = None,
) -> GroupSpec:
    members = {
        f"m{index}": MemberSpec(process, (previous or {}).get(f"m{index}", Tasks()))
        for index, process in enumerate(processes)
    }
    return GroupSpec(members, subtopologies, standbys)


def check(group: GroupSpec, found: dict[str, Tasks]) -> None:
    """What every assignment must be."""
    wanted = sorted((name, index) for name, each in group.subtopologies.items() for index in range(each.task_count))
    active = sorted(task for tasks in found.values() for task in each_task(tasks.active))
    assert active == wanted
    held: Counter[tuple[str, str, int]] = Counter()
    for member_id, tasks in found.items():
        for role in (tasks.active, tasks.standby):
            held.update((group.members[member_id].process_id, *task) for task in each_task(role))
        assert not tasks.warmup
    assert all(count == 1 for count in held.values()), "a process has a task twice"
    processes = len({member.process_id for member in group.members.values()})
    standby = Counter(task for tasks in found.values() for task in each_task(tasks.standby))
    replicas = min(group.num_standby_replicas, processes - 1)
    stateful = {task for task in wanted if group.subtopologies[task[0]].is_stateful}
    assert standby == Counter({task: replicas for task in stateful if replicas})


@settings(max_examples=150, deadline=None)
@given(PROCESSES, SUBTOPOLOGIES, st.integers(0, 2), PROCESSES)
def test_assignments_are_complete_and_no_process_has_a_task_twice(
    processes: list[str], subtopologies: dict[str, SubtopologySpec], standbys: int, later: list[str]
) -> None:
    """A task would run twice, nowhere, or beside its own standby."""
    first = spec(processes, subtopologies, standbys)
    found = assign(first)
    check(first, found)
    # Members come, go, and move to other processes.
    second = spec(later, subtopologies, standbys, found)
    check(second, assign(second))


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 6), SUBTOPOLOGIES, st.integers(0, 2))
def test_an_assignment_stays_while_nothing_changes(
    count: int, subtopologies: dict[str, SubtopologySpec], standbys: int
) -> None:
    """Each new epoch would move tasks, and their state, about."""
    processes = [f"p{index}" for index in range(count)]
    found = assign(spec(processes, subtopologies, standbys))
    again = assign(spec(processes, subtopologies, standbys, found))
    assert {member: tasks.active for member, tasks in again.items()} == {
        member: tasks.active for member, tasks in found.items()
    }


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 6), SUBTOPOLOGIES)
def test_members_have_equally_many_active_tasks(count: int, subtopologies: dict[str, SubtopologySpec]) -> None:
    """One thread would do the work of two."""
    found = assign(spec([f"p{index}" for index in range(count)], subtopologies, 0))
    counts = [sum(len(each) for each in tasks.active.values()) for tasks in found.values()]
    assert max(counts) - min(counts) <= 1


def test_a_member_that_joins_takes_no_more_than_its_share() -> None:
    """A new instance would take all tasks from the others, which have their state."""
    subtopologies = {"0": SubtopologySpec(6, True)}
    first = assign(spec(["p", "q"], subtopologies, 0))
    then = assign(spec(["p", "q", "r"], subtopologies, 0, first))
    for member in ("m0", "m1"):
        assert set(each_task(then[member].active)) < set(each_task(first[member].active))
    assert len(list(each_task(then["m2"].active))) == 2


def test_a_task_goes_to_where_its_standby_is() -> None:
    """State would be restored from the changelog though it is there already."""
    has_state = Tasks(standby={"0": frozenset({0})})
    others = Tasks(active={"0": frozenset({1})})
    members = {"a": MemberSpec("p"), "b": MemberSpec("q", has_state), "c": MemberSpec("r", others)}
    found = assign(GroupSpec(members, {"0": SubtopologySpec(3, True)}))
    assert list(each_task(found["b"].active)) == [("0", 0)]
    assert list(each_task(found["c"].active)) == [("0", 1)]


def test_threads_of_a_process_share_its_tasks() -> None:
    """One thread of a process would run all of its tasks, and none would be left for a process with fewer threads."""
    found = assign(spec(["p", "p", "p", "q"], {"0": SubtopologySpec(8, False)}, 0))
    assert sorted(sum(len(each) for each in tasks.active.values()) for tasks in found.values()) == [2, 2, 2, 2]
