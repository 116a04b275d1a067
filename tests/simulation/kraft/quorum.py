"""The model of three controllers on the simulated network: who leads, what is committed when, and who is told.

A batch is in the leader's log at once and comes to each other controller some milliseconds later; a majority commits
it.  A controller that is cut off from the others goes on as leader until it hears of the next one, and what it wrote
meanwhile is taken back.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from kbroker.cluster.kraft.batches import ControlRecord, MetadataBatch, records_of
from kbroker.cluster.kraft.quorum_steps import SnapshotId
from kbroker.cluster.kraft.snapshots import encoded_snapshot
from kbroker.schemas import wire
from tests.cluster.kraft.controllers import START_MS, VOTERS, Controller, Controllers, data_batch
from tests.simulation.kraft.active import Active
from tests.simulation.kraft.deciding import Batch
from tests.simulation.kraft.state import MetadataState, Seen, record_of

if TYPE_CHECKING:
    from kbroker.metadata.metadata_record import MetadataRecord
    from tests.simulation.loop import SimulatedLoop

ELECTION_SECONDS = 0.05, 0.5
TICK_SECONDS = 0.05
CLEARING = 0.02
"""The chance, with each tick."""
MS = 1_000_000


class SimulatedControllers(Controllers):
    """The logs.  `changed()` is called when anything of them has."""

    def __init__(
        self,
        loop: SimulatedLoop,
        rng: random.Random,
        session_seconds: float,
        first: list[MetadataRecord],
        changed: Callable[[], None],
    ) -> None:
        """`first`: the first records of the cluster."""
        self.loop = loop
        self.rng = rng
        self.state = MetadataState()
        """What is committed."""
        self.seen: dict[int, Seen] = {0: self.state.seen()}
        """What is committed below an offset where a batch ends."""
        self.actives: dict[int, Active] = {}
        self.apart: set[int] = set()
        """Controllers that do not reach the others."""
        self.delays_ms = rng.choice(((0.3, 2.0), (1.0, 15.0), (5.0, 60.0)))
        self._session_seconds = session_seconds
        self._changed = changed
        self._committed_to = 0
        self._is_electing = False
        self._is_over = False
        super().__init__()
        self.settle()
        batch = self.batch(VOTERS[0])
        for each in first:
            batch.put(each.value)
        self.write(VOTERS[0], batch.records)

    # Logs

    def write(self, node_id: int, records: list[MetadataRecord]) -> None:
        """A controller that takes itself for the leader writes a batch, which its own state has already."""
        node = self.nodes[node_id]
        node.batches.append(data_batch(node.end, node.epoch, records))
        self.settle()

    def batch(self, node_id: int) -> Batch:
        """A decision of a leader, to be written with `write`."""
        return Batch(self.actives[node_id].state, self.nodes[node_id].end)

    def _spread(self, leader: Controller) -> None:
        """The others get what a leader has, each a while later."""
        for each in self.nodes.values():
            if each is not leader and (each.end < leader.end or each.leader_id != leader.node_id):
                delay = self.rng.uniform(*self.delays_ms)
                self.loop.at(self.loop.now_ns + int(delay * MS), lambda each=each: self._fetches(each.node_id))  # type: ignore[misc]

    def _fetches(self, node_id: int) -> None:
        leader = self.leader()
        if leader is None or {node_id, leader.node_id} & self.apart:
            return
        before = self.nodes[node_id].end, self.nodes[node_id].high_watermark, leader.high_watermark
        was_led = self.nodes[node_id].leader_id
        self.replicate(node_id)
        now = self.nodes[node_id].end, self.nodes[node_id].high_watermark, leader.high_watermark
        if now != before or was_led != self.nodes[node_id].leader_id:
            self.settle()

    @staticmethod
    def _matching(node: Controller, leader: Controller) -> int:
        """By the last batch, as logs with the same batch are the same below it."""
        if node is leader:
            return leader.end
        if node.epoch != leader.epoch or node.leader_id != leader.node_id:
            return 0
        last = (node.end, node.last_epoch)
        for batch in reversed(leader.batches):
            if batch.end_offset < node.end:
                break
            if (batch.end_offset, batch.epoch) == last:
                return node.end
        return node.end if node.end == leader.start else Controllers._matching(node, leader)

    def _commit(self, leader: Controller) -> None:
        reached = sorted(self._matching(each, leader) for each in self.nodes.values())[1]
        if reached <= leader.high_watermark:
            return
        last = next((each for each in reversed(leader.batches) if each.end_offset == reached), None)
        if last is None or last.epoch != leader.epoch:
            return
        leader.high_watermark = reached
        new = [each for each in leader.batches if self._committed_to <= each.base_offset < reached]
        for each in new:
            self._note(each)

    def _note(self, batch: MetadataBatch) -> None:
        assert batch.base_offset == self._committed_to, "the model commits with a gap"
        has_changed = _replay(self.state, batch)
        before = self.seen[self._committed_to]
        self._committed_to = batch.end_offset
        self.seen[batch.end_offset] = self.state.seen() if has_changed else before

    @property
    def committed_end(self) -> int:
        return self._committed_to

    def take_snapshot(self, node_id: int, *, keeps: int = 0) -> None:
        node = self.nodes[node_id]
        end = node.high_watermark
        if end <= node.start or end != self._committed_to:
            return
        epoch = next(each for each in reversed(node.batches) if each.end_offset <= end).epoch
        node.snapshot = SnapshotId(end, epoch)
        node.content = b"".join(encoded_snapshot(self.state.records(), epoch, START_MS + end))
        node.start = end
        node.batches = [each for each in node.batches if each.end_offset > end]

    # Leaders

    def elect(self, node_id: int) -> bool:
        away = [each for each in self.apart if self.nodes[each].is_up]
        for each in away:
            self.nodes[each].is_up = False
        try:
            return node_id not in self.apart and super().elect(node_id)
        finally:
            for each in away:
                self.nodes[each].is_up = True

    def elect_soon(self) -> None:
        """The controllers that reach each other come to have a leader."""
        if not self._is_electing:
            self._is_electing = True
            self._after(self.rng.uniform(*ELECTION_SECONDS), self._try_to_elect)

    def _try_to_elect(self) -> None:
        self._is_electing = False
        if self._is_led():
            return
        if not self.elect(self.rng.choice(VOTERS)):
            self.elect_soon()
        self.settle()

    def _is_led(self) -> bool:
        """Whether one leads that the others reach, in the newest epoch that any of them knows: one of an epoch before,
        which was cut off, takes itself for the leader until it hears of the next."""
        leader = self.leader()
        newest = max((each.epoch for each in self.nodes.values() if each.is_up), default=0)
        return leader is not None and leader.node_id not in self.apart and leader.epoch == newest

    def kill(self, node_id: int) -> None:
        """One of them is gone, but for its log."""
        node = self.nodes[node_id]
        node.is_up = False
        if node.leader_id == node_id:
            node.leader_id = -1
            self.elect_soon()
        self.settle()

    def come_back(self, node_id: int) -> None:
        """It is there again."""
        self.nodes[node_id].is_up = True
        self.settle()

    def part(self, node_id: int) -> None:
        """One of them does not reach the others, nor they it."""
        self.apart.add(node_id)
        self.elect_soon()

    def join(self) -> None:
        """All reach each other."""
        self.apart.clear()
        if not self._is_led():
            self.elect_soon()
        self.settle()

    def _after(self, seconds: float, do: Callable[[], None]) -> None:
        self.loop.at(self.loop.now_ns + int(seconds * 1e9), do)

    def settle(self) -> None:
        """Whoever has come to lead, or ceased to, is seen to; so is all that waits."""
        if not hasattr(self, "nodes"):
            return
        for node_id, node in self.nodes.items():
            leads = node.is_up and node.leader_id == node_id
            active = self.actives.get(node_id)
            if active is not None and (not leads or active.epoch != node.epoch):
                del self.actives[node_id]
            if leads and node_id not in self.actives:
                state = self.state.copied()
                for batch in node.batches:
                    if batch.base_offset >= self._committed_to:
                        _replay(state, batch)
                self.actives[node_id] = Active(state, node.epoch, self.loop.time, self._session_seconds)
            active = self.actives.get(node_id)
            if active is not None and not active.is_ready and self._has_committed_its_first(node):
                active.begin()
        leader = self.leader()
        if leader is not None:
            self._spread(leader)
        self._changed()

    def _has_committed_its_first(self, node: Controller) -> bool:
        below = [each for each in node.batches if each.end_offset <= node.high_watermark]
        return (bool(below) and below[-1].epoch == node.epoch) or (
            node.snapshot is not None and node.start == node.high_watermark and node.snapshot.epoch == node.epoch
        )

    def look_at_sessions(self) -> None:
        """Those that are over end, as one batch for each broker."""
        for node_id, active in list(self.actives.items()):
            for broker in active.overdue() if active.is_ready else ():
                batch = self.batch(node_id)
                batch.fence(broker)
                self.write(node_id, batch.records)

    def clear_at_times(self) -> None:
        """The ELRs of a topic go, as where somebody sets `min.insync.replicas`; where each partition has another leader
        to come."""
        for node_id, active in list(self.actives.items()):
            found = [
                topic.name
                for topic in active.state.topics.values()
                if any(each.elr for each in topic.partitions.values())
                and all(each.isr for each in topic.partitions.values())
            ]
            if active.is_ready and found and self.rng.random() < CLEARING:
                batch = self.batch(node_id)
                batch.put(wire.ClearElrRecord(topic_name=self.rng.choice(found)))
                self.write(node_id, batch.records)

    def idle(self) -> None:
        """A record that says nothing, as controllers write one from time to time."""
        for node_id in list(self.actives):
            self.write(node_id, [record_of(wire.NoOpRecord())])


def _replay(state: MetadataState, batch: MetadataBatch) -> bool:
    """Whether the batch changes anything."""
    has_changed = False
    for offset, record in records_of(batch, "model"):
        if not isinstance(record, ControlRecord) and record.name != "NoOpRecord":
            state.apply(record, offset)
            has_changed = True
    return has_changed
