"""Scripted histories of workers: what their controller does while they start."""

from __future__ import annotations

import asyncio
from typing import Any

from kbroker.schemas import wire
from kbroker.types import TopicPartition
from tests.simulation.playing import play
from tests.simulation.workers import Workers
from tests.simulation.world import Scale

CALM = Scale(nodes=3, crashes=0.0)
NAME = TopicPartition("t", 0)


class ThreeWorkers(Workers):
    """`story` is what happens."""

    async def run(self) -> None:
        await self.start_all()
        await self.story()

    async def story(self) -> None:
        """Of this history."""
        raise NotImplementedError

    async def ask(self, node: int, request: Any, version: int) -> Any:
        """The answer of a worker."""
        connection = await self.connect(node, "admin", "admin")
        assert connection is not None
        answer = await connection.answer(request, version)
        connection.finish(self.rng)
        return answer

    async def make(self, node: int, replicas: list[int]) -> None:
        """Make the topic, with a partition on these workers."""
        request = wire.CreateTopicsRequest
        assigned = request.CreatableReplicaAssignment(partition_index=0, broker_ids=replicas)
        row = request.CreatableTopic(name="t", num_partitions=-1, replication_factor=-1, assignments=[assigned])
        answer = await self.ask(node, request(topics=[row], timeout_ms=10_000), 7)
        assert answer.topics[0].error_code == 0, answer


def seed_of(count: int) -> int:
    """One whose host has so many workers."""
    return next(seed for seed in range(1000) if Workers.count_of(seed) == count)


class DeletedWhileItStarts(ThreeWorkers):
    """A topic is deleted and made again while worker 1 waits for worker 2."""

    async def story(self) -> None:
        await self.make(1, [1, 2, 3])
        await self.crash(1)
        await self.crash(2)
        starting = self.loop.create_task(self.again(1))
        request = wire.DeleteTopicsRequest(topic_names=["t"], timeout_ms=10_000)
        while (await self.ask(3, request, 5)).responses[0].error_code != 0:
            await asyncio.sleep(0.05)
        assert 1 not in self.brokers, "it is through with its start"
        await self.make(3, [1, 3])
        await self.again(2)
        await starting
        for node in (1, 3):
            while (hosted := self.brokers[node].services.replica_manager.hosted(NAME)) is None:
                await asyncio.sleep(0.05)
            assert self.image is not None
            assert hosted.log.topic_id == self.image.topics["t"].topic_id
        while NAME in self.brokers[2].log_manager.logs:
            await asyncio.sleep(0.05)


def test_a_topic_that_is_deleted_while_a_worker_starts_leaves_no_log_there() -> None:
    """Under its name no other topic could ever be made: its worker would neither start nor lead it."""
    play(seed_of(3), CALM, DeletedWhileItStarts)


class AskedBehind(ThreeWorkers):
    """Worker 3 learns late what worker 1 decides, and is asked about it."""

    async def story(self) -> None:
        for end in self.network.local.ends(self.processes[3], self.processes[1]):
            end.pause_reading()
            self.loop.call_later(0.2, end.resume_reading)
        await self.make(1, [1, 2])
        assert self.brokers[3].cache.topic("t") is None
        answer = await self.ask(3, wire.DeleteTopicsRequest(topic_names=["t"], timeout_ms=10_000), 5)
        assert answer.responses[0].error_code == 0, answer


def test_a_worker_that_has_yet_to_learn_of_a_topic_asks_the_controller_about_it() -> None:
    """It would say of a topic that another worker has just made that it does not exist, and leave it undeleted."""
    play(seed_of(3), CALM, AskedBehind)
