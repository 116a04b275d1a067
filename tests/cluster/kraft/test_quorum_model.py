"""Random histories of three controllers and an observer: what is applied is always a prefix of what is committed.

In the end it is all of that.

Also of `kbroker.cluster.kraft.quorum`, `kbroker.cluster.kraft.quorum_steps`.
"""

from __future__ import annotations

import random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kbroker.cluster.kraft.batches import MetadataBatch
from kbroker.cluster.kraft.quorum import Quorum
from kbroker.cluster.kraft.quorum_steps import (
    Append,
    Committed,
    EpochStart,
    Fatal,
    Fetch,
    Identity,
    KeptLog,
    SnapshotId,
    SnapshotPiece,
    Truncate,
    Wait,
)
from kbroker.cluster.kraft.snapshots import snapshot_batches
from tests.cluster.kraft.controllers import VOTERS, Controllers, endpoint_of

IDENTITY = Identity(9, "cluster", bytes(range(16)))
node = st.sampled_from(VOTERS)


class Follower:
    """An observer with its log and what it has applied, by the steps of the state machine."""

    def __init__(self, controllers: Controllers, rng: random.Random, max_bytes: int) -> None:
        self.controllers = controllers
        self.rng = rng
        self.max_bytes = max_bytes
        self.log: list[MetadataBatch] = []
        self.snapshot: SnapshotId | None = None
        self.pieces = b""
        self.applied: list[str] = []
        self.applied_end = 0
        self.of_snapshot: list[str] = []
        self.now = 0.0
        self.known_epoch = 0
        self.quorum = self.made()

    def made(self) -> Quorum:
        epochs: list[EpochStart] = []
        for batch in self.log:
            if not epochs or epochs[-1].epoch != batch.epoch:
                epochs.append(EpochStart(batch.epoch, batch.base_offset))
        start = 0 if self.snapshot is None else self.snapshot.end_offset
        end = self.log[-1].end_offset if self.log else start
        kept = KeptLog(end, epochs, self.snapshot, self.known_epoch)
        return Quorum(IDENTITY, kept, [endpoint_of(each) for each in VOTERS], {}, self.rng)

    def restart(self, *, loses: int) -> None:
        """The process ends; of the log behind the high watermark so many batches were not on disk."""
        for _ in range(loses):
            if self.log:
                self.log.pop()
        self.applied = list(self.of_snapshot)
        self.applied_end = 0 if self.snapshot is None else self.snapshot.end_offset
        self.quorum = self.made()

    def turn(self, *, is_lost: bool = False) -> None:
        """One question."""
        ask = self.quorum.next(self.now)
        if isinstance(ask, Wait):
            self.now = ask.until
            return
        if isinstance(ask, Fetch):
            answer = self.controllers.fetch(ask.to.port, ask.place, self.max_bytes)
        else:
            answer = self.controllers.fetch_snapshot(
                ask.to.port, ask.epoch, ask.snapshot, ask.position, max(self.max_bytes, 99)
            )
        self.now += 0.001
        if answer is None or is_lost:
            self.quorum.failed(ask, self.now)
            return
        before = self.quorum.epoch, self.quorum.high_watermark
        for step in self.quorum.answered(ask, answer, self.now):
            self.carry_out(step)
        assert self.quorum.epoch >= before[0], "it stepped back to an older epoch"
        assert self.quorum.high_watermark >= before[1], "the high watermark went back"
        self.known_epoch = self.quorum.epoch

    def carry_out(self, step: object) -> None:
        match step:
            case Append(batches):
                self.log += batches
            case Truncate(end_offset):
                assert end_offset >= self.applied_end, "what is applied is taken back"
                self.log = [each for each in self.log if each.end_offset <= end_offset]
            case Committed(high_watermark):
                due = [each for each in self.log if self.applied_end <= each.base_offset < high_watermark]
                assert due[-1].end_offset == high_watermark
                self.applied += Controllers.names_in(due)
                self.applied_end = high_watermark
            case SnapshotPiece(snapshot, position, data, is_last):
                self.pieces = self.pieces[:position] + data
                if is_last:
                    self.of_snapshot = Controllers.names_in(snapshot_batches(self.pieces, "test"))
                    self.applied, self.applied_end = list(self.of_snapshot), snapshot.end_offset
                    self.log, self.snapshot = [], snapshot
                    self.quorum.snapshot_loaded(snapshot)
            case Fatal(text):
                raise AssertionError(text)


class Histories(RuleBasedStateMachine):
    """See the module."""

    @initialize(seed=st.integers(0, 1 << 16), max_bytes=st.sampled_from([1, 150, 400, 1 << 20]))
    def begin(self, seed: int, max_bytes: int) -> None:
        self.controllers = Controllers()
        self.observer = Follower(self.controllers, random.Random(seed), max_bytes)

    @rule(at=node, size=st.integers(1, 3))
    def append(self, at: int, size: int) -> None:
        self.controllers.append(at, size)

    @rule(at=node, most=st.integers(1, 3))
    def replicate(self, at: int, most: int) -> None:
        self.controllers.replicate(at, most)

    @rule(size=st.integers(1, 3))
    def append_everywhere(self, size: int) -> None:
        leader = self.controllers.leader()
        if leader is not None:
            self.controllers.append(leader.node_id, size)
            for each in VOTERS:
                self.controllers.replicate(each)

    @rule(at=node)
    def elect(self, at: int) -> None:
        self.controllers.elect(at)

    @rule(at=node)
    def lose_leader(self, at: int) -> None:
        self.controllers.lose_leader(at)

    @rule(at=node)
    def tell(self, at: int) -> None:
        self.controllers.tell(at)

    @rule(at=node)
    def stop_or_start(self, at: int) -> None:
        node = self.controllers.nodes[at]
        node.is_up = not node.is_up
        if node.leader_id == at:
            node.leader_id = -1

    @rule(at=node, keeps=st.integers(0, 1))
    def take_snapshot(self, at: int, keeps: int) -> None:
        self.controllers.take_snapshot(at, keeps=keeps)

    @rule(turns=st.integers(1, 6))
    def ask(self, turns: int) -> None:
        for _ in range(turns):
            self.observer.turn()

    @rule()
    def lose_answer(self) -> None:
        self.observer.turn(is_lost=True)

    @rule(loses=st.integers(0, 3))
    def restart_observer(self, loses: int) -> None:
        self.observer.restart(loses=loses)

    @invariant()
    def applied_is_committed(self) -> None:
        """A record that the controllers take back would have been acted upon."""
        if not hasattr(self, "observer"):
            return
        batches = self.controllers.committed_batches(self.observer.applied_end)
        assert self.observer.applied == Controllers.names_in(batches)

    def teardown(self) -> None:
        """All is well again: the observer gets to the end."""
        controllers = self.controllers
        controllers.heal()
        leader = controllers.leader()
        assert leader is not None
        begin = self.observer.now
        for _ in range(2000):
            self.observer.turn()
            if self.observer.applied_end == leader.high_watermark:
                break
        assert self.observer.applied_end == leader.high_watermark, "it never got to the end"
        assert self.observer.now - begin < 10, "it took too long"
        self.applied_is_committed()


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
