"""Bugs of coordinators: groups of all kinds, transactions, states of share-partitions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kbroker.coordinator.classic.group import Group
from kbroker.coordinator.classic.group_state import GroupState
from kbroker.coordinator.classic.member import Member
from kbroker.coordinator.classic.messages import MemberProtocol
from kbroker.coordinator.classic.offsets import CommittedOffset, OffsetTable
from kbroker.coordinator.classic.rebalance import GroupLimits, Rebalances
from kbroker.coordinator.consumer import departure
from kbroker.coordinator.consumer.assignors import uniform
from kbroker.coordinator.consumer.assignors.group_spec import GroupSpec, MemberSpec
from kbroker.coordinator.consumer.assignors.range_assignor import assign_range
from kbroker.coordinator.consumer.draft import Draft
from kbroker.coordinator.consumer.group import ConsumerGroup
from kbroker.coordinator.consumer.member import ConsumerMember
from kbroker.coordinator.runtime.shard import Shard
from kbroker.coordinator.runtime.timers import Timers
from kbroker.coordinator.share import assignor as share_assignor
from kbroker.coordinator.share.state_partitions import StatePartitions, TopicState
from kbroker.coordinator.share.state_records import ShareState
from kbroker.coordinator.share.state_shard import ShareStateShard
from kbroker.coordinator.streams import assignor as streams_assignor
from kbroker.coordinator.transactions import completion, decisions
from kbroker.coordinator.transactions.completion import Completion
from kbroker.coordinator.transactions.transaction_metadata import TransactionMetadata
from kbroker.coordinator.transactions.transaction_partition import TransactionPartition
from kbroker.coordinator.transactions.transaction_state import TransactionState
from kbroker.replication.share.persister import SharePartitionKey, StateUpdate
from kbroker.types import TopicPartition
from tests.invariants.rows import Row

CLASSIC, CONSUMER = "coordinator/classic/", "coordinator/consumer/"
SHARE, RUNTIME, TRANSACTIONS = "coordinator/share/", "coordinator/runtime/", "coordinator/transactions/"
TOPIC = bytes(range(16))
KEY = SharePartitionKey("group", TOPIC, 0)


def group_of(*member_ids: str, state: GroupState = GroupState.PREPARING_REBALANCE) -> Group:
    """A classic group with these members, static ones with their ids in capitals."""
    group = Group("group", 0, 0)
    for member_id in member_ids:
        protocols = (MemberProtocol("range", b""),)
        group.add(Member(member_id, member_id.upper(), "client", "host", 1000, 1000, "other", protocols), None)
    group.state = state
    return group


def rebalances() -> Rebalances:
    """Rebalances without timers and log."""
    clock: Any = SimpleNamespace(now_ms=lambda: 0, monotonic=lambda: 0.0)
    later: Any = lambda *_: SimpleNamespace(cancel=lambda: None)  # noqa: E731
    store: Any = None
    return Rebalances(GroupLimits(), clock, later, store)


def transaction(state: TransactionState, *partitions: int) -> TransactionMetadata:
    """A transaction of producer 7."""
    return TransactionMetadata(
        "id", 7, 3, 60_000, state, 0, frozenset(TopicPartition("orders", each) for each in partitions)
    )


def _empty_with_members(_: Path, __: pytest.MonkeyPatch) -> None:
    group_of("one").transition_to(GroupState.EMPTY, 0)


def _a_protocol_of_some(_: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Group, "select_protocol", lambda _: "sticky")
    group_of("one").start_generation(0)


def _another_members_place(_: Path, __: pytest.MonkeyPatch) -> None:
    group_of("one", "two").replace_static("ONE", "two", "three")


def _a_generation_of_a_stable_group(_: Path, __: pytest.MonkeyPatch) -> None:
    rebalances()._complete_join(group_of("one", state=GroupState.STABLE))


def _a_sync_is_forgotten(_: Path, patch: pytest.MonkeyPatch) -> None:
    group = group_of("one", state=GroupState.COMPLETING_REBALANCE)
    group.members["one"].sync_reply = lambda _: None
    patch.setattr(Rebalances, "fail_syncs", lambda *_: None)
    rebalances().prepare(group, "a member is gone")


def _a_member_without_assignment(_: Path, __: pytest.MonkeyPatch) -> None:
    rebalances().hand_out(group_of("one", "two", state=GroupState.COMPLETING_REBALANCE), {"one": b""})


def _a_strange_member_is_waited_for(_: Path, __: pytest.MonkeyPatch) -> None:
    group = group_of("one", state=GroupState.STABLE)
    group.pending_syncs.add("gone")
    rebalances()._on_sync_timeout(group, 0)


def _a_deleted_offset_comes_back(_: Path, patch: pytest.MonkeyPatch) -> None:
    table = OffsetTable()
    table.put("orders", 0, CommittedOffset(5))
    table.topics = Undeletable(table.topics)
    table.remove("orders", 0)


class Undeletable(dict[str, dict[int, CommittedOffset]]):
    """Topics of which copies are given out."""

    def get(self, key: str, default: Any = None) -> Any:
        """A copy."""
        return dict(self[key]) if key in self else default

    def __delitem__(self, key: str) -> None:
        """Nothing goes."""


def _a_target_of_an_old_epoch(_: Path, __: pytest.MonkeyPatch) -> None:
    group = ConsumerGroup("group")
    group.apply_assignment_epoch(7, 0)
    group.target_records([], 7, 0)


def _a_stranger_leaves(_: Path, __: pytest.MonkeyPatch) -> None:
    group, context = ConsumerGroup("group"), None
    group.apply_member(ConsumerMember("member", member_epoch=3))
    settings: Any = context
    departure.remove(group, [ConsumerMember("member", member_epoch=2)], settings, Draft())


SPEC = GroupSpec({name: MemberSpec(frozenset({TOPIC})) for name in ("one", "two")}, {TOPIC: 5}, is_homogeneous=True)


def _a_partition_is_left_out(_: Path, patch: pytest.MonkeyPatch) -> None:
    loose = uniform._unowned
    patch.setattr(uniform, "_unowned", lambda *arguments: loose(*arguments)[1:])
    uniform.assign_uniform(SPEC)


def _a_partition_has_no_owner(_: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(uniform._Heterogeneous, "_hand_out", lambda *_: None)
    patch.setattr(uniform._Heterogeneous, "_balance", lambda *_: False)
    uniform.assign_uniform(replace(SPEC, is_homogeneous=False))


def _a_range_is_too_short(_: Path, patch: pytest.MonkeyPatch) -> None:
    module = "kbroker.coordinator.consumer.assignors.range_assignor.divmod"
    patch.setattr(module, lambda count, _: (count // 2, 0), raising=False)
    assign_range(SPEC)


def _a_task_runs_nowhere(_: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(streams_assignor._Assignment, "_keep", lambda *_: True)
    subtopologies = {"0": streams_assignor.SubtopologySpec(3, is_stateful=False)}
    streams_assignor.assign(streams_assignor.GroupSpec({"one": streams_assignor.MemberSpec("process")}, subtopologies))


def _a_partition_is_read_by_none(_: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(share_assignor._Assigning, "give_to_few", lambda _: None)
    patch.setattr(share_assignor._Assigning, "give_to_idle", lambda _: None)
    share_assignor.assign({"one": frozenset({TOPIC})}, {TOPIC: [0, 1]}, {})


def _a_state_is_begun_while_it_goes(_: Path, __: pytest.MonkeyPatch) -> None:
    StatePartitions(deleting={TOPIC: "orders"}).began({TOPIC: TopicState("orders", frozenset({0}))})


def _an_older_leader_is_obeyed(_: Path, __: pytest.MonkeyPatch) -> None:
    known = ShareState(state_epoch=1, leader_epoch=5, start_offset=0, delivery_complete_count=0, batches=())
    ShareStateShard(0, 10)._record(KEY, known, StateUpdate(1, 4, 0, 0, ()), 0)


def _records_that_are_needed_are_deleted(_: Path, __: pytest.MonkeyPatch) -> None:
    shard = ShareStateShard(0, 10)
    shard.states[KEY] = ShareState(1, 5, 0, 0, ())
    shard.needed_from(100)


def shard_of(build: Any = None) -> Shard[Any]:
    """A partition of a state topic, not loaded yet."""
    clock: Any = SimpleNamespace(now_ms=lambda: 0, monotonic=lambda: 0.0)
    later: Any = lambda *_: SimpleNamespace(cancel=lambda: None)  # noqa: E731
    log: Any = None
    slices: Any = None
    return Shard(0, log, build, clock, later, slices, 1 << 20)


def _an_older_epoch_of_a_coordinator(_: Path, __: pytest.MonkeyPatch) -> None:
    shard = shard_of()
    shard.leader_epoch = 5
    shard.lead(4)


def _timers_of_a_state_that_is_gone(_: Path, patch: pytest.MonkeyPatch) -> None:
    shard = shard_of()
    shard.timers.set("member", 10, lambda: None)
    patch.setattr(Timers, "cancel_all", lambda _: None)
    shard.unload()


def _a_replaced_timer_goes_off(_: Path, __: pytest.MonkeyPatch) -> None:
    timers = shard_of().timers
    timers.set("member", 0, lambda: None)
    old: Any = timers.find("member")
    del timers._by_key["member"]
    timers.set("member", 10, lambda: None)
    old._fire()


def _an_open_transaction_is_complete(_: Path, __: pytest.MonkeyPatch) -> None:
    decisions.complete(transaction(TransactionState.ONGOING, 0), 0)


def _a_producer_gets_an_older_epoch(_: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(decisions, "_bumped", lambda *_: (2, -1))
    decisions.init_producer_id(transaction(TransactionState.EMPTY), 60_000, -1, -1, None, 0)


def _a_fence_does_not_fence(_: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(decisions, "_next_epoch", lambda metadata: metadata.producer_epoch)
    decisions.fence(transaction(TransactionState.ONGOING, 0), 0, None, 0)


def partition_of_transactions() -> TransactionPartition:
    """One that is not served yet."""
    shard: Any = SimpleNamespace(index=0, timers=None, leader_epoch=1)
    return TransactionPartition(lambda *_: None, shard)


def _loaded_twice(_: Path, __: pytest.MonkeyPatch) -> None:
    state = partition_of_transactions()
    state.loaded(0, 0.0)
    state.loaded(0, 0.0)


def _a_marker_for_another_partition(_: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(completion, "CHECKED", True)
    state, metadata = partition_of_transactions(), transaction(TransactionState.PREPARE_COMMIT, 0, 1)
    state.unmarked["id"] = {TopicPartition("orders", 2)}
    nothing: Any = None
    Completion(nothing, nothing, nothing, lambda _: nothing)._write_markers(state, metadata)


def _an_end_keeps_its_partitions(_: Path, __: pytest.MonkeyPatch) -> None:
    state, metadata = partition_of_transactions(), transaction(TransactionState.PREPARE_COMMIT, 0)
    state.loaded(0, 0.0)
    state.put(metadata)
    state.unmarked["id"] = set()
    outcome: Any = SimpleNamespace(answer=replace(metadata, state=TransactionState.COMPLETE_COMMIT))
    nothing: Any = None
    Completion(nothing, nothing, nothing, lambda _: outcome)._finish(state, metadata)


ROWS = (
    Row("a group with members is empty", CLASSIC + "group.py", "state is not GroupState.EMPTY", _empty_with_members),
    Row("a protocol that some lack", CLASSIC + "group.py", "== len(self.members)", _a_protocol_of_some),
    Row("a member takes another's place", CLASSIC + "group.py", "== old_member_id", _another_members_place),
    Row("two generations at a time", CLASSIC + "rebalance.py", "forms a generation", _a_generation_of_a_stable_group),
    Row("a SyncGroup gets no answer", CLASSIC + "rebalance.py", "a SyncGroup is forgotten", _a_sync_is_forgotten),
    Row("a member gets no assignment", CLASSIC + "rebalance.py", "of other members", _a_member_without_assignment),
    Row("a rebalance never ends", CLASSIC + "rebalance.py", "pending_syncs <=", _a_strange_member_is_waited_for),
    Row("a deleted offset is left", CLASSIC + "offsets.py", "self.get(topic, part", _a_deleted_offset_comes_back),
    Row("a target goes back", "coordinator/modern/group.py", "epoch > self.assignment", _a_target_of_an_old_epoch),
    Row("a member of before leaves", CONSUMER + "departure.py", "is member for member", _a_stranger_leaves),
    Row("uniform drops a partition", CONSUMER + "assignors/uniform.py", "extra == 0", _a_partition_is_left_out),
    Row("uniform leaves a partition", CONSUMER + "assignors/uniform.py", "_NO_OWNER not in", _a_partition_has_no_owner),
    Row("range drops a partition", CONSUMER + "assignors/range_assignor.py", "end == spec", _a_range_is_too_short),
    Row("a task runs nowhere", "coordinator/streams/assignor.py", "tasks that run nowhere", _a_task_runs_nowhere),
    Row("a partition has no reader", SHARE + "assignor.py", "all(self._owners.values())", _a_partition_is_read_by_none),
    Row(
        "a state is begun and deleted",
        SHARE + "state_partitions.py",
        "deleting.keys()",
        _a_state_is_begun_while_it_goes,
    ),
    Row("an older leader writes", SHARE + "state_shard.py", ">= known.leader_epoch", _an_older_leader_is_obeyed),
    Row(
        "a snapshot is deleted", SHARE + "state_shard.py", "== self.states.keys()", _records_that_are_needed_are_deleted
    ),
    Row("a coordinator's epoch falls", RUNTIME + "shard.py", "leader_epoch >= self", _an_older_epoch_of_a_coordinator),
    Row("timers outlive their state", RUNTIME + "shard.py", "not self.timers", _timers_of_a_state_that_is_gone),
    Row("an old timer goes off", RUNTIME + "timers.py", "is self, f", _a_replaced_timer_goes_off),
    Row(
        "an open transaction ends", TRANSACTIONS + "decisions.py", "in PREPARED, meta", _an_open_transaction_is_complete
    ),
    Row(
        "a producer's epoch falls", TRANSACTIONS + "decisions.py", "epoch < MAX_EPOCH", _a_producer_gets_an_older_epoch
    ),
    Row("a fence lets writers on", TRANSACTIONS + "decisions.py", "_next_epoch(metadata) >", _a_fence_does_not_fence),
    Row("ids are loaded twice", TRANSACTIONS + "transaction_partition.py", "not self.is_served", _loaded_twice),
    Row(
        "a marker goes elsewhere", TRANSACTIONS + "completion.py", "<= metadata.parti", _a_marker_for_another_partition
    ),
    Row(
        "an end keeps partitions",
        TRANSACTIONS + "completion.py",
        "not outcome.answer.part",
        _an_end_keeps_its_partitions,
    ),
)
