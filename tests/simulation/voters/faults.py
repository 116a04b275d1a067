"""What happens to controllers of the product and to the brokers under them, and the end of it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING

from kbroker.errors import KafkaError
from kbroker.schemas import wire
from tests.simulation.kraft.faults import KRaftFaults

if TYPE_CHECKING:
    from tests.simulation.loop import Process
    from tests.simulation.voters.cluster import QuorumCluster
    from tests.simulation.voters.nodes import ControllerProcess

AT_ACTIVE = 0.6
"""The share of faults that are about the active controller."""
MOST_AWAY = 2
AFTER_ELECTION, ELECTION_SECONDS = 0.7, 5.0


class QuorumFaults(KRaftFaults):
    """Those of one history.  At times no majority of the controllers is there, for some seconds."""

    _world: QuorumCluster
    storms = 12

    def __init__(self, world: QuorumCluster) -> None:
        self._held: dict[str, Process] = {}
        self._changes: list[asyncio.Task[None]] = []
        """Of voters; they end with the process that was asked."""
        super().__init__(world)

    def _all_kinds(self) -> tuple[Callable[[], Awaitable[None]], ...]:
        of_brokers = (self._kill, self._stop, self._hold, self._cut, self._prefer, self._slow)
        if self._world.is_combined:
            return (*of_brokers, self._kill, self._cut_controllers, self._kill_two)
        return (
            *of_brokers, self._cut_from_controllers, self._kill_controller, self._kill_controller, self._lose_power,
            self._stop_controller, self._hold_controller, self._cut_controllers, self._slow_disk, self._lose_two,
            *([self._change_voters] * 2 if self._world.is_dynamic else ()),
        )  # fmt: skip

    async def _next_moment(self) -> None:
        """At times when a controller has come to be active, or a while later."""
        world = self._world
        if world.rng.random() < AFTER_ELECTION:
            until = world.loop.time() + ELECTION_SECONDS
            while world.active() is None and world.loop.time() < until:
                await asyncio.sleep(0.005)
        await super()._next_moment()

    def _target(self) -> int:
        world = self._world
        active = world.active() if world.is_combined else None
        return active if active is not None and world.rng.random() < AT_ACTIVE / 2 else super()._target()

    async def _kill_two(self) -> None:
        """Brokers that are two controllers of three."""
        await self._kill()
        await self._kill()

    # Controllers that are no brokers

    def _one(self) -> ControllerProcess | None:
        """The one that a fault is about, most often the active one; None where too many are away."""
        world = self._world
        there = [
            each for each in world.others.values() if each.is_up and not each.stops and each.name not in self._held
        ]
        if len(world.others) - len(there) >= MOST_AWAY:
            return None
        active = world.active()
        if active is not None and world.rng.random() < AT_ACTIVE and world.others[active] in there:
            return world.others[active]
        return world.rng.choice(there)

    def _returns(self, one: ControllerProcess) -> None:
        """Start it again a while later."""
        world = self._world
        world.leader_changes()
        seconds = world.rng.choice((0.0, 0.1, 1.0, 6.0)) * world.rng.random()
        self._restarts.append(world.loop.create_task(self._start_again(one, seconds)))

    async def _start_again(self, one: ControllerProcess, seconds: float) -> None:
        await asyncio.sleep(seconds)
        if not one.is_up:
            one.start()

    async def _kill_controller(self) -> None:
        if (one := self._one()) is not None:
            one.kill(has_power=True)
            self._returns(one)

    async def _lose_power(self) -> None:
        if (one := self._one()) is not None:
            one.kill(has_power=False)
            self._returns(one)

    async def _lose_two(self) -> None:
        for _ in range(2):
            await self._lose_power()

    async def _stop_controller(self) -> None:
        if (one := self._one()) is not None:
            one.stops = True
            self._restarts.append(self._world.loop.create_task(self._stop_one(one)))

    async def _stop_one(self, one: ControllerProcess) -> None:
        await one.stop()
        self._returns(one)

    async def _hold_controller(self) -> None:
        """It does nothing for a while, at times until another one leads."""
        world, one = self._world, self._one()
        if one is None or one.process is None:
            return
        seconds = world.rng.choice((0.05, 0.5, 3.0, 8.0)) * world.rng.random()
        world.judge.note("%s is held up for %.3f s", one.name, seconds)
        world.leader_changes()
        self._held[one.name] = one.process
        world.loop.hold(one.process)
        world.loop.call_later(seconds, self._let_go, one.name, one.process)

    def _let_go(self, name: str, process: Process) -> None:
        world = self._world
        if self._held.get(name) is process:
            del self._held[name]
            if process.alive and process.backlog is not None:
                world.judge.note("%s goes on", name)
                world.leader_changes()
                world.loop.release(process)

    async def _slow_disk(self) -> None:
        """Each call of its disk takes long, for a while."""
        world, one = self._world, self._one()
        if one is not None:
            ns = world.rng.choice((20_000_000, 300_000_000, 2_000_000_000))
            seconds = world.rng.choice((0.5, 3.0, 8.0)) * world.rng.random()
            world.judge.note("each call of the disk of %s takes up to %d ms", one.name, ns // 1_000_000)
            world.loop.disk.slow_ns[one.name] = ns
            world.loop.call_later(seconds, world.loop.disk.slow_ns.pop, one.name, None)

    async def _change_voters(self) -> None:
        """The active controller removes a voter, itself at times, or takes one back that it has removed."""
        world, active = self._world, self._world.active()
        one = None if active is None else world.others.get(active)
        if one is None or one.process is None or one.watch is None or one.watch.replica is None:
            return
        replica = one.watch.replica
        voters = replica.replica.history.last.by_id
        absent = [each for each in world.voter_ids if each not in voters]
        if absent:
            back = world.rng.choice(absent)
            world.judge.note("%s takes voter %d back", one.name, back)
            asked: Coroutine[object, object, object] = replica.add_voter(world.addition(back), 1)
        else:
            gone = voters[world.rng.choice(list(voters))].key
            world.judge.note("%s removes voter %d", one.name, gone.node_id)
            removal = wire.RemoveRaftVoterRequest(
                cluster_id=None, voter_id=gone.node_id, voter_directory_id=gone.directory_id
            )
            asked = replica.remove_voter(removal, 0)
        self._changes.append(one.process.call(world.loop.create_task, self._changed(asked)))

    @staticmethod
    async def _changed(asked: Coroutine[object, object, object]) -> None:
        with contextlib.suppress(KafkaError):
            await asked

    # Controllers of either kind

    async def _cut_controllers(self) -> None:
        """One does not reach one other, or all others, for a while; or they do not reach it, or both."""
        world, rng = self._world, self._world.rng
        names, active = world.controller_names, world.active()
        one = rng.choice(names)
        if active is not None and rng.random() < AT_ACTIVE:
            one = names[world.voter_ids.index(active)]
        others = [each for each in names if each != one]
        if rng.random() < 0.3:
            others = [rng.choice(others)]
        way = rng.choice(("out", "in", "both"))
        seconds = rng.choice((0.1, 1.0, 6.0)) * rng.random()
        world.judge.note("%s is cut off (%s) from %s for %.3f s", one, way, others, seconds)
        world.controllers_lost_at = max(world.controllers_lost_at, world.loop.time() + seconds)
        for each in others:
            if way != "in":
                world.network.separate(one, each, both_ways=False)
            if way != "out":
                world.network.separate(each, one, both_ways=False)
        world.loop.call_later(seconds, world.network.heal)

    # The end

    async def _calm(self) -> None:
        world = self._world
        for name, process in list(self._held.items()):
            self._let_go(name, process)
        for each in world.others.values():
            world.loop.disk.slow_ns.pop(each.name, None)
        await super()._calm()
        world.leader_changes()


__all__ = ["QuorumFaults"]
