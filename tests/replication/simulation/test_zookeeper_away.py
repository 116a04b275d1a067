"""ZooKeeper is away for an hour of virtual time: brokers serve on what they know, refuse what needs it, let nothing
pile up, and come back by themselves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from kbroker.cluster.requests import ElectionType, NewTopic
from kbroker.cluster.zookeeper import paths
from kbroker.cluster.zookeeper.session import ConnectionLossError
from kbroker.errors import KafkaError, NotControllerError
from kbroker.replication.partition import Role
from kbroker.storage.log.log_validator import AppendOrigin
from tests.replication.simulation.history import NODES, Scale
from tests.replication.simulation.virtual_loop import run_virtually
from tests.replication.simulation.zookeeper_history import ZooKeeperHistory
from tests.replication.simulation.zookeeper_node import ZooKeeperNode
from tests.storage.batches import batch

HOUR = 3600.0
STEP = 20.0


class Quiet(ZooKeeperHistory):
    """Brokers as slow to fetch and to drop as real ones, so that an hour passes quickly."""

    def make_node(self, node_id: int, directory: Path, release: str) -> ZooKeeperNode:
        node = super().make_node(node_id, directory, "3.9")
        assert isinstance(node, ZooKeeperNode)
        node.max_lag, node.wait_seconds = 30.0, 0.5
        return node

    def leader(self) -> ZooKeeperNode:
        return next(
            self.node(each)
            for each in NODES
            if (found := self.nodes[each].hosted()) is not None and found.role is Role.LEADER
        )

    def produce(self, *, by_all: bool) -> list[KafkaError | None]:
        """What comes of it stands in the list."""
        node = self.leader()
        outcome: list[KafkaError | None] = []
        partition = node.hosted()
        assert partition is not None
        result = node.replicas.append(partition, batch([b"x"]), origin=AppendOrigin.CLIENT)
        partition.wait(result.last_offset, by_all, outcome.append)
        return outcome

    async def until(self, condition: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
        deadline = self.loop.time() + seconds
        while not condition():
            assert self.loop.time() < deadline, what
            await asyncio.sleep(0.1)


async def check_refusals(node: ZooKeeperNode) -> None:
    """What needs ZooKeeper is answered at once."""
    controller, new = node.controller, NewTopic("u", 1, 1)
    with pytest.raises(NotControllerError):
        await controller.create_topics([new])
    with pytest.raises(NotControllerError):
        await controller.elect_leaders(ElectionType.PREFERRED, None)
    with pytest.raises(ConnectionLossError):
        await controller.auto_create_topics(["u"])


@pytest.mark.parametrize("ends", [True, False], ids=["sessions end", "sessions outlive it"])
def test_an_hour_without_zookeeper(tmp_path: Path, ends: bool, caplog: pytest.LogCaptureFixture) -> None:
    """An outage of ZooKeeper would become one of the brokers, or would have to be mended by hand."""
    world = Quiet(5, tmp_path, Scale(breaks=0.0))

    async def main() -> None:
        await world.begin()
        await world.until(lambda: all(world.nodes[each].hosted() for each in NODES), "a replica is missing")
        epochs = {each: world.node(each).broker_epoch() for each in NODES}
        for each in NODES:
            session = world.session(each)
            if ends:
                session.drop()
            else:
                session.suspend()
        assert world.active is None
        leader = world.leader()
        follower = next(each for each in NODES if each != leader.node_id)
        began = world.loop.time()
        sizes: list[tuple[int, int]] = []
        waits: list[list[KafkaError | None]] = []
        calls = {each: world.session(each).calls for each in NODES}
        while world.loop.time() < began + HOUR - 10 * STEP:
            acknowledged = [world.produce(by_all=by_all) for by_all in (True, False)]
            await asyncio.sleep(STEP)
            assert acknowledged == [[None], [None]], "records of the whole ISR are acknowledged"
            for each in NODES:
                await check_refusals(world.node(each))
            sizes.append((len(asyncio.all_tasks()), len(world.loop._scheduled)))  # type: ignore[attr-defined]
        # A follower dies, which nobody can take out of the ISR now.
        caplog.clear()
        with caplog.at_level(logging.INFO):
            world.crash(follower, loses=False)
            while world.loop.time() < began + HOUR:
                waits.append(world.produce(by_all=True))
                await asyncio.sleep(STEP)
                sizes.append((len(asyncio.all_tasks()), len(world.loop._scheduled)))  # type: ignore[attr-defined]
        assert not any(waits), "what the whole ISR does not have is not acknowledged"
        told = [each for each in caplog.records if "does not take ISR changes" in each.message]
        assert len(told) == 1, "an hour of words"
        assert max(tasks for tasks, _ in sizes) <= sizes[0][0] + 10, "tasks pile up"
        assert max(timers for _, timers in sizes) <= sizes[0][1] + 200, "timers pile up"
        asked = {each: world.session(each).calls - calls[each] for each in NODES}
        assert all(count < 3 * HOUR / STEP for count in asked.values()), f"ZooKeeper is asked again and again: {asked}"
        for each in NODES:
            if each != follower:
                world.session(each).resume()
        await world.until(lambda: world.active is not None, "there is no controller")
        await world.until(lambda: sorted(world.isr()) == sorted({*NODES} - {follower}), "the ISR stays as it was")
        await world.until(lambda: all(waits), "what waited is not acknowledged")
        for each in {*NODES} - {follower}:
            assert (world.node(each).broker_epoch() > epochs[each]) is ends, "a new session has a new epoch"
            assert world.ensemble.nodes[paths.broker(each)].czxid == world.node(each).broker_epoch()
        world._start(follower)
        await world.until(lambda: len(world.isr()) == len(NODES), "the follower does not come back")

    run_virtually(main(), world.loop)
    for node in world.nodes.values():
        node.logs.close()
    assert not world.failures, world.failures
