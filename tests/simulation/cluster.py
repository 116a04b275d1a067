"""Histories of three brokers, whose cluster the model of ZooKeeper keeps; they reach each other over the network that
clients reach them by."""

from __future__ import annotations

import asyncio
import json
import random
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from kbroker._fast.base.slices import Slices
from kbroker.assembly.membership.zookeeper import ZooKeeperMembership
from kbroker.broker import Broker
from kbroker.clock import SYSTEM_CLOCK
from kbroker.cluster.client_tcp import TcpTransport
from kbroker.cluster.protocol_version import protocol_version
from kbroker.cluster.zookeeper import paths
from kbroker.cluster.zookeeper.member import MemberNetwork, MemberParts, ZooKeeperMember
from kbroker.cluster.zookeeper.session import ConnectionLossError, SessionState, Watch
from kbroker.cluster.zookeeper.settings import ZooKeeperSettings
from kbroker.error_codes import ErrorCode
from kbroker.schemas import wire
from tests.cluster.zookeeper.fake import FakeEnsemble, FakeSession
from tests.extensions.memory_socket import MemorySocket
from tests.replication.simulation.zookeeper_node import SlowSession
from tests.simulation.client import IN_DOUBT, NOT_NOW
from tests.simulation.loop import Process
from tests.simulation.replica_bytes import compare_bytes
from tests.simulation.states import States
from tests.simulation.world import Scale, World

if TYPE_CHECKING:
    from pathlib import Path

    from tests.simulation.judge import Partition

CLUSTER_SCALE = Scale(nodes=3, requests=600, clients=(20, 110), aborts=0.003, old_formats=0.3)
START_SECONDS = 60.0
SESSION_MS = 6_000


class ModelSession(SlowSession):
    """What ZooKeeper tells comes to the process that the session is of."""

    def __init__(self, ensemble: FakeEnsemble, rng: random.Random) -> None:
        super().__init__(ensemble, lambda: rng.uniform(0.0002, 0.002))
        self._context = copy_context()
        self._has_lapsed = False

    @property
    def is_there(self) -> bool:
        """Whether ZooKeeper has the session."""
        return self.state is SessionState.CONNECTED and not self._has_lapsed

    def lapse(self) -> None:
        """ZooKeeper ends the session, and its process goes on as if it were there, until `notice`."""
        if self.state is SessionState.CONNECTED:
            self._has_lapsed = True
            self._forget()
        else:
            self._dropped = True
        self.ensemble.end_session(self.session_id)

    def notice(self) -> None:
        """The process learns that its session is over, and gets another one."""
        if self._has_lapsed:
            self._has_lapsed = False
            self.suspend()
            self._dropped = True
        if self.state is SessionState.SUSPENDED:
            self.resume()

    async def _turn(self) -> None:
        await super()._turn()
        if self._has_lapsed:
            raise ConnectionLossError("the session is over")

    def _watch(self, watches: dict[str, list[tuple[FakeSession, Watch]]], path: str, watch: Watch | None) -> None:
        loop = asyncio.get_running_loop()
        told = None if watch is None else lambda: loop.call_soon(watch, context=self._context)
        super()._watch(watches, path, told)

    def _move(self, state: SessionState) -> None:
        self._context.run(super()._move, state)


