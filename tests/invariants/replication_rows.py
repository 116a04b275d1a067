"""Bugs of replicas: roles, ISRs, truncation, logs, share-partitions."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.metadata.image import PartitionImage, TopicImage
from kbroker.replication import log_cut
from kbroker.replication import partition as partition_module
from kbroker.replication.follower_session import Ask, FollowerSession
from kbroker.replication.pending_roles import PendingRoles
from kbroker.replication.replica_logs import ReplicaLogs
from kbroker.replication.share import state_batches
from kbroker.replication.share.in_flight import InFlight, Run
from kbroker.replication.share.persister import StateBatch
from kbroker.replication.share.record_state import RecordState
from kbroker.types import TopicPartition
from tests.invariants.rows import Row, partition_of

REPLICATION = "replication/"
SHARE = REPLICATION + "share/"
TP = TopicPartition("orders", 0)
IMAGE = PartitionImage(0, 1, 5, (1, 2), (1, 2))
TOPIC = TopicImage("orders", bytes(range(16)), (IMAGE,))


def _an_older_role(directory: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(partition_module, "CHECKED", True)
    partition_of(directory).follow(PartitionImage(0, 2, 4, (1, 2, 3), (1, 2), 5))


def _waits_of_a_follower(directory: Path, _: pytest.MonkeyPatch) -> None:
    partition = partition_of(directory)
    partition.log.high_watermark = 0
    partition.wait(5, True, lambda _: None)
    partition.follow(PartitionImage(0, 2, 6, (1, 2, 3), (1, 2), 5))


def _an_isr_without_its_leader(directory: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(partition_module, "CHECKED", True)
    partition_of(directory).isr_granted((2, 3), 5)


def _a_leader_proposes_itself_out(directory: Path, _: pytest.MonkeyPatch) -> None:
    partition_of(directory)._propose((2, 3))


def _a_leaders_log_is_cut(directory: Path, _: pytest.MonkeyPatch) -> None:
    partition_of(directory).truncate_to(2)


def _what_the_leader_has_is_dropped(directory: Path, _: pytest.MonkeyPatch) -> None:
    partition_of(directory, leader=2).restart_at(2)


def _cut_in_another_epoch(directory: Path, patch: pytest.MonkeyPatch) -> None:
    partition = partition_of(directory, leader=2)

    async def snapshot(log: Any, *_: object) -> object:
        partition.leader_epoch += 1
        return log.producer_state

    patch.setattr(log_cut, "write_cut_snapshot", snapshot)
    pace: Any = object()
    asyncio.run(log_cut.cut_log(partition, 2, pace))


def _producers_of_another_cut(directory: Path, patch: pytest.MonkeyPatch) -> None:
    partition = partition_of(directory, leader=2)

    async def snapshot(log: Any, *_: object) -> object:
        return log.producer_state

    partition.log.producer_state.map_end_offset = 6
    patch.setattr(log_cut, "write_cut_snapshot", snapshot)
    pace: Any = object()
    asyncio.run(log_cut.cut_log(partition, 2, pace))


def logs_of() -> ReplicaLogs:
    """The logs of a broker that makes none."""
    manager: Any = SimpleNamespace(get_or_create_log=lambda *_, **__: None, delete_log=lambda _: None)
    loop: Any = None
    return ReplicaLogs(1, manager, loop, lambda *_: None)


def _made_and_deleted(_: Path, patch: pytest.MonkeyPatch) -> None:
    logs = logs_of()
    logs.take_away(TP)
    patch.setattr(ReplicaLogs, "delete", lambda *_: None)
    config: Any = None
    logs.open(TOPIC, IMAGE, config)


def _deleted_and_made(_: Path, __: pytest.MonkeyPatch) -> None:
    logs = logs_of()
    logs.defer(TOPIC, IMAGE)
    logs.take_away(TP)


def _made_for_a_follower(_: Path, __: pytest.MonkeyPatch) -> None:
    logs_of().defer(TOPIC, PartitionImage(0, 2, 5, (1, 2), (1, 2)))


def _an_older_role_waits(_: Path, __: pytest.MonkeyPatch) -> None:
    pending = PendingRoles()
    pending.put(TOPIC, PartitionImage(0, 1, 9, (1, 2), (1, 2)))
    pending.put_topic(TopicImage("orders", bytes(16), (IMAGE,)), TOPIC)
    pending.pop(TP)


def _a_session_lacks_a_partition(_: Path, __: pytest.MonkeyPatch) -> None:
    session = FollowerSession()
    session.want(("orders", bytes(16), 0), Ask("orders", bytes(16), 0, 1, 0, -1, 0, 1))
    session.check_invariants()


def _a_part_of_a_change_is_cut(_: Path, __: pytest.MonkeyPatch) -> None:
    runs = InFlight()
    runs.add(Run(0, 9, RecordState.ACQUIRED, 1, "member"))
    runs.runs[0].change(RecordState.ACKNOWLEDGED)
    runs.cut(3, 5)


def _a_change_over_a_change(_: Path, __: pytest.MonkeyPatch) -> None:
    run = Run(0, 9, RecordState.ACQUIRED, 1, "member")
    run.change(RecordState.AVAILABLE)
    run.change(RecordState.ARCHIVED)


def _states_out_of_order(_: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(state_batches, "CHECKED", True)
    patch.setattr(state_batches, "_add", lambda done, each: done.append((each[0], each[1] + 1, *each[2:])))
    state_batches.combine([StateBatch(0, 1, 0, 1), StateBatch(2, 3, 2, 1)], 0)


ROWS = (
    Row("an older role is taken", REPLICATION + "partition.py", "image.leader_epoch >=", _an_older_role),
    Row("a follower's appends wait on", REPLICATION + "partition.py", "commits nothing", _waits_of_a_follower),
    Row("an ISR lacks its leader", REPLICATION + "partition.py", "self.node_id in isr,", _an_isr_without_its_leader),
    Row(
        "a leader leaves its ISR",
        REPLICATION + "partition.py",
        "self.node_id in isr and",
        _a_leader_proposes_itself_out,
    ),
    Row("a leader's log is cut", REPLICATION + "partition.py", "a leader's log is cut", _a_leaders_log_is_cut),
    Row(
        "records are dropped",
        REPLICATION + "partition.py",
        "offset >= self.log.log_end",
        _what_the_leader_has_is_dropped,
    ),
    Row("a cut of an epoch that is over", REPLICATION + "log_cut.py", "is_as_it_was()", _cut_in_another_epoch),
    Row("producers of another cut", REPLICATION + "log_cut.py", "map_end_offset == offset", _producers_of_another_cut),
    Row("a new log is deleted", REPLICATION + "replica_logs.py", "as soon as it is made", _made_and_deleted),
    Row("a deleted log is made", REPLICATION + "replica_logs.py", "would be made again", _deleted_and_made),
    Row("a follower makes a log as leader", REPLICATION + "replica_logs.py", "is led by", _made_for_a_follower),
    Row("an older role overtakes", REPLICATION + "pending_roles.py", "older[1].leader_epoch <=", _an_older_role_waits),
    Row(
        "a session lacks a partition",
        REPLICATION + "follower_session.py",
        "== self._wanted",
        _a_session_lacks_a_partition,
    ),
    Row("half a change is stored", SHARE + "in_flight.py", "to be stored as a whole", _a_part_of_a_change_is_cut),
    Row("a change is lost", SHARE + "in_flight.py", "waits to be stored already", _a_change_over_a_change),
    Row("a record has two states", SHARE + "state_batches.py", "one[1] < other[0]", _states_out_of_order),
)
