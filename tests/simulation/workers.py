"""Histories of the workers of one host: brokers of one cluster without ZooKeeper, of which the first keeps the metadata
and the others follow its images.

Each worker is a process of its own, as `kbroker start --workers` makes them, with the settings that it would have; what
the supervisor does is done here, with its rules (`supervision.worker_life`).
"""

from __future__ import annotations

import asyncio
import math
import os
import random
import socket
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from kbroker.assembly.membership.choice import membership_of
from kbroker.broker import Broker
from kbroker.cluster.workers.worker_slot import WorkerSlot, worker_settings
from kbroker.config import BrokerConfig
from kbroker.errors import KafkaError
from kbroker.supervision.worker_life import WorkerLife
from tests.simulation.broker_settings import PORT, host_of
from tests.simulation.copies import Layout
from tests.simulation.cut_logs import cut_logs
from tests.simulation.features import coordinator_settings
from tests.simulation.loop import Process
from tests.simulation.reading_back import read_back
from tests.simulation.replication_witness import MIN_IN_SYNC
from tests.simulation.several import InForce, Several
from tests.simulation.unix_sockets import UnixSockets
from tests.simulation.worker_faults import WorkerFaults
from tests.simulation.world import Scale

if TYPE_CHECKING:
    from pathlib import Path

    from kbroker.metadata.image import ClusterImage
    from tests.simulation.connection import ModelConnection

WORKERS_SCALE = Scale(nodes=3, requests=400, clients=(5, 60), aborts=0.003, crashes=0.6)
SETTLED_WITHIN_SECONDS = 90.0
COUNTS = (2, 2, 3, 3, 4)
NOBODY = InForce(-1, -1, [])
_hosts = count()


