"""A client that fetches as a follower does, in a way that a leader has to refuse: in an epoch that is over, from an
offset that the leader does not have, or behind an epoch that no record has.

What is refused says nothing of the follower's log: `states.py` holds what a leader believes against what is there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kbroker.error_codes import ErrorCode
from kbroker.schemas import wire
from kbroker.types import TopicPartition
from tests.simulation.client import Client

if TYPE_CHECKING:
    from tests.simulation.connection import ModelConnection
    from tests.simulation.judge import Partition
    from tests.simulation.world import World

TAKING_PART = 0.3
"""The share of histories of several brokers with such a client."""
FETCH_WITH_LAST_EPOCH = 12
BEYOND = 1000
"""So far behind the leader's end."""
MAX_EPOCH = 2**31 - 1
REFUSALS = frozenset({ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.OFFSET_OUT_OF_RANGE})


class FalseFollower(Client):
    """See the module."""

    def __init__(self, world: World, requests: int) -> None:
        super().__init__(world, "false-follower", world.later)
        self.requests = requests

    async def run(self) -> None:
        rng, world = self.rng, self.world
        while self.requests > 0 and not world.writers_done:
            self.requests -= 1
            topic = rng.choice(list(world.topics.values()))
            partition = (topic.name, rng.randrange(topic.partitions))
            node = await world.leader(partition)
            connection = await self.connect(node)
            if connection is not None:
                for _ in range(rng.randint(1, 4)):
                    await self._fetch(connection, partition)
                if not connection.gone:
                    connection.finish(rng)
            world.forget_leader(partition)
            await self.try_later()

    async def _fetch(self, connection: ModelConnection, partition: Partition) -> None:
        world, node = self.world, connection.node
        broker = world.brokers.get(node)
        replica = None if broker is None else broker.services.replica_manager.hosted(TopicPartition(*partition))
        others = [] if replica is None else [each for each in replica.replicas if each != node]
        if replica is None or not others:
            return
        request = wire.FetchRequest
        row = request.FetchPartition(
            partition=partition[1], fetch_offset=replica.log.log_end_offset + BEYOND, partition_max_bytes=1000
        )
        kind = self.rng.randrange(3)
        if kind == 0:
            row.current_leader_epoch = max(0, replica.leader_epoch - 1)
        elif kind == 1:
            row.current_leader_epoch = replica.leader_epoch
        else:
            row.last_fetched_epoch = MAX_EPOCH
        topics = [request.FetchTopic(topic=partition[0], partitions=[row])]
        asked = request(replica_id=self.rng.choice(others), max_wait_ms=0, min_bytes=0, topics=topics, session_epoch=-1)
        answer: Any = await connection.answer(asked, FETCH_WITH_LAST_EPOCH)
        if answer is None:
            return
        got = answer.responses[0].partitions[0]
        if got.error_code not in REFUSALS and not (got.error_code and world.tolerates(got.error_code, partition)):
            self.judge.fail(f"{connection.name}: a follower of {partition} that has too much is answered {got}")


def draw_false_followers(world: World) -> list[Client]:
    """Those of a history, mostly none."""
    if world.scale.nodes == 1 or not world.has_virtual_time or world.later.random() > TAKING_PART:
        return []
    return [FalseFollower(world, world.later.choice((5, 20)))]


__all__ = ["FalseFollower", "draw_false_followers"]
