"""Histories of few partitions and many faults in quick succession: three brokers whose leaders change while what they
appended last is on its way.

Processes are held up past their ZooKeeper session and go on as if nothing had happened; sessions end unnoticed; links
are cut, in one direction at times, or slow; machines lose their power; preferred leaders are elected; and the brokers
speak a protocol of older releases with each other, not all of them the same at times.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from kbroker.cluster.protocol_version import PROTOCOL_VERSIONS
from kbroker.cluster.zookeeper import paths
from kbroker.schemas import wire
from tests.simulation.cluster import Cluster
from tests.simulation.held_cuts import HeldCuts
from tests.simulation.loop import OUTSIDE, Process
from tests.simulation.swinging import swing
from tests.simulation.world import Scale

TURMOIL_SCALE = Scale(
    nodes=3, requests=300, clients=(4, 12), aborts=0.003, crashes=1.0, old_formats=0.2, is_focused=True
)
RELEASES = (
    "3.9",
    "3.9",
    "3.9",
    "3.5",
    "2.8",
    "2.7",
    "2.6",
    "2.6",
    "2.3",
    "2.1",
    "2.0",
    "1.1",
    "0.11.0",
    "0.10.2",
    "0.9.0",
)
ELECT_VERSION = 2
FIRST_WITH_BATCHES = (0, 11)
FIRST_WITH_TOPIC_IDS = (2, 8)
FIRST_FETCH_WITH_EPOCH = 9
STORMS = 8
SWINGING = 0.4
"""The share of histories in which a leader follows, and leads again, while another follower does not reach it."""
LEARNT_SECONDS = 2.0


class Turmoil(Cluster):
    """Nodes 1 to `scale.nodes`, of which one at least is there at any time."""

    def __init__(self, seed: int, folder: Path, scale: Scale) -> None:
        super().__init__(seed, folder, scale)
        rng = self.rng
        self.session_ms = rng.choice((400, 1_000, 3_000))
        self.is_crowd, self.may_lead_twice = False, True
        self.pauses = rng.choice(((0.0, 0.001, 0.02), (0.0, 0.02, 0.1), (0.0, 0.1, 0.5)))
        release = rng.choice(RELEASES)
        other = rng.choice(RELEASES) if rng.random() < 0.2 else release
        self.releases = {node: release if node == 1 else other for node in self.nodes}
        protocols = [PROTOCOL_VERSIONS[each] for each in self.releases.values()]
        self.has_old_formats = any(each.release[:2] < FIRST_WITH_BATCHES for each in protocols)
        self.timeouts_ms = rng.choice(((20_000,), (20_000, 1_000, 100), (100,)))
        self.has_topic_ids = all(each.release >= FIRST_WITH_TOPIC_IDS for each in protocols)
        self.names_epochs = all(each.fetch >= FIRST_FETCH_WITH_EPOCH for each in protocols)
        self._asks_for_epochs = all(each.offset_for_leader_epoch > 0 for each in protocols)
        faults: tuple[Callable[[], Awaitable[None]], ...] = (
            self._depose, self._depose, self._hold, self._kill, self._kill, self._cut, self._slow,
            self._prefer, self._leave,
        )  # fmt: skip
        self._faults = rng.sample(faults, rng.randint(2, len(faults)))
        if self.later.random() < SWINGING:
            self._faults.append(partial(swing, self))
        self._lag_ms = rng.choice(("500", "2000", "30000"))
        self._restarts: list[asyncio.Task[None]] = []
        self._elections: list[asyncio.Task[None]] = []
        self._held_starts: set[Process] = set()
        """Those whose start is held up, which goes on by itself."""
        self._held_amid: dict[int, int] = {}
        """After how many calls to ZooKeeper a broker that starts is held up; 0: at the one about its id."""

    def settings(self, node: int) -> dict[str, str]:
        values = super().settings(node)
        values["inter.broker.protocol.version"] = self.releases[node]
        if self.has_old_formats:
            values["log.message.format.version"] = "0.9.0"
        values["replica.lag.time.max.ms"] = self._lag_ms
        return values

    def cuts_by_epochs(self, topic: str) -> bool:
        return self._asks_for_epochs and super().cuts_by_epochs(topic)

    async def run(self) -> None:
        with HeldCuts(self).in_force():
            await super().run()

    # When what happens

    async def fail_at_times(self) -> None:
        rng = self.rng
        for _ in range(rng.randint(2, STORMS)):
            await self.next_moment(rng.choice((0.02, 0.2, 2.0)) * rng.random())
            if self.writers_done:
                break
            for _ in range(rng.randint(1, 5)):
                await rng.choice(self._faults)()
                await asyncio.sleep(rng.choice((0.0, 0.003, 0.03, 0.3)) * rng.random())
        await self._calm()

    async def _calm(self) -> None:
        """The end of all faults."""
        self.judge.note("all faults are over")
        self.network.heal()
        for node in self.nodes:
            process = self.processes.get(node)
            if process is not None and process not in self._held_starts:
                self.release(node, process)
            if node in self.sessions:
                self.sessions[node].notice()
        await asyncio.gather(*self._restarts)
        # One that was held up at its start, or whose session ended then.
        self.network.heal()

    def _target(self) -> int:
        """The node that a fault is about: most often one that matters."""
        rng = self.rng
        kind = rng.random()
        data = self.ensemble.nodes.get(paths.CONTROLLER)
        if kind < 0.2 and data is not None and data.data:
            return int(json.loads(data.data)["brokerid"])
        if kind < 0.7:
            topic = next(iter(self.topics))
            leader = self.in_force(topic, 0).leader
            if leader > 0:
                return leader
        return rng.choice(self.nodes)

    # What the cluster bears

    def may_lose(self, node: int) -> bool:
        """Whether the cluster bears that a broker is gone, and nothing that is acknowledged with it."""
        others = [each for each in self.nodes if each != node and self.is_there(each)]
        if not (self.is_there(node) and others):
            return False
        if any(len(isr) > 1 and self.torn.intersection(isr) for isr in self.isrs()):
            return False
        return self.bears_another_leader()

    def bears_another_leader(self) -> bool:
        """Whether leaders may change: no other change of them, also by an election, may be under way where a replica
        that is behind could lead (`is_settled`)."""
        fragile = {topic for topic in self.topics if not self.cuts_by_epochs(topic)}
        if not self._asks_for_epochs:
            # Those of the coordinators as well.
            fragile.update(
                topic for broker in self.brokers.values() for topic in broker.services.replica_manager.topics
            )
        if not fragile:
            return True
        is_changing = any(not each.done() for each in self._elections) or any(
            # Its controller may have yet to learn that a broker was away, and begin an epoch for that.
            self.loop.time() - each.lost_at < LEARNT_SECONDS
            for each in self.sessions.values()
        )
        return not is_changing and all(self.is_settled(topic) for topic in sorted(fragile))

    # Faults

    async def _depose(self) -> None:
        """ZooKeeper ends the session of a broker, which learns of it later."""
        node = self._target()
        if not self.may_lose(node):
            return
        session = self.sessions[node]
        self.judge.note("the session of broker %d ends", node)
        session.lapse()
        self.loop.call_later(self.rng.choice((0.0, 0.02, 0.3, 2.0)) * self.rng.random(), session.notice)

    async def _hold(self) -> None:
        node = self._target()
        if self.may_lose(node):
            self._hold_up(node)

    def _hold_up(self, node: int) -> None:
        """A process does nothing for a while; ZooKeeper ends its session when that is over."""
        process, session = self.processes[node], self.sessions[node]
        seconds = (
            self.rng.choice((0.05, 0.5, self.session_ms / 1000 + 1.0, self.session_ms / 1000 + 4.0)) * self.rng.random()
        )
        self.judge.note("broker %d is held up for %.3f s", node, seconds)
        self.loop.hold(process)
        if seconds > self.session_ms / 1000:
            self.loop.call_later(self.session_ms / 1000, self._lapse, process, session)
        self.loop.call_later(seconds, self.release, node, process)

    @staticmethod
    def _lapse(process: Process, session: object) -> None:
        if process.alive and process.backlog is not None:
            session.lapse()  # type: ignore[attr-defined]

    def release(self, node: int, process: Process) -> None:
        """One that was held up goes on."""
        if not process.alive or process.backlog is None:
            return
        self.judge.note("broker %d goes on", node)
        self.loop.release(process)
        session = self.sessions.get(node)
        if session is not None:
            self.loop.call_later(self.rng.choice((0.0, 0.001, 0.05)) * self.rng.random(), session.notice)
        self.nothing_was_answered(node)

    async def _kill(self) -> None:
        node = self._target()
        if node in self.brokers and self.may_lose(node):
            await self.crash(node)
            seconds = self.rng.choice((0.0, 0.1, 1.0, 4.0)) * self.rng.random()
            self._restarts.append(self.loop.create_task(self._restart(node, seconds)))

    async def _restart(self, node: int, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self.may_return(node)
        kind = self.rng.random()
        if kind < 0.15:
            self.loop.call_later(self.rng.choice((0.001, 0.1, 1.0)) * self.rng.random(), self._hold_up_start, node)
        elif kind < 0.35:
            self._held_amid[node] = self.rng.choice((0, self.rng.randint(1, 20)))
        await self.start(node)
        self._held_amid.pop(node, None)

    def amid_call(self, node: int, path: str) -> None:
        """At a start: it may be held up while an answer is on its way, above all the one that says whether its id is
        still taken."""
        left = self._held_amid.get(node)
        if left is None:
            return
        if left == 1 or (left == 0 and path == paths.broker(node)):
            del self._held_amid[node]
            self.loop.call_soon(self._hold_up_start, node, context=OUTSIDE.context())
        elif left:
            self._held_amid[node] = left - 1

    def _hold_up_start(self, node: int) -> None:
        """At times for longer than a start waits for its id."""
        process = self.processes.get(node)
        if process is None or not process.runs or node in self.brokers:
            return
        seconds = self.session_ms / 1000 + self.rng.choice((0.5, 4.0, 4.0))
        self._held_starts.add(process)
        self.judge.note("broker %d is held up at its start for %.3f s", node, seconds)
        self.loop.hold(process)
        self.loop.call_later(seconds, self.release, node, process)

    async def _cut(self) -> None:
        one, other = self.rng.sample(self.nodes, 2)
        both = self.rng.random() < 0.4
        self.judge.note("broker %d cannot reach broker %d%s", one, other, ", nor the other way round" if both else "")
        self.network.separate(f"broker-{one}", f"broker-{other}", both_ways=both)
        self.loop.call_later(self.rng.choice((0.05, 0.5, 3.0, 15.0)) * self.rng.random(), self.network.heal)

    async def _slow(self) -> None:
        one, other = self.rng.sample(self.nodes, 2)
        ns = self.rng.choice((5_000_000, 50_000_000, 300_000_000))
        self.judge.note("what broker %d sends to broker %d takes %d ms longer", one, other, ns // 1_000_000)
        self.network.slow_down(f"broker-{one}", f"broker-{other}", ns)

    async def _prefer(self) -> None:
        """Preferred leaders are to be elected."""
        if self.bears_another_leader():
            self._elections.append(self.loop.create_task(self.elect()))

    async def elect(self) -> None:
        """Have the controller elect preferred leaders."""
        data = self.ensemble.nodes.get(paths.CONTROLLER)
        if data is None or not data.data:
            return
        connection = await self.connect(int(json.loads(data.data)["brokerid"]), "elector", "elector")
        if connection is not None:
            connection.may_be_closed = True
            await connection.answer(wire.ElectLeadersRequest(topic_partitions=None, timeout_ms=5_000), ELECT_VERSION)
            if not connection.gone:
                connection.finish(self.rng)

    async def _leave(self) -> None:
        """A broker does not reach ZooKeeper for a while."""
        node = self._target()
        if not self.may_lose(node):
            return
        session = self.sessions[node]
        seconds = self.rng.choice((0.05, 0.5, self.session_ms / 1000 + 2.0)) * self.rng.random()
        self.judge.note("broker %d does not reach ZooKeeper for %.3f s", node, seconds)
        session.suspend()
        if seconds > self.session_ms / 1000:
            self.loop.call_later(self.session_ms / 1000, lambda: session.is_there or session.lapse())
        self.loop.call_later(seconds, session.notice)


__all__ = ["TURMOIL_SCALE", "Turmoil"]