class Workers(Several):
    """Workers 1 to `scale.nodes`, one to three of which follow."""

    def __init__(self, seed: int, folder: Path, scale: Scale) -> None:
        super().__init__(seed, folder, replace(scale, nodes=self.count_of(seed)))
        rng = self.rng
        self.has_features = self.serves_new_groups = True
        self.replicas = rng.choice((1, self.scale.nodes))
        self._shared_settings = coordinator_settings(rng, rng.choice((1, self.replicas)))
        self._host: Mapping[str, str] | None = None
        self.supervisor = Process("supervisor")
        self._process_ids = count(1000)
        self._address = f"@kbroker-simulated-{os.getpid()}-{next(_hosts)}"
        self.network.local = UnixSockets(self.network, self.supervisor)
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind("\0" + self._address[1:])
        self._socket.listen(512)
        self.network.local.hold(self._socket)
        self.socket_name: bytes = self._socket.getsockname()
        self._supervised = {node: WorkerLife() for node in self.nodes}
        self._may_start: dict[int, float] = {}
        self._starting: dict[int, Broker] = {}
        self._start_ends: dict[int, asyncio.Future[None]] = {}
        self._given_up: list[tuple[asyncio.Task[None], Broker]] = []
        """Starts that came to nothing: what waits there does so for ever, and complains when it goes."""
        self.image: ClusterImage | None = None
        """What the controller has published last."""
        self.faults = WorkerFaults(self)
        self.at_end.append(self._settle)

    @staticmethod
    def count_of(seed: int) -> int:
        """How many workers the host of a seed has."""
        return random.Random(seed).choice(COUNTS)

    # What the host is set to

    def address(self, node: int) -> tuple[str, int]:
        return host_of(1), PORT + node - 1

    def settings(self, node: int) -> dict[str, str]:
        """Those of the host, and what is a worker's own."""
        if self._host is None:
            rng = self.rng
            self._host = {
                **super().settings(1),
                "min.insync.replicas": rng.choice(("1", "2")) if self.replicas > 1 else "1",
                "replica.lag.time.max.ms": rng.choice(("500", "5000", "30000")),
                "leader.imbalance.check.interval.seconds": rng.choice(("1", "300")),
            }
        config = BrokerConfig.from_mapping({**self._host, "log.dirs": str(self.folder)})
        return {**self._host, **worker_settings(config, node, self.scale.nodes)}

    @property
    def may_lose_leaders(self) -> bool:
        return self.fails and (self.replicas > 1 or bool(self.administration.topics))

    async def connect(self, node: int, name: str, client_id: str, port: int | None = None) -> ModelConnection | None:
        made = await super().connect(node, name, client_id, port)
        if made is not None and not self.processes[node].serves:
            made.may_be_closed = made.broker_stops = True  # It has been told to stop, and still accepts.
        return made

    # Processes

    def _slot(self, node: int) -> WorkerSlot:
        descriptor = os.dup(self._socket.fileno()) if node == 1 else -1
        return WorkerSlot(node, self.scale.nodes, self._address, descriptor)

    async def start(self, node: int) -> None:
        """As the supervisor does: one that could not start is started again."""
        life = self._supervised[node]
        while not await self._begin(node):
            pause = life.died(self.loop.time())
            if pause is None:
                self.judge.fail(f"worker {node} could not start")
            else:
                await asyncio.sleep(pause)
            life.restarted()
        life.ready(self.loop.time())

    async def _begin(self, node: int) -> bool:
        """Start a worker's process; whether it serves."""
        process = self.processes[node] = Process(f"broker-{node}", next(self._process_ids))
        config = self.config(node)
        self.judge.note("worker %d starts", node)

        async def begin() -> None:
            membership = partial(membership_of, slot=self._slot(node))
            broker = Broker(config, self.loop, make_membership=membership)
            self._starting[node] = broker
            try:
                await broker.start()
            except (KafkaError, OSError, ValueError) as error:
                self.judge.note("worker %d cannot start: %r", node, error)
                await broker.give_up()
                raise

        killed = self._start_ends[node] = self.loop.create_future()
        start = process.call(self.loop.create_task, begin())
        await asyncio.wait((start, killed), return_when=asyncio.FIRST_COMPLETED)
        del self._start_ends[node]
        broker = self._starting.pop(node)
        if killed.done() or start.exception() is not None:
            self._given_up.append((start, broker))
            if not killed.done() and not isinstance(start.exception(), (KafkaError, OSError, ValueError)):
                await start
            self.network.end_process(process)
            self._throw_away(node, broker, has_power=True)
            return False
        self.brokers[node] = broker
        process.serves = True
        if node == 1:
            broker.cache.subscribe(self._published)
            self.image = broker.cache.image
        self.watch(node)
        return True

    def starts(self, node: int) -> bool:
        """Whether a worker's process is there, and does not serve yet."""
        return node in self._starting

    def kill_start(self, node: int) -> bool:
        """Kill a process that starts; whether there is one."""
        if node not in self._starting:
            return False
        self.judge.note("worker %d is killed at its start", node)
        for each in self.connections:
            if each.node == node:
                each.may_be_closed = True
        self.network.end_process(self.processes[node])
        self._start_ends[node].set_result(None)
        return True

    def _published(self, _old: ClusterImage, new: ClusterImage, _delta: object) -> None:
        self.image = new
        for node, broker in new.brokers.items():
            if broker.is_fenced:
                self.away_at[node] = self.loop.time()

    async def crash(self, node: int) -> None:
        await super().crash(node)
        pause = self._supervised[node].died(self.loop.time())
        assert pause is not None
        self._may_start[node] = self.loop.time() + pause

    async def may_return(self, node: int) -> None:
        if node == 1:
            # Nobody takes the controller out of an ISR while it is away; what it has lost it finds out when it is back.
            self.torn.discard(1)
        await super().may_return(node)
        await asyncio.sleep(max(0.0, self._may_start[node] - self.loop.time()))
        self._supervised[node].restarted()

    def loses_power(self, node: int) -> bool:
        return self.faults.is_without_power

    async def fail_at_times(self) -> None:
        await self.faults.happen()

    async def stop(self, node: int) -> None:
        """A worker is told to stop, in order."""
        self.judge.note("worker %d stops", node)
        for each in self.connections:
            if each.node == node:
                each.may_be_closed = each.broker_stops = True
        self.states.look()
        self.crashed_at[node] = math.inf  # What it acknowledges until it has stopped is there.
        self.garbage.look()
        self.garbage.broker_goes()
        process, broker = self.processes[node], self.brokers.pop(node)
        process.serves = False
        broker.node.stopping.set()
        await process.call(self.loop.create_task, broker.stop())
        self.network.end_process(self.processes.pop(node))
        self.crashed_at[node] = self.stopped_at = self.loop.time()
        pause = self._supervised[node].died(self.loop.time())
        assert pause is not None
        self._may_start[node] = self.loop.time() + pause

    async def stop_all(self) -> None:
        """At times the host stops in order, worker 1 first of all, and is started again."""
        if self.rng.random() < 0.3 or self.placing.random() < 0.4:
            # All have the signal before the first has stopped.
            await asyncio.gather(*(self.loop.create_task(self.stop(node)) for node in self.nodes))
            cut_logs(self, self.placing)
            await asyncio.gather(*(self.loop.create_task(self.again(node)) for node in self.nodes))
            await read_back(self)

    async def again(self, node: int) -> None:
        """The supervisor starts a worker again."""
        await self.may_return(node)
        await self.start(node)

    # What is judged

    def in_force(self, topic: str, number: int) -> InForce:
        known = None if self.image is None else self.image.topics.get(topic)
        if known is None or number >= len(known.partitions):
            return NOBODY
        found = known.partitions[number]
        return InForce(found.leader, found.leader_epoch, list(found.isr))

    def isrs(self) -> list[list[int]]:
        image = self.image
        return [] if image is None else [list(row.isr) for each in image.topics.values() for row in each.partitions]

    def layouts_version(self) -> object:
        return None if self.image is None else (id(self.image), self.image.version)

    def layouts(self) -> dict[tuple[str, bytes, int], Layout]:
        image, found = self.image, {}
        for topic in () if image is None else image.topics.values():
            least = int(topic.configs.get(MIN_IN_SYNC) or 1)
            for row in topic.partitions:
                key = (topic.name, topic.topic_id, row.partition)
                found[key] = Layout(row.replicas, row.adding_replicas, row.isr, least, row.isr)
        return found

    def is_there(self, node: int) -> bool:
        return node in self.brokers and self.processes[node].runs

    async def _settle(self) -> None:
        """All workers come to know the same, and all replicas are in sync."""
        until = self.loop.time() + SETTLED_WITHIN_SECONDS
        while (wrong := self._unsettled()) is not None:
            if self.loop.time() > until:
                self.judge.fail(f"the workers do not settle: {wrong}")
            await asyncio.sleep(0.05)

    def _unsettled(self) -> str | None:
        first = self.brokers[1].cache.image
        for node in self.nodes:
            image = self.brokers[node].cache.image
            if image.topics != first.topics or image.brokers != first.brokers or image.configs != first.configs:
                return f"worker {node} has another image than worker 1"
        away = [node for node in self.nodes if node not in first.brokers or first.brokers[node].is_fenced]
        if away:
            return f"the controller takes {away} for gone"
        for topic in first.topics.values():
            for row in topic.partitions:
                if row.leader < 0 or set(row.isr) != set(row.replicas):
                    return f"{topic.name}-{row.partition} is {row}"
        return None


__all__ = ["WORKERS_SCALE", "Workers"]
