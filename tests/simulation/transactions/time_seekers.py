"""A client that looks up times in partitions that transactions write to (ListOffsets with READ_COMMITTED).

What it is told lies below the last stable offset, though later records are committed to the log, and is the first of
that time.  It asks for the last stable offset before and behind that, over the same connection, which is served in
order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kbroker.schemas import wire
from tests.simulation.client import Client

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.simulation.connection import ModelConnection
    from tests.simulation.judge import Partition
    from tests.simulation.world import World

TAKING_PART = 0.5
"""The share of histories with transactions that have such a client."""
VERSIONS = (2, 4, 5, 6, 7, 8)
LATEST, NOTHING = -1, -1
READ_COMMITTED = 1
RECENT_MS = (5, 50, 1000)


class TimeSeeker(Client):
    """See the module."""

    is_reader = True

    def __init__(self, world: World, requests: int) -> None:
        super().__init__(world, "time-seeker", world.later)
        self.requests = requests
        self.version = self.rng.choice(VERSIONS)
        self.topics = [each for each in world.topics.values() if not each.is_old]

    async def run(self) -> None:
        rng, world = self.rng, self.world
        while self.requests > 0 and not world.writers_done:
            topic = rng.choice(self.topics)
            partition = (topic.name, rng.randrange(topic.partitions))
            connection = await self.connect(await world.leader(partition))
            if connection is not None:
                for _ in range(rng.randint(1, 5)):
                    self.requests -= 1
                    if connection.gone or not await self._seek(connection, partition):
                        break
                    await self.pause()
                if not connection.gone:
                    connection.finish(rng)
            world.forget_leader(partition)
            await self.try_later()

    async def _seek(self, connection: ModelConnection, partition: Partition) -> bool:
        """Whether the broker goes on to lead the partition."""
        world = self.world
        times = self.judge.ledger(partition).times
        recent = list(times.values())[-20:]
        timestamp = world.now_ms() - int(self.rng.choice(RECENT_MS) * self.rng.random())
        if recent and self.rng.random() < 0.5:
            timestamp = self.rng.choice(recent)
        sent_at, term = world.loop.time(), world.witness.term(connection.node, partition)
        known = dict(times)
        rows: list[Any] = []
        for asked in (LATEST, timestamp, LATEST):
            connection.ask(self._request(partition, asked), self.version, rows.append)
        connection.flush()
        while len(rows) < 3 and not connection.gone:
            await connection.change()
        if any(each is None for each in rows) or len(rows) < 3:
            return False
        found = [answer.topics[0].partitions[0] for answer in rows]
        for each in found:
            if each.error_code != 0:
                excused = world.witness.excuses(each.error_code, partition, connection.node, sent_at)
                if not (excused and world.tolerates(each.error_code, partition)):
                    self.judge.fail(f"{connection.name}: {partition} answers {each}")
                return False
        if world.witness.term(connection.node, partition) == term:
            self.judge_answers(connection.name, timestamp, found, known)
        return True

    def judge_answers(self, who: str, timestamp: int, found: Sequence[Any], known: dict[int, int]) -> None:
        """The last stable offset, what was found, and the last stable offset again; `known`: times by offset."""
        before, behind = found[0].offset, found[2].offset
        told, offset = found[1].timestamp, found[1].offset
        what = f"{who}: time {timestamp} is found at {offset}, {told}; {before} to {behind} is stable"
        if behind < before or offset >= behind:
            self.judge.fail(what)
        if offset != NOTHING and (told < timestamp or known.get(offset, told) != told):
            self.judge.fail(f"{what}, and {known.get(offset)} is the time there")
        bound = before if offset == NOTHING else min(offset, before)
        first = min((at for at, time in known.items() if at < bound and time >= timestamp), default=None)
        if first is not None:
            self.judge.fail(f"{what}, and {first} has {known[first]}")

    def _request(self, partition: Partition, timestamp: int) -> Any:
        request = wire.ListOffsetsRequest
        row = request.ListOffsetsPartition(partition_index=partition[1], timestamp=timestamp)
        topics = [request.ListOffsetsTopic(name=partition[0], partitions=[row])]
        return request(replica_id=-1, isolation_level=READ_COMMITTED, topics=topics)


def draw_time_seekers(world: World, *, has_transactions: bool) -> list[Client]:
    """Those of a history, mostly none."""
    if not has_transactions or world.later.random() > TAKING_PART:
        return []
    return [TimeSeeker(world, world.later.choice((20, 100)))]


__all__ = ["TimeSeeker", "draw_time_seekers"]
