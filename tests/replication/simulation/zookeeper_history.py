"""A history under a seed as `history` has it, of a cluster with ZooKeeper: the controllers are the project's own, and
their sessions and those of the brokers end, hang and are cut off."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kbroker.cluster.requests import ElectionType, NewTopic
from kbroker.cluster.zookeeper import paths
from kbroker.errors import KafkaError
from tests.cluster.zookeeper.fake import FakeEnsemble
from tests.replication.simulation.history import NODES, History, Scale, ViolationError
from tests.replication.simulation.node import TEST_TOPIC, SimNode
from tests.replication.simulation.zookeeper_node import SlowSession, ZooKeeperNode

BEGIN_SECONDS = 60.0
LONGEST_SESSION = 0.5


class ZooKeeperHistory(History):
    scale = Scale(steps=100, step_seconds=0.02, fault_chance=0.1)

    def __init__(self, seed: int, directory: Path, scale: Scale) -> None:
        self.ensemble = FakeEnsemble()
        self._torn: set[int] = set()
        super().__init__(seed, directory, scale)

    def make_node(self, node_id: int, directory: Path, release: str) -> SimNode:
        return ZooKeeperNode(
            node_id, directory, self.network, self.min_in_sync, release, self.ensemble, self._process_ended
        )

    def _process_ended(self, node: ZooKeeperNode, why: str) -> None:
        """As a supervisor would have it, the process is begun again."""
        self.note(f"broker {node.node_id} gives up: {why}")
        self.loop.call_soon(self._end_process, node.node_id)

    def _end_process(self, node_id: int) -> None:
        if node_id not in self._down:
            self.crash(node_id, loses=False)

    def node(self, node_id: int) -> ZooKeeperNode:
        found = self.nodes[node_id]
        assert isinstance(found, ZooKeeperNode)
        return found

    def session(self, node_id: int) -> SlowSession:
        found = self.node(node_id).session
        assert found is not None
        return found

    @property
    def active(self) -> ZooKeeperNode | None:
        """The controller, where there is one that has taken over."""
        return next((self.node(each) for each in NODES if self.node(each).is_controller), None)

    async def begin(self) -> None:
        for each in NODES:
            self._start(each)
        deadline = self.loop.time() + BEGIN_SECONDS
        while (controller := self.active) is None or len(controller.live()) < len(NODES):
            if self.loop.time() > deadline:
                raise ViolationError("the brokers do not come together")
            await asyncio.sleep(0.05)
        new = NewTopic(TEST_TOPIC, assignments=[(0, self.rng.sample(NODES, len(NODES)))])
        (outcome,) = await controller.controller.create_topics([new])
        assert outcome.error is None, outcome.error
        await asyncio.sleep(0.05)

    def _state(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.ensemble.content(paths.state(TEST_TOPIC, 0)) or b"")
        return found

    def isr(self) -> Sequence[int]:
        isr: list[int] = self._state()["isr"]
        return isr

    def came(self, node_id: int) -> None:
        """It says so itself."""

    def crash(self, node_id: int, *, loses: bool) -> None:
        session = self.session(node_id)
        loses = loses and self._would_stay(node_id)
        super().crash(node_id, loses=loses)
        if loses:
            self._torn.add(node_id)
        self.loop.call_later(self.rng.uniform(0, LONGEST_SESSION), self._end_session, session)

    def _would_stay(self, node_id: int) -> bool:
        """Whether ZooKeeper knows another one that is in sync: with none the last one stays in the ISR."""
        others = [each for each in self.isr() if each not in (node_id, *self._down)]
        return any(self.session(each)._back.is_set() for each in others)

    def may_start(self, node_id: int) -> bool:
        """A machine that has lost what it wrote is away for longer than a controller needs to find out: no record is
        safe from one that is in the ISR still."""
        if node_id in self._torn and node_id in self.isr():
            return False
        self._torn.discard(node_id)
        return True

    def may_crash(self) -> bool:
        """The cluster bears one such loss at a time."""
        return not self._torn.intersection(self.isr())

    @staticmethod
    def _end_session(session: SlowSession) -> None:
        if not session._dropped:
            session.drop()

    def died(self, node_id: int) -> None:
        """ZooKeeper finds out."""

    def depose(self, node_id: int) -> None:
        """ZooKeeper ends the session of a broker that goes on, or its connection is cut for a while."""
        session = self.session(node_id)
        if not session._back.is_set() or not self.may_crash():
            return
        ends = self.rng.random() < 0.6
        self.note(f"the session of {node_id} {'ends' if ends else 'is cut off'}")
        if ends:
            session.drop()
        else:
            session.suspend()
        self.loop.call_later(self.rng.uniform(0.001, LONGEST_SESSION), self._resume, node_id, session)

    def _resume(self, node_id: int, session: SlowSession) -> None:
        if self.node(node_id).session is session and node_id not in self._down and not session._back.is_set():
            session.resume()

    def elect(self) -> None:
        controller = self.active
        if controller is not None:
            self.note(f"controller {controller.node_id} is to elect the preferred leader")
            self._later(self._prefer(controller))

    @staticmethod
    async def _prefer(controller: ZooKeeperNode) -> None:
        try:
            await controller.controller.elect_leaders(ElectionType.PREFERRED, None)
        except KafkaError:
            return

    def help(self, *, late: bool) -> None:
        for each in sorted(self._down):
            if self.may_start(each):
                self._start(each)