class Cluster(World):
    """Nodes 1 to `scale.nodes`."""

    def __init__(self, seed: int, folder: Path, scale: Scale) -> None:
        super().__init__(seed, folder, scale)
        self.ensemble = FakeEnsemble()
        self._leaders: dict[Partition, int] = {}
        self.sessions: dict[int, ModelSession] = {}
        self.session_ms = SESSION_MS
        self.states = States(self)
        self.loop.look = self.states.look

    def cuts_by_epochs(self, topic: str) -> bool:
        """Whether followers learn where their log parts from the leader's, so that they keep all that is committed."""
        return topic not in self.topics or not self.topics[topic].is_old

    def tolerates(self, code: int, partition: Partition | None = None) -> bool:
        return code in NOT_NOW or code in IN_DOUBT

    def settings(self, node: int) -> dict[str, str]:
        values = super().settings(node)
        del values["node.id"]
        values["broker.id"] = str(node)
        values["zookeeper.connect"] = "model:2181"
        values["controlled.shutdown.enable"] = "false"
        values["min.insync.replicas"] = self.rng.choice(("1", "2"))
        values["replica.lag.time.max.ms"] = self.rng.choice(("500", "5000", "30000"))
        return values

    async def start(self, node: int) -> None:
        process = self.processes[node] = Process(f"broker-{node}")
        config = self.config(node)
        rng = random.Random(self.rng.getrandbits(64))
        self.judge.note("broker %d starts", node)

        async def begin() -> Broker:
            loop = self.loop
            session = self.sessions[node] = ModelSession(self.ensemble, rng)
            failed = self._gave_up
            parts = MemberParts(
                config,
                SYSTEM_CLOCK,
                Slices(loop),
                protocol_version(config.get("inter.broker.protocol.version")),
                "PLAINTEXT",
                failed,
            )
            network = MemberNetwork(session, TcpTransport(loop), rng)
            member = ZooKeeperMember(ZooKeeperSettings("model:2181", self.session_ms), parts, loop, network)
            broker = Broker(
                config,
                loop,
                make_membership=lambda parts: ZooKeeperMembership(parts, member),
                make_socket=MemorySocket,
            )
            await broker.start()
            return broker

        self.brokers[node] = await process.call(self.loop.create_task, begin())
        self.disks.watch(node, self.brokers[node])

    async def crash(self, node: int) -> None:
        self.states.look()
        self.states.compare(node)
        session = self.sessions.pop(node)
        session.abandon()
        self.loop.call_later(self.session_ms / 1000, session.drop)
        self._leaders.clear()
        await super().crash(node)

    async def fail(self) -> None:
        rng = self.rng
        if rng.random() < 0.5:
            one, other = rng.sample(self.nodes, 2)
            self.judge.note("brokers %d and %d cannot reach each other", one, other)
            self.network.separate(f"broker-{one}", f"broker-{other}")
            await asyncio.sleep(rng.choice((0.0, 0.2, 2.0, 8.0)) * rng.random())
        if rng.random() < 0.7:
            await super().fail()
        if rng.random() < 0.5:
            self.judge.note("all brokers reach each other")
            self.network.heal()

    def isrs(self) -> list[list[int]]:
        """Those in force, of all partitions but those that are being deleted."""
        nodes = self.ensemble.nodes
        paths_there = [path for path in nodes if path.startswith(paths.TOPICS) and path.endswith("/state")]
        kept = [each for each in paths_there if paths.deletion(each.split("/")[3]) not in nodes]
        states = [json.loads(nodes[path].data or b"{}") for path in kept]
        return [state["isr"] for state in states]

    def is_there(self, node: int) -> bool:
        """Whether a broker is there for ZooKeeper, and does something."""
        session = self.sessions.get(node)
        return node in self.brokers and self.processes[node].runs and session is not None and session.is_there

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

    def _gave_up(self, why: str) -> None:
        self.judge.fail(f"a broker gives up: {why}")

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

    def forget_leader(self, partition: Partition) -> None:
        self._leaders.pop(partition, None)

    async def _learn(self, topic: str) -> None:
        answer = await self.ask_anyone(
            wire.MetadataRequest(topics=[wire.MetadataRequest.MetadataRequestTopic(name=topic)]), 9
        )
        for found in () if answer is None else answer.topics:
            for row in found.partitions:
                if row.leader_id in self.brokers:
                    self._leaders[found.name, row.partition_index] = row.leader_id

    async def ask_anyone(self, request: Any, version: int) -> Any:
        """The answer of a broker that is there; None when that goes away."""
        connection = await self.connect(self.rng.choice(list(self.brokers)), "admin", "admin")
        if connection is None:
            return None
        answer = await connection.answer(request, version)
        connection.finish(self.rng)
        return answer

    async def make_topics(self, request: Any) -> Any:
        """A controller whose session ends says UNKNOWN_SERVER_ERROR, as Kafka's does: the topics may be there then."""
        until = self.loop.time() + START_SECONDS
        is_in_doubt = False
        while True:
            answer = await self.ask_anyone(request, 7)
            codes = {ErrorCode.NOT_CONTROLLER} if answer is None else {row.error_code for row in answer.topics}
            if is_in_doubt and codes <= {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}:
                return await self._with_ids(answer)
            is_in_doubt = is_in_doubt or answer is None or ErrorCode.UNKNOWN_SERVER_ERROR in codes
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
