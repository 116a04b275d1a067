"""What happens to the workers of a host: processes die, one or several, are held up, hang and are killed by the
supervisor; the power goes; what they say to each other is late, or lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from kbroker.cluster.workers.messages import Gone, encode
from kbroker.replication.partition import Role
from kbroker.types import TopicPartition
from tests.simulation.loop import Process

if TYPE_CHECKING:
    from tests.simulation.workers import Workers

STORMS = 5
GONE_WITHIN_SECONDS = 2.0
"""Within so long the controller has taken a worker out whose process has ended, if it does nothing else."""


class WorkerFaults:
    """Those of one history, of which most have but a few kinds."""

    def __init__(self, world: Workers) -> None:
        self._world = world
        self._rng = rng = world.rng
        self.is_without_power = False
        """Whether processes end now because the machine does."""
        self._session = rng.choice((1.0, 3.0, 9.0))
        self._restarts: list[asyncio.Task[None]] = []
        kinds: tuple[Callable[[], Awaitable[None]], ...] = (
            self._kill, self._kill, self._kill_first, self._kill_some, self._cut_power, self._hold, self._hang,
            self._stop, self._slow, self._cut, self._lose_link,
        )  # fmt: skip
        self._kinds = rng.sample(kinds, rng.randint(1, 6))

    async def happen(self) -> None:
        """All of a history."""
        world, rng = self._world, self._rng
        if not world.fails:
            return
        for _ in range(rng.randint(1, STORMS)):
            await world.next_moment(rng.choice((0.01, 0.1, 1.0)) * rng.random())
            if world.writers_done:
                break
            if world.disks.take_part:
                await self._all_are_back()
                behind = world.loop.create_task(self._kill_behind_first())
                has_happened = await world.disks.happen()
                behind.cancel()
                if has_happened:
                    continue
            for _ in range(rng.randint(1, 3)):
                await rng.choice(self._kinds)()
                await asyncio.sleep(rng.choice((0.0, 0.003, 0.03, 0.3)) * rng.random())
        await self._all_are_back()
        world.network.heal()

    async def _all_are_back(self) -> None:
        restarts, self._restarts = self._restarts, []
        await asyncio.gather(*restarts)

    def _some(self) -> list[int]:
        """Workers that serve."""
        return [node for node in self._world.nodes if self._world.is_there(node)]

    # Processes end

    async def _kill(self) -> None:
        if found := self._some():
            await self._crash(self._rng.choice(found))

    async def _kill_first(self) -> None:
        """The one that keeps the metadata."""
        if self._world.is_there(1):
            await self._crash(1)

    async def _kill_some(self) -> None:
        """All of them at times."""
        found = self._some()
        if found:
            for node in self._rng.sample(found, self._rng.randint(1, len(found))):
                await self._crash(node)

    async def _kill_behind_first(self) -> None:
        """At times another process ends when worker 1 is about to be back, perhaps with less than it had."""
        world, rng = self._world, self._rng
        if rng.random() < 0.4:
            while not world.starts(1):
                await asyncio.sleep(0.005)
            await asyncio.sleep(rng.choice((0.001, 0.01, 0.05)) * rng.random())
            others = [node for node in self._some() if node != 1]
            if others:
                # To its end, whatever becomes of this.
                self._restarts.append(world.loop.create_task(self._crash(rng.choice(others))))

    async def _crash(self, node: int) -> None:
        world = self._world
        await world.crash(node)
        self._is_seen_to_be_gone(node)
        self._restarts.append(world.loop.create_task(self._restart(node)))

    async def _restart(self, node: int) -> None:
        world, rng = self._world, self._rng
        await asyncio.sleep(rng.choice((0.0, 0.1, 1.0, 10.0)) * rng.random())
        if rng.random() < 0.1:
            world.loop.call_later(rng.choice((0.001, 0.05, 0.5)) * rng.random(), world.kill_start, node)
        await world.again(node)

    def _is_seen_to_be_gone(self, node: int) -> None:
        """The end of a connection is the end of its worker, at once: others lead, where they may."""
        world = self._world
        crashes, first = world.crashes[node], world.brokers.get(1)

        def look() -> None:
            image = world.image
            if world.brokers.get(1) is not first or not world.is_there(1) or world.crashes[node] != crashes:
                return
            if node in world.processes or image is None:
                return
            leads = [
                topic.name for topic in image.topics.values() if any(row.leader == node for row in topic.partitions)
            ]
            if leads:
                world.judge.fail(f"worker {node} ended {GONE_WITHIN_SECONDS} s ago, and leads {leads}")

        if first is not None and node != 1:
            world.loop.call_later(GONE_WITHIN_SECONDS, look)

    async def _stop(self) -> None:
        """Somebody tells one worker to stop, and the supervisor starts it again."""
        found = self._some()
        if found:
            node = self._rng.choice(found)
            world = self._world
            await world.stop(node)
            self._restarts.append(world.loop.create_task(self._restart(node)))

    async def _cut_power(self) -> None:
        """The machine ends; what was synced is there when it begins again."""
        world, rng = self._world, self._rng
        if not world.syncs_what_it_acknowledges(1):
            return
        until = world.loop.time() + 2.0
        while not self._is_durable():
            if world.loop.time() > until or world.writers_done:
                return
            await asyncio.sleep(0.01 * rng.random())
        self.is_without_power = True
        for node in rng.sample(world.nodes, len(world.nodes)):
            await world.crash(node)
            self._restarts.append(world.loop.create_task(self._restart(node)))
        self.is_without_power = False
        # They begin together, and find out what each of them has left.
        world.torn.clear()

    def _is_durable(self) -> bool:
        """Whether of each partition one that may lead has on its disk what is committed: one that has just come to lead
        in the place of one that died may have yet to sync what that had synced."""
        world = self._world
        image = world.image
        if image is None or len(self._some()) < len(world.nodes):
            return False
        for topic in image.topics.values():
            for row in topic.partitions:
                hosted = [
                    world.brokers[node].services.replica_manager.hosted(TopicPartition(topic.name, row.partition))
                    for node in row.isr
                ]
                there = [each for each in hosted if each is not None]
                if not any(each.role is Role.LEADER for each in there):
                    return False
                committed = max(world.states.committed(each) for each in there)
                ends = [
                    each.log.log_end_offset
                    if each.log.committer is None
                    else each.log.committer.bound(each.log.log_end_offset)
                    for each in there
                ]
                if max(ends) < max(committed, *(each.log.high_watermark for each in there)):
                    return False
        return True

    # Processes do nothing

    async def _hold(self) -> None:
        """For less than a session."""
        found = self._some()
        if found:
            world, node = self._world, self._rng.choice(found)
            seconds = self._rng.choice((0.05, 0.5, self._session)) * self._rng.random()
            world.judge.note("worker %d is held up for %.3f s", node, seconds)
            process = world.processes[node]
            world.loop.hold(process)
            world.loop.call_later(seconds, self._go_on, node, process)

    def _go_on(self, node: int, process: Process) -> None:
        world = self._world
        if process.alive and process.backlog is not None:
            world.judge.note("worker %d goes on", node)
            world.loop.release(process)
            world.nothing_was_answered(node)

    async def _hang(self) -> None:
        """For good: the supervisor kills it, and at times it cannot end, as it waits for a disk."""
        found = self._some()
        if found:
            node = self._rng.choice(found)
            self._restarts.append(self._world.loop.create_task(self._hang_until_killed(node)))

    async def _hang_until_killed(self, node: int) -> None:
        world, rng = self._world, self._rng
        process = world.processes[node]
        world.judge.note("worker %d hangs", node)
        world.loop.hold(process)
        await asyncio.sleep(self._session)
        if world.processes.get(node) is not process:
            return  # It has ended otherwise.
        world.judge.note("the supervisor gives worker %d up", node)
        if node != 1:
            world.network.local.send(world.socket_name, asyncio.Protocol, encode(Gone(process.number)))
        if rng.random() < 0.5:
            await asyncio.sleep(5.0 * rng.random())
        if world.processes.get(node) is process:
            await world.crash(node)
            self._is_seen_to_be_gone(node)
            await self._restart(node)

    # What they say to each other

    async def _slow(self) -> None:
        one, other = self._rng.sample(self._world.nodes, 2)
        ns = self._rng.choice((5_000_000, 50_000_000, 300_000_000))
        self._world.judge.note("what worker %d sends to worker %d takes %d ms longer", one, other, ns // 1_000_000)
        self._world.network.slow_down(f"broker-{one}", f"broker-{other}", ns)

    async def _cut(self) -> None:
        one, other = self._rng.sample(self._world.nodes, 2)
        self._world.judge.note("worker %d cannot reach worker %d", one, other)
        self._world.network.separate(f"broker-{one}", f"broker-{other}", both_ways=self._rng.random() < 0.4)
        self._world.loop.call_later(self._rng.choice((0.05, 0.5, 3.0)) * self._rng.random(), self._world.network.heal)

    async def _lose_link(self) -> None:
        """A worker's connection to the controller ends alone."""
        world = self._world
        node = self._rng.choice(world.nodes[1:])
        if node in world.processes and 1 in world.processes:
            for end in world.network.local.ends(world.processes[node], world.processes[1]):
                world.judge.note("worker %d loses its connection to the controller", node)
                end.reset()


__all__ = ["WorkerFaults"]
