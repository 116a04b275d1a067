"""Histories of three brokers, whose cluster the model of ZooKeeper keeps; they reach each other over the network that
clients reach them by."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Sequence
from contextvars import copy_context
from typing import TYPE_CHECKING

from kbroker._fast.base.slices import Slices
from kbroker.assembly.membership.zookeeper import ZooKeeperMembership
from kbroker.broker import Broker
from kbroker.clock import SYSTEM_CLOCK
from kbroker.cluster.client_tcp import TcpTransport
from kbroker.cluster.protocol_version import protocol_version
from kbroker.cluster.zookeeper import paths
from kbroker.cluster.zookeeper.member import MemberNetwork, MemberParts, ZooKeeperMember
from kbroker.cluster.zookeeper.session import ConnectionLossError, SessionState, Stat, Watch, Znode
from kbroker.cluster.zookeeper.settings import ZooKeeperSettings
from kbroker.cluster.zookeeper.znodes import TopicZnode, decode_topic
from kbroker.replication.partition import Partition as Replica
from kbroker.replication.partition import Role
from kbroker.replication.replica_selector import RACK_AWARE
from kbroker.types import TopicPartition
from tests.cluster.zookeeper.fake import FakeEnsemble, FakeSession
from tests.replication.simulation.zookeeper_node import SlowSession
from tests.simulation.copies import Layout
from tests.simulation.loop import Process
from tests.simulation.replication_witness import MIN_IN_SYNC
from tests.simulation.several import START_SECONDS, InForce, Several
from tests.simulation.world import Scale

if TYPE_CHECKING:
    from pathlib import Path

CLUSTER_SCALE = Scale(nodes=3, requests=600, clients=(20, 110), aborts=0.003, old_formats=0.3)
BETWEEN_SECONDS = 1e-6
WITH_RACKS = 0.3
"""The share of histories in which consumers read from replicas near them."""
SESSION_MS = 6_000
LOOK_SECONDS = 0.05


class ModelSession(SlowSession):
    """What ZooKeeper tells comes to the process that the session is of, later and in the order in which it was so: an
    answer before the events that it has asked for.

    `amid(path)` is called when ZooKeeper has done what it was asked, and the answer is on its way."""

    def __init__(self, ensemble: FakeEnsemble, rng: random.Random, amid: Callable[[str], None]) -> None:
        super().__init__(ensemble, lambda: rng.uniform(0.0002, 0.002))
        self._context = copy_context()
        self._has_lapsed = False
        self._amid = amid
        self._last_arrival = 0.0
        self.lost_at = 0.0
        """When the session, or its connection, ended last."""
        self._losses = 0
        """How often what was on its way was lost."""

    @property
    def is_there(self) -> bool:
        """Whether ZooKeeper has the session."""
        return self.state is SessionState.CONNECTED and not self._has_lapsed

    def lapse(self) -> None:
        """ZooKeeper ends the session, and its process goes on as if it were there, until `notice`."""
        self.lost_at = asyncio.get_running_loop().time()
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

    def _arrives(self) -> float:
        """When what ZooKeeper says now is here."""
        self._last_arrival = max(
            self._last_arrival + BETWEEN_SECONDS, asyncio.get_running_loop().time() + self._delay()
        )
        return self._last_arrival

    async def _answered(self, session: int, path: str = "") -> None:
        losses, left = self._losses, self._arrives() - asyncio.get_running_loop().time()
        self._amid(path)
        await asyncio.sleep(left)
        if self._losses != losses or self.session_id != session or self._has_lapsed:
            raise ConnectionLossError("the answer was lost")

    async def get(self, path: str, watch: Watch | None = None) -> Znode:
        session = self.session_id
        found = await super().get(path, watch)
        await self._answered(session, path)
        return found

    async def get_each(self, paths: Sequence[str]) -> list[Znode | None]:
        session = self.session_id
        found = await super().get_each(paths)
        await self._answered(session)
        return found

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        session = self.session_id
        found = await super().exists(path, watch)
        await self._answered(session, path)
        return found

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        session = self.session_id
        found = await super().children(path, watch)
        await self._answered(session, path)
        return found

    def _watch(self, watches: dict[str, list[tuple[FakeSession, Watch]]], path: str, watch: Watch | None) -> None:
        loop = asyncio.get_running_loop()

        def tell(losses: int) -> None:
            if watch is not None and losses == self._losses:
                watch()

        def told() -> None:
            loop.call_at(self._arrives(), tell, self._losses, context=self._context)

        super()._watch(watches, path, None if watch is None else told)

    def _move(self, state: SessionState) -> None:
        if state is not SessionState.CONNECTED:
            self._losses += 1
            self.lost_at = asyncio.get_running_loop().time()
        self._context.run(super()._move, state)


class Cluster(Several):
    """Nodes 1 to `scale.nodes`."""

    def __init__(self, seed: int, folder: Path, scale: Scale) -> None:
        super().__init__(seed, folder, scale)
        self.ensemble = FakeEnsemble()
        self.sessions: dict[int, ModelSession] = {}
        self.session_ms = SESSION_MS
        self._contents: dict[tuple[str, int], tuple[bytes, InForce]] = {}
        self._assignments: dict[str, tuple[bytes | None, TopicZnode]] = {}
        if self.rng.random() < WITH_RACKS:
            self.racks = {node: f"rack-{min(node, 2)}" for node in self.nodes}

    def settings(self, node: int) -> dict[str, str]:
        values = super().settings(node)
        del values["node.id"]
        values["broker.id"] = str(node)
        values["zookeeper.connect"] = "model:2181"
        values["controlled.shutdown.enable"] = "false"
        if self.racks:
            values["broker.rack"], values["replica.selector.class"] = self.racks[node], RACK_AWARE
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
            session = self.sessions[node] = ModelSession(self.ensemble, rng, lambda path: self.amid_call(node, path))
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
            )
            self.starting[node] = broker
            await broker.start()
            return broker

        self.brokers[node] = await process.call(self.loop.create_task, begin())
        del self.starting[node]
        process.serves = True
        self.watch(node)

    def amid_call(self, node: int, path: str) -> None:
        """ZooKeeper has done what a broker asked of it, which has yet to learn that."""

    async def crash(self, node: int) -> None:
        session = self.sessions.pop(node)
        session.abandon()
        self.loop.call_later(self.session_ms / 1000, session.drop)
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

    # What the cluster bears

    async def settle(self) -> bool:
        await super().settle()
        if self._has_settled():
            return True
        # A follower that does not reach its leader gets nothing back of what it cuts.
        self.judge.note("all brokers reach each other, as not all of an ISR have what is committed")
        self.network.heal()
        until = self.loop.time() + START_SECONDS
        while not self._has_settled():
            if self.loop.time() > until:
                return False
            await asyncio.sleep(LOOK_SECONDS)
        return True

    def _has_settled(self) -> bool:
        return all(self.is_settled(topic) for topic in self.topics if not self.cuts_by_epochs(topic))

    def is_settled(self, topic: str) -> bool:
        """Whether each replica of the ISRs has all that is committed, in the epoch that is in force.  Where followers
        begin an epoch at their high watermark, or learn of an epoch's end without its number, a cluster bears no other
        failure until then: that is why there are epochs, and their numbers in answers (KIP-101, KIP-279)."""
        parent = self.ensemble.nodes.get(paths.partitions(topic))
        for number in () if parent is None else sorted(map(int, parent.children)):
            state = self.in_force(topic, number)
            replicas = [self._replica(each, topic, number) for each in state.isr]
            found = [each for each in replicas if each is not None and each.leader_epoch == state.epoch]
            if len(found) < len(state.isr) or not all(self.is_there(each) for each in state.isr):
                return False
            known = self.judge.ledger((topic, number)).high_watermark
            # A leader that is gone may have committed more than anybody was told.
            high = max([known, *(max(self.states.committed(each), each.log.high_watermark) for each in found)])
            epochs = {each.log.latest_epoch for each in found}
            is_empty = any(each.role is Role.LEADER and each.log.log_end_offset == each.epoch_start for each in found)
            for each in found:
                agrees = each.role is Role.LEADER or each.agrees_in_epoch == each.leader_epoch
                if each.log.log_end_offset < high or not agrees or not (is_empty or len(epochs) == 1):
                    return False
        return True

    def _replica(self, node: int, topic: str, number: int) -> Replica | None:
        broker = self.brokers.get(node)
        return None if broker is None else broker.services.replica_manager.hosted(TopicPartition(topic, number))

    # What is in force

    def isrs(self) -> list[list[int]]:
        """Those in force, of all partitions but those that are being deleted."""
        nodes = self.ensemble.nodes
        paths_there = [path for path in nodes if path.startswith(paths.TOPICS) and path.endswith("/state")]
        kept = [each for each in paths_there if paths.deletion(each.split("/")[3]) not in nodes]
        states = [json.loads(nodes[path].data or b"{}") for path in kept]
        return [state["isr"] for state in states]

    def in_force(self, topic: str, number: int) -> InForce:
        node = self.ensemble.nodes.get(paths.state(topic, number))
        data = b"" if node is None or node.data is None else node.data
        before = self._contents.get((topic, number))
        if before is None or before[0] is not data:
            state = json.loads(data or b"{}")
            now = InForce(state.get("leader", -1), state.get("leader_epoch", -1), state.get("isr", []))
            before = self._contents[topic, number] = (data, now)
        return before[1]

    def layouts_version(self) -> object:
        return self.ensemble.zxid

    def layouts(self) -> dict[tuple[str, bytes, int], Layout]:
        """The end of a reassignment is in the state before it is in the assignment."""
        nodes, found = self.ensemble.nodes, {}
        for name in nodes[paths.TOPICS].children if paths.TOPICS in nodes else ():
            topic, least = self._assigned(name), self._least(name)
            for number, replicas in topic.partitions.items():
                isr = tuple(self.in_force(name, number).isr)
                if isr:
                    adding = topic.adding.get(number, ())
                    found[name, topic.topic_id or b"", number] = Layout(replicas, adding, isr, least, replicas)
        return found

    def _assigned(self, name: str) -> TopicZnode:
        data = self.ensemble.nodes[paths.topic(name)].data
        before = self._assignments.get(name)
        if before is None or before[0] is not data:
            before = self._assignments[name] = (data, decode_topic(data))
        return before[1]

    def _least(self, name: str) -> int:
        node = self.ensemble.nodes.get(paths.topic_config(name))
        settings = {} if node is None else json.loads(node.data or b"{}").get("config", {})
        return int(settings.get(MIN_IN_SYNC, 1))

    def is_there(self, node: int) -> bool:
        """Whether a broker is there for ZooKeeper, and does something."""
        session = self.sessions.get(node)
        return node in self.brokers and self.processes[node].runs and session is not None and session.is_there

    def _gave_up(self, why: str) -> None:
        self.judge.fail(f"a broker gives up: {why}")


__all__ = ["CLUSTER_SCALE", "Cluster"]
