"""The sticky assignor of streams groups: which member is to run which task; a pure function (Kafka's `sticky`).

    active   1 stay with the member that has the task, as long as it has no more than its even share
             2 move to a member that has the task as standby, and so its state, within the same bound
             3 what is left goes to the process with the least load, there to the member with the least tasks
    standby  for each task of a subtopology with state: the last active member, then a last standby, then the process
             with the least load; never where the process has the task already

The load of a process is its tasks per member.  The order in which tasks are assigned gives ranges: by partition for
tasks that stay, by subtopology for new ones.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kbroker.coordinator.streams.tasks import NO_TASKS, Partitions, Tasks, each_task

logger = logging.getLogger("kbroker.groups")

NAME = "sticky"


class Task(NamedTuple):
    """A subtopology and a partition."""

    subtopology: str
    partition: int


class SubtopologySpec(NamedTuple):
    """What an assignor knows of a subtopology."""

    task_count: int
    is_stateful: bool


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """A member: its process, and the target that it had."""

    process_id: str
    previous: Tasks = NO_TASKS


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """All that the assignment depends on; `subtopologies` by id."""

    members: Mapping[str, MemberSpec]
    subtopologies: Mapping[str, SubtopologySpec]
    num_standby_replicas: int = 0


def assign(spec: GroupSpec) -> dict[str, Tasks]:
    """The target of each member."""
    if not spec.members:
        return {}
    assignment = _Assignment(spec)
    assignment.assign_active()
    if spec.num_standby_replicas:
        assignment.assign_standby()
    return assignment.result()


@dataclass(slots=True)
class _Process:
    """A process under way: how many tasks its members have, and all that it has."""

    counts: dict[str, int] = field(default_factory=dict)
    tasks: set[Task] = field(default_factory=set)
    count: int = 0

    @property
    def load(self) -> float:
        return self.count / len(self.counts)

    def least(self) -> str:
        return min(self.counts, key=self.counts.__getitem__)


class _Queue:
    """Processes by load; of equal ones, the one that was looked at first."""

    def __init__(self, processes: Mapping[str, _Process]) -> None:
        self._processes = processes
        self._turn = len(processes)
        self._heap = [(processes[name].load, turn, name) for turn, name in enumerate(sorted(processes))]
        heapq.heapify(self._heap)

    def pop(self) -> tuple[int, str] | None:
        if not self._heap:
            return None
        _, turn, name = heapq.heappop(self._heap)
        return turn, name

    def push(self, name: str) -> None:
        self._turn += 1
        self.put_back(self._turn, name)

    def put_back(self, turn: int, name: str) -> None:
        heapq.heappush(self._heap, (self._processes[name].load, turn, name))


class _Share:
    """The most tasks per member; when members reach it, the rest is divided anew among the others."""

    def __init__(self, tasks: int, members: int) -> None:
        self._tasks = tasks
        self._members = members
        self.each = _ceiling(tasks, members)

    def reached(self, count: int) -> None:
        if count == self.each:
            self._members -= 1
            self._tasks -= count
            self.each = _ceiling(self._tasks, self._members)


def _ceiling(tasks: int, members: int) -> int:
    return -(-tasks // members) if members > 0 else 0


class _Assignment:
    def __init__(self, spec: GroupSpec) -> None:
        self._spec = spec
        members = len(spec.members)
        active = sum(each.task_count for each in spec.subtopologies.values())
        standby = sum(each.task_count for each in spec.subtopologies.values() if each.is_stateful)
        self._active_share = _Share(active, members)
        self._share = _Share(active + standby * spec.num_standby_replicas, members)
        self._processes: dict[str, _Process] = {}
        self._last_active: dict[Task, str] = {}
        self._last_standby: dict[Task, list[str]] = {}
        self._active: dict[str, set[Task]] = {member_id: set() for member_id in spec.members}
        self._standby: dict[str, set[Task]] = {member_id: set() for member_id in spec.members}
        for member_id in sorted(spec.members):
            member = spec.members[member_id]
            self._processes.setdefault(member.process_id, _Process()).counts[member_id] = 0
            for task in each_task(member.previous.active):
                self._last_active[Task(*task)] = member_id
            for task in each_task(member.previous.standby):
                self._last_standby.setdefault(Task(*task), []).append(member_id)

    def _process(self, member_id: str) -> _Process:
        return self._processes[self._spec.members[member_id].process_id]

    def _tasks(self, *, stateful_only: bool = False) -> list[Task]:
        return [
            Task(name, partition)
            for name in sorted(self._spec.subtopologies)
            if self._spec.subtopologies[name].is_stateful or not stateful_only
            for partition in range(self._spec.subtopologies[name].task_count)
        ]

    def _give(self, member_id: str, task: Task, *, active: bool) -> None:
        process = self._process(member_id)
        process.tasks.add(task)
        process.count += 1
        process.counts[member_id] += 1
        (self._active if active else self._standby)[member_id].add(task)
        if active:
            self._active_share.reached(process.counts[member_id])
        self._share.reached(process.counts[member_id])

    def _count(self, member_id: str) -> int:
        return self._process(member_id).counts[member_id]

    # Active tasks

    def assign_active(self) -> None:
        left = sorted(self._tasks(), key=lambda task: (task.partition, task.subtopology))
        left = [task for task in left if not self._keep(self._last_active.get(task), task)]
        left = [task for task in left if not self._keep(self._least(self._last_standby.get(task, ())), task)]
        queue = _Queue(self._processes)
        for task in sorted(left):
            found = queue.pop()
            assert found is not None
            self._give(self._processes[found[1]].least(), task, active=True)
            queue.push(found[1])

    def _keep(self, member_id: str | None, task: Task) -> bool:
        if member_id is None or self._count(member_id) >= self._active_share.each:
            return False
        self._give(member_id, task, active=True)
        return True

    def _least(self, members: Sequence[str], task: Task | None = None) -> str | None:
        """The member with the least load of those that had a task; with `task`, not one whose process has it."""
        if not members:
            return None
        candidate = members[0]
        load, count = self._process(candidate).load, self._count(candidate)
        for member_id in members[1:]:
            process = self._process(member_id)
            if process.load < load and (task is None or task not in process.tasks) and self._count(member_id) < count:
                candidate, load, count = member_id, process.load, self._count(member_id)
        return None if task is not None and task in self._process(candidate).tasks else candidate

    # Standby tasks

    def assign_standby(self) -> None:
        replicas = self._spec.num_standby_replicas
        left: list[tuple[Task, int]] = []
        tasks = sorted(
            self._tasks(stateful_only=True), key=lambda task: (task.partition, task.subtopology), reverse=True
        )
        for task in tasks:
            for done in range(replicas):
                member_id = self._last_holder(task)
                if member_id is None:
                    left.append((task, replicas - done))
                    break
                self._give(member_id, task, active=False)
        queue = _Queue(self._processes)
        homeless = 0
        for task, count in sorted(left, reverse=True):
            for done in range(count):
                if not self._give_standby(queue, task):
                    homeless += count - done
                    break
        if homeless:
            logger.warning("%d standby tasks have no process to run on, as each has the task already", homeless)

    def _last_holder(self, task: Task) -> str | None:
        member_id = self._last_active.get(task)
        if member_id is not None and task not in self._process(member_id).tasks and self._has_room(member_id):
            return member_id
        member_id = self._least(self._last_standby.get(task, ()), task)
        return member_id if member_id is not None and self._has_room(member_id) else None

    def _has_room(self, member_id: str) -> bool:
        return self._count(member_id) < self._share.each

    def _give_standby(self, queue: _Queue, task: Task) -> bool:
        passed: list[tuple[int, str]] = []
        found = queue.pop()
        while found is not None and task in self._processes[found[1]].tasks:
            passed.append(found)
            found = queue.pop()
        for turn, name in passed:
            queue.put_back(turn, name)
        if found is None:
            return False
        self._give(self._processes[found[1]].least(), task, active=False)
        queue.push(found[1])
        return True

    # What came of it

    def result(self) -> dict[str, Tasks]:
        assert sum(map(len, self._active.values())) == len(self._tasks()), "tasks that run nowhere, or twice"
        assert all(self._active[each].isdisjoint(self._standby[each]) for each in self._active), "a task in two roles"
        return {
            member_id: Tasks(_partitions(self._active[member_id]), _partitions(self._standby[member_id]))
            for member_id in self._spec.members
        }


def _partitions(tasks: Iterable[Task]) -> Partitions:
    found: dict[str, set[int]] = {}
    for subtopology, partition in sorted(tasks):
        found.setdefault(subtopology, set()).add(partition)
    return {subtopology: frozenset(partitions) for subtopology, partitions in found.items()}
