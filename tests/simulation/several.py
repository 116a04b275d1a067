"""Histories of several brokers, however they are one cluster: what clients know of leaders, and what is judged of
replicas."""

from __future__ import annotations

import asyncio
import random
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple

from kbroker.error_codes import ErrorCode
from kbroker.schemas import wire
from tests.simulation.broker_settings import fetch_settings
from tests.simulation.client import IN_DOUBT, NOT_NOW
from tests.simulation.copies import Copies, Layout
from tests.simulation.placed_log import draw_placed
from tests.simulation.replica_bytes import compare_bytes
from tests.simulation.replication_witness import ClusterWitness, Term
from tests.simulation.states import States
from tests.simulation.world import Scale, World

if TYPE_CHECKING:
    from pathlib import Path

    from tests.simulation.client import Client
    from tests.simulation.judge import Partition

START_SECONDS, PLACING = 60.0, 0x91ACE


class InForce(NamedTuple):
    """What the cluster has decided on a partition."""

    leader: int
    epoch: int
    isr: list[int]


class Several(World):
    """Nodes 1 to `scale.nodes`."""

    def __init__(self, seed: int, folder: Path, scale: Scale) -> None:
        super().__init__(seed, folder, scale)
        self._leaders: dict[Partition, int] = {}
        self.names_epochs = True
        """Whether followers name their epoch in a fetch (KIP-320): one of the epoch before would count in the next."""
        self.lasting_topics: set[str] = set()
        """Those of single clients that stay as long as the history."""
        self.states = States(self)
        self.copies = Copies(self)
        self.placing = random.Random(seed ^ PLACING)
        self.witness = ClusterWitness(self)
        self.loop.look = self._look

    def _look(self) -> None:
        self.states.look()
        self.witness.look()
        self.copies.look()

    @abstractmethod
    def in_force(self, topic: str, number: int) -> InForce:
        """The state of a partition."""

    @abstractmethod
    def isrs(self) -> list[list[int]]:
        """Those in force, of all partitions but those that are being deleted."""

    @abstractmethod
    def layouts_version(self) -> object:
        """Another one when `layouts` may have changed."""

    @abstractmethod
    def layouts(self) -> dict[tuple[str, bytes, int], Layout]:
        """Where all partitions are that have a state, by topic, topic id and number."""

    @abstractmethod
    def is_there(self, node: int) -> bool:
        """Whether a broker is there for the others, and does something."""

    def settings(self, node: int) -> dict[str, str]:
        return super().settings(node) | fetch_settings(self.network.weather)

    def cut_off(self, one: int, other: int) -> None:
        """Two brokers do not reach each other until all do."""
        self.network.separate(f"broker-{one}", f"broker-{other}")

    def cuts_by_epochs(self, topic: str) -> bool:
        """Whether followers learn where their log parts from the leader's, so that they keep all that is committed."""
        return topic not in self.topics or not self.topics[topic].is_old

    def tolerates(self, code: int, partition: Partition | None = None) -> bool:
        return code in NOT_NOW or code in IN_DOUBT

    async def crash(self, node: int) -> None:
        self.states.look()
        self.states.compare(node)
        self._leaders.clear()
        await super().crash(node)

    def _check(self) -> None:
        for each in self.connections:
            process = self.processes.get(each.node)
            if process is not None and process.backlog is not None:
                each.nothing_was_answered()  # By one that is held up.
        super()._check()

    def before_loss(self) -> None:
        self.states.look()

    def nothing_was_answered(self, node: int) -> None:
        """A broker goes on that was held up: its answers take so much longer."""
        for each in self.connections:
            if each.node == node:
                each.nothing_was_answered()

    def bears_loss(self, node: int) -> bool:
        """What a follower has fetched counts though it has not been synced there: one machine of an ISR may lose that
        at a time, and another broker of that has to be there."""
        found = [set(isr) for isr in self.isrs() if node in isr]
        return all(
            not (isr - {node}) & self.torn and (len(isr) == 1 or any(self.is_there(each) for each in isr - {node}))
            for isr in found
        )

    async def may_return(self, node: int) -> None:
        """One that has lost what it had fetched is away until no ISR counts on that any more: a controller that has not
        seen it go would let it lead (Kafka's ISRs in ZooKeeper name no broker epochs)."""
        until = self.loop.time() + START_SECONDS
        while node in self.torn and any(node in isr and len(isr) > 1 for isr in self.isrs()):
            if self.loop.time() > until:
                self.judge.fail(f"broker {node} is gone, and stays in sync: {self.isrs()}")
            await asyncio.sleep(0.05)
        self.torn.discard(node)

    async def start_all(self) -> None:
        nodes = range(1, self.scale.nodes + 1)
        await asyncio.gather(*(self.loop.create_task(self.start(node)) for node in nodes))

    async def stop_all(self) -> None:
        """Nothing: a history of a cluster ends with its processes."""

    def inspect(self) -> None:
        super().inspect()
        self.states.look()
        for node in self.brokers:
            self.states.compare(node)
        compare_bytes(self)

    # What clients ask

    def own_clients(self) -> list[Client]:
        return list(draw_placed(self))

    async def leader(self, partition: Partition) -> int:
        while (found := await self.find_leader(partition)) is None:
            await asyncio.sleep(self.rng.uniform(0.05, 0.3))
        return found

    async def find_leader(self, partition: Partition) -> int | None:
        if partition not in self._leaders:
            await self._learn(partition[0])
        return self._leaders.get(partition)

    def leads(self, node: int, partition: Partition) -> bool:
        return self._leaders.get(partition) == node

    def is_led_by(self, node: int, partition: Partition) -> bool:
        broker = self.brokers.get(node)
        return broker is not None and partition[1] in broker.services.replica_manager.topics.get(partition[0], {})

    def is_in_force(self, term: Term | None) -> bool:
        if term is None or self.witness.term(term.node, term.partition) != term:
            return False
        found = self.in_force(*term.partition)
        return (found.leader, found.epoch) == (term.node, term.epoch)

    def forget_leader(self, partition: Partition) -> None:
        self._leaders.pop(partition, None)

    async def _learn(self, topic: str) -> None:
        answer = await self.ask_anyone(
            wire.MetadataRequest(topics=[wire.MetadataRequest.MetadataRequestTopic(name=topic)]), 9
        )
        for row in () if answer is None else answer.brokers:
            if (row.host, row.port) != self.address(row.node_id):
                self.judge.fail(f"broker {row.node_id} is said to be at {row.host}:{row.port}")
        for found in () if answer is None else answer.topics:
            for row in found.partitions:
                if row.leader_id in self.brokers:
                    self._leaders[found.name, row.partition_index] = row.leader_id

    async def ask_anyone(self, request: Any, version: int) -> Any:
        """The answer of a broker that is there; None when that goes away."""
        there = list(self.brokers)
        connection = await self.connect(self.rng.choice(there), "admin", "admin") if there else None
        if connection is None:
            return None
        answer = await connection.answer(request, version)
        connection.finish(self.rng)
        return answer

    async def make_topics(self, request: Any) -> Any:
        """A controller whose session ends says UNKNOWN_SERVER_ERROR, as Kafka's does: the topics may be there then."""
        until = self.loop.time() + START_SECONDS
        may_be_there: set[str] = set()
        while True:
            answer = await self.ask_anyone(request, 7)
            told = {each.name: ErrorCode.NOT_CONTROLLER for each in request.topics}
            if answer is not None:
                told = {row.name: row.error_code for row in answer.topics}
            is_there = {
                name: code == 0 or (code == ErrorCode.TOPIC_ALREADY_EXISTS and name in may_be_there)
                for name, code in told.items()
            }
            if all(is_there.values()):
                return await self._with_ids(answer)
            codes = {code for name, code in told.items() if not is_there[name]}
            in_doubt = (ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR)
            may_be_there.update(name for name, code in told.items() if answer is None or code in in_doubt)
            if not codes & {
                ErrorCode.NOT_CONTROLLER,
                ErrorCode.INVALID_REPLICATION_FACTOR,
                ErrorCode.UNKNOWN_SERVER_ERROR,
            }:
                return answer
            if self.loop.time() > until:
                self.judge.fail(f"no topics can be made: {codes}")
            await asyncio.sleep(0.05)

    async def _with_ids(self, answer: Any) -> Any:
        """An answer about topics that are there, as if it had made them."""
        request = wire.MetadataRequest
        for row in answer.topics:
            while row.error_code != 0:
                asked = request(topics=[request.MetadataRequestTopic(name=row.name)])
                found = await self.ask_anyone(asked, 12)
                if found is not None and found.topics[0].error_code == 0:
                    row.error_code, row.topic_id = 0, found.topics[0].topic_id
                else:
                    await asyncio.sleep(0.05)
        return answer
