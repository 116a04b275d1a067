"""Controllers as processes of the simulated machine: each has a disk of its own, which outlives it."""

from __future__ import annotations

import contextlib
import logging
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from kbroker.assembly.controller_node import ControllerNode
from kbroker.config import BrokerConfig
from tests.simulation.loop import Process
from tests.simulation.voters.watched import Watch

if TYPE_CHECKING:
    import asyncio

    from tests.simulation.voters.cluster import QuorumCluster


class ControllerProcess:
    """One controller, from its first start on."""

    def __init__(self, world: QuorumCluster, node_id: int) -> None:
        self.node_id = node_id
        self.name = f"controller-{node_id}"
        self.process: Process | None = None
        self.watch: Watch | None = None
        self.stops = False
        """Whether it has been told to stop, and is about to."""
        self._world = world
        self._node: ControllerNode | None = None
        self._life = 0
        self._tasks: list[asyncio.Task[None]] = []
        """Those of lives that have ended stay: a task that goes before its end complains."""

    @property
    def is_up(self) -> bool:
        """Whether its process is there."""
        return self.process is not None

    @property
    def is_active(self) -> bool:
        """Whether it decides by now."""
        return self.is_up and self.watch is not None and self.watch.is_active()

    @property
    def folder(self) -> Path:
        """Its disk."""
        return self._world.folder / f"{self.name}-{self._life}"

    def start(self) -> None:
        """Begin a life; whether it has come to its end is seen by who leads."""
        world = self._world
        world.judge.note("%s starts", self.name)
        process = self.process = Process(self.name)
        watch = self.watch = Watch(world, self.name)
        world.format_controller(self.node_id, str(self.folder))
        config = BrokerConfig.from_mapping(world.controller_settings(self.node_id, str(self.folder)))
        node = self._node = ControllerNode(
            config, world.loop, make_replica=watch.make_replica, make_controller=watch.make_controller
        )
        self._begin(process, self._run(node))

    def _begin(self, process: Process, running: object) -> asyncio.Task[None]:
        task: asyncio.Task[None] = process.call(self._world.loop.create_task, running)
        self._tasks.append(task)
        return task

    async def _run(self, node: ControllerNode) -> None:
        world = self._world
        try:
            await node.start()
            await node.node.stopping.wait()
        except Exception as error:
            self._fail(f"cannot start: {error!r}", error)
        if node.node.failed:
            self._fail(f"halts: {node.readiness.text.replace(str(world.folder), '')}", None)

    def _fail(self, what: str, error: BaseException | None) -> None:
        loop = self._world.loop
        loop.failures.append(f"{self.name} {what}")
        loop.first_error = loop.first_error or error
        loop.stop()

    def kill(self, *, has_power: bool) -> None:
        """End it from one moment to the next, with its machine where that has no power."""
        world, process, node = self._world, self.process, self._node
        assert process is not None
        assert node is not None
        world.judge.note("%s %s", self.name, "is killed" if has_power else "loses its power")
        world.garbage.look()
        world.garbage.broker_goes()
        self.process = None
        world.network.end_process(process)
        before = self.folder
        self._life += 1
        copy = world.loop.disk.after_kill if has_power else world.loop.disk.after_power_cut
        copy(before, self.folder, world.rng)
        self.dispose()
        shutil.rmtree(before)

    async def stop(self) -> None:
        """A stop in order."""
        world, process, node = self._world, self.process, self._node
        assert process is not None
        assert node is not None
        world.judge.note("%s stops", self.name)
        world.garbage.look()
        world.garbage.broker_goes()
        self.stops = True
        node.node.stopping.set()
        await self._begin(process, node.stop())
        self.process, self.stops = None, False
        world.network.end_process(process)
        world.judge.note("%s has stopped", self.name)

    def dispose(self) -> None:
        """Give back what a life holds that is over."""
        node, watch = self._node, self.watch
        if node is None or watch is None:
            return
        try:
            node.node.listeners.stop_accepting()
            if watch.replica is not None:
                watch.replica.replica.log.directory.close()
            node._directory.release()
        except Exception:
            logging.getLogger(__name__).debug("a controller that failed cannot be closed", exc_info=True)
        with contextlib.suppress(Exception):
            node.node.listeners.cold_reads.shutdown(wait=False)


__all__ = ["ControllerProcess"]
