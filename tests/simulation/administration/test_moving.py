"""Replicas that move: what the judge of such a change has to see, and what it may not invent."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.error_codes import ErrorCode
from kbroker.schemas import wire
from tests.simulation.administration import moving
from tests.simulation.administration.administrator import Administrator
from tests.simulation.administration.lives import ChangingTopic
from tests.simulation.administration.told import MadeUp
from tests.simulation.judge import ViolationError
from tests.unbroken import finished


class Moved:
    """Brokers that give one error code to each change of a topic's replicas."""

    def __init__(self, code: int, nodes: int = 2, whole: int = 0) -> None:
        self.code, self.whole = code, whole
        self.world: Any = MadeUp(self.says, nodes=nodes, log_dirs=lambda _: ["/d1", "/d2"])
        topic = ChangingTopic("t", self.world.judge)
        self.life = topic.begins(0.0, 1)
        self.life.topic_id, self.life.made_at, self.life.replicas = b"1" * 16, 1.0, nodes
        self.admin = Administrator(self.world, "administrator", topic, 1)

    def says(self, _node: int, request: Any) -> Any:
        row = SimpleNamespace(error_code=self.code)
        if isinstance(request, wire.ElectLeadersRequest):
            results = [SimpleNamespace(partition_result=[row])]
            return SimpleNamespace(error_code=self.whole, replica_election_results=results)
        partitions = [SimpleNamespace(partitions=[row])]
        return SimpleNamespace(error_code=self.whole, responses=partitions, results=partitions)


def test_replicas_that_move_are_to_be_where_they_were_told_to_be() -> None:
    """What the end of a history looks at would be nothing."""
    moved = Moved(0)
    finished(moving.move_replicas(moved.admin, moved.life))
    ((target,),) = moved.life.places.values()
    assert sorted(target) == [1, 2]
    assert moved.life.moved_at < float("inf")


def test_a_move_is_called_off_or_over() -> None:
    """A call that comes too late would be a violation, or its partition be looked for where it was."""
    moved = Moved(int(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS))
    assert finished(moving._reassign(moved.admin, moved.life, 0, None)) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


@pytest.mark.parametrize("whole", [0, int(ErrorCode.UNKNOWN_SERVER_ERROR)])
def test_a_move_that_is_refused_is_seen(whole: int) -> None:
    """A cluster could carry out nothing, and nobody would see."""
    moved = Moved(int(ErrorCode.INVALID_REQUEST), whole=whole)
    with pytest.raises(ViolationError, match="moves to"):
        finished(moving._reassign(moved.admin, moved.life, 0, [1, 2]))


def test_a_move_that_was_never_asked_for_is_not_under_way() -> None:
    """A new target that is answered as if none had been given could be lost."""
    moved = Moved(int(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS))
    with pytest.raises(ViolationError, match="NO_REASSIGNMENT_IN_PROGRESS"):
        finished(moving._reassign(moved.admin, moved.life, 0, [2, 1]))


@pytest.mark.parametrize("code", sorted(moving.NOT_TO_ELECT))
def test_an_election_that_is_not_needed_or_not_possible_is_no_violation(code: int) -> None:
    """Most elections would be violations."""
    moved = Moved(int(code))
    finished(moving.elect(moved.admin, moved.life))


@pytest.mark.parametrize(("code", "whole"), [(ErrorCode.INVALID_REQUEST, 0), (0, ErrorCode.UNKNOWN_SERVER_ERROR)])
def test_an_election_that_is_refused_is_seen(code: int, whole: int) -> None:
    """No leader would ever change, and nobody would see."""
    moved = Moved(int(code), whole=int(whole))
    with pytest.raises(ViolationError, match="are not elected"):
        finished(moving.elect(moved.admin, moved.life))


@pytest.mark.parametrize(
    ("code", "nodes", "violation"),
    [
        (ErrorCode.NONE, 1, False),
        (ErrorCode.REPLICA_NOT_AVAILABLE, 2, False),
        (ErrorCode.REPLICA_NOT_AVAILABLE, 1, True),
        (ErrorCode.LOG_DIR_NOT_FOUND, 2, True),
    ],
)
def test_a_directory_that_is_refused_is_seen(code: ErrorCode, nodes: int, violation: bool) -> None:
    """Partitions could stay where they are, and nobody would see."""
    moved = Moved(int(code), nodes)
    if not violation:
        finished(moving.move_directory(moved.admin, moved.life))
        return
    with pytest.raises(ViolationError, match="does not move to"):
        finished(moving.move_directory(moved.admin, moved.life))


@pytest.mark.parametrize("is_ailing", [False, True])
def test_a_directory_may_refuse_a_move_while_its_disk_fails(is_ailing: bool) -> None:
    """A partition on a good disk would be a violation when it is to move to a bad one; or no refusal would be one."""
    moved = Moved(int(ErrorCode.KAFKA_STORAGE_ERROR), nodes=1)
    moved.world.disks.takes_no_copy = lambda folder: is_ailing and folder in ("/d1", "/d2")
    if is_ailing:
        finished(moving.move_directory(moved.admin, moved.life))
        return
    with pytest.raises(ViolationError, match="KAFKA_STORAGE_ERROR"):
        finished(moving.move_directory(moved.admin, moved.life))
