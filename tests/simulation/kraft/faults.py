"""What happens to the brokers of a KRaft cluster and to its controllers, and the end of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from kbroker.schemas import wire
from tests.cluster.kraft.controllers import VOTERS

if TYPE_CHECKING:
    from tests.simulation.kraft.cluster import KRaftCluster
    from tests.simulation.loop import Process

STORMS = 6
ELECT_VERSION = 2


class KRaftFaults:
    """Those of one history; a majority of the controllers is there at any time, and one broker at least."""

    storms = STORMS
    """So many at most."""

    def __init__(self, world: KRaftCluster) -> None:
        self._world = world
        rng, kinds = world.rng, self._all_kinds()
        self._kinds = rng.sample(kinds, rng.randint(2, len(kinds)))
        self._restarts: list[asyncio.Task[None]] = []
        self._away: set[int] = set()
        """Controllers that are away, or apart from the others."""

    def _all_kinds(self) -> tuple[Callable[[], Awaitable[None]], ...]:
        return (
            self._kill, self._kill, self._stop, self._hold, self._cut, self._cut_from_controllers,
            self._kill_controller, self._part_controller, self._snapshot, self._prefer, self._slow,
        )  # fmt: skip

    async def happen(self) -> None:
        """All of it."""
        world = self._world
        rng = world.rng
        if not world.fails:
            return
        for _ in range(rng.randint(1, self.storms)):
            await self._next_moment()
            if world.writers_done:
                break
            for _ in range(rng.randint(1, 4)):
                are_there = all(each in world.brokers for each in world.nodes)
                are_there = are_there and all(each.done() for each in self._restarts)
                if not (are_there and await world.disks.happen()):
                    await rng.choice(self._kinds)()
                self._replace_halted()
                await asyncio.sleep(rng.choice((0.0, 0.003, 0.03, 0.3)) * rng.random())
        await self._calm()

    async def _next_moment(self) -> None:
        rng = self._world.rng
        await self._world.next_moment(rng.choice((0.02, 0.2, 2.0)) * rng.random())

    async def _calm(self) -> None:
        """The end of all faults."""
        world = self._world
        world.judge.note("all faults are over")
        world.network.heal()
        for node, process in list(world.processes.items()):
            self._release(node, process)
        for each in sorted(self._away):
            self._bring_back(each)
        world.disks.halted = lambda _node: self._replace_halted()
        self._replace_halted()
        while any(not each.done() for each in self._restarts):
            await asyncio.gather(*self._restarts)
        world.network.heal()

    def _replace_halted(self) -> None:
        """A broker that cannot write its metadata log ends by itself; somebody starts it again."""
        world = self._world
        for node in sorted((world.disks.halting & set(world.brokers)) - world.leaving):
            self._restarts.append(world.loop.create_task(self._replace(node)))

    async def _replace(self, node: int) -> None:
        world = self._world
        if node in world.brokers:
            await world.crash(node)
            world.disks.halting.discard(node)
            await world.start(node)

    # Brokers

    def _target(self) -> int:
        """The node that a fault is about: most often one that leads."""
        world = self._world
        if world.rng.random() < 0.6 and world.topics:
            leader = world.in_force(next(iter(world.topics)), 0).leader
            if leader > 0:
                return leader
        return world.rng.choice(world.nodes)

    def _may_lose(self, node: int) -> bool:
        """Whether the cluster bears that a broker is gone, and nothing that is acknowledged with it."""
        world = self._world
        others = [each for each in world.nodes if each != node and world.is_there(each)]
        if not (world.is_there(node) and others):
            return False
        return not any(len(isr) > 1 and world.torn.intersection(isr) for isr in world.isrs())

    async def _kill(self) -> None:
        world, node = self._world, self._target()
        if self._may_lose(node):
            await world.crash(node)
            seconds = world.rng.choice((0.0, 0.1, 1.0, 8.0)) * world.rng.random()
            self._restarts.append(world.loop.create_task(self._restart(node, seconds)))

    async def _restart(self, node: int, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self._world.start(node)

    async def _stop(self) -> None:
        world, node = self._world, self._target()
        if self._may_lose(node):
            seconds = world.rng.choice((0.0, 1.0, 8.0)) * world.rng.random()
            self._restarts.append(world.loop.create_task(self._stop_and_start(node, seconds)))

    async def _stop_and_start(self, node: int, seconds: float) -> None:
        await self._world.stop(node)
        await self._restart(node, seconds)

    async def _hold(self) -> None:
        """A process does nothing for a while, at times for longer than its session lasts."""
        world, node = self._world, self._target()
        if not self._may_lose(node):
            return
        process, session = world.processes[node], world.session_ms / 1000
        seconds = world.rng.choice((0.05, 0.5, session + 1.0, session + 4.0)) * world.rng.random()
        world.judge.note("broker %d is held up for %.3f s", node, seconds)
        world.loop.hold(process)
        world.loop.call_later(seconds, self._release, node, process)

    def _release(self, node: int, process: Process) -> None:
        world = self._world
        if process.alive and process.backlog is not None:
            world.judge.note("broker %d goes on", node)
            world.loop.release(process)
            world.nothing_was_answered(node)

    async def _cut(self) -> None:
        rng, world = self._world.rng, self._world
        one, other = rng.sample(world.nodes, 2)
        both = rng.random() < 0.4
        world.judge.note("broker %d cannot reach broker %d%s", one, other, ", nor the other way round" if both else "")
        world.network.separate(f"broker-{one}", f"broker-{other}", both_ways=both)
        world.loop.call_later(rng.choice((0.05, 0.5, 3.0, 15.0)) * rng.random(), world.network.heal)

    async def _slow(self) -> None:
        rng, world = self._world.rng, self._world
        one, other = rng.sample([*(f"broker-{each}" for each in world.nodes), *world.controller_names[:1]], 2)
        ns = rng.choice((5_000_000, 50_000_000, 300_000_000))
        world.judge.note("what %s sends to %s takes %d ms longer", one, other, ns // 1_000_000)
        world.network.slow_down(one, other, ns)

    async def _cut_from_controllers(self) -> None:
        """A broker does not reach controllers for a while."""
        rng, world, node = self._world.rng, self._world, self._target()
        if not self._may_lose(node):
            return
        which = rng.sample(world.controller_names, rng.choice((1, 2, 3, 3)))
        seconds = rng.choice((0.05, 0.5, world.session_ms / 1000 + 2.0)) * rng.random()
        world.judge.note("broker %d does not reach %s for %.3f s", node, sorted(which), seconds)
        world.controllers_lost_at = world.loop.time() + seconds
        for each in which:
            world.network.separate(f"broker-{node}", each, both_ways=rng.random() < 0.7)
        world.loop.call_later(seconds, world.network.heal)

    async def _prefer(self) -> None:
        """Preferred leaders are to be elected."""
        self._restarts.append(self._world.loop.create_task(self._elect()))

    async def _elect(self) -> None:
        world = self._world
        there = sorted(world.brokers)
        connection = await world.connect(world.rng.choice(there), "elector", "elector") if there else None
        if connection is not None:
            connection.may_be_closed = True
            await connection.answer(wire.ElectLeadersRequest(topic_partitions=None, timeout_ms=5_000), ELECT_VERSION)
            if not connection.gone:
                connection.finish(world.rng)

    # Controllers

    def _controller(self) -> int | None:
        """The one that a fault is about: most often the active one; None while another one is away."""
        leader = self._world.model.leader()
        if self._away:
            return None
        if leader is not None and self._world.rng.random() < 0.7:
            return leader.node_id
        return self._world.rng.choice(VOTERS)

    async def _kill_controller(self) -> None:
        world, node_id = self._world, self._controller()
        if node_id is None:
            return
        world.judge.note("controller %d is killed", node_id)
        self._away.add(node_id)
        world.controllers_lost_at = world.loop.time()
        world.quorum[node_id].kill()
        world.model.kill(node_id)
        seconds = world.rng.choice((0.1, 1.0, 6.0)) * world.rng.random()
        world.loop.call_later(seconds, self._bring_back, node_id)

    async def _part_controller(self) -> None:
        """What it writes meanwhile is taken back."""
        world, node_id = self._world, self._controller()
        if node_id is None:
            return
        world.judge.note("controller %d does not reach the others", node_id)
        self._away.add(node_id)
        world.controllers_lost_at = world.loop.time()
        world.model.part(node_id)
        seconds = world.rng.choice((0.1, 1.0, 6.0)) * world.rng.random()
        world.loop.call_later(seconds, self._bring_back, node_id)

    def _bring_back(self, node_id: int) -> None:
        world, controllers = self._world, self._world.model
        if node_id not in self._away:
            return
        self._away.discard(node_id)
        world.judge.note("controller %d is there again", node_id)
        if not controllers.nodes[node_id].is_up:
            world.quorum[node_id].start()
            controllers.come_back(node_id)
        controllers.join()

    async def _snapshot(self) -> None:
        """Controllers have a snapshot, and no log below it any more."""
        for each in VOTERS:
            self._world.model.take_snapshot(each)
